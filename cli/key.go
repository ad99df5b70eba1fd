package cli

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/core"
)

func (p *Program) rotateKeyCommand() *cli.Command {
	return p.command("rotate-key", "replace the master key, and seal every stored secret under the new one", "", func(c *cli.Context, e *env) error {
		if err := noArguments(c); err != nil {
			return err
		}
		return runRotateKey(c.Context, e)
	}, jsonFlag())
}

func runRotateKey(ctx context.Context, e *env) error {
	out := new(core.KeyRotated)
	if err := e.ask(ctx, operator.RotatePath, struct{}{}, out); err != nil {
		return err
	}
	return e.print(out, fmt.Sprintf("key id   %s\nrecords  %d\n", out.KeyID, out.Records))
}
