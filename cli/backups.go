package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/store/backup"
	"github.com/mailstead/mailstead/store/objects"
)

// sourceOptions say where existing backups are, and how to decrypt and fetch them.
type sourceOptions struct {
	from     string // a file, a directory or s3://BUCKET/PREFIX; "" means the place in [backup]
	identity string // path of an age identity file; "" if the backups are not encrypted
	s3       func() (operator.S3Access, error)
}

func sourceFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "from", Usage: "the file, directory or s3://BUCKET/PREFIX of the backups"},
		&cli.StringFlag{Name: "age-identity", Usage: "the age identity file that opens encrypted backups"},
		jsonFlag(),
	}, s3Flags()...)
}

func newSourceOptions(c *cli.Context) sourceOptions {
	return sourceOptions{from: c.String("from"), identity: c.String("age-identity"), s3: func() (operator.S3Access, error) { return s3Access(c) }}
}

func (p *Program) backupListCommand() *cli.Command {
	return p.command("list", "list the backups of a place, and the times that can be restored", "[PLACE]", func(c *cli.Context, e *env) error {
		if err := argumentAsFlag(c, "from"); err != nil {
			return err
		}
		return runBackupList(c.Context, e, newSourceOptions(c))
	}, append(sourceFlags(), &cli.BoolFlag{Name: "csv", Usage: "print the backups as CSV"})...)
}

func (p *Program) backupVerifyCommand() *cli.Command {
	return p.command("verify", "read every backup of a place and compare it with what was stored", "[PLACE]", func(c *cli.Context, e *env) error {
		if err := argumentAsFlag(c, "from"); err != nil {
			return err
		}
		return runBackupVerify(c.Context, e, newSourceOptions(c))
	}, sourceFlags()...)
}

// readAgeIdentities reads the keys in an age identity file. It returns nil if file is "".
func readAgeIdentities(file string) ([]age.Identity, error) {
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

// openTarget opens the place of the backups for reading. Files that are fetched from S3 are stored
// in the directory tempDir.
func (e *env) openTarget(o sourceOptions, tempDir string) (*backup.Target, error) {
	a, err := o.s3()
	if err != nil {
		return nil, err
	}
	// The settings file, if there is one, has the S3 endpoint and region.
	s, err := e.settings()
	if err != nil {
		return nil, err
	}
	at, err := operator.PlaceAt(o.from, a, s.Backups().S3, s.CAFile)
	if err != nil {
		return nil, config.Mistake(err)
	}
	ids, err := readAgeIdentities(o.identity)
	return &backup.Target{Place: at, Identities: ids, Temp: tempDir, Program: e.Version}, err
}

// backupPlace returns the place of the backups: from if it is set, else the place in [backup] of
// the settings. It returns an error if there cannot be backups at that place.
func (e *env) backupPlace(from string) (string, error) {
	if from == "" {
		s, err := e.settings()
		if err != nil {
			return "", err
		}
		from = s.Backups().To
		if from == "" {
			return "", config.Mistake(fmt.Errorf("name the place of the backups with --from: a file, a directory or s3://BUCKET/PREFIX; %s has none in [backup]", filepath.Join(e.dir, settingsFile)))
		}
	}
	return from, checkBackupPlace(from)
}

// checkBackupPlace returns an error if from is neither an s3:// address nor an existing local path.
func checkBackupPlace(from string) error {
	if objects.IsRemote(from) {
		return nil
	}
	if strings.Contains(from, "://") {
		return config.Mistake(fmt.Errorf("backups cannot be at %q; write s3://BUCKET/PREFIX, or the path of a directory or a file", from))
	}
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return config.Mistake(fmt.Errorf("there are no backups at %s: no file or directory has that name; give the right --from", from))
	}
	return nil
}

// runBackupList prints the backups of a place.
func runBackupList(ctx context.Context, e *env, o sourceOptions) (err error) {
	o.from, err = e.backupPlace(o.from)
	if err != nil {
		return err
	}
	var out *backup.Listing
	if operator.IsArchive(o.from) {
		ids, idErr := readAgeIdentities(o.identity)
		if idErr != nil {
			return idErr
		}
		out, err = backup.ListArchive(o.from, ids)
	} else {
		target, targetErr := e.openTarget(o, os.TempDir())
		if targetErr != nil {
			return targetErr
		}
		out, err = target.List(ctx)
	}
	if err != nil {
		return err
	}
	t := &table{heads: []string{"Backup", "Kind", "Time", "Commit", "Bytes"}}
	for _, b := range out.Data {
		t.add(b.ID, b.Kind, b.At.Format(time.RFC3339Nano), fmt.Sprint(b.Number), fmt.Sprint(b.Bytes))
	}
	if err := e.printTable(out, t); err != nil || e.json || e.csv {
		return err
	}
	text := "There is no backup.\n"
	if out.FirstAt != nil {
		text = fmt.Sprintf("Times from %s to %s can be restored.\n", out.FirstAt.Format(time.RFC3339Nano), out.LastAt.Format(time.RFC3339Nano))
	}
	return e.print(out, text)
}

// runBackupVerify reads and verifies every backup of a place.
func runBackupVerify(ctx context.Context, e *env, o sourceOptions) (err error) {
	o.from, err = e.backupPlace(o.from)
	if err != nil {
		return err
	}
	progress := e.newProgressLine()
	defer progress.end()
	ctx = progress.withProgress(ctx)
	if operator.IsArchive(o.from) {
		ids, idErr := readAgeIdentities(o.identity)
		if idErr != nil {
			return idErr
		}
		err = backup.VerifyArchive(ctx, o.from, ids)
	} else {
		target, targetErr := e.openTarget(o, os.TempDir())
		if targetErr != nil {
			return targetErr
		}
		err = target.Verify(ctx)
	}
	progress.end()
	if err != nil {
		return err
	}
	return e.print(struct {
		OK bool `json:"ok"`
	}{true}, "ok\n")
}
