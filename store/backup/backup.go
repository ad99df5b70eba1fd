// Package backup copies a running store to an object store or into one file, and restores such a
// copy to any time that is kept. It does not know what the rows mean, nor when backups are to be
// made.
//
// A place contains these objects. All but the manifests are compressed (zstd) and, if there are
// recipients, encrypted (age).
//
//	manifests/ID              a backup: what it is, and the objects that it needs (JSON)
//	db/ID-PART                the database, in parts of 64 MiB
//	files/ID                  a tar of the files beside it: the master key, the configuration
//	keys/FINGERPRINT-MS       a master key, and when it was stored
//	open/ID-SEGMENT           the segment that took new messages then, up to its end
//	segments/SEGMENT-MARK     a segment that is full; later backups share it
//	entries/FIRST-LAST-PREVIOUS-NONCE-MS
//	                          entries: their numbers, the nonces of the one before the first and of
//	                          the last, and its time
//	messages/SEGMENT-OFFSET-NONCE
//	                          the record of one message that is too large for its entry, NONCE
//
// A full backup is complete in itself. An incremental backup names the backup that it is based on,
// and has the entries since that one. Entries that are sent between backups are objects that no
// manifest names. The next backup has the same entries in larger objects.
//
// Where things are:
//   - backup.go: making a backup ([Target.Run]). batch.go: entries that are sent between backups.
//     archive.go: a backup in one file. copy.go: a copy of a data directory, for a rehearsal or a
//     migration.
//   - verify.go: whether a backup is complete and undamaged ([Target.Verify]).
//   - restore.go: restoring, and which times can be restored. keys.go: master keys.
//   - drill.go: restoring the newest backup for a trial, beside the running server.
//   - keep.go: the list of backups, and which are deleted. schedule.go: when one is due.
//   - seal.go: encryption and compression.
package backup

import (
	"archive/tar"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/entry"
	"github.com/mailstead/mailstead/store/objects"
	"github.com/mailstead/mailstead/store/segment"
)

// Values of Manifest.Kind.
const (
	Full        = "full"
	Incremental = "incremental"
)

const (
	manifestVersion = 1
	partBytes       = 64 << 20 // bytes of the database or of entries in one object
	batchBytes      = 4 << 20  // bytes of entries in memory
)

// A Manifest describes one backup. It is not encrypted.
type Manifest struct {
	Version   int            `json:"version"`
	ID        string         `json:"id"` // begins with the time at which the backup was made, so that ids sort by time
	Kind      string         `json:"kind"`
	At        time.Time      `json:"at"`             // time of the last commit in the backup
	Number    uint64         `json:"number"`         // number of that commit
	Nonce     string         `json:"nonce"`          // nonce of the entry of that commit
	Base      string         `json:"base,omitempty"` // id of the backup that it is based on; "": a full one
	Messages  int64          `json:"messages"`
	Encrypted bool           `json:"encrypted"`
	Verified  bool           `json:"verified"` // its new objects were read back before the manifest was written
	Program   string         `json:"program"`  // the version of Mailstead
	Objects   []StoredObject `json:"objects"`
}

// Bytes returns the total size of all objects of the backup.
func (m *Manifest) Bytes() (n int64) {
	for _, o := range m.Objects {
		n += o.Size
	}
	return n
}

// A StoredObject describes one object of a backup, in the form in which it is stored.
type StoredObject struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Plain  int64  `json:"plain,omitempty"` // bytes before compression; 0: not known, as in backups of older versions
}

// A Source is the installation that is backed up.
type Source struct {
	Store   *store.Store
	Files   []string // names of files in the data directory to back up if they exist; they are read in this order
	Program string   // the version of Mailstead
	Log     *slog.Logger
}

// A Target is a place to which backups are written. Only one process at a time may back up a store
// to it.
type Target struct {
	Place      objects.Place
	Recipients []age.Recipient // empty: nothing is encrypted
	Identities []age.Identity  // for reading encrypted objects
	Temp       string          // directory for temporary files
	Guest      bool            // the store keeps its entries for another target, so backups to this one do not delete them
	Program    string          // version of the program, for the store that Restore opens

	drill *drillReads // what a drill reads; nil otherwise

	mu   sync.Mutex
	seen map[string]summary // manifests that were read, by the names of their objects

	sending sync.Mutex // locked while entries are sent, and while a backup takes its snapshot
	sent    uint64     // the number of the last entry that was sent; 0: not known
}

// A Result is the outcome of one backup.
type Result struct {
	ID         string    `json:"id"`
	Kind       string    `json:"kind"`
	Target     string    `json:"target"`
	At         time.Time `json:"at"`
	Number     uint64    `json:"number"`
	Messages   int64     `json:"messages"`
	Bytes      int64     `json:"bytes"`       // size of all objects that it needs
	BytesAdded int64     `json:"bytes_added"` // size of the new objects
	DurationMS int64     `json:"duration_ms"`
	Verified   bool      `json:"verified"`
	Reason     string    `json:"reason,omitempty"` // why a full backup was made although an incremental one was requested
}

// maxPacedDatabase is the size of the database above which no Pacer slows down the copying of it:
// the longer a snapshot stays open, the more the database grows.
const maxPacedDatabase = 1 << 30

// databasePacer returns the Pacer that slows down the copying of a snapshot's database; nil if it
// is not to be slowed down.
func databasePacer(snap *store.Snapshot) *store.Pacer {
	if snap.DatabaseSize() > maxPacedDatabase {
		return nil
	}
	return &store.Pacer{}
}

// A backupRun is one backup in progress.
type backupRun struct {
	*Target
	src       Source
	m         *Manifest
	dataFiles []sourceFile            // files of the data directory that are not part of the store
	known     map[string]StoredObject // objects of earlier backups by name
	added     []StoredObject          // objects that this backup has stored
	pace      *store.Pacer            // nil: not paced
	progress  *byteProgress
}

// Run makes a backup of the store. It is incremental to the newest backup that it can be based on.
// It is a full one if full is true or there is no such backup. If verify is true, the new objects
// are read back and compared.
func (t *Target) Run(ctx context.Context, src Source, full, verify bool) (*Result, error) {
	began := time.Now()
	manifests, err := t.manifests(ctx)
	if err != nil {
		return nil, err
	}
	t.deleteLeftovers(ctx, src.Log, manifests)
	dropped, err := src.Store.EntriesDropped()
	if err == nil {
		err = src.Store.KeepEntries()
	}
	if err != nil {
		return nil, err
	}
	base, reason, err := t.findBase(src.Store, manifests)
	if dropped && base == nil {
		reason = "what changed since the last backup was dropped, since it was more than is kept for a backup"
	}
	if err != nil {
		return nil, err
	}
	var needed []string // fingerprints of the master keys that an incremental backup needs
	if base != nil {
		needed, err = keysSince(src.Store, base.Number)
		if err != nil {
			return nil, err
		}
	}

	// No entries may be sent between taking the snapshot and sending the entries up to it. So no
	// batch that was sent has entries from both before and after a backup.
	t.sending.Lock()
	snap, files, err := src.snapshot()
	if err == nil && t.sent != 0 && t.sent < snap.Number {
		err = t.sendUpTo(ctx, src.Store, snap.Number)
	}
	t.sending.Unlock()
	if snap != nil {
		defer snap.Close()
	}
	if err != nil {
		return nil, err
	}

	stored, err := t.keyObjects(ctx)
	if err != nil {
		return nil, err
	}
	for _, print := range needed {
		if len(stored[print]) == 0 && keysIn(files)[print] == nil {
			base, reason = nil, "a master key that was in use since the last backup is not there any more"
		}
	}
	r := &backupRun{Target: t, src: src, dataFiles: files, known: map[string]StoredObject{}, pace: databasePacer(snap), m: &Manifest{
		Version: manifestVersion, Kind: Incremental, At: snap.Time, Number: snap.Number, Nonce: hex.EncodeToString(snap.Nonce[:]),
		Messages: snap.Messages, Encrypted: len(t.Recipients) > 0, Program: src.Program,
	}}
	if full || base == nil {
		r.m.Kind = Full
	}
	at := src.Store.Now()
	if len(manifests) > 0 { // the clock may have been set back, but the newest backup must have the last id
		if last, ok := timeInID(manifests[len(manifests)-1].ID); ok && !at.After(last) {
			at = last.Add(time.Millisecond)
		}
	}
	r.m.ID = newID(at, snap.Number, r.m.Kind)
	for _, m := range manifests {
		if m.Encrypted == r.m.Encrypted {
			for _, o := range m.Objects {
				r.known[o.Name] = o
			}
		}
	}
	r.progress = newByteProgress(ctx, "the backup", r.bytesToStore(snap))
	killpoint.At("backup.snapshot")
	if r.m.Kind == Full {
		if err := r.storeDatabase(ctx, snap); err != nil {
			return nil, err
		}
	}
	if err := snap.CloseDatabase(); err != nil {
		return nil, err
	}
	r.pace = &store.Pacer{}
	if err := r.storeSegments(ctx, snap); err != nil {
		return nil, err
	}
	killpoint.At("backup.segments")
	if err := r.storeKeys(ctx); err != nil {
		return nil, err
	}
	if base != nil {
		if err := r.storeEntries(ctx, base.Number); err != nil {
			return nil, err
		}
	}
	if r.m.Kind == Full {
		if err := r.storeFiles(ctx); err != nil {
			return nil, err
		}
	} else {
		r.m.Base = base.ID
	}
	killpoint.At("backup.objects")
	if verify {
		total := int64(0)
		for _, o := range r.added {
			total += o.Size
		}
		again := newByteProgress(ctx, "the backup, read back", total)
		for _, o := range r.added {
			if err := t.verifyObject(ctx, o, r.pace); err != nil {
				return nil, err
			}
			again.add(o.Size)
		}
		r.m.Verified = true
	}
	killpoint.At("backup.manifest")
	if err := t.putManifest(ctx, r.m); err != nil {
		return nil, err
	}
	killpoint.At("backup.listed")
	if !t.Guest {
		if err := src.Store.DropEntries(snap.Number); err != nil {
			return nil, err
		}
	}
	res := &Result{
		ID: r.m.ID, Kind: r.m.Kind, Target: t.Place.String(), At: r.m.At, Number: r.m.Number, Messages: r.m.Messages,
		Bytes: r.m.Bytes(), Verified: verify, DurationMS: time.Since(began).Milliseconds(),
	}
	for _, o := range r.added {
		res.BytesAdded += o.Size
	}
	if !full {
		res.Reason = reason
	}
	return res, nil
}

// deleteLeftovers deletes the databases, files and open segments of backups without a manifest, to
// free their space. Runs that were killed or failed have left them. It keeps segments and entries:
// the next run overwrites them, and later entries may depend on them.
func (t *Target) deleteLeftovers(ctx context.Context, log *slog.Logger, manifests []*Manifest) {
	named := map[string]bool{}
	for _, m := range manifests {
		for _, o := range m.Objects {
			named[o.Name] = true
		}
	}
	for o, err := range t.Place.List(ctx, "") {
		kind, _, _ := strings.Cut(o.Name, "/")
		if err == nil && !named[o.Name] && (kind == "db" || kind == "files" || kind == "open") {
			err = t.Place.Delete(ctx, o.Name)
		}
		if err != nil {
			log.Warn("the objects of an unfinished backup could not be deleted", "target", t.Place.String(), "error", err)
			return
		}
	}
}

// findBase returns the newest backup that the next one can be incremental to: it belongs to the
// history of the store, and all entries since then are kept. If there is none, base is nil and
// noBase is the reason.
func (t *Target) findBase(s *store.Store, manifests []*Manifest) (base *Manifest, noBase string, err error) {
	if len(manifests) == 0 {
		return nil, "there is no backup yet", nil
	}
	reason := "what changed since the last backup is not kept, as after a restore or a migration"
	for _, m := range slices.Backward(manifests) {
		nonce, err := s.NonceOf(m.Number)
		if errors.Is(err, store.ErrGap) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		switch {
		case hex.EncodeToString(nonce[:]) != m.Nonce:
		case m.Encrypted == (len(t.Recipients) > 0):
			return m, "", nil
		case m.Encrypted:
			reason = "backups are not encrypted any more"
		default:
			reason = "backups are encrypted from now on"
		}
	}
	return nil, reason, nil
}

// bytesToStore returns the size of the database and of the segments that the backup has to store.
func (r *backupRun) bytesToStore(snap *store.Snapshot) (n int64) {
	stored := map[uint32]bool{}
	for name := range r.known {
		if number, ok := parseSegmentName(name); ok {
			stored[number] = true
		}
	}
	for _, info := range snap.Segments {
		if !stored[info.Number] && (!info.Active || r.m.Kind == Full) {
			n += info.Size
		}
	}
	if r.m.Kind == Full {
		n += snap.DatabaseSize()
	}
	return n
}

// storeSegments stores the full segments that are not stored yet. For a full backup it also stores
// the active segment.
func (r *backupRun) storeSegments(ctx context.Context, snap *store.Snapshot) error {
	for _, info := range snap.Segments {
		f, err := snap.OpenSegment(info.Number)
		if err != nil {
			return err
		}
		name := segmentName(info.Number, f.Mark)
		known, stored := r.known[name]
		switch {
		case info.Active && r.m.Kind != Full:
		case stored:
			if r.m.Kind == Full {
				r.m.Objects = append(r.m.Objects, known)
			}
		default:
			if info.Active {
				name = fmt.Sprintf("open/%s-%08x", r.m.ID, info.Number)
			}
			err = r.addObject(ctx, name, func(w io.Writer) error {
				_, err := io.Copy(w, io.NewSectionReader(f, 0, info.Size))
				return err
			})
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

func segmentName(number uint32, mark [8]byte) string {
	return fmt.Sprintf("segments/%08x-%x", number, mark)
}

// storeEntries stores the entries after the number `after`, up to the last commit of the backup. It
// leaves out the bytes of messages in stored segments.
func (r *backupRun) storeEntries(ctx context.Context, after uint64) error {
	stored := map[uint32]bool{}
	for _, list := range [][]StoredObject{r.added, r.m.Objects} {
		for _, o := range list {
			if number, ok := parseSegmentName(o.Name); ok {
				stored[number] = true
			}
		}
	}
	for name := range r.known {
		if number, ok := parseSegmentName(name); ok {
			stored[number] = true
		}
	}
	for after < r.m.Number {
		b := entryBatch{first: after + 1}
		temp, err := r.sealToFile(func(w io.Writer) error {
			for size := int64(0); b.last < r.m.Number && size < partBytes; {
				list, err := r.src.Store.Entries(max(after, b.last), batchBytes)
				if err != nil {
					return err
				}
				for _, e := range list {
					if e.Number > r.m.Number {
						break
					}
					e.DropMessages(func(ref segment.Ref) bool { return stored[ref.Segment] })
					if err := r.storeLargeMessages(ctx, e, stored); err != nil {
						return err
					}
					n, err := writeEntry(w, e)
					if err != nil {
						return err
					}
					size += n
					b.add(e)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := r.putObject(ctx, b.name(), temp); err != nil {
			return err
		}
		after = b.last
	}
	return nil
}

// storeLargeMessages stores the large messages of an entry: those whose bytes are neither in the
// entry nor in a stored segment.
func (r *backupRun) storeLargeMessages(ctx context.Context, e *store.Entry, stored map[uint32]bool) error {
	for _, ref := range e.SeparateMessages() {
		name := messageName(ref, e.Nonce)
		if stored[ref.Segment] {
			continue
		}
		if known, ok := r.known[name]; ok {
			r.m.Objects = append(r.m.Objects, known)
			continue
		}
		err := r.addObject(ctx, name, func(w io.Writer) error { return writeMessage(w, r.src.Store, ref) })
		if isLost(err) {
			e.RecordLost(ref)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func messageName(ref segment.Ref, nonce entry.Nonce) string {
	return fmt.Sprintf("messages/%08x-%08x-%x", ref.Segment, ref.Offset, nonce[:8])
}

// isLost reports whether err means that the bytes of a message are lost.
func isLost(err error) bool {
	return errors.Is(err, segment.ErrDamaged) || errors.Is(err, fs.ErrNotExist)
}

// writeMessage writes the header of the segment of a message, and then the record of the message.
func writeMessage(w io.Writer, s *store.Store, ref segment.Ref) error {
	head, record, err := s.ReadMessage(ref)
	if err != nil {
		return err
	}
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err = w.Write(record)
	return err
}

// storeDatabase stores the database in parts.
func (r *backupRun) storeDatabase(ctx context.Context, snap *store.Snapshot) error {
	from, to := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := snap.WriteDatabase(to)
		to.CloseWithError(err)
		written <- err
	}()
	defer func() {
		from.Close() // stops the writing goroutine after an error here
		<-written
	}()
	for part, left := 0, snap.DatabaseSize(); left > 0; part++ {
		n := min(left, partBytes)
		err := r.addObject(ctx, fmt.Sprintf("db/%s-%06d", r.m.ID, part), func(w io.Writer) error {
			_, err := io.CopyN(w, from, n)
			return err
		})
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// storeFiles stores the files of the data directory that are not part of the store.
func (r *backupRun) storeFiles(ctx context.Context) error {
	return r.addObject(ctx, "files/"+r.m.ID, func(w io.Writer) error {
		out := tar.NewWriter(w)
		for _, f := range r.dataFiles {
			if err := out.WriteHeader(&tar.Header{Name: f.name, Mode: 0o600, Size: int64(len(f.data)), Format: tar.FormatPAX}); err != nil {
				return err
			}
			if _, err := out.Write(f.data); err != nil {
				return err
			}
		}
		return out.Close()
	})
}

// addObject stores the output of write as an object of the backup.
func (r *backupRun) addObject(ctx context.Context, name string, write func(io.Writer) error) error {
	temp, err := r.sealToFile(func(w io.Writer) error {
		return write(&pacedStream{ctx: ctx, pace: r.pace, to: r.progress.counting(w)})
	})
	if err != nil {
		return fmt.Errorf("prepare object %s: %w", name, err)
	}
	return r.putObject(ctx, name, temp)
}

// putObject puts a sealed object into the place, adds it to the manifest, and closes it.
func (r *backupRun) putObject(ctx context.Context, name string, temp *sealedObject) error {
	defer temp.Close()
	if err := r.Place.Put(ctx, name, &pacedStream{ctx: ctx, pace: r.pace, at: temp}, temp.size); err != nil {
		return err
	}
	o := StoredObject{name, temp.size, temp.sum, temp.plain}
	r.added = append(r.added, o)
	r.m.Objects = append(r.m.Objects, o)
	return nil
}

func (t *Target) putManifest(ctx context.Context, m *Manifest) error {
	text, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	return t.Place.Put(ctx, "manifests/"+m.ID, strings.NewReader(string(text)), int64(len(text)))
}

// manifests reads all manifests, oldest first.
func (t *Target) manifests(ctx context.Context) (list []*Manifest, err error) {
	for o, err := range t.Place.List(ctx, "manifests/") {
		if err != nil {
			return nil, err
		}
		m, err := t.readManifest(ctx, o.Name)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

func (t *Target) readManifest(ctx context.Context, name string) (*Manifest, error) {
	in, err := t.Place.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(in, 1<<30))
	m := new(Manifest)
	if err = errors.Join(err, in.Close()); err == nil {
		if bad := json.Unmarshal(text, m); bad != nil {
			err = fmt.Errorf("%w: %w", ErrDamaged, bad)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if m.Version > manifestVersion {
		return nil, fmt.Errorf("%s was written by a newer version of Mailstead (%s): use that version", name, m.Program)
	}
	return m, nil
}

// A summary is a manifest without its objects.
type summary struct {
	*Manifest
	bytes int64 // of all objects
}

// summaries returns the summaries of all manifests, oldest first. It reads each manifest once, so
// that listing the backups again is quick.
func (t *Target) summaries(ctx context.Context) (list []summary, err error) {
	t.mu.Lock()
	seen := t.seen
	t.mu.Unlock() // the place may not answer for long, and others have less time
	there := map[string]summary{}
	for o, err := range t.Place.List(ctx, "manifests/") {
		if err != nil {
			return nil, err
		}
		s, known := seen[o.Name]
		if !known {
			s.Manifest, err = t.readManifest(ctx, o.Name)
			if err != nil {
				return nil, err
			}
			s.bytes, s.Objects = s.Bytes(), nil
		}
		there[o.Name] = s
		list = append(list, s)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen = there
	return list, nil
}
