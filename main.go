// Command mailstead is self-hosted email infrastructure in one binary: SMTP, IMAP, DNS, an HTTP API
// and webhooks over one data directory.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/internal/licenses"
	"github.com/mailstead/mailstead/store"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(exitCode(runCommand(ctx, newApp(os.Stdout, os.Stderr), os.Args), os.Stderr))
}

// exitCode prints the error and gives its code: 1 when something failed, 2 when it was called or
// configured wrongly.
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

func newApp(stdout, stderr io.Writer) *cli.App {
	return &cli.App{
		Name: "mailstead", Usage: "self-hosted email infrastructure in one binary",
		Writer: stdout, ErrWriter: stderr,
		Commands: []*cli.Command{
			command("serve", "run the server", "", serveCommand, config.Flags()...),
			command("init", "create the store, an account, its owner and an admin token", "", initCommand, initFlags()...),
			command("setup", "ask what is needed, write the settings and the store, and say which records and rights the host needs", "", setupCommand, setupFlags()...),
			command("doctor", "check the host and everything around it, and say what to mend", "", doctorCommand, jsonFlag()),
			{Name: "account", Usage: "accounts of this installation", Subcommands: []*cli.Command{
				command("create", "create another account", "", accountCommand, ownerFlags()...),
				command("list", "list the accounts", "", accountsCommand, jsonFlag()),
				command("suspend", "suspend an account: no log-ins, no mail in or out; its DNS zones stay served", "", accountStatus("suspended"), accountFlags()...),
				command("delete", "delete an account with its domains, mailboxes and mail; what waits to be sent is discarded first", "", accountDelete,
					append(accountFlags(), &cli.BoolFlag{Name: "yes", Usage: "really delete it"})...),
				command("resume", "resume a suspended account", "", accountStatus("active"), accountFlags()...),
			}},
			{Name: "domain", Usage: "domains of this installation", Subcommands: []*cli.Command{
				command("claim", "assign a disputed domain to an account", "DOMAIN", claimCommand, claimFlags()...),
			}},
			{Name: "job", Usage: "jobs that the server has ended with", Subcommands: []*cli.Command{
				command("parked", "list the jobs that are parked, since the server ended each time that they ran", "", parkedCommand, jsonFlag()),
				command("resume", "let a parked job go on now, or all of them", "", resumeCommand, resumeFlags()...),
			}},
			{Name: "token", Usage: "API tokens", Subcommands: []*cli.Command{
				command("create", "create a token that acts as a team user", "", tokenCommand, tokenFlags()...),
			}},
			{Name: "user", Usage: "team users", Subcommands: []*cli.Command{
				command("reset-password", "set a team user's password", "", passwordCommand, passwordFlags()...),
			}},
			command("rotate-key", "replace the master key, and seal every stored secret under the new one", "", rotateKeyCommand, jsonFlag()),
			command("call", "call any operation of the API as the owner", "OPERATION [JSON]", callCommand, callFlags()...),
			{
				Name: "backup", Usage: "back everything up while the server runs", Action: backupCommand,
				Flags: append([]cli.Flag{dataFlag()}, backupFlags()...),
				Subcommands: []*cli.Command{
					command("list", "list the backups of a place, and the times that can be restored", "", backupListCommand, fromFlags()...),
					command("verify", "read every backup of a place and compare it with what was stored", "", backupVerifyCommand, fromFlags()...),
				},
			},
			{Name: "import", Usage: "bring mail in from elsewhere", Subcommands: importCommands()},
			{Name: "export", Usage: "take mail out, with its domains and settings", Subcommands: exportCommands()},
			command("restore", "make a data directory of a backup, or bring a mailbox back", "", restoreCommand, restoreFlags()...),
			command("rehearse", "migrate a copy of the store to this version and compare it; --swap does it for good", "", rehearseCommand, rehearseFlags()...),
			command("check", "verify every index, blob and reference of a stopped store; --rebuild makes a damaged database anew", "", checkCommand, checkFlags()...),
			{Name: "profile", Usage: "measure the running server", Subcommands: profileCommands()},
			command("openapi", "print the description of the API", "", openAPICommand),
			command("version", "print the version", "", versionCommand, licensesFlag()),
		},
	}
}

// command is a command with the flag that all of them take.
func command(name, usage, args string, action cli.ActionFunc, flags ...cli.Flag) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, ArgsUsage: args, Action: action,
		Flags: append([]cli.Flag{dataFlag()}, flags...),
	}
}

func dataFlag() cli.Flag {
	return &cli.StringFlag{Name: "data", Usage: "the data directory", Value: "data", EnvVars: []string{"MAILSTEAD_DATA"}}
}

func licensesFlag() cli.Flag {
	return &cli.BoolFlag{Name: "licenses", Usage: "print the licence notices of all built-in software"}
}

func versionCommand(c *cli.Context) error {
	if c.Bool("licenses") {
		_, err := io.WriteString(c.App.Writer, licenses.Text())
		return err
	}
	_, err := fmt.Fprintf(c.App.Writer, "mailstead %s %s/%s %s\n", version, runtime.GOOS, runtime.GOARCH, runtime.Version())
	return err
}

// noArguments refuses arguments, which the command would ignore.
func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return config.Mistake(fmt.Errorf("%q is not expected; run `%s --help`", c.Args().First(), c.Command.HelpName))
	}
	return nil
}
