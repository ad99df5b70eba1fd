package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/store"
)

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "print JSON"} }

func ownerFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "owner-email", Usage: "the owner's address", EnvVars: []string{"MAILSTEAD_OWNER_EMAIL"}},
		&cli.StringFlag{Name: "owner-password", Usage: "the owner's password; generated if left out", EnvVars: []string{"MAILSTEAD_OWNER_PASSWORD"}},
		&cli.StringFlag{Name: "plan", Usage: "startup or enterprise"},
		jsonFlag(),
	}
}

// initFlags are the flags of the first owner, and the host's name, which the printed link needs.
func initFlags() []cli.Flag {
	return append(ownerFlags(), &cli.StringFlag{Name: "hostname", Usage: "the host's public name, for the link that is printed", EnvVars: []string{"MAILSTEAD_HOSTNAME"}})
}

func tokenFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "user", Usage: "the team user's address"},
		&cli.StringFlag{Name: "permissions", Usage: "some of read, write, purchase, admin", Value: "read,write"},
		&cli.StringFlag{Name: "name", Usage: "what the token is for"},
		&cli.IntFlag{Name: "expires-in-days", Usage: "1 to 3650; never if left out"},
		jsonFlag(),
	}
}

func passwordFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "user", Usage: "the team user's address"},
		&cli.StringFlag{Name: "password", Usage: "the new password; generated if left out"},
		&cli.BoolFlag{Name: "no-second-factor", Usage: "turn two-factor authentication off and delete the passkeys too"},
		jsonFlag(),
	}
}

func callFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "list", Usage: "list the operations"},
		&cli.StringFlag{Name: "account", Usage: "the account, by id or owner's address, if there are several"},
	}
}

// requireFlag refuses a command whose flag is missing, and any arguments.
func requireFlag(c *cli.Context, flag string) error {
	if c.String(flag) == "" {
		return config.Mistake(fmt.Errorf("--%s is required", flag))
	}
	return noArguments(c)
}

// initCommand makes the store. It opens the store itself, since a running server has one already.
func initCommand(c *cli.Context) error {
	if err := requireFlag(c, "owner-email"); err != nil {
		return err
	}
	s, err := offlineSettings(c)
	if err != nil {
		return err
	}
	dir := c.String("data")
	if err := operator.FindStore(dir, s, true); err != nil {
		return err
	}
	place, err := openWorkplace(dir)
	if err != nil {
		return err
	}
	var out *accounts.AccountCreated
	err = withInstallation(dir, s, true, func(o *operator.Operator) error {
		if c.String("hostname") != "" && !place.before[store.DatabaseFile] {
			text, err := os.ReadFile(filepath.Join(dir, settingsFile))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err := place.writeSettings(config.AddSendingLimits(string(text))); err != nil {
				return err
			}
		}
		if !s.Sandbox() {
			if _, err := place.handOver(); err != nil {
				return err
			}
		}
		made, err := o.Service.Accounts.CreateAccount(c.Context, newAccount(c, true))
		if err != nil {
			return flagError(err, accountFlagNames)
		}
		out = made
		killpoint.At("key.account")
		return nil
	})
	if out == nil {
		return errors.Join(err, place.undo())
	}
	return errors.Join(printAccount(c, out), err)
}

// accountFlagNames are the flags that fields of a new account come from.
var accountFlagNames = map[string]string{"owner_email": "owner-email", "owner_password": "owner-password", "plan": "plan"}

func newAccount(c *cli.Context, first bool) accounts.NewAccount {
	return accounts.NewAccount{OwnerEmail: c.String("owner-email"), OwnerPassword: c.String("owner-password"), Plan: c.String("plan"), First: first}
}

func accountCommand(c *cli.Context) error {
	if err := requireFlag(c, "owner-email"); err != nil {
		return err
	}
	out := new(accounts.AccountCreated)
	if err := runLocal(c, operator.AccountPath, newAccount(c, false), out); err != nil {
		return err
	}
	return printAccount(c, out)
}

func accountFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "account", Usage: "the account, by id or owner's address"},
		jsonFlag(),
	}
}

// accountStatus makes the command that gives an account a status.
func accountStatus(status string) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := requireFlag(c, "account"); err != nil {
			return err
		}
		out := new(accounts.AccountStatus)
		if err := runLocal(c, operator.StatusPath, accounts.AccountIn{Account: c.String("account"), Status: status}, out); err != nil {
			return err
		}
		return printResult(c, out, fmt.Sprintf("%s is %s\n", out.AccountID, out.Status))
	}
}

// accountDelete deletes an account, if that is confirmed.
func accountDelete(c *cli.Context) error {
	if err := requireFlag(c, "account"); err != nil {
		return err
	}
	if !c.Bool("yes") {
		return config.Mistake(fmt.Errorf("this deletes the account %s with all its domains, mailboxes and mail, and cannot be undone: add --yes", c.String("account")))
	}
	out := new(accounts.AccountDeleted)
	if err := runLocal(c, operator.DeletePath, accounts.AccountIn{Account: c.String("account")}, out); err != nil {
		return err
	}
	return printResult(c, out, fmt.Sprintf("%s is being deleted (job %s)\n", out.AccountID, out.JobID))
}

// rotateKeyCommand changes the master key.
func rotateKeyCommand(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	out := new(core.KeyRotated)
	if err := runLocal(c, operator.RotatePath, struct{}{}, out); err != nil {
		return err
	}
	return printResult(c, out, fmt.Sprintf("key      %s\nrecords  %d\n", out.KeyID, out.Records))
}

func accountsCommand(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	out := new(core.List[accounts.AccountRow])
	if err := runLocal(c, operator.AccountsPath, struct{}{}, out); err != nil {
		return err
	}
	var text strings.Builder
	for _, a := range out.Data {
		fmt.Fprintf(&text, "%s  %-9s  %-10s  %s\n", a.AccountID, a.Status, a.Plan, a.OwnerEmail)
	}
	return printResult(c, out, text.String())
}

func printAccount(c *cli.Context, a *accounts.AccountCreated) error {
	text := ""
	if a.WelcomeLink != "" {
		text = fmt.Sprintf("welcome   %s\n          Open this link once, within 72 hours, to choose your email address and password.\n", a.WelcomeLink)
	}
	if strings.HasPrefix(a.WelcomeLink, "/") {
		text += "          It continues the dashboard's address, which `mailstead serve` prints.\n"
	}
	text += fmt.Sprintf("account   %s\nowner     %s\npassword  %s\ntoken     %s\n", a.AccountID, a.OwnerEmail, a.OwnerPassword, a.Token)
	return printResult(c, a, text)
}

func tokenCommand(c *cli.Context) error {
	if err := requireFlag(c, "user"); err != nil {
		return err
	}
	out := new(accounts.TokenCreated)
	err := runLocal(c, operator.TokenPath, accounts.TokenFor{
		User: c.String("user"), Permissions: strings.Split(c.String("permissions"), ","), Name: c.String("name"), ExpiresInDays: c.Int("expires-in-days"),
	}, out)
	if err != nil {
		return err
	}
	return printResult(c, out, fmt.Sprintf("id     %s\ntoken  %s\n", out.ID, out.Value))
}

func passwordCommand(c *cli.Context) error {
	if err := requireFlag(c, "user"); err != nil {
		return err
	}
	out := new(accounts.PasswordReset)
	err := runLocal(c, operator.PasswordPath, accounts.NewPassword{User: c.String("user"), Password: c.String("password"), NoFactor: c.Bool("no-second-factor")}, out)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("user      %s\npassword  %s\n", out.Email, out.Password)
	if out.Passkeys > 0 {
		text += fmt.Sprintf("passkeys  %d, which still sign in without the password; --no-second-factor deletes them\n", out.Passkeys)
	}
	return printResult(c, out, text)
}

// printResult prints v as JSON if asked to, else the text.
func printResult(c *cli.Context, v any, text string) error {
	if !c.Bool("json") {
		_, err := io.WriteString(c.App.Writer, text)
		return err
	}
	return json.NewEncoder(c.App.Writer).Encode(v)
}

// flagError is withoutCode for a command whose flags are fields of a request: it names the flag,
// and a wrong value is wrong use.
func flagError(err error, flags map[string]string) error {
	e, ok := core.AsError(err)
	if !ok {
		return err
	}
	for _, d := range e.Details {
		if flag := flags[d.Field]; flag != "" {
			return config.Mistake(fmt.Errorf("--%s: %s", flag, d.Message))
		}
	}
	return errors.New(e.Message)
}

// openAPICommand prints the OpenAPI document, so that clients can be generated without a server.
func openAPICommand(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	text, err := handlers.OpenAPI()
	if err != nil {
		return err
	}
	_, err = c.App.Writer.Write(append(text, '\n'))
	return err
}

// callCommand calls one operation of the API.
func callCommand(c *cli.Context) error {
	if c.Bool("list") {
		list := handlers.Operations()
		if s, err := config.Load(c); err == nil && s.Sandbox() {
			list = append(list, handlers.Operation{Name: advanceClock, Method: http.MethodPost, Path: operator.AdvancePath})
		}
		for _, o := range list {
			if _, err := fmt.Fprintf(c.App.Writer, "%-28s %-6s %s\n", o.Name, o.Method, o.Path); err != nil {
				return err
			}
		}
		return nil
	}
	switch {
	case c.NArg() < 1:
		return config.Mistake(errors.New("name the operation: mailstead call OPERATION [JSON]; `mailstead call --list` lists the operations"))
	case c.NArg() > 2:
		return config.Mistake(fmt.Errorf("%q is not expected: mailstead call OPERATION [JSON]; the JSON is one argument, best in single quotes", c.Args().Get(2)))
	}
	r, err := newCall(c, c.Args().Get(0), c.Args().Get(1))
	if err != nil {
		return config.Mistake(err)
	}
	r.Header.Set("X-Mailstead-Account", c.String("account"))
	resp, err := local(c, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 400 {
		return fmt.Errorf("%s answered %s: %s", c.Args().First(), resp.Status, bytes.TrimSpace(body))
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, body, "", "  ") == nil {
		body = pretty.Bytes()
	}
	_, err = c.App.Writer.Write(body)
	return err
}

// advanceClock is what `call` can do beside the operations of the API, in the sandbox.
const advanceClock = "advance_clock"

// newCall makes the request of an operation.
func newCall(c *cli.Context, operation, args string) (*http.Request, error) {
	if operation == advanceClock {
		s, err := config.Load(c)
		if err != nil {
			return nil, err
		}
		if !s.Sandbox() {
			return nil, fmt.Errorf("%s is for the sandbox: the clock of a server with a hostname cannot be advanced", operation)
		}
		return http.NewRequestWithContext(c.Context, http.MethodPost, operator.AdvancePath, strings.NewReader(args))
	}
	return handlers.NewRequest(c.Context, operation, args)
}

// isRefused tells whether a socket is left over from a server that does not run.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

func claimFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "account", Usage: "the account that gets the domain, by id or owner's address"},
		jsonFlag(),
	}
}

// claimCommand decides which account a domain belongs to. Flags may also follow the domain.
func claimCommand(c *cli.Context) error {
	domain, err := takeDomain(c)
	if err != nil {
		return config.Mistake(err)
	}
	if c.String("account") == "" {
		return config.Mistake(errors.New("--account is required"))
	}
	out := new(domains.ClaimDecided)
	if err := runLocal(c, operator.ClaimPath, domains.ClaimDecision{Account: c.String("account"), Domain: domain}, out); err != nil {
		return err
	}
	return printResult(c, out, fmt.Sprintf("domain   %s (%s)\naccount  %s\nstatus   %s\n", out.Domain, out.DomainID, out.AccountID, out.Status))
}

// takeDomain gives the one argument of the command, and sets the flags that follow it.
func takeDomain(c *cli.Context) (domain string, err error) {
	for rest := c.Args().Slice(); len(rest) > 0; rest = rest[1:] {
		name, flag := strings.CutPrefix(rest[0], "-")
		name, value, given := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		switch {
		case !flag && domain == "":
			domain = rest[0]
			continue
		case !flag:
			return "", errors.New("name one domain: mailstead domain claim --account ID DOMAIN")
		case name == "json" && !given:
			value = "true"
		case !given && len(rest) > 1:
			value, rest = rest[1], rest[1:]
		}
		if err := c.Set(name, value); err != nil {
			return "", err
		}
	}
	if domain == "" {
		return "", errors.New("name the domain: mailstead domain claim --account ID DOMAIN")
	}
	return domain, nil
}
