package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

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
	switch {
	case errors.Is(err, store.ErrInUse):
		text += ". That is most likely its server: stop it first (`systemctl stop mailstead`), or name another directory with --data"
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() > 0:
		text += ". Run the command as root, or as the user that the file belongs to"
	case errors.Is(err, syscall.EADDRINUSE):
		text += portRemedy(err)
	}
	fmt.Fprintln(stderr, "mailstead:", text)
	if errors.As(err, new(config.Error)) {
		return 2
	}
	return 1
}

func (p *Program) app(stdout, stderr io.Writer) *cli.App {
	group := func(name, usage string, list ...*cli.Command) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, Subcommands: list}
	}
	return &cli.App{
		Name: "mailstead", Usage: "self-hosted email infrastructure in one binary", Version: p.Version,
		Writer: stdout, ErrWriter: stderr,
		Commands: slices.Concat(
			inGroup(groupRun,
				p.serveCommand(),
				p.statusCommand(),
				p.doctorCommand(),
				group("job", "jobs that the server has ended with", p.jobCommands()...),
			),
			inGroup(groupSetUp,
				p.checkHostCommand(),
				p.setupCommand(),
				p.initCommand(),
				group("settings", "settings that change without a restart", p.settingsCommands()...),
				group("account", "accounts of this installation", p.accountCommands()...),
				group("user", "team users", p.passwordCommand()),
				group("token", "API tokens", p.tokenCommand()),
				p.rotateKeyCommand(),
			),
			inGroup(groupMail,
				group("domain", "domains", p.domainCommands()...),
				group("mailbox", "mailboxes", p.mailboxCommands()...),
				group("queue", "messages that wait to be sent", p.queueCommands()...),
				p.logCommand(),
			),
			inGroup(groupData,
				p.backupCommand(),
				p.restoreCommand(),
				group("import", "bring mail in from elsewhere", p.importCommands()...),
				group("export", "take mail out, with its domains and settings", p.exportCommands()...),
				p.checkCommand(),
				p.rehearseCommand(),
			),
			inGroup(groupDeveloper,
				p.callCommand(),
				p.openAPICommand(),
				group("profile", "measure the running server", p.profileCommands()...),
				p.completionCommand(),
				p.manualCommand(),
				p.versionCommand(),
			),
		),
	}
}
