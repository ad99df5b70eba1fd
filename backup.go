package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store/backup"
	"github.com/mailstead/mailstead/store/objects"
)

func s3Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "s3-endpoint", Usage: "the S3 server; AWS's of the region if left out"},
		&cli.StringFlag{Name: "s3-region", Usage: "its region"},
		&cli.StringFlag{Name: "s3-access-key-file", Usage: "a file of two lines, key id and secret; else AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"},
		&cli.BoolFlag{Name: "s3-path-style", Usage: "write the bucket in the path of addresses; the default where an endpoint is given"},
	}
}

func backupFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "to", Usage: "a file, a directory (which exists, or a name that ends in /), or s3://BUCKET/PREFIX"},
		&cli.BoolFlag{Name: "full", Usage: "back everything up, not only what is new"},
		&cli.StringSliceFlag{Name: "age-recipient", Usage: "encrypt for this age public key; may be repeated"},
		&cli.BoolFlag{Name: "no-verify", Usage: "do not read the backup back"},
		jsonFlag(),
	}, s3Flags()...)
}

func fromFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "from", Usage: "the file, directory or s3://BUCKET/PREFIX of the backups"},
		&cli.StringFlag{Name: "age-identity", Usage: "the age identity file that opens encrypted backups"},
		jsonFlag(),
	}, s3Flags()...)
}

func restoreFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "at", Usage: "the time to restore, such as 2026-11-24T12:00:00Z; the newest if left out"},
		&cli.StringFlag{Name: "mailbox", Usage: "restore only this mailbox, into the running server"},
		&cli.StringFlag{Name: "into", Usage: "the folder that --mailbox restores to"},
	}, fromFlags()...)
}

func s3Of(c *cli.Context) (a operator.S3Access, err error) {
	a = operator.S3Access{Endpoint: c.String("s3-endpoint"), Region: c.String("s3-region"), Key: os.Getenv("AWS_ACCESS_KEY_ID"), Secret: os.Getenv("AWS_SECRET_ACCESS_KEY")}
	if c.IsSet("s3-path-style") {
		style := c.Bool("s3-path-style")
		a.PathStyle = &style
	}
	if file := c.String("s3-access-key-file"); file != "" {
		a.Key, a.Secret, err = objects.ReadAccessKey(file)
		if err != nil {
			return a, config.Mistake(err)
		}
	}
	return a, nil
}

// absolute makes a path of the command's directory one of everywhere.
func absolute(address string) (string, error) {
	if objects.IsRemote(address) {
		return address, nil
	}
	path, err := filepath.Abs(address)
	if strings.HasSuffix(address, "/") {
		path += "/"
	}
	return path, err
}

func backupCommand(c *cli.Context) error {
	if err := requireFlag(c, "to"); err != nil {
		return err
	}
	in := operator.BackupIn{Full: c.Bool("full"), NoVerify: c.Bool("no-verify"), Recipients: c.StringSlice("age-recipient")}
	for _, r := range in.Recipients {
		if _, err := config.AgeRecipient(r); err != nil {
			return config.Mistake(fmt.Errorf("--age-recipient: %w", err))
		}
	}
	var err error
	in.To, err = absolute(c.String("to"))
	if err != nil {
		return err
	}
	in.S3, err = s3Of(c)
	if err != nil {
		return err
	}
	out := new(backup.Result)
	if err := runLocal(c, operator.BackupPath, in, out); err != nil {
		return err
	}
	text := fmt.Sprintf("%s backup  %s\ntarget       %s\nat           %s (commit %d)\nmessages     %d\nbytes        %d (%d new)\n",
		out.Kind, out.ID, out.Target, out.At.Format(time.RFC3339Nano), out.Number, out.Messages, out.Bytes, out.BytesAdded)
	if out.Reason != "" {
		text += "It is a full one: " + out.Reason + ".\n"
	}
	if out.Verified {
		text += "It was read back and is what was written.\n"
	}
	return printResult(c, out, text)
}

// identities reads an age identity file; "" has none.
func identities(file string) ([]age.Identity, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read age identity: %w", err)
	}
	defer f.Close()
	list, err := age.ParseIdentities(f)
	if err != nil {
		return nil, fmt.Errorf("read age identity %s: %w", file, err)
	}
	return list, nil
}

// fromTarget is the target at a place that a command reads from; temp is for what it fetches.
func fromTarget(c *cli.Context, from, temp string) (*backup.Target, error) {
	a, err := s3Of(c)
	if err != nil {
		return nil, err
	}
	// The settings of the directory, where there are any, say where buckets are.
	s, err := config.Load(c)
	if err != nil {
		return nil, err
	}
	at, err := operator.Place(from, a, s.Backups().S3, s.CAFile)
	if err != nil {
		return nil, config.Mistake(err)
	}
	ids, err := identities(c.String("age-identity"))
	return &backup.Target{Place: at, Identities: ids, Temp: temp, Program: version}, err
}

// backupsFrom is the place whose backups a command looks at: that of --from, else of [backup].
func backupsFrom(c *cli.Context) (string, error) {
	if err := noArguments(c); err != nil {
		return "", err
	}
	from := c.String("from")
	if from == "" {
		s, err := config.Load(c)
		if err != nil {
			return "", err
		}
		from = s.Backups().To
		if from == "" {
			return "", config.Mistake(fmt.Errorf("name the place of the backups with --from: a file, a directory or s3://BUCKET/PREFIX; %s has none in [backup]", filepath.Join(c.String("data"), "mailstead.toml")))
		}
	}
	return from, isPlace(from)
}

// isPlace refuses an address at which no backups can be.
func isPlace(from string) error {
	if objects.IsRemote(from) {
		return nil
	}
	if strings.Contains(from, "://") {
		return config.Mistake(fmt.Errorf("%q is not a place of backups; write s3://BUCKET/PREFIX, or the path of a directory or a file", from))
	}
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return config.Mistake(fmt.Errorf("there are no backups at %s: no file or directory has that name; give the right --from", from))
	}
	return nil
}

func backupListCommand(c *cli.Context) error {
	from, err := backupsFrom(c)
	if err != nil {
		return err
	}
	var out *backup.Listing
	if operator.IsArchive(from) {
		ids, idErr := identities(c.String("age-identity"))
		if idErr != nil {
			return idErr
		}
		out, err = backup.ListArchive(from, ids)
	} else {
		target, targetErr := fromTarget(c, from, os.TempDir())
		if targetErr != nil {
			return targetErr
		}
		out, err = target.List(c.Context)
	}
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, b := range out.Data {
		fmt.Fprintf(&text, "%s  %-11s  %s  commit %d  %d bytes\n", b.ID, b.Kind, b.At.Format(time.RFC3339Nano), b.Number, b.Bytes)
	}
	if out.FirstAt != nil {
		fmt.Fprintf(&text, "Times from %s to %s can be restored.\n", out.FirstAt.Format(time.RFC3339Nano), out.LastAt.Format(time.RFC3339Nano))
	} else {
		text.WriteString("There is no backup.\n")
	}
	return printResult(c, out, text.String())
}

func backupVerifyCommand(c *cli.Context) error {
	from, err := backupsFrom(c)
	if err != nil {
		return err
	}
	if operator.IsArchive(from) {
		ids, idErr := identities(c.String("age-identity"))
		if idErr != nil {
			return idErr
		}
		err = backup.VerifyArchive(c.Context, from, ids)
	} else {
		target, targetErr := fromTarget(c, from, os.TempDir())
		if targetErr != nil {
			return targetErr
		}
		progress := newProgress(c)
		target.Progress = progress.show
		err = target.Verify(c.Context)
		progress.end()
	}
	if err != nil {
		return err
	}
	return printResult(c, struct {
		OK bool `json:"ok"`
	}{true}, "ok\n")
}

// restoreTime reads --at.
func restoreTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, config.Mistake(fmt.Errorf("--at: %q is not a time; write, for example, 2026-11-24T12:00:00Z", text))
	}
	return at, nil
}

func restoreCommand(c *cli.Context) error {
	if c.IsSet("mailbox") {
		return restoreMailboxCommand(c)
	}
	if err := requireFlag(c, "from"); err != nil {
		return err
	}
	at, err := restoreTime(c.String("at"))
	if err != nil {
		return err
	}
	dir := c.String("data")
	if _, err := os.Stat(filepath.Join(dir, operator.SocketName)); err == nil {
		return fmt.Errorf("%s is not empty: restore to a directory of its own", dir)
	}
	place, err := openWorkplace(dir)
	if err != nil {
		return err
	}
	out, err := restoreInto(c, dir, at)
	if err != nil {
		place.undoMade() // and not what a restore has moved into its place, which the next one knows
		return err
	}
	if _, err := place.handOver(); err != nil {
		return err
	}
	return printResult(c, out, fmt.Sprintf("restored  %s (commit %d)\nmessages  %d\nbytes     %d\n", out.At.Format(time.RFC3339Nano), out.Number, out.Messages, out.Bytes))
}

// restoreInto restores the backup that the flags name.
func restoreInto(c *cli.Context, dir string, at time.Time) (*backup.Restored, error) {
	log := slog.New(slog.NewTextHandler(c.App.ErrWriter, &slog.HandlerOptions{Level: slog.LevelWarn}))
	from := c.String("from")
	if err := isPlace(from); err != nil {
		return nil, err
	}
	if operator.IsArchive(from) {
		ids, err := identities(c.String("age-identity"))
		if err != nil {
			return nil, err
		}
		return backup.RestoreArchive(c.Context, from, dir, at, ids, version)
	}
	target, err := fromTarget(c, from, dir)
	if err != nil {
		return nil, err
	}
	progress := newProgress(c)
	defer progress.end()
	target.Progress = progress.show
	return target.Restore(c.Context, dir, at, log)
}

func restoreMailboxCommand(c *cli.Context) error {
	if err := requireFlag(c, "into"); err != nil {
		return err
	}
	in := operator.RestoreMailboxIn{Mailbox: c.String("mailbox"), Into: c.String("into")}
	var err error
	in.At, err = restoreTime(c.String("at"))
	if err != nil {
		return err
	}
	if from := c.String("from"); from != "" {
		in.From, err = absolute(from)
		if err != nil {
			return err
		}
	}
	if file := c.String("age-identity"); file != "" {
		if _, err := identities(file); err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		in.Identity = string(text)
	}
	in.S3, err = s3Of(c)
	if err != nil {
		return err
	}
	out := new(inbox.MailboxRestored)
	if err := runOverSocket(c, operator.RestoreMailboxPath, in, out); err != nil {
		return err
	}
	return printResult(c, out, fmt.Sprintf("messages  %d\nbytes     %d\n", out.Messages, out.Bytes))
}
