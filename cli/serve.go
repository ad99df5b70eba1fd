package cli

import (
	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
)

func (p *Program) serveCommand() *cli.Command {
	return p.command("serve", "run the server", "", func(c *cli.Context, e *env) error {
		if err := noArguments(c); err != nil {
			return err
		}
		return p.Serve(c.Context, e.dir, e.settings, e.stdout, e.stderr)
	}, config.Flags()...)
}
