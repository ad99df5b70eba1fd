package cli

import (
	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/handlers"
)

func (p *Program) openAPICommand() *cli.Command {
	return p.command("openapi", "print the description of the API", "", func(c *cli.Context, e *env) error {
		if err := noArguments(c); err != nil {
			return err
		}
		return runOpenAPI(e)
	})
}

// runOpenAPI prints the OpenAPI document. It needs no running server.
func runOpenAPI(e *env) error {
	text, err := handlers.Description().JSON()
	if err != nil {
		return err
	}
	_, err = e.stdout.Write(append(text, '\n'))
	return err
}
