package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/entry"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/segment"
)

// TestEntriesMakeTheSameStore runs random histories on a store whose entries a second one applies,
// some at a time. Both are killed in the middle. In the end every bucket and every message of both
// is the same. make soak-entries runs 10 000 histories.
func TestEntriesMakeTheSameStore(t *testing.T) {
	histories := 15
	if testing.Short() {
		histories = 4
	}
	if n, err := strconv.Atoi(os.Getenv("MAILSTEAD_HISTORIES")); err == nil {
		histories = n
	}
	first, err := strconv.ParseUint(cmp.Or(os.Getenv("MAILSTEAD_SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for seed := first; seed < first+uint64(histories); seed++ {
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { followHistory(t, seed) }) {
			return
		}
	}
}

// followHistory is one history of some hundred changes.
func followHistory(t *testing.T, seed uint64) {
	r := &modelRun{T: t, rnd: rand.New(rand.NewPCG(seed, 11)), dir: t.TempDir(), w: newTwin(), clock: second(0)}
	r.o = Options{SegmentSize: 6000, Grace: -1, noSync: true, Now: func() time.Time { return r.clock }, lenient: true}
	r.s = openKeeping(t, r.dir, r.o)
	copyDir := t.TempDir()
	follower := openDir(t, copyDir, Options{SegmentSize: 6000, noSync: true, lenient: true})
	text := func() {
		update(r, r.s, func(tx *Tx) error {
			if r.rnd.IntN(8) == 0 {
				return tx.SetSequence(mailrow.BucketTextTodo, r.rnd.Uint64N(2))
			}
			if r.rnd.IntN(4) == 0 {
				_, err := Accounts.NextNumber(tx)
				return err
			}
			if r.rnd.IntN(4) == 0 {
				return tx.EmptyBucket(mailrow.BucketTextGone)
			}
			return mailindex.MarkTextGone(&tx.Tx, &Message{Account: 1, Mailbox: 1 << 20, Folder: InboxID, UID: r.rnd.Uint32N(9)}, 1<<20)
		})
	}
	records := func() {
		update(r, r.s, func(tx *Tx) error {
			return Events.Put(tx, &Event{ID: tx.NewID("evt"), AccountID: "acc_1", Type: strings.Repeat("t", r.rnd.IntN(20))})
		})
	}
	ops := []func(){
		r.createFolder, r.createFolder, r.changeFolder, r.deleteFolder, r.dropMailbox, r.submit, r.abort, r.compact, text, records,
		r.add, r.add, r.add, r.add, r.add, r.add, r.change, r.change, r.delete, r.delete, r.copy,
	}
	for range 50 + r.rnd.IntN(150) {
		ops[r.rnd.IntN(len(ops))]()
		r.clock = r.clock.Add(time.Duration(r.rnd.IntN(900)) * time.Millisecond)
		switch r.rnd.IntN(30) {
		case 0:
			r.s, r.dir = killed(t, r.s, r.dir, r.o)
		case 1:
			follower, copyDir = killed(t, follower, copyDir, Options{SegmentSize: 6000, noSync: true, lenient: true})
		case 2, 3, 4:
			follow(t, r.s, follower, 1+r.rnd.IntN(20_000))
		}
	}
	r.compare()
	for follow(t, r.s, follower, 1<<20) {
	}
	sameStores(t, r.s, follower)
	follower, copyDir = killed(t, follower, copyDir, Options{SegmentSize: 6000, noSync: true, lenient: true})
	if follower.LostMessages() != nil {
		t.Errorf("after a kill: %v", follower.LostMessages())
	}
	sameStores(t, r.s, follower)
	_ = copyDir
}

// openKeeping opens a store that keeps entries.
func openKeeping(t *testing.T, dir string, o Options) *Store {
	t.Helper()
	s := openDir(t, dir, o)
	if err := s.KeepEntries(); err != nil {
		t.Fatal(err)
	}
	return s
}

// killed returns the store as it is after its process was killed: the current contents of the
// files.
func killed(t *testing.T, s *Store, dir string, o Options) (*Store, string) {
	t.Helper()
	after := t.TempDir()
	if err := os.CopyFS(after, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	closeTest(t, s)
	return openDir(t, after, o), after
}

// follow applies the next entries, one of them twice, and drops the applied ones; more is false if
// there was none.
func follow(t *testing.T, from, to *Store, most int) (more bool) {
	t.Helper()
	list, err := from.Entries(numberOf(t, to), most)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		parsed, err := entry.Parse(e.Marshal())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := to.Apply(parsed); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := from.DropEntries(numberOf(t, to)); err != nil {
		t.Fatal(err)
	}
	return len(list) > 0
}

func numberOf(t *testing.T, s *Store) (n uint64) {
	t.Helper()
	view(t, s, func(tx *Tx) error { n = tx.CommitNumber(); return nil })
	return n
}

// sameStores compares every bucket, and the bytes of every message.
func sameStores(t *testing.T, a, b *Store) {
	t.Helper()
	digests := func(s *Store) (d map[string][32]byte) {
		view(t, s, func(tx *Tx) (err error) { d, err = tx.Digest(); return err })
		return d
	}
	of, other := digests(a), digests(b)
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if of[name] != other[name] {
			t.Errorf("bucket %s differs", name)
		}
	}
	var refs []BlobRef
	view(t, a, func(tx *Tx) error {
		for k, row := range tx.Ascend(mailrow.BucketRef, nil) {
			ref, _, err := mailrow.DecodeRef(k, row)
			if err != nil {
				return err
			}
			refs = append(refs, ref)
		}
		return nil
	})
	for _, ref := range refs {
		if _, one, err := a.seg.ReadRecord(ref); err != nil {
			t.Error(err)
		} else if _, two, err := b.seg.ReadRecord(ref); err != nil || !bytes.Equal(one, two) {
			t.Errorf("message at %+v: %v", ref, err)
		}
	}
	if len(of) != len(other) {
		t.Errorf("%d buckets and %d", len(of), len(other))
	}
}

// TestEntriesWithGaps: an entry that does not come next is refused, and so is one that is not kept
// any more.
func TestEntriesWithGaps(t *testing.T) {
	s := openKeeping(t, t.TempDir(), Options{noSync: true})
	follower := openDir(t, t.TempDir(), Options{noSync: true})
	for range 4 {
		update(t, s, func(tx *Tx) error { return Events.Put(tx, &Event{ID: tx.NewID("evt"), AccountID: "acc_1"}) })
	}
	list, err := s.Entries(0, 1<<20)
	if err != nil || len(list) != 4 {
		t.Fatalf("%d entries, %v", len(list), err)
	}
	if err := follower.Apply(list[1]); !errors.Is(err, ErrGap) {
		t.Errorf("the second first: %v", err)
	}
	if err := follower.Apply(list[0]); err != nil {
		t.Error(err)
	}
	if err := s.DropEntries(2); err != nil {
		t.Fatal(err)
	}
	list, err = s.Entries(1, 1<<20)
	if !errors.Is(err, ErrGap) {
		t.Errorf("after 1, when 2 was dropped: %d entries, %v", len(list), err)
	}
	list, err = s.Entries(4, 1<<20)
	if err != nil || len(list) != 0 {
		t.Errorf("after the last: %d entries, %v", len(list), err)
	}
	if err := s.DropEntries(4); err != nil || entryBytes(t, s) != 0 {
		t.Errorf("%d bytes are kept of none, %v", entryBytes(t, s), err)
	}
}

// TestEntriesThatNobodyTakes are dropped when they have become too many, and no more are kept until
// somebody wants them again.
func TestEntriesThatNobodyTakes(t *testing.T) {
	s := openKeeping(t, t.TempDir(), Options{noSync: true, MaxEntryBytes: 2000})
	put := func() {
		update(t, s, func(tx *Tx) error { return Events.Put(tx, &Event{ID: tx.NewID("evt"), AccountID: "acc_1"}) })
	}
	for n := 0; ; n++ {
		put()
		if _, kept, err := s.KeptEntries(); err != nil || n > 1000 {
			t.Fatal("entries are kept for ever", err)
		} else if !kept {
			break
		}
	}
	for end := time.Now().Add(time.Minute); entryBytes(t, s) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("old entries are not dropped")
		}
	}
	put()
	if list, err := s.Entries(numberOf(t, s)-1, 1<<20); !errors.Is(err, ErrGap) {
		t.Errorf("%d entries, %v", len(list), err)
	}
	dropped := func(want bool) {
		t.Helper()
		if is, err := s.EntriesDropped(); is != want || err != nil {
			t.Errorf("entries were dropped: %v, %v", is, err)
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
	dropped(true)
	dir := s.Dir()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openDir(t, dir, Options{noSync: true})
	dropped(true)
	if err := s.KeepEntries(); err != nil {
		t.Fatal(err)
	}
	dropped(false)
	n := numberOf(t, s)
	put()
	list, err := s.Entries(n, 1<<20)
	if err != nil || len(list) != 1 || list[0].Number != n+1 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := s.ForgetEntries(); err != nil {
		t.Fatal(err)
	}
	if size, kept, err := s.KeptEntries(); size != 0 || kept || err != nil {
		t.Errorf("forgotten: %d bytes, kept %v, %v", size, kept, err)
	}
	dropped(false)
}

// TestEntriesOfAnotherLine: a store that was copied and went its own way has other entries of the
// same numbers, which the copies of the first one refuse.
func TestEntriesOfAnotherLine(t *testing.T) {
	o := Options{noSync: true}
	dir := t.TempDir()
	s := openKeeping(t, dir, o)
	put := func(s *Store) {
		update(t, s, func(tx *Tx) error { return Events.Put(tx, &Event{ID: tx.NewID("evt"), AccountID: "acc_1"}) })
	}
	put(s)
	forked, forkedDir := t.TempDir(), t.TempDir()
	for _, to := range []string{forked, forkedDir} {
		if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	other, follower := openDir(t, forked, o), openDir(t, forkedDir, o)
	n := numberOf(t, s)
	put(s)
	put(other)
	put(other)
	of := func(s *Store) []*Entry {
		list, err := s.Entries(n, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if err := follower.Apply(of(s)[0]); err != nil {
		t.Fatal(err)
	}
	if err := follower.Apply(of(other)[1]); !errors.Is(err, ErrGap) {
		t.Errorf("the other line's next entry: %v", err)
	}
}

// TestSnapshot: a copy of what a snapshot shows is the store as it was then, whatever changes
// meanwhile, and the entries after it make it the store of now.
func TestSnapshot(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		clock := second(0)
		r := &modelRun{T: t, rnd: rand.New(rand.NewPCG(seed, 3)), dir: t.TempDir(), w: newTwin(), clock: clock}
		r.o = Options{SegmentSize: 6000, Grace: -1, noSync: true, Now: func() time.Time { return r.clock }, lenient: true}
		r.s = openKeeping(t, r.dir, r.o)
		ops := []func(){r.createFolder, r.submit, r.abort, r.compact, r.add, r.add, r.add, r.change, r.delete, r.delete, r.copy, r.dropMailbox}
		some := func(n int) {
			for range n {
				ops[r.rnd.IntN(len(ops))]()
				r.clock = r.clock.Add(time.Second)
			}
		}
		some(60)
		n, err := r.s.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		some(60)
		to := t.TempDir()
		copySnapshot(t, n, to)
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		copied := openDir(t, to, Options{SegmentSize: 6000, noSync: true, lenient: true})
		if got := numberOf(t, copied); got != n.Number {
			t.Errorf("seed %d: number %d, not %d", seed, got, n.Number)
		}
		if err := copied.Check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		for follow(t, r.s, copied, 1<<20) {
		}
		sameStores(t, r.s, copied)
		if err := copied.Check(); err != nil {
			t.Errorf("seed %d, with the entries: %v", seed, err)
		}
	}
}

func copySnapshot(t *testing.T, n *Snapshot, to string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(to, SegmentDir), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name string, from func(io.Writer) error) {
		f, err := os.Create(filepath.Join(to, name))
		if err := errors.Join(err, from(f), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	write(DatabaseFile, n.WriteDatabase)
	for _, info := range n.Segments {
		f, err := n.OpenSegment(info.Number)
		if err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(SegmentDir, segment.FileName(info.Number)), func(w io.Writer) error {
			_, err := io.CopyN(w, f, info.Size)
			return err
		})
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEntryOfALargeMessage: its bytes are not part of the entry, and it is applied once they are
// there.
func TestEntryOfALargeMessage(t *testing.T) {
	s, follower := openKeeping(t, t.TempDir(), Options{noSync: true}), openDir(t, t.TempDir(), Options{noSync: true})
	follow(t, s, follower, 1<<20)
	n := numberOf(t, s)
	ref := appendTest(t, s, strings.Repeat("large ", 60_000))
	update(t, s, func(tx *Tx) error {
		return errors.Join(SubmissionBlobs.Ref(tx, ref, "sub_1"), Submissions.Put(tx, &Submission{ID: "sub_1", Blob: ref}))
	})
	list, err := s.Entries(n, 1<<20)
	if err != nil || len(list) != 1 || len(list[0].SeparateMessages()) != 1 || len(list[0].Marshal()) > 1000 {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := follower.Apply(list[0]); err == nil {
		t.Fatal("it is applied without the message")
	}
	head, record, err := s.ReadMessage(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := follower.WriteMessage(head, ref, bytes.NewReader(record)); err != nil {
		t.Fatal(err)
	}
	if err := follower.Apply(list[0]); err != nil {
		t.Fatal(err)
	}
	if readTest(t, follower, ref) != readTest(t, s, ref) {
		t.Error("another message")
	}
}

// TestClockSetBackKeepsTheOrder: the clock is a year behind at the next start. Ids and the times of
// entries and snapshots do not fall.
func TestClockSetBackKeepsTheOrder(t *testing.T) {
	dir, now := t.TempDir(), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	o := Options{noSync: true, Now: func() time.Time { return now }}
	var id string
	var at time.Time
	for _, by := range []time.Duration{0, -365 * 24 * time.Hour, 24 * time.Hour, 2 * 365 * 24 * time.Hour} {
		now = now.Add(by)
		s := openDir(t, dir, o)
		if err := s.KeepEntries(); err != nil {
			t.Fatal(err)
		}
		update(t, s, func(tx *Tx) error {
			e := &Event{ID: tx.NewID("evt"), AccountID: "acc_1", Created: tx.Now()}
			if e.ID <= id {
				t.Errorf("%s comes after %s", e.ID, id)
			}
			id = e.ID
			return Events.Put(tx, e)
		})
		snap, err := s.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if snap.Time.Before(at) || snap.Time.Before(now) {
			t.Errorf("at %s a snapshot is of %s, after one of %s", now, snap.Time, at)
		}
		at = snap.Time
		snap.Close()
		closeTest(t, s)
	}
	if !at.Equal(now) {
		t.Errorf("the times of entries are at %s, not at %s, once the clock is past them", at, now)
	}
}

// entryBytes is how many bytes of entries are kept.
func entryBytes(t *testing.T, s *Store) int64 {
	t.Helper()
	n, _, err := s.KeptEntries()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
