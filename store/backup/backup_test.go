package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/objects"
)

var quiet = slog.New(slog.DiscardHandler)

// A history is a store to which things happen, and what it was after each of them.
type history struct {
	*testing.T
	rnd   *rand.Rand
	s     *store.Store
	clock time.Time
	subs  []*store.Submission
	was   []moment
	large bool // some messages are too large for an entry
}

// A moment is what a store was at a time.
type moment struct {
	at     time.Time
	digest map[string][32]byte
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{T: t, rnd: rand.New(rand.NewPCG(seed, 7)), clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	h.open(t.TempDir())
	return h
}

func (h *history) open(dir string) {
	h.Helper()
	s, err := store.Open(dir, store.Options{SegmentSize: 20_000, Grace: time.Nanosecond, Now: func() time.Time { return h.clock }, Log: quiet, Unsynced: true})
	if err != nil {
		h.Fatal(err)
	}
	h.s = s
	h.Cleanup(func() { s.Close() })
}

func (h *history) update(fn func(*store.Tx) error) {
	h.Helper()
	if err := h.s.Update(fn); err != nil {
		h.Fatal(err)
	}
}

// step has one thing happen, a second later.
func (h *history) step() {
	h.Helper()
	h.clock = h.clock.Add(time.Second)
	switch n := h.rnd.IntN(12); {
	case n < 6:
		size := 1 + h.rnd.IntN(4000)
		if h.large && h.rnd.IntN(6) == 0 {
			size = 300_000
		}
		body := h.s.NewSpool(1 << 20)
		defer body.Close()
		if _, err := body.Write(bytes.Repeat([]byte{byte('a' + h.rnd.IntN(26))}, size)); err != nil {
			h.Fatal(err)
		}
		ref, err := h.s.Append([]byte("envelope"), body)
		if err != nil {
			h.Fatal(err)
		}
		sub := &store.Submission{ID: h.s.NewID("sub"), Blob: ref, Subject: "s"}
		h.update(func(tx *store.Tx) error {
			return errors.Join(store.SubmissionBlobs.Ref(tx, ref, sub.ID), store.Submissions.Put(tx, sub))
		})
		h.subs = append(h.subs, sub)
	case n < 9 && len(h.subs) > 0:
		i := h.rnd.IntN(len(h.subs))
		h.update(func(tx *store.Tx) error {
			sub, err := store.Submissions.Get(tx, h.subs[i].ID)
			if err != nil {
				return err
			}
			return errors.Join(store.SubmissionBlobs.Unref(tx, sub.Blob, sub.ID), store.Submissions.Delete(tx, sub.ID))
		})
		h.subs = slices.Delete(h.subs, i, i+1)
	case n == 9:
		if err := h.s.Compact(h.Context()); err != nil {
			h.Fatal(err)
		}
	default:
		h.update(func(tx *store.Tx) error {
			return store.Events.Put(tx, &store.Event{ID: tx.NewID("evt"), AccountID: "acc_1", Type: "t"})
		})
	}
	h.was = append(h.was, moment{h.clock, digest(h.T, h.s)})
}

func (h *history) steps(n int) {
	for range n {
		h.step()
	}
}

// at is what the store was at a time.
func (h *history) at(t time.Time) map[string][32]byte {
	i := len(h.was) - 1
	for ; h.was[i].at.After(t); i-- {
	}
	return h.was[i].digest
}

func (h *history) source() Source {
	return Source{Store: h.s, Files: []string{"master.key.next", "master.key", "mailstead.toml"}, Program: "v1", Log: quiet}
}

func digest(t *testing.T, s *store.Store) (d map[string][32]byte) {
	t.Helper()
	if err := s.View(func(tx *store.Tx) (err error) { d, err = tx.Digest(); return err }); err != nil {
		t.Fatal(err)
	}
	return d
}

func newTarget(t *testing.T, dir string) *Target {
	t.Helper()
	place, err := objects.At(dir, objects.S3{})
	if err != nil {
		t.Fatal(err)
	}
	return &Target{Place: place, Temp: t.TempDir()}
}

func backUp(t *testing.T, to *Target, src Source, full bool, want string) *Result {
	t.Helper()
	res, err := to.Run(t.Context(), src, full, true)
	if err != nil {
		t.Fatal(err)
	}
	if res.Kind != want {
		t.Fatalf("%s backup, not %s: %s", res.Kind, want, res.Reason)
	}
	return res
}

// restored restores to a time and compares the store with what it was.
func restored(t *testing.T, from *Target, at time.Time, want map[string][32]byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := from.Restore(t.Context(), dir, at, quiet); err != nil {
		t.Fatalf("restore at %s: %v", at, err)
	}
	s, err := store.Open(dir, store.Options{SegmentSize: 20_000, Unsynced: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	have := digest(t, s)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if have[name] != want[name] {
			t.Errorf("at %s: bucket %s differs", at, name)
		}
	}
	if err := s.Check(); err != nil {
		t.Errorf("at %s: %v", at, err)
	}
	return dir
}

// TestRestoreToAnySecond backs random histories up, in full, by increments and by entries that are
// sent between, and restores each at many times.
func TestRestoreToAnySecond(t *testing.T) {
	seeds := uint64(2)
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			h := newHistory(t, seed)
			h.large = seed%2 == 0
			to := newTarget(t, t.TempDir())
			h.steps(20)
			backUp(t, to, h.source(), false, Full)
			first := h.clock
			for range 30 {
				h.steps(h.rnd.IntN(12))
				switch h.rnd.IntN(6) {
				case 0, 1, 2:
					if err := to.Send(t.Context(), h.s); err != nil {
						t.Fatal(err)
					}
				case 3:
					backUp(t, to, h.source(), false, Incremental)
				case 4:
					backUp(t, to, h.source(), true, Full)
				case 5:
					to = newTarget(t, to.Place.String()) // another process goes on
				}
			}
			if err := to.Send(t.Context(), h.s); err != nil {
				t.Fatal(err)
			}
			if err := to.Verify(t.Context()); err != nil {
				t.Error(err)
			}
			list, err := to.List(t.Context())
			if err != nil || list.FirstAt == nil || list.FirstAt.After(first) {
				t.Fatalf("%+v, %v", list, err)
			}
			for range 10 {
				at := first.Add(time.Duration(h.rnd.Int64N(int64(list.LastAt.Sub(first)))))
				restored(t, to, at, h.at(at))
			}
			restored(t, to, time.Time{}, digest(t, h.s))
			restored(t, to, *list.LastAt, digest(t, h.s))
			for _, at := range []time.Time{list.FirstAt.Add(-time.Millisecond), list.LastAt.Add(time.Millisecond)} {
				_, err := to.Restore(t.Context(), filepath.Join(t.TempDir(), "x"), at, quiet)
				if e := new(RangeError); !errors.As(err, &e) {
					t.Errorf("at %s: %v", at, err)
				}
			}

			// Half of it is kept; what is left can be restored as before.
			half := first.Add(h.clock.Sub(first) / 2)
			if err := to.Prune(t.Context(), half); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				at := half.Add(time.Duration(h.rnd.Int64N(int64(list.LastAt.Sub(half)))))
				restored(t, to, at, h.at(at))
			}
			if err := to.Verify(t.Context()); err != nil {
				t.Error(err)
			}
			h.steps(5)
			backUp(t, to, h.source(), false, Incremental)
			restored(t, to, time.Time{}, digest(t, h.s))
		})
	}
}

// TestRestoredStoreGoesOn: a store that was restored is backed up to the same place in full; both
// lines can be restored.
func TestRestoredStoreGoesOn(t *testing.T) {
	h := newHistory(t, 1)
	to := newTarget(t, t.TempDir())
	h.steps(20)
	backUp(t, to, h.source(), false, Full)
	h.steps(20)
	backUp(t, to, h.source(), false, Incremental)
	middle := h.clock.Add(-10 * time.Second)
	dir := restored(t, to, middle, h.at(middle))
	before := h.clock
	want := digest(t, h.s)

	again := &history{T: t, rnd: h.rnd, clock: h.clock.Add(time.Hour)}
	again.open(dir)
	again.steps(30)
	var log strings.Builder
	src := again.source()
	src.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	sched := &Schedule{Target: to, Source: src, Every: 24 * time.Hour, FullEvery: 7 * 24 * time.Hour, Keep: 24 * time.Hour}
	sched.LoadState(t.Context())
	if state, err := sched.State(); err != nil || state.LastAt.IsZero() || state.Full {
		t.Errorf("before its first backup: %+v, %v", state, err)
	}
	if next, _ := sched.readDueTimes(t.Context()); next.After(again.clock) {
		t.Errorf("its first backup is made at %s, not at once", next)
	}
	res, err := sched.Backup(t.Context(), false, true)
	if err != nil || res.Kind != Full || !strings.Contains(res.Reason, "restore") {
		t.Errorf("%+v, %v", res, err)
	}
	if log.Len() > 0 {
		t.Errorf("nothing is wrong, and the log warns:\n%s", &log)
	}
	again.steps(10)
	backUp(t, to, again.source(), false, Incremental)
	again.steps(3)
	restored(t, to, before, want)
	at := again.clock.Add(-8 * time.Second)
	restored(t, to, at, again.at(at))
	if _, err := to.Restore(t.Context(), filepath.Join(t.TempDir(), "x"), before.Add(time.Minute), quiet); err == nil || !strings.Contains(err.Error(), "or from") {
		t.Errorf("between the lines: %v", err)
	}
}

func TestBackupWithoutEntries(t *testing.T) {
	h := newHistory(t, 2)
	to := newTarget(t, t.TempDir())
	h.steps(10)
	backUp(t, to, h.source(), false, Full)
	h.steps(10)
	if err := h.s.ForgetEntries(); err != nil {
		t.Fatal(err)
	}
	h.steps(1)
	if res := backUp(t, to, h.source(), false, Full); !strings.Contains(res.Reason, "not kept") {
		t.Errorf("why: %q", res.Reason)
	}
	restored(t, to, time.Time{}, digest(t, h.s))
}

// TestWhyABackupIsFull: entries that were dropped since they were too many are told apart from what
// has never been kept, also by the process after; and so is another kind of encryption.
func TestWhyABackupIsFull(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(dir, store.Options{MaxEntryBytes: 1, Unsynced: true, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	change := func() {
		t.Helper()
		err := s.Update(func(tx *store.Tx) error {
			return store.Events.Put(tx, &store.Event{ID: tx.NewID("evt"), AccountID: "acc_1", Type: "t"})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	change()
	var log strings.Builder
	sched := &Schedule{
		Target: newTarget(t, t.TempDir()), Every: time.Hour, FullEvery: 24 * time.Hour, Keep: 24 * time.Hour,
		Source: Source{Store: s, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))},
	}
	backedUp := func(reason string) {
		t.Helper()
		res, err := sched.Backup(t.Context(), false, true)
		if err != nil || res.Kind != Full || !strings.Contains(res.Reason, reason) {
			t.Errorf("%+v, %v, not for %q", res, err, reason)
		}
		if state, err := sched.State(); err != nil || state.Full {
			t.Errorf("after it: %+v, %v", state, err)
		}
	}
	backedUp("no backup yet")
	if log.Len() > 0 {
		t.Errorf("the first backup is a warning:\n%s", &log)
	}
	change()
	change() // one entry is more than may be kept
	if state, err := sched.State(); err != nil || !state.Full {
		t.Errorf("with entries dropped: %+v, %v", state, err)
	}
	backedUp("dropped")
	if !strings.Contains(log.String(), "dropped") {
		t.Errorf("the log has no warning:\n%s", &log)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	sched.Target.Recipients = []age.Recipient{id.Recipient()}
	backedUp("encrypted from now on")
}

// TestEncryptedBackup is restored with the identity alone, and says so without it.
func TestEncryptedBackup(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory(t, 3)
	if err := os.WriteFile(filepath.Join(h.s.Dir(), "master.key"), []byte("the master key"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	to := newTarget(t, dir)
	to.Recipients = []age.Recipient{id.Recipient()}
	h.steps(20)
	backUp(t, to, h.source(), false, Full)
	h.steps(20)
	backUp(t, to, h.source(), false, Incremental)
	h.steps(2)
	if err := to.Send(t.Context(), h.s); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "archive")
	if res, err := WriteArchive(t.Context(), file, h.source(), to.Recipients, true); err != nil || !res.Verified {
		t.Fatal(res, err)
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "manifests") {
			return err
		}
		data, err := os.ReadFile(path)
		if !bytes.HasPrefix(data, []byte(ageMagic)) {
			t.Errorf("%s is not encrypted", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, ids := range [][]age.Identity{nil, {other}} {
		to.Identities = ids
		if _, err := to.Restore(t.Context(), filepath.Join(t.TempDir(), "x"), time.Time{}, quiet); !errors.Is(err, ErrNoIdentity) {
			t.Errorf("with %d wrong identities: %v", len(ids), err)
		}
		if _, err := RestoreArchive(t.Context(), file, filepath.Join(t.TempDir(), "x"), time.Time{}, ids, "v1"); !errors.Is(err, ErrNoIdentity) {
			t.Errorf("the archive with %d wrong identities: %v", len(ids), err)
		}
	}
	to.Identities = nil
	if err := to.Verify(t.Context()); err != nil { // the hashes are right
		t.Error(err)
	}
	to.Identities = []age.Identity{other, id}
	if err := to.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	got := restored(t, to, time.Time{}, digest(t, h.s))
	if key, err := os.ReadFile(filepath.Join(got, "master.key")); string(key) != "the master key" {
		t.Errorf("the key is %q, %v", key, err)
	}
	archived := filepath.Join(t.TempDir(), "y")
	if _, err := RestoreArchive(t.Context(), file, archived, time.Time{}, to.Identities, "v1"); err != nil {
		t.Fatal(err)
	}
	same(t, archived, digest(t, h.s))
}

func same(t *testing.T, dir string, want map[string][32]byte) {
	t.Helper()
	s, err := store.Open(dir, store.Options{Unsynced: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if have := digest(t, s); !maps.Equal(have, want) {
		t.Error("it is another store")
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func TestArchive(t *testing.T) {
	h := newHistory(t, 4)
	h.steps(60)
	dir := t.TempDir()
	file := filepath.Join(dir, "mail.backup")
	res, err := WriteArchive(t.Context(), file, h.source(), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 || info.Size() != res.Bytes {
		t.Error(info, err)
	}
	want := digest(t, h.s)
	h.steps(3)
	if list, err := ListArchive(file, nil); err != nil || len(list.Data) != 1 || list.Data[0].Number != res.Number {
		t.Errorf("%+v, %v", list, err)
	}
	if err := VerifyArchive(t.Context(), file, nil); err != nil {
		t.Error(err)
	}
	to := filepath.Join(dir, "restored")
	got, err := RestoreArchive(t.Context(), file, to, time.Time{}, nil, "v1")
	if err != nil || got.Number != res.Number || !got.At.Equal(res.At) || got.Bytes == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	same(t, to, want)
	if _, err := RestoreArchive(t.Context(), file, to, time.Time{}, nil, "v1"); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("to the same directory: %v", err)
	}
	if _, err := RestoreArchive(t.Context(), file, filepath.Join(dir, "z"), res.At.Add(time.Hour), nil, "v1"); !errors.As(err, new(*RangeError)) {
		t.Errorf("at another time: %v", err)
	}

	// A restore that was killed is begun again.
	if err := os.MkdirAll(filepath.Join(dir, "w", WorkDir, "segments"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreArchive(t.Context(), file, filepath.Join(dir, "w"), res.At, nil, "v1"); err != nil {
		t.Error(err)
	}

	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 16 {
		hurt := bytes.Clone(whole)
		at := h.rnd.IntN(len(hurt))
		if i%2 == 0 {
			hurt[at] ^= 1 << h.rnd.IntN(8)
		} else {
			hurt = hurt[:at]
		}
		if err := os.WriteFile(file, hurt, 0o600); err != nil {
			t.Fatal(err)
		}
		verified := VerifyArchive(t.Context(), file, nil)
		to := filepath.Join(dir, fmt.Sprint("hurt", i))
		if _, err := RestoreArchive(t.Context(), file, to, time.Time{}, nil, "v1"); err == nil {
			same(t, to, want) // the bit that changed means nothing
		} else if _, err := os.Stat(filepath.Join(to, store.DatabaseFile)); err == nil {
			t.Error("a damaged archive left a store")
		} else if verified == nil {
			t.Error("a damaged archive is verified")
		}
	}
}

// A failing place fails at the n-th operation, and from then on.
type failing struct {
	objects.Place
	mu   sync.Mutex
	left int
}

var errPlace = errors.New("the place is gone")

func (f *failing) spend() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left < 0 {
		return errPlace
	}
	return nil
}

func (f *failing) Put(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	if err := f.spend(); err != nil {
		return err
	}
	return f.Place.Put(ctx, name, r, size)
}

func (f *failing) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := f.spend(); err != nil {
		return nil, err
	}
	return f.Place.Open(ctx, name)
}

func (f *failing) Delete(ctx context.Context, name string) error {
	if err := f.spend(); err != nil {
		return err
	}
	return f.Place.Delete(ctx, name)
}

func (f *failing) List(ctx context.Context, prefix string) iter.Seq2[objects.Object, error] {
	if err := f.spend(); err != nil {
		return func(yield func(objects.Object, error) bool) { yield(objects.Object{}, err) }
	}
	return f.Place.List(ctx, prefix)
}

// TestBackupThatEnds at any operation of the place leaves one that the next goes on from.
func TestBackupThatEnds(t *testing.T) {
	h := newHistory(t, 5)
	to := newTarget(t, t.TempDir())
	place := to.Place
	for i := range 25 {
		h.steps(4)
		to.Place = &failing{Place: place, left: i % 25}
		if i%7 == 6 {
			if err := to.Send(t.Context(), h.s); err != nil && !errors.Is(err, errPlace) {
				t.Fatal(err)
			}
		} else if _, err := to.Run(t.Context(), h.source(), i%3 == 0, true); err != nil && !errors.Is(err, errPlace) {
			t.Fatal(err)
		} else if err := to.Prune(t.Context(), h.clock.Add(-40*time.Second)); err != nil && !errors.Is(err, errPlace) {
			t.Fatal(err)
		}
		to.Place = place
		if i%5 == 4 {
			to = newTarget(t, place.String())
			if _, err := to.Run(t.Context(), h.source(), false, true); err != nil {
				t.Fatal(err)
			}
			if err := to.Verify(t.Context()); err != nil {
				t.Fatal(err)
			}
			restored(t, to, time.Time{}, digest(t, h.s))
		}
	}
}

// TestVerifyNamesWhatIsWrong changes one bit of each object in turn.
func TestVerifyNamesWhatIsWrong(t *testing.T) {
	h := newHistory(t, 6)
	dir := t.TempDir()
	to := newTarget(t, dir)
	h.steps(30)
	backUp(t, to, h.source(), false, Full)
	h.steps(30)
	backUp(t, to, h.source(), false, Incremental)
	for o, err := range to.Place.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(o.Name, "manifests/") {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(o.Name))
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		hurt := bytes.Clone(data)
		hurt[h.rnd.IntN(len(hurt))] ^= 4
		if err := os.WriteFile(path, hurt, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := to.Verify(t.Context()); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), o.Name) {
			t.Errorf("%s is hurt: %v", o.Name, err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestUnfinishedRunsLeaveNothing: what runs have stored that were cut off before their manifest is
// deleted by the next one, before it needs room of its own.
func TestUnfinishedRunsLeaveNothing(t *testing.T) {
	h := newHistory(t, 5)
	h.steps(30)
	place, err := objects.At(t.TempDir(), objects.S3{})
	if err != nil {
		t.Fatal(err)
	}
	cut := &cutPlace{Place: place}
	target := &Target{Place: cut, Temp: t.TempDir()}
	for range 3 {
		cut.before = "manifests/"
		if _, err := target.Run(t.Context(), h.source(), true, true); !errors.Is(err, errCut) {
			t.Fatal(err)
		}
	}
	cut.before = "db/"
	if _, err := target.Run(t.Context(), h.source(), true, true); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	for o, err := range place.List(t.Context(), "") {
		if kind, _, _ := strings.Cut(o.Name, "/"); err != nil || kind == "db" || kind == "files" {
			t.Errorf("%s is left, %v", o.Name, err)
		}
	}
	cut.before = "none"
	if _, err := target.Run(t.Context(), h.source(), true, true); err != nil {
		t.Fatal(err)
	}
	if err := target.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

// A cutPlace fails before it takes an object of a kind.
type cutPlace struct {
	objects.Place
	before string
}

var errCut = errors.New("cut off")

func (p *cutPlace) Put(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	if strings.HasPrefix(name, p.before) {
		return errCut
	}
	return p.Place.Put(ctx, name, r, size)
}

// TestBackupsWhenTheClockIsSetBack: the clock goes a year back between backups, and the schedule
// starts anew. The newest backup is the last in the list all the same, every time is restored that
// was acknowledged, and the next backup is not a year away.
func TestBackupsWhenTheClockIsSetBack(t *testing.T) {
	h := newHistory(t, 3)
	to := newTarget(t, t.TempDir())
	h.steps(5)
	backUp(t, to, h.source(), true, Full)
	h.steps(5)
	h.clock = h.clock.AddDate(-1, 0, 0)
	h.steps(5)
	for _, kind := range []string{Incremental, Full, Incremental} {
		h.steps(2)
		res := backUp(t, to, h.source(), kind == Full, kind)
		list, err := to.List(t.Context())
		if err != nil || list.Data[len(list.Data)-1].ID != res.ID {
			t.Fatalf("%s is not the last of %+v, %v", res.ID, list, err)
		}
		restored(t, to, time.Time{}, digest(t, h.s))
	}
	s := &Schedule{Target: to, Source: h.source(), Every: time.Hour, FullEvery: 24 * time.Hour, Keep: 24 * time.Hour}
	next, full := s.readDueTimes(t.Context())
	next, full = s.limitToIntervals(h.clock, next, full)
	if next.After(h.clock.Add(time.Hour)) || full.After(h.clock.Add(24*time.Hour)) {
		t.Errorf("at %s the next backup is at %s, the next full one at %s", h.clock, next, full)
	}
	h.clock = h.clock.Add(3 * time.Hour)
	if !s.isLate() {
		t.Error("a backup of three hours ago is not late")
	}
}
