package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/backup"
	"github.com/mailstead/mailstead/store/digest"
)

const (
	rehearsalDir = "rehearsal" // directory in the data directory for the migrated copy
	stopTimeout  = time.Minute // how long to wait for the server to stop
)

func (p *Program) rehearseCommand() *cli.Command {
	return p.command("rehearse", "migrate a copy of the store to this version and compare it; --swap does it for good", "", func(c *cli.Context, e *env) error {
		if err := noArguments(c); err != nil {
			return err
		}
		return runRehearse(c.Context, e, c.Bool("swap"))
	},
		&cli.BoolFlag{Name: "swap", Usage: "stop the server, keep its store in DATA/previous, and migrate it for good"},
		jsonFlag())
}

// A rehearsal is the state and result of a rehearsed or real upgrade.
type rehearsal struct {
	FromVersion string `json:"from_version"`
	ToVersion   string `json:"to_version"`
	// How long the migration and its checks took, which is the downtime of an upgrade.
	DurationMS   int64            `json:"duration_ms"`
	Checks       []rehearsalCheck `json:"checks"`
	DigestsEqual bool             `json:"digests_equal"`
	// Directory of the migrated copy; after a swap, of the earlier store, which is kept.
	Path string `json:"path"`

	env      *env
	dir      string // the absolute path of the data directory
	progress *progressLine
	formats  [2]uint32 // store formats before and after; 0 if no migration was needed
}

type rehearsalCheck struct {
	Code    string `json:"code"` // copy, pages, migrate, check or contents
	Status  string `json:"status"`
	Message string `json:"message"`
}

// recordCheck appends the result of a check, which is err, to r.Checks, and returns err.
func (r *rehearsal) recordCheck(code string, err error) error {
	c := rehearsalCheck{Code: code, Status: "ok"}
	if err != nil {
		c.Status, c.Message = "error", err.Error()
	}
	r.Checks = append(r.Checks, c)
	return err
}

// runRehearse migrates a copy of the store and compares the contents before and after. If swap is
// set and this succeeds, it migrates the store itself.
func runRehearse(ctx context.Context, e *env, swap bool) error {
	dir, err := filepath.Abs(e.dir)
	if err != nil {
		return err
	}
	s, err := e.offlineSettings()
	if err != nil {
		return err
	}
	if err := operator.RequireStore(dir, s, false); err != nil {
		return err
	}
	if err := operator.BecomeOwner(dir); err != nil {
		return err
	}
	r := &rehearsal{ToVersion: e.Version, Checks: []rehearsalCheck{}, Path: filepath.Join(dir, rehearsalDir), env: e, dir: dir, progress: e.newProgressLine()}
	r.progress.show("copy", 0, 0)
	err = r.migrateCopy(ctx)
	if err == nil && swap {
		err = r.swapStore(ctx)
	}
	r.progress.end()
	if err != nil {
		return errors.Join(err, e.print(r, ""))
	}
	text := fmt.Sprintf("from %s to %s: the copy was migrated and checked in %s, and holds what the store holds\n",
		r.FromVersion, r.ToVersion, time.Duration(r.DurationMS)*time.Millisecond)
	if swap {
		text = fmt.Sprintf("from %s to %s: the store was migrated and checked in %s. Start the server with this version.\n"+
			"The store of before stays for 14 days in %s. To go back, run the earlier version with --data on that directory: mail that came since is missing there.\n",
			r.FromVersion, r.ToVersion, time.Duration(r.DurationMS)*time.Millisecond, r.Path)
	}
	return e.print(r, text)
}

// migrateCopy copies the store, migrates the copy, and saves a record that this succeeded.
func (r *rehearsal) migrateCopy(ctx context.Context) error {
	if err := errors.Join(operator.ForgetRehearsal(r.dir), os.RemoveAll(r.Path)); err != nil {
		return err
	}
	var out operator.CopyOut
	err := r.env.askWithProgress(ctx, r.env.sendOverSocket, r.progress, operator.CopyPath, operator.CopyIn{To: r.Path}, &out)
	if errors.Is(err, errNoServer) {
		out.Version, err = store.WrittenBy(r.dir)
		if err == nil {
			err = backup.CopyStopped(r.dir, r.Path, operator.BackupFiles)
		}
	}
	r.FromVersion = out.Version
	if r.recordCheck("copy", err) != nil {
		return fmt.Errorf("copy the store for the rehearsal: %w", err)
	}
	killpoint.At("rehearse.copied")
	if err := r.migrate(r.Path); err != nil {
		return err
	}
	record := operator.RehearsalRecord{Version: r.ToVersion, At: time.Now().UTC(), DigestsEqual: r.DigestsEqual, FromFormat: r.formats[0], ToFormat: r.formats[1]}
	return record.Save(r.dir)
}

// migrate migrates the store in dir, checks it, and compares the contents before and after.
func (r *rehearsal) migrate(dir string) error {
	began := time.Now()
	defer func() { r.DurationMS = time.Since(began).Milliseconds() }()
	r.progress.show("pages", 0, 0)
	if err := r.recordCheck("pages", store.CheckPages(dir)); err != nil {
		return err
	}
	r.progress.show("contents", 0, 0)
	before, err := digest.Contents(dir)
	if err != nil {
		return r.recordCheck("contents", err)
	}
	killpoint.At("rehearse.migrate")
	r.progress.show("migrate", 0, 0)
	st, err := store.Open(dir, store.Options{Log: slog.New(slog.DiscardHandler), Program: r.ToVersion, MayMigrate: func(from, to uint32) error {
		r.formats = [2]uint32{from, to}
		return nil
	}})
	killpoint.At("rehearse.migrated")
	if r.recordCheck("migrate", err) != nil {
		return err
	}
	if err := r.recordCheck("check", errors.Join(r.check(st), st.Close())); err != nil {
		return err
	}
	after, err := digest.Contents(dir)
	if err != nil {
		return r.recordCheck("contents", err)
	}
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if was, known := before[name]; was != after[name] && (known || after[name] != digest.None) {
			differ = append(differ, name)
		}
	}
	r.DigestsEqual = len(differ) == 0
	if !r.DigestsEqual {
		return r.recordCheck("contents", fmt.Errorf("the migration changed the contents of %s", strings.Join(differ, ", ")))
	}
	return r.recordCheck("contents", nil)
}

// check checks rows and messages as the command check does.
func (r *rehearsal) check(st *store.Store) error {
	return errors.Join(st.CheckRows(), st.CheckMessages(func(done, all int64) { r.progress.show("bytes of messages", done, all) }))
}

// swapStore stops the server, keeps a copy of its store and migrates the store. If the migration
// fails, it restores the copy.
func (r *rehearsal) swapStore(ctx context.Context) error {
	if err := r.env.askServer(ctx, operator.StopPath, struct{}{}, new(struct{})); err != nil && !errors.Is(err, errNoServer) {
		return fmt.Errorf("stop the server: %w", err)
	}
	if err := os.RemoveAll(r.Path); err != nil {
		return err
	}
	r.Path = filepath.Join(r.dir, operator.PreviousDir, cmp.Or(strings.NewReplacer("/", "_", "..", "_").Replace(r.FromVersion), "unknown"))
	r.Checks = []rehearsalCheck{}
	kept := r.Path + ".new" // the copy is renamed when it is complete
	err := os.RemoveAll(kept)
	for end := time.Now().Add(stopTimeout); err == nil; time.Sleep(100 * time.Millisecond) {
		if err = backup.CopyStopped(r.dir, kept, operator.BackupFiles); !errors.Is(err, store.ErrInUse) {
			break
		}
		if time.Now().After(end) {
			return r.recordCheck("copy", fmt.Errorf("the server did not stop within %s: %w", stopTimeout, err))
		}
		err = nil
	}
	killpoint.At("swap.copied")
	if err == nil {
		err = errors.Join(os.RemoveAll(r.Path), os.Rename(kept, r.Path))
	}
	killpoint.At("swap.kept")
	if r.recordCheck("copy", err) != nil {
		return err
	}
	if err := r.migrate(r.dir); err != nil {
		return errors.Join(err, restoreKeptStore(r.Path, r.dir), operator.ForgetRehearsal(r.dir))
	}
	return nil
}

// restoreKeptStore replaces the store in the data directory dir with the copy in the directory
// from.
func restoreKeptStore(from, dir string) error {
	for _, name := range []string{store.DatabaseFile, store.SegmentDir} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, name := range []string{store.SegmentDir, store.DatabaseFile} {
		if err := os.Rename(filepath.Join(from, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return os.RemoveAll(from)
}
