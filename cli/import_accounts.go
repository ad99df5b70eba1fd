package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/mailboxes"
)

// accountsPerRequest is the number of CSV lines that are sent to the server in one request.
const accountsPerRequest = 500

func (p *Program) importAccountsCommand() *cli.Command {
	return p.command("accounts", "make mailboxes of a CSV file with the password hashes of another mail server", "[FILE]", func(c *cli.Context, e *env) error {
		if err := argumentAsFlag(c, "from"); err != nil {
			return err
		}
		if c.String("from") == "" {
			return config.Mistake(errors.New("name the file: mailstead import accounts FILE"))
		}
		return runImportAccounts(c.Context, e, c.String("from"))
	},
		&cli.StringFlag{Name: "from", Usage: "a CSV file with the header email,password_hash,name or email,password_hash,name,aliases"}, jsonFlag())
}

// runImportAccounts creates mailboxes from a CSV file with password hashes.
func runImportAccounts(ctx context.Context, e *env, from string) error {
	var lines []mailboxes.AccountLine
	out := mailboxes.AccountsImported{Errors: []mailboxes.AccountError{}}
	err := readCSV(from, "email,password_hash,name", ",aliases", func(line int, fields []string, bad error) {
		if bad == nil {
			one := mailboxes.AccountLine{Line: line, Email: fields[0], PasswordHash: fields[1], Name: fields[2]}
			if len(fields) > 3 {
				one.Aliases = strings.FieldsFunc(fields[3], func(c rune) bool { return strings.ContainsRune(" \t,;|", c) })
			}
			lines = append(lines, one)
			return
		}
		wrong := mailboxes.AccountError{Line: line, Message: bad.Error()}
		if len(fields) > 0 {
			wrong.Email = fields[0]
		}
		out.Accounts, out.Failed, out.Errors = out.Accounts+1, out.Failed+1, append(out.Errors, wrong)
	})
	if err != nil {
		return err
	}
	err = e.withServer(ctx, func(send sender) error {
		for some := range slices.Chunk(lines, accountsPerRequest) {
			var part mailboxes.AccountsImported
			if err := sendCommand(ctx, send, operator.ImportAccountsPath, mailboxes.ImportAccountsIn{Lines: some}, &part); err != nil {
				return err
			}
			out.Accounts, out.Imported, out.Skipped, out.Failed = out.Accounts+part.Accounts, out.Imported+part.Imported, out.Skipped+part.Skipped, out.Failed+part.Failed
			out.Errors = append(out.Errors, part.Errors...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(out.Errors, func(a, b mailboxes.AccountError) int { return a.Line - b.Line })
	text := fmt.Sprintf("accounts  %d\nimported  %d\nskipped   %d\nfailed    %d\n", out.Accounts, out.Imported, out.Skipped, out.Failed)
	for _, wrong := range out.Errors {
		text += fmt.Sprintf("line %d: ", wrong.Line)
		if wrong.Email != "" {
			text += wrong.Email + ": "
		}
		text += wrong.Message + "\n"
	}
	if err := e.print(out, text); err != nil {
		return err
	}
	if out.Failed > 0 {
		return fmt.Errorf("%d accounts were not imported", out.Failed)
	}
	return nil
}
