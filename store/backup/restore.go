package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/segment"
)

// WorkDir is the directory in which a restore works. It is in the directory that is restored to,
// and exists until the restore is finished.
const WorkDir = "restore.part"

// A RestoreResult is the result of a restore.
type RestoreResult struct {
	At       time.Time `json:"at"`     // time of the last restored commit
	Number   uint64    `json:"number"` // number of that commit
	Messages int64     `json:"messages"`
	Bytes    int64     `json:"bytes"` // total size of the files
}

// A RangeError is returned for a time that cannot be restored. It has the times that can be.
type RangeError struct {
	At     time.Time
	Ranges []TimeRange // ascending
}

func (e *RangeError) Error() string {
	if len(e.Ranges) == 0 {
		return "there is no backup that could be restored"
	}
	var list []string
	for _, r := range e.Ranges {
		list = append(list, r.First.Format(rangeTimeLayout)+" to "+r.Last.Format(rangeTimeLayout))
	}
	return fmt.Sprintf("nothing is kept of %s: give --at a time from %s", e.At.Format(rangeTimeLayout), strings.Join(list, ", or from "))
}

const rangeTimeLayout = "2006-01-02T15:04:05.000Z07:00"

// A TimeRange is a period in which every time can be restored.
type TimeRange struct{ First, Last time.Time }

// A backupChain is a full backup with the batches of entries that follow it.
type backupChain struct {
	full    *Manifest
	batches []string  // names of the objects
	last    time.Time // time of the last entry
}

// readChains returns a chain for each full backup, the newest last.
func (t *Target) readChains(ctx context.Context, manifests []*Manifest) ([]backupChain, error) {
	follow := map[string][]entryBatch{} // batches by number and nonce of the entry before their first one
	link := func(number uint64, nonce string) string {
		return fmt.Sprintf("%d %s", number, nonce[:min(16, len(nonce))])
	}
	for o, err := range t.Place.List(ctx, "entries/") {
		if err != nil {
			return nil, err
		}
		if b, ok := parseBatch(o.Name); ok {
			at := link(b.first-1, b.previous)
			follow[at] = append(follow[at], b)
		}
	}
	var list []backupChain
	for _, m := range manifests {
		if m.Kind != Full {
			continue
		}
		c := backupChain{full: m, last: m.At}
		for at := link(m.Number, m.Nonce); len(follow[at]) > 0; {
			next := slices.MaxFunc(follow[at], func(a, b entryBatch) int { return int(int64(a.last) - int64(b.last)) })
			c.batches, c.last = append(c.batches, next.name()), next.at
			at = link(next.last, next.nonce)
		}
		list = append(list, c)
	}
	return list, nil
}

// restorableRanges returns the periods that can be restored.
func (t *Target) restorableRanges(chains []backupChain) (list []TimeRange) {
	for _, c := range chains {
		if n := len(list); n > 0 && !c.full.At.After(list[n-1].Last) {
			if c.last.After(list[n-1].Last) {
				list[n-1].Last = c.last
			}
			continue
		}
		list = append(list, TimeRange{c.full.At, c.last})
	}
	return list
}

// Restore makes a store in dir as it was at the time `at`; the zero time means the newest state.
// dir must be empty, except for files of a restore that was killed. It returns a *RangeError for a
// time that is not kept, and ErrNoIdentity if the backup cannot be decrypted.
func (t *Target) Restore(ctx context.Context, dir string, at time.Time, log *slog.Logger) (res *RestoreResult, err error) {
	manifests, c, err := t.chainAt(ctx, at)
	if err != nil {
		return nil, err
	}
	if c.full.Encrypted && len(t.Identities) == 0 {
		return nil, ErrNoIdentity
	}
	work, err := beginRestore(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, endRestore(work, err)) }()
	killpoint.At("restore.begin")
	res, err = t.restoreChain(ctx, manifests, c, work, at, log)
	if err != nil {
		return nil, err
	}
	return res, finishRestore(work, dir, res)
}

// chainAt returns all manifests, and the chain that has the state at the time `at`; the zero time
// means the newest state. It returns a *RangeError for a time that is not kept.
func (t *Target) chainAt(ctx context.Context, at time.Time) (manifests []*Manifest, c backupChain, err error) {
	manifests, err = t.manifests(ctx)
	if err != nil {
		return nil, c, err
	}
	chains, err := t.readChains(ctx, manifests)
	if err != nil {
		return nil, c, err
	}
	i := len(chains) - 1
	for ; i >= 0 && !at.IsZero() && chains[i].full.At.After(at); i-- {
	}
	if i < 0 || !at.IsZero() && chains[i].last.Before(at) {
		return nil, c, &RangeError{at, t.restorableRanges(chains)}
	}
	return manifests, chains[i], nil
}

// restoreChain makes a store in the existing directory work, as it was at the time `at`. The files
// are not synced.
func (t *Target) restoreChain(ctx context.Context, manifests []*Manifest, c backupChain, work string, at time.Time, log *slog.Logger) (res *RestoreResult, err error) {
	if err := t.fetchFull(ctx, c.full, work); err != nil {
		return nil, err
	}
	killpoint.At("restore.fetched")
	// The entries have the format of the full backup, which may be older than a migration.
	st, err := store.Open(work, store.Options{Unsynced: true, Unmigrated: true, Log: log})
	if err != nil {
		return nil, err
	}
	f := fetcher{Target: t, segments: map[uint32][]string{}, have: map[uint32]bool{}}
	defer f.close()
	for _, m := range manifests {
		for _, o := range m.Objects {
			if number, ok := parseSegmentName(o.Name); ok && !slices.Contains(f.segments[number], o.Name) {
				f.segments[number] = append(f.segments[number], o.Name)
			}
		}
	}
	for _, o := range c.full.Objects {
		if number, ok := parseSegmentName(o.Name); ok {
			f.have[number] = true
		}
	}
	end := errors.New("stop: the time to restore is reached") // ends readEntries
	for i, name := range c.batches {
		reportProgress(ctx, "batches of entries", int64(i), int64(len(c.batches)))
		err = t.readEntries(ctx, name, func(e *store.Entry) error {
			if !at.IsZero() && e.Time.After(at) {
				return end
			}
			for _, ref := range e.SeparateMessages() {
				if err := f.fetch(ctx, st, e, ref); isLost(err) {
					log.Error("a message in the backup is lost or damaged", "error", err)
					e.RecordLost(ref)
				} else if err != nil {
					return err
				}
			}
			return st.Apply(e)
		})
		if err != nil {
			break
		}
	}
	if errors.Is(err, end) {
		err = nil
	}
	res = new(RestoreResult)
	if err == nil {
		err = t.restoreKeys(ctx, st, log)
	}
	if err == nil {
		err = readStoreFields(st, res)
	}
	if err == nil {
		err = st.ForgetEntries()
	}
	if err := errors.Join(err, st.Close()); err != nil {
		return nil, err
	}
	st, err = store.Open(work, store.Options{Unsynced: true, Log: log, Program: t.Program})
	if err != nil {
		return nil, err
	}
	return res, st.Close()
}

// readStoreFields sets the fields of res that are read from the restored store: its time, its
// number and how many messages it has.
func readStoreFields(st *store.Store, res *RestoreResult) error {
	snap, err := st.Snapshot()
	if err != nil {
		return err
	}
	res.At, res.Number, res.Messages = snap.Time, snap.Number, snap.Messages
	return snap.Close()
}

// beginRestore creates the work directory of a restore. It returns an error if dir has files that
// no killed restore has left.
func beginRestore(dir string) (work string, err error) {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	work = filepath.Join(dir, WorkDir)
	moving := fileExists(filepath.Join(work, movingFile)) && !fileExists(filepath.Join(dir, store.DatabaseFile))
	for _, e := range list {
		if e.Name() != WorkDir && !moving {
			return "", fmt.Errorf("%s is not empty: restore to an empty directory", dir)
		}
	}
	for _, e := range list { // a killed restore has moved these files here; they are restored again
		if e.Name() == WorkDir {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return "", err
		}
	}
	if err := os.RemoveAll(work); err != nil {
		return "", err
	}
	return work, os.MkdirAll(filepath.Join(work, store.SegmentDir), 0o700)
}

// endRestore removes the work directory of a failed restore, with the keys in it. If files were
// already moved out of it, it stays, so that the next restore knows that these files may be
// overwritten.
func endRestore(work string, failed error) error {
	if failed == nil || fileExists(filepath.Join(work, movingFile)) {
		return nil
	}
	return os.RemoveAll(work)
}

func fileExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// movingFile is the name of a marker file in the work directory. It exists while files are moved
// out of that directory.
const movingFile = "moving"

// finishRestore syncs the files and moves them from the work directory to dir, the database last.
func finishRestore(work, dir string, res *RestoreResult) error {
	err := filepath.WalkDir(work, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		if info, err := f.Stat(); err == nil && !e.IsDir() {
			res.Bytes += info.Size()
		}
		return errors.Join(f.Sync(), f.Close())
	})
	if err != nil {
		return err
	}
	killpoint.At("restore.synced")
	list, err := os.ReadDir(work)
	if err != nil {
		return err
	}
	marker := filepath.Join(work, movingFile)
	if err := errors.Join(os.WriteFile(marker, nil, 0o600), syncDir(work)); err != nil {
		return err
	}
	for _, last := range []bool{false, true} {
		for _, e := range list {
			if (e.Name() == store.DatabaseFile) != last {
				continue
			}
			killpoint.At("restore.move")
			if err := os.Rename(filepath.Join(work, e.Name()), filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	killpoint.At("restore.moved")
	return errors.Join(os.Remove(marker), os.Remove(work), syncDir(dir))
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// fetchFull writes the files of a full backup to the work directory.
func (t *Target) fetchFull(ctx context.Context, m *Manifest, work string) error {
	progress := newByteProgress(ctx, "the backup", m.Bytes())
	for _, o := range m.Objects {
		progress.add(o.Size)
		kind, rest, _ := strings.Cut(o.Name, "/")
		path := ""
		switch kind {
		case "db":
			path = store.DatabaseFile
		case "segments":
			number, ok := parseSegmentName(o.Name)
			if !ok {
				return fmt.Errorf("object %s of backup %s: %w", o.Name, m.ID, ErrDamaged)
			}
			path = filepath.Join(store.SegmentDir, segment.FileName(number))
		case "open":
			number, ok := parseSegmentName("segments/" + rest[strings.LastIndex(rest, "-")+1:] + "-")
			if !ok {
				return fmt.Errorf("object %s of backup %s: %w", o.Name, m.ID, ErrDamaged)
			}
			path = filepath.Join(store.SegmentDir, segment.FileName(number))
		case "files":
			if err := t.readObject(ctx, o.Name, func(r io.Reader) error { return extractTar(tar.NewReader(r), work) }); err != nil {
				return err
			}
			continue
		default:
			continue
		}
		err := t.readObject(ctx, o.Name, func(r io.Reader) error {
			f, err := os.OpenFile(filepath.Join(work, path), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			if err != nil {
				return err
			}
			_, err = io.Copy(f, r)
			return errors.Join(err, f.Close())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// extractTar writes the files of a tar into dir. The tar must have no directories.
func extractTar(in *tar.Reader, dir string) error {
	for {
		h, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Name != filepath.Base(h.Name) || h.Typeflag != tar.TypeReg {
			return fmt.Errorf("extract file %q: %w", h.Name, ErrDamaged)
		}
		f, err := os.OpenFile(filepath.Join(dir, h.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, in)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}

// A fetcher fetches the messages that entries do not contain.
type fetcher struct {
	*Target
	segments map[uint32][]string // names of objects by segment number; several if a restored store has used a number again
	have     map[uint32]bool     // segments that are in the full backup

	open map[string]*os.File // the last fetched segments by the names of their objects
	used []string            // names of the segments in open, the oldest first
}

// fetch writes the record of a message into the store. If no object has the message, the error
// wraps segment.ErrDamaged.
func (f *fetcher) fetch(ctx context.Context, st *store.Store, e *store.Entry, ref store.BlobRef) error {
	if f.have[ref.Segment] {
		return verifyMessage(st, ref)
	}
	errs := []error{fmt.Errorf("fetch message at offset %d of segment %08x: %w", ref.Offset, ref.Segment, segment.ErrDamaged)}
	for _, name := range f.segments[ref.Segment] {
		file, err := f.openSegment(ctx, name)
		if err != nil {
			return err
		}
		var head [segment.HeaderSize]byte
		if _, err := file.ReadAt(head[:], 0); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		err = st.WriteMessage(head, ref, io.NewSectionReader(file, int64(ref.Offset), ref.Size()))
		if err == nil {
			err = verifyMessage(st, ref)
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	err := f.readObject(ctx, messageName(ref, e.Nonce), func(r io.Reader) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if int64(len(data)) != segment.HeaderSize+ref.Size() {
			return ErrDamaged
		}
		if err := st.WriteMessage([segment.HeaderSize]byte(data), ref, bytes.NewReader(data[segment.HeaderSize:])); err != nil {
			return err
		}
		return verifyMessage(st, ref)
	})
	if err == nil || !isLost(err) && !errors.Is(err, ErrDamaged) { // the place could not be read
		return err
	}
	return errors.Join(append(errs, err)...)
}

func verifyMessage(st *store.Store, ref store.BlobRef) error {
	blob, err := st.OpenBlob(ref)
	if err != nil {
		return err
	}
	return blob.Close()
}

// maxOpenSegments is how many fetched segments stay open.
const maxOpenSegments = 4

// openSegment fetches a segment into an unlinked temporary file. The last maxOpenSegments of these
// files stay open.
func (f *fetcher) openSegment(ctx context.Context, name string) (*os.File, error) {
	if file := f.open[name]; file != nil {
		return file, nil
	}
	file, err := os.CreateTemp(f.Temp, "restore-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	err = f.readObject(ctx, name, func(r io.Reader) error {
		_, err := io.Copy(file, r)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if f.open == nil {
		f.open = map[string]*os.File{}
	}
	f.open[name] = file
	f.used = append(f.used, name)
	if len(f.used) > maxOpenSegments {
		err = f.open[f.used[0]].Close()
		delete(f.open, f.used[0])
		f.used = f.used[1:]
	}
	return file, err
}

func (f *fetcher) close() {
	for _, file := range f.open {
		file.Close()
	}
}
