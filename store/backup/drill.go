package backup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/entry"
	"github.com/mailstead/mailstead/store/segment"
)

// A DrillResult is the outcome of a drill.
type DrillResult struct {
	At        time.Time // time of the last commit in the backup
	Number    uint64    // number of that commit
	Messages  int64     // in the backup
	Decrypted bool      // false: it is encrypted, so only its checksums were verified
	Problems  []string  // what is damaged; empty: nothing is
}

// maxDrillProblems is how many problems a DrillResult lists, and maxProblemText the length of each
// in bytes.
const (
	maxDrillProblems = 50
	maxProblemText   = 300
)

// addProblem adds the lines of an error.
func (r *DrillResult) addProblem(err error) {
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if len(r.Problems) == maxDrillProblems {
			r.Problems = append(r.Problems, "more problems are not listed")
		}
		if len(r.Problems) > maxDrillProblems {
			return
		}
		r.Problems = append(r.Problems, strings.ToValidUTF8(line[:min(len(line), maxProblemText)], ""))
	}
}

// databaseGrowth is how much larger bbolt makes the file of a database than it must be, in bytes.
const databaseGrowth = 32 << 20

// DrillRoom returns how many bytes of a disk a drill of the newest backup may take. Of changes that
// were sent since, and of backups of older versions, it is an estimate. It is 0 if nothing would be
// restored, since the backup is encrypted and there is no identity. The error is a *RangeError if
// there is no backup.
func (t *Target) DrillRoom(ctx context.Context) (int64, error) {
	manifests, c, err := t.chainAt(ctx, time.Time{})
	if err != nil || c.full.Encrypted && len(t.Identities) == 0 {
		return 0, err
	}
	room := int64(databaseGrowth)
	restored := map[string]bool{}
	for _, o := range c.full.Objects {
		restored[o.Name] = true
		room += o.plainSize()
	}
	if c.full.Program != t.Program { // a migration may write the database a second time
		for _, o := range c.full.Objects {
			if strings.HasPrefix(o.Name, "db/") {
				room += o.plainSize()
			}
		}
	}
	// Entries write their rows and messages. The messages that they lack come from segments, of
	// which the last ones are kept in temporary files.
	var fetched []int64
	for _, m := range manifests {
		for _, o := range m.Objects {
			kind, _, _ := strings.Cut(o.Name, "/")
			if restored[o.Name] || m.Number <= c.full.Number {
				continue
			}
			switch {
			case kind == "segments":
				fetched = append(fetched, o.plainSize())
				room += o.plainSize()
			case kind == "messages":
				room += o.plainSize()
			case kind == "entries" && o.Plain > 0:
				room += 2 * o.Plain
			default:
				continue
			}
			restored[o.Name] = true
		}
	}
	slices.SortFunc(fetched, func(a, b int64) int { return cmp.Compare(b, a) })
	for _, size := range fetched[:min(len(fetched), maxOpenSegments)] {
		room += size
	}
	for o, err := range t.Place.List(ctx, "entries/") {
		if err != nil {
			return 0, err
		}
		if slices.Contains(c.batches, o.Name) && !restored[o.Name] {
			room += entryGrowth * o.Size
		}
	}
	return room, nil
}

// entryGrowth is how many bytes on the disk one byte of a compressed entry may become.
const entryGrowth = 8

// plainSize returns the size of the object's contents. For an object of an older version it is an
// upper bound: no part of a database, and no segment without its last message, is larger than
// partBytes.
func (o StoredObject) plainSize() int64 {
	if o.Plain > 0 {
		return o.Plain
	}
	return partBytes + o.Size
}

// Drill restores the newest backup into the new directory dir and makes every check of the command
// check on it. Then it calls look, whose error has a line for each problem. If the backup is
// encrypted and there is no identity, Drill verifies the checksums of its objects, and does not
// call look. Damage is a problem in the result; the error is what kept the drill from being carried
// out. It is a *RangeError if there is no backup.
//
// Drill may run beside the server: it rests while the process is busy, and changes neither the
// place nor the server's store. Nothing may be deleted from the place meanwhile. The caller removes
// dir.
func (t *Target) Drill(ctx context.Context, dir string, log *slog.Logger, look func(context.Context, *store.Store) error) (out *DrillResult, err error) {
	defer func() {
		if ctx.Err() != nil { // what was found comes from work that was cut short
			out, err = nil, context.Cause(ctx)
		}
	}()
	manifests, c, err := t.chainAt(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	d := &drillReads{stored: map[string]StoredObject{}, read: map[string]bool{}}
	newest := c.full
	bases := map[string]bool{c.full.ID: true} // backups of the chain
	for _, m := range manifests {
		for _, o := range m.Objects {
			d.stored[o.Name] = o
		}
		if m.Kind == Incremental && bases[m.Base] {
			bases[m.ID], newest = true, m
		}
	}
	out = &DrillResult{At: newest.At, Number: newest.Number, Messages: newest.Messages, Decrypted: !c.full.Encrypted || len(t.Identities) > 0}
	if out.Decrypted {
		t.drill = d
		defer func() { t.drill = nil }()
		err = t.restoreAndCheck(ctx, manifests, c, dir, log, look, out)
	}
	if err == nil {
		err = t.verifyRest(ctx, manifests, bases, d, out)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// restoreAndCheck restores a chain into dir and checks the store there.
func (t *Target) restoreAndCheck(ctx context.Context, manifests []*Manifest, c backupChain, dir string, log *slog.Logger, look func(context.Context, *store.Store) error, out *DrillResult) error {
	if err := os.MkdirAll(filepath.Join(dir, store.SegmentDir), 0o700); err != nil {
		return err
	}
	killpoint.At("drill.begin")
	res, err := t.restoreChain(ctx, manifests, c, dir, time.Time{}, log)
	if isDamage(err) {
		out.addProblem(err)
		return nil
	}
	if err != nil {
		return err
	}
	killpoint.At("drill.restored")
	out.At, out.Number, out.Messages = res.At, res.Number, res.Messages
	reportProgress(ctx, "pages of the database", 0, 0)
	if err := engine.CheckPagesInBackground(ctx, filepath.Join(dir, store.DatabaseFile)); err != nil {
		out.addProblem(fmt.Errorf("the database is damaged, so rows and messages were not checked: %w", err))
		return nil
	}
	st, err := store.Open(dir, store.Options{Unsynced: true, Log: log, Program: t.Program, Background: ctx})
	if isDamage(err) {
		out.addProblem(err)
		return nil
	}
	if err != nil {
		return err
	}
	defer st.Close()
	reportProgress(ctx, "rows of the database", 0, 0)
	out.addProblem(st.CheckRows())
	out.addProblem(st.CheckMessages(func(done, all int64) { reportProgress(ctx, "bytes of messages", done, all) }))
	killpoint.At("drill.checked")
	if look != nil && ctx.Err() == nil {
		out.addProblem(look(ctx, st))
	}
	return st.Close()
}

// verifyRest verifies the checksums of those objects of the backups that were not read yet.
func (t *Target) verifyRest(ctx context.Context, manifests []*Manifest, bases map[string]bool, d *drillReads, out *DrillResult) error {
	for _, m := range manifests {
		if !bases[m.ID] {
			continue
		}
		progress := newByteProgress(ctx, "backup "+m.ID, m.Bytes())
		for _, o := range m.Objects {
			progress.add(o.Size)
			if d.read[o.Name] || slices.ContainsFunc(out.Problems, func(known string) bool { return strings.Contains(known, o.Name) }) {
				continue
			}
			err := t.verifyObject(ctx, o, &d.pace)
			if isDamage(err) {
				out.addProblem(err)
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// isDamage reports whether an error of a restore means that the backup is damaged or incomplete,
// and not that the place or the disk could not be used.
func isDamage(err error) bool {
	return slices.ContainsFunc([]error{ErrDamaged, segment.ErrDamaged, entry.ErrDamaged, store.ErrDatabase, store.ErrGap, fs.ErrNotExist}, func(damage error) bool {
		return errors.Is(err, damage)
	})
}

// drillReads has what the reads of a drill do in addition to those of a restore: they rest while
// the process is busy, and compare each object with its checksum. The methods of a nil *drillReads
// do neither.
type drillReads struct {
	stored map[string]StoredObject // all objects that manifests name
	read   map[string]bool         // those that were read to their end
	pace   store.Pacer
}

// reader returns the reader of an object.
func (d *drillReads) reader(ctx context.Context, from io.Reader) *objectReader {
	if d == nil {
		return &objectReader{Reader: from}
	}
	summed := &summedReader{from, ctx, d, sha256.New(), 0}
	return &objectReader{Reader: summed, summed: summed}
}

// A summedReader reads an object and computes its checksum.
type summedReader struct {
	from io.Reader
	ctx  context.Context
	d    *drillReads
	sum  hash.Hash
	size int64
}

// Read reads like the object.
func (r *summedReader) Read(p []byte) (int, error) {
	if err := r.d.pace.Rest(r.ctx); err != nil {
		return 0, err
	}
	n, err := r.from.Read(p)
	r.sum.Write(p[:n])
	r.size += int64(n)
	return n, err
}

// compare reads what is left of an object and compares its checksum. It returns ErrDamaged if that
// differs, otherwise the error of the object's contents.
func (d *drillReads) compare(name string, in *objectReader, content error) error {
	if d == nil {
		return content
	}
	want, known := d.stored[name]
	if !known {
		return content
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return cmp.Or(content, err)
	}
	if in.summed.size != want.Size || hex.EncodeToString(in.summed.sum.Sum(nil)) != want.SHA256 {
		return fmt.Errorf("it differs from what was stored: %w", ErrDamaged)
	}
	d.read[name] = true
	return content
}
