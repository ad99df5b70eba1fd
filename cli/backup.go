package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/store/backup"
	"github.com/mailstead/mailstead/store/objects"
)

func (p *Program) backupCommand() *cli.Command {
	flags := append([]cli.Flag{
		&cli.StringFlag{Name: "to", Usage: "a file, a directory (which exists, or a name that ends in /), or s3://BUCKET/PREFIX"},
		&cli.BoolFlag{Name: "full", Usage: "back everything up, not only what is new"},
		&cli.StringSliceFlag{Name: "age-recipient", Usage: "encrypt for this age public key; may be repeated"},
		&cli.BoolFlag{Name: "no-verify", Usage: "do not read the backup back"},
		jsonFlag(),
	}, s3Flags()...)
	cmd := p.command("backup", "back everything up while the server runs", "[PLACE]", func(c *cli.Context, e *env) error {
		if err := argumentAsFlag(c, "to"); err != nil {
			return err
		}
		in, err := backupRequest(c)
		if err != nil {
			return err
		}
		return runBackup(c.Context, e, in)
	}, flags...)
	cmd.Subcommands = []*cli.Command{p.backupListCommand(), p.backupVerifyCommand()}
	return cmd
}

// backupRequest returns the request for a backup that the flags describe.
func backupRequest(c *cli.Context) (in operator.BackupIn, err error) {
	if c.String("to") == "" {
		return in, config.Mistake(errors.New("name the place of the backup: mailstead backup PLACE; PLACE is a file, a directory (which exists, or a name that ends in /), or s3://BUCKET/PREFIX"))
	}
	in = operator.BackupIn{Full: c.Bool("full"), NoVerify: c.Bool("no-verify"), Recipients: c.StringSlice("age-recipient")}
	for _, r := range in.Recipients {
		if _, err := config.AgeRecipient(r); err != nil {
			return in, config.Mistake(fmt.Errorf("invalid --age-recipient: %w", err))
		}
	}
	in.To, err = absolutePath(c.String("to"))
	if err != nil {
		return in, err
	}
	in.S3, err = s3Access(c)
	return in, err
}

func runBackup(ctx context.Context, e *env, in operator.BackupIn) error {
	out := new(backup.Result)
	line := e.newProgressLine()
	err := e.askWithProgress(ctx, e.send, line, operator.BackupPath, in, out)
	line.end()
	if !objects.IsRemote(in.To) && isDir(in.To) { // a command of root in the place of a stopped server
		err = errors.Join(err, operator.GiveToOwner(in.To))
	}
	if err != nil {
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
	return e.print(out, text)
}

func s3Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "s3-endpoint", Usage: "the S3 server; AWS's of the region if left out"},
		&cli.StringFlag{Name: "s3-region", Usage: "its region"},
		&cli.StringFlag{Name: "s3-access-key-file", Usage: "a file of two lines, key id and secret; else AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"},
		&cli.BoolFlag{Name: "s3-path-style", Usage: "write the bucket in the path of addresses; the default where an endpoint is given"},
	}
}

func s3Access(c *cli.Context) (a operator.S3Access, err error) {
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

// absolutePath makes a local path absolute, because the server may have another working directory.
// It returns s3:// addresses unchanged.
func absolutePath(address string) (string, error) {
	if objects.IsRemote(address) {
		return address, nil
	}
	path, err := filepath.Abs(address)
	if strings.HasSuffix(address, "/") {
		path += "/"
	}
	return path, err
}
