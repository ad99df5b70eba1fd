package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/accounts"
)

func (p *Program) tokenCommand() *cli.Command {
	return p.command("create", "create a token that acts as a team user", "", func(c *cli.Context, e *env) error {
		if err := requireFlag(c, "user"); err != nil {
			return err
		}
		return runTokenCreate(c.Context, e, accounts.CreateTokenForIn{
			User: c.String("user"), Permissions: strings.Split(c.String("permissions"), ","), Name: c.String("name"), ExpiresInDays: c.Int("expires-in-days"),
		})
	},
		&cli.StringFlag{Name: "user", Usage: "the team user's address"},
		&cli.StringFlag{Name: "permissions", Usage: "some of read, write, purchase, admin", Value: "read,write"},
		&cli.StringFlag{Name: "name", Usage: "what the token is for"},
		&cli.IntFlag{Name: "expires-in-days", Usage: "1 to 3650; never if left out"},
		jsonFlag())
}

func runTokenCreate(ctx context.Context, e *env, in accounts.CreateTokenForIn) error {
	out := new(accounts.TokenCreated)
	if err := e.ask(ctx, operator.TokenPath, in, out); err != nil {
		return err
	}
	return e.print(out, fmt.Sprintf("id     %s\ntoken  %s\n", out.ID, out.Value))
}
