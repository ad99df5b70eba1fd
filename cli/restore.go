package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/transfer"
	"github.com/mailstead/mailstead/store/backup"
)

func (p *Program) restoreCommand() *cli.Command {
	flags := append([]cli.Flag{
		&cli.StringFlag{Name: "at", Usage: "the time to restore, such as 2026-11-24T12:00:00Z; the newest if left out"},
		&cli.StringFlag{Name: "mailbox", Usage: "restore only this mailbox, into the running server"},
		&cli.StringFlag{Name: "into", Usage: "the folder that --mailbox restores to"},
	}, sourceFlags()...)
	return p.command("restore", "make a data directory of a backup, or bring a mailbox back", "[PLACE]", func(c *cli.Context, e *env) error {
		if err := argumentAsFlag(c, "from"); err != nil {
			return err
		}
		if c.IsSet("mailbox") {
			in, err := restoreMailboxRequest(c)
			if err != nil {
				return err
			}
			return runRestoreMailbox(c.Context, e, in)
		}
		if c.String("from") == "" {
			return config.Mistake(errors.New("name the place of the backup: mailstead restore PLACE --data DIR"))
		}
		at, err := parseRestoreTime(c.String("at"))
		if err != nil {
			return err
		}
		return runRestore(c.Context, e, restoreOptions{sourceOptions: newSourceOptions(c), at: at})
	}, flags...)
}

type restoreOptions struct {
	sourceOptions
	at time.Time // the time to restore; zero means the newest
}

// parseRestoreTime parses the value of --at. It returns the zero time if the value is empty.
func parseRestoreTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, config.Mistake(fmt.Errorf("--at is %q, which is not a time; write, for example, 2026-11-24T12:00:00Z", text))
	}
	return at, nil
}

// runRestore restores a backup to an empty data directory.
func runRestore(ctx context.Context, e *env, o restoreOptions) error {
	if _, err := os.Stat(e.socketPath()); err == nil {
		return fmt.Errorf("the directory %s is not empty: name another with --data", e.dir)
	}
	place, err := openDataDir(e.dir)
	if err != nil {
		return err
	}
	out, err := restoreBackup(ctx, e, o)
	if err != nil {
		// Restored files stay, because the next restore continues with them.
		place.removeCreatedDirs()
		return err
	}
	if _, err := place.giveToServer(); err != nil {
		return err
	}
	return e.print(out, fmt.Sprintf("restored  %s (commit %d)\nmessages  %d\nbytes     %d\n", out.At.Format(time.RFC3339Nano), out.Number, out.Messages, out.Bytes))
}

func restoreBackup(ctx context.Context, e *env, o restoreOptions) (*backup.RestoreResult, error) {
	log := slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := checkBackupPlace(o.from); err != nil {
		return nil, err
	}
	progress := e.newProgressLine()
	defer progress.end()
	ctx = progress.withProgress(ctx)
	if operator.IsArchive(o.from) {
		ids, err := readAgeIdentities(o.identity)
		if err != nil {
			return nil, err
		}
		return backup.RestoreArchive(ctx, o.from, e.dir, o.at, ids, e.Version)
	}
	target, err := e.openTarget(o.sourceOptions, e.dir)
	if err != nil {
		return nil, err
	}
	return target.Restore(ctx, e.dir, o.at, log)
}

// restoreMailboxRequest returns the request to restore a mailbox that the flags describe.
func restoreMailboxRequest(c *cli.Context) (in operator.RestoreMailboxIn, err error) {
	if c.String("into") == "" {
		return in, config.Mistake(errors.New("--into is required: the folder that the messages come into"))
	}
	in = operator.RestoreMailboxIn{Mailbox: c.String("mailbox"), Into: c.String("into")}
	in.At, err = parseRestoreTime(c.String("at"))
	if err != nil {
		return in, err
	}
	if from := c.String("from"); from != "" {
		in.From, err = absolutePath(from)
		if err != nil {
			return in, err
		}
	}
	if file := c.String("age-identity"); file != "" {
		if _, err := readAgeIdentities(file); err != nil {
			return in, err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return in, err
		}
		in.Identity = string(text)
	}
	in.S3, err = s3Access(c)
	return in, err
}

func runRestoreMailbox(ctx context.Context, e *env, in operator.RestoreMailboxIn) error {
	out := new(transfer.MailboxRestored)
	line := e.newProgressLine()
	err := e.askWithProgress(ctx, e.sendOverSocket, line, operator.RestoreMailboxPath, in, out)
	line.end()
	if err != nil {
		return err
	}
	return e.print(out, fmt.Sprintf("messages  %d\nbytes     %d\n", out.Messages, out.Bytes))
}
