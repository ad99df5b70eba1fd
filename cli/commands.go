package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/store"
)

// Main runs the command that args name; args[0] is the name of the program. It returns the exit
// code: 0 on success, 1 if the command failed, 2 for wrong arguments or settings.
func (p *Program) Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return exitCode(runCommand(ctx, p.app(stdout, stderr), args), stderr)
}

// exitCode prints err to stderr and returns the exit code for it: 0 if err is nil.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	text := err.Error()
	if errors.Is(err, store.ErrInUse) {
		text += ". That is most likely its server: stop it first (`systemctl stop mailstead`), or name another directory with --data"
	}
	fmt.Fprintln(stderr, "mailstead:", text)
	if errors.As(err, new(config.Error)) {
		return 2
	}
	return 1
}

func (p *Program) app(stdout, stderr io.Writer) *cli.App {
	return &cli.App{
		Name: "mailstead", Usage: "self-hosted email infrastructure in one binary",
		Writer: stdout, ErrWriter: stderr,
		Commands: []*cli.Command{
			p.serveCommand(),
			p.initCommand(),
			p.setupCommand(),
			p.doctorCommand(),
			{Name: "account", Usage: "accounts of this installation", Subcommands: p.accountCommands()},
			{Name: "domain", Usage: "domains of this installation", Subcommands: []*cli.Command{p.claimCommand()}},
			{Name: "job", Usage: "jobs that the server has ended with", Subcommands: p.jobCommands()},
			{Name: "settings", Usage: "settings that change without a restart", Subcommands: p.settingsCommands()},
			{Name: "token", Usage: "API tokens", Subcommands: []*cli.Command{p.tokenCommand()}},
			{Name: "user", Usage: "team users", Subcommands: []*cli.Command{p.passwordCommand()}},
			p.rotateKeyCommand(),
			p.callCommand(),
			p.backupCommand(),
			{Name: "import", Usage: "bring mail in from elsewhere", Subcommands: p.importCommands()},
			{Name: "export", Usage: "take mail out, with its domains and settings", Subcommands: p.exportCommands()},
			p.restoreCommand(),
			p.rehearseCommand(),
			p.checkCommand(),
			{Name: "profile", Usage: "measure the running server", Subcommands: p.profileCommands()},
			p.openAPICommand(),
			p.versionCommand(),
		},
	}
}
