package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
)

func (p *Program) accountCommands() []*cli.Command {
	one := func() []cli.Flag {
		return []cli.Flag{
			&cli.StringFlag{Name: "account", Usage: "the account, by id or owner's address"},
			jsonFlag(),
		}
	}
	status := func(status string) func(c *cli.Context, e *env) error {
		return func(c *cli.Context, e *env) error {
			if err := requireFlag(c, "account"); err != nil {
				return err
			}
			return runSetAccountStatus(c.Context, e, accounts.AccountIn{Account: c.String("account"), Status: status})
		}
	}
	return []*cli.Command{
		p.command("create", "create another account", "", func(c *cli.Context, e *env) error {
			if err := requireFlag(c, "owner-email"); err != nil {
				return err
			}
			return runAccountCreate(c.Context, e, newAccountRequest(c))
		}, newAccountFlags()...),
		p.command("list", "list the accounts", "", func(c *cli.Context, e *env) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return runAccountList(c.Context, e)
		}, listFlags()...),
		p.command("suspend", "suspend an account: no log-ins, no mail in or out; its DNS zones stay served", "ACCOUNT", status("suspended"), one()...),
		p.command("delete", "delete an account with its domains, mailboxes and mail; what waits to be sent is discarded first", "ACCOUNT", func(c *cli.Context, e *env) error {
			if err := requireFlag(c, "account"); err != nil {
				return err
			}
			if !c.Bool("yes") {
				if err := e.confirm(fmt.Sprintf("This deletes the account %s with all its domains, mailboxes and mail, and cannot be undone.", c.String("account")), os.Stdin); err != nil {
					return err
				}
			}
			return runAccountDelete(c.Context, e, accounts.AccountIn{Account: c.String("account")})
		}, append(one(), &cli.BoolFlag{Name: "yes", Usage: "do not ask"})...),
		p.command("resume", "resume a suspended account", "ACCOUNT", status("active"), one()...),
	}
}

// newAccountFlags returns the flags of a new account, which newAccountRequest reads.
func newAccountFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "owner-email", Usage: "the owner's address", EnvVars: []string{"MAILSTEAD_OWNER_EMAIL"}},
		&cli.StringFlag{Name: "owner-password", Usage: "the owner's password; generated if left out", EnvVars: []string{"MAILSTEAD_OWNER_PASSWORD"}},
		&cli.StringFlag{Name: "plan", Usage: "startup or enterprise"},
		jsonFlag(),
	}
}

// accountFlagNames maps fields of a new account to their flags.
var accountFlagNames = map[string]string{"owner_email": "owner-email", "owner_password": "owner-password", "plan": "plan"}

func newAccountRequest(c *cli.Context) accounts.NewAccount {
	return accounts.NewAccount{OwnerEmail: c.String("owner-email"), OwnerPassword: c.String("owner-password"), Plan: c.String("plan")}
}

func runAccountCreate(ctx context.Context, e *env, in accounts.NewAccount) error {
	out := new(accounts.AccountCreated)
	if err := e.ask(ctx, operator.AccountPath, in, out); err != nil {
		return err
	}
	return e.printAccount(out)
}

func (e *env) printAccount(a *accounts.AccountCreated) error {
	text := ""
	if a.WelcomeLink != "" {
		text = fmt.Sprintf("welcome   %s\n          Open this link once, within 72 hours, to choose your email address and password.\n", a.WelcomeLink)
	}
	if strings.HasPrefix(a.WelcomeLink, "/") {
		text += "          It continues the dashboard's address, which `mailstead serve` prints.\n"
	}
	text += fmt.Sprintf("account   %s\nowner     %s\npassword  %s\ntoken     %s\n", a.AccountID, a.OwnerEmail, a.OwnerPassword, a.Token)
	return e.print(a, text)
}

func runAccountList(ctx context.Context, e *env) error {
	out := new(core.List[accounts.AccountRow])
	if err := e.ask(ctx, operator.AccountsPath, struct{}{}, out); err != nil {
		return err
	}
	t := &table{heads: []string{"Account", "Status", "Plan", "Owner"}, wide: []int{3}}
	for _, a := range out.Data {
		t.add(a.AccountID, a.Status, a.Plan, a.OwnerEmail)
	}
	return e.printTable(out, t)
}

func runSetAccountStatus(ctx context.Context, e *env, in accounts.AccountIn) error {
	out := new(accounts.AccountStatus)
	if err := e.ask(ctx, operator.StatusPath, in, out); err != nil {
		return err
	}
	return e.print(out, fmt.Sprintf("%s is %s\n", out.AccountID, out.Status))
}

func runAccountDelete(ctx context.Context, e *env, in accounts.AccountIn) error {
	out := new(accounts.AccountDeleted)
	if err := e.ask(ctx, operator.DeletePath, in, out); err != nil {
		return err
	}
	return e.print(out, fmt.Sprintf("%s is being deleted (job %s)\n", out.AccountID, out.JobID))
}
