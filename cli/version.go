package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/internal/licenses"
)

func (p *Program) versionCommand() *cli.Command {
	return p.command("version", "print the version", "", func(c *cli.Context, e *env) error {
		if err := noArguments(c); err != nil {
			return err
		}
		return runVersion(e, c.Bool("licenses"))
	},
		&cli.BoolFlag{Name: "licenses", Usage: "print the licence notices of all built-in software"}, jsonFlag())
}

func runVersion(e *env, printNotices bool) error {
	if printNotices {
		_, err := io.WriteString(e.stdout, licenses.Text())
		return err
	}
	if e.json {
		return e.print(struct {
			Version string `json:"version"`
			OS      string `json:"os"`
			Arch    string `json:"arch"`
			Go      string `json:"go"`
		}{e.Version, runtime.GOOS, runtime.GOARCH, runtime.Version()}, "")
	}
	return showVersion(e.stdout, e.Version)
}

// showVersion prints the version in one line.
func showVersion(w io.Writer, version string) error {
	_, err := fmt.Fprintf(w, "mailstead %s %s/%s %s\n", version, runtime.GOOS, runtime.GOARCH, runtime.Version())
	return err
}
