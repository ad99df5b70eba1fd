package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/transfer"
	"github.com/mailstead/mailstead/store"
)

func (p *Program) checkCommand() *cli.Command {
	return p.command("check", "verify every index, blob and reference of a stopped store; --rebuild makes a damaged database anew", "", func(c *cli.Context, e *env) error {
		if err := noArguments(c); err != nil {
			return err
		}
		return runCheck(e, c.Bool("rebuild"))
	},
		&cli.BoolFlag{Name: "rebuild", Usage: "make a new database of what can be read of a damaged one, and lost rows of messages from the segments"},
		jsonFlag())
}

// checkResult is the result of the command check.
type checkResult struct {
	Status   string         `json:"status"`            // "ok" or "damaged", after any rebuild
	Problems []string       `json:"problems"`          // problems that the store still has
	Rebuild  *rebuildResult `json:"rebuild,omitempty"` // nil without --rebuild
}

// rebuildResult is the result of check --rebuild.
type rebuildResult struct {
	Found []string `json:"found"` // problems before the rebuild
	// Path of the damaged database, which is kept; "" if the database was not rebuilt.
	Database string         `json:"database"`
	Kept     map[string]int `json:"kept"` // numbers of rows that were read, by bucket
	Made     rebuiltRows    `json:"made"`
	Lost     []string       `json:"lost"` // data that must be restored from a backup
	// Number of accepted messages that the server will deliver when it starts.
	Waiting int `json:"waiting"`
}

// rebuiltRows counts rows that were rebuilt from messages.
type rebuiltRows struct {
	Messages int `json:"messages"` // messages put back into their folders
	Inbox    int `json:"inbox"`    // messages put into INBOX by their envelopes
	Parts    int `json:"parts"`    // messages with a new row for their parsed structure
	Folders  int `json:"folders"`
}

// runCheck verifies the store of a stopped server. If rebuild is set, it repairs the store as far
// as possible without a backup, and verifies it again.
func runCheck(e *env, rebuild bool) (err error) {
	if _, err := os.Stat(filepath.Join(e.dir, store.DatabaseFile)); err != nil {
		return fmt.Errorf("there is no store in %s: %w", e.dir, err)
	}
	defer func() { err = errors.Join(err, operator.GiveToOwner(e.dir)) }()
	progress := e.newProgressLine()
	defer progress.end()
	out := &checkResult{Status: "ok", Problems: []string{}}
	database, messages, err := checkStore(e, progress)
	if err != nil {
		return err
	}
	if rebuild {
		out.Rebuild, err = rebuildStore(e, database, progress)
		if err != nil {
			return err
		}
		if database, messages, err = checkStore(e, progress); err != nil {
			return err
		}
	}
	progress.end()
	if wrong := errors.Join(database, messages); wrong != nil {
		out.Status, out.Problems = "damaged", errorLines(wrong)
		err = fmt.Errorf("the store is damaged:\n%w", wrong)
		if database != nil && !rebuild {
			err = fmt.Errorf("%w\nRestore it from a backup, or rebuild it from what can be read: mailstead check --rebuild --data %s", err, e.dir)
		}
	}
	text := "ok\n"
	if err != nil {
		text = ""
	}
	if out.Rebuild != nil {
		text = out.Rebuild.text() + text
	}
	return errors.Join(e.print(out, text), err)
}

// checkStore verifies the database and then the stored messages. databaseDamage and messageDamage
// describe the damage that was found. err is an error that kept the checks from running.
func checkStore(e *env, progress *progressLine) (databaseDamage, messageDamage, err error) {
	progress.show("pages", 0, 0)
	if err := store.CheckPages(e.dir); errors.Is(err, store.ErrInUse) {
		return nil, nil, err
	} else if err != nil {
		return fmt.Errorf("the database is damaged, so rows and messages were not checked:\n%w", err), nil, nil
	}
	st, err := openStoppedStore(e)
	if errors.Is(err, store.ErrInUse) || errors.Is(err, store.ErrNewer) || errors.As(err, new(*fs.PathError)) || errors.As(err, new(config.Error)) {
		return nil, nil, err
	}
	if err != nil {
		return err, nil, nil
	}
	databaseDamage = st.CheckRows()
	messageDamage = st.CheckMessages(func(done, all int64) { progress.show("bytes of messages", done, all) })
	return databaseDamage, messageDamage, st.Close()
}

func openStoppedStore(e *env) (*store.Store, error) {
	s, err := e.offlineSettings()
	if err != nil {
		return nil, err
	}
	return store.Open(e.dir, store.Options{Log: slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), Program: e.Version, MayMigrate: operator.MigrationGuard(e.dir, s, e.Version)})
}

// rebuildStore rebuilds the database if damage is not nil. Then it rebuilds the lost rows of
// messages from the segment files.
func rebuildStore(e *env, damage error, progress *progressLine) (*rebuildResult, error) {
	out := &rebuildResult{Found: []string{}, Kept: map[string]int{}, Lost: []string{}}
	if damage != nil && !store.IsRebuilding(damage) {
		out.Found = errorLines(damage)
		r, err := store.RebuildDatabase(e.dir, e.Version, progress.show)
		if err != nil {
			return nil, fmt.Errorf("rebuild the database: %w", err)
		}
		out.Database, out.Kept, out.Made.Folders = r.Damaged, r.Kept, r.Folders
		out.Lost = append(append(out.Lost, errorLines(errors.Join(r.Damage...))...), r.Lost...)
	}
	st, err := openStoppedStore(e)
	if err != nil {
		return nil, err
	}
	r, err := transfer.Rebuild(st, progress.show)
	if err := errors.Join(err, st.Close()); err != nil {
		return nil, err
	}
	out.Made.Messages, out.Made.Inbox, out.Made.Parts, out.Waiting = r.Made, r.ToInbox, r.Parts, r.Waiting
	out.Lost = append(out.Lost, r.Lost...)
	return out, nil
}

func (r *rebuildResult) text() string {
	var b strings.Builder
	if r.Database != "" {
		rows := 0
		for _, n := range r.Kept {
			rows += n
		}
		fmt.Fprintf(&b, "The database was rebuilt from %d rows that could be read. The damaged one is %s.\n", rows, r.Database)
	}
	fmt.Fprintf(&b, "messages rebuilt     %d in their places, %d in INBOX by their envelopes\n", r.Made.Messages, r.Made.Inbox)
	if n := r.Made.Parts + r.Made.Folders; n > 0 {
		fmt.Fprintf(&b, "other rows           %d parts of messages, %d folders\n", r.Made.Parts, r.Made.Folders)
	}
	if r.Waiting > 0 {
		fmt.Fprintf(&b, "accepted messages    %d, which the server delivers when it starts\n", r.Waiting)
	}
	if len(r.Lost) > 0 {
		fmt.Fprintf(&b, "What could not be read, and has to come from a backup if it was in use:\n  %s\n", strings.Join(r.Lost, "\n  "))
	}
	return b.String()
}

// errorLines splits the text of an error into lines. It returns an empty slice for a nil error.
func errorLines(err error) []string {
	if err == nil {
		return []string{}
	}
	return strings.Split(err.Error(), "\n")
}
