package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/internal/licenses"
)

func (p *Program) versionCommand() *cli.Command {
	return p.command("version", "print the version", "", func(c *cli.Context, e *env) error { return runVersion(e, c.Bool("licenses")) },
		&cli.BoolFlag{Name: "licenses", Usage: "print the licence notices of all built-in software"})
}

func runVersion(e *env, printNotices bool) error {
	if printNotices {
		_, err := io.WriteString(e.stdout, licenses.Text())
		return err
	}
	_, err := fmt.Fprintf(e.stdout, "mailstead %s %s/%s %s\n", e.Version, runtime.GOOS, runtime.GOARCH, runtime.Version())
	return err
}
