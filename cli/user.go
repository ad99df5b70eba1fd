package cli

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/accounts"
)

func (p *Program) passwordCommand() *cli.Command {
	return p.command("reset-password", "set a team user's password", "USER", func(c *cli.Context, e *env) error {
		if err := requireFlag(c, "user"); err != nil {
			return err
		}
		return runResetPassword(c.Context, e, accounts.ResetPasswordIn{User: c.String("user"), Password: c.String("password"), NoFactor: c.Bool("no-second-factor")})
	},
		&cli.StringFlag{Name: "user", Usage: "the team user's address"},
		&cli.StringFlag{Name: "password", Usage: "the new password; generated if left out"},
		&cli.BoolFlag{Name: "no-second-factor", Usage: "turn two-factor authentication off and delete the passkeys too"},
		jsonFlag())
}

func runResetPassword(ctx context.Context, e *env, in accounts.ResetPasswordIn) error {
	out := new(accounts.PasswordReset)
	if err := e.ask(ctx, operator.PasswordPath, in, out); err != nil {
		return err
	}
	text := fmt.Sprintf("user      %s\npassword  %s\n", out.Email, out.Password)
	if out.Passkeys > 0 {
		text += fmt.Sprintf("passkeys  %d, which still sign in without the password; --no-second-factor deletes them\n", out.Passkeys)
	}
	return e.print(out, text)
}
