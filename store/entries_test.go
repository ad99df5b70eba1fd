package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestEntriesMakeTheSameStore runs random histories on a store whose entries a second one applies,
// some at a time. Both are killed in the middle. In the end every bucket and every message of both
// is the same. make soak-entries runs 10 000 histories.
func TestEntriesMakeTheSameStore(t *testing.T) {
	histories := 40
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
	r.o = Options{SegmentSize: 6000, Grace: -1, noSync: true, KeepEntries: true, Now: func() time.Time { return r.clock }, lenient: true}
	r.s = openDir(t, r.dir, r.o)
	copyDir := t.TempDir()
	follower := openDir(t, copyDir, Options{SegmentSize: 6000, noSync: true, lenient: true})
	text := func() {
		update(r, r.s, func(tx *Tx) error {
			if r.rnd.IntN(8) == 0 {
				return tx.setSequence(bktTextTodo, r.rnd.Uint64N(2))
			}
			if r.rnd.IntN(4) == 0 {
				_, err := tx.next("account")
				return err
			}
			if r.rnd.IntN(4) == 0 {
				return tx.emptyBucket(bktTextGone)
			}
			return tx.putRow(bktTextGone, fmt.Appendf(nil, "gone %d", r.rnd.IntN(9)), []byte{})
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
	if follower, copyDir = killed(t, follower, copyDir, Options{SegmentSize: 6000, noSync: true, lenient: true}); follower.Lost() != nil {
		t.Errorf("after a kill: %v", follower.Lost())
	}
	sameStores(t, r.s, follower)
	_ = copyDir
}

// killed gives the store as it is after the end of its process: what the files hold now.
func killed(t *testing.T, s *Store, dir string, o Options) (*Store, string) {
	t.Helper()
	after := t.TempDir()
	if err := os.CopyFS(after, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	closeTest(t, s)
	return openDir(t, after, o), after
}

// follow applies the next entries, one of them twice, and drops what was applied; more is false if
// there was none.
func follow(t *testing.T, from, to *Store, most int) (more bool) {
	t.Helper()
	list, err := from.Entries(numberOf(t, to), most)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		parsed, err := ParseEntry(e.Marshal())
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
	view(t, s, func(tx *Tx) error { n = tx.Number(); return nil })
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
		for k, row := range tx.ascend(tx.messageBucket(bktRef), nil) {
			ref, _, err := decodeRef(k, row)
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
	s := openDir(t, t.TempDir(), Options{KeepEntries: true, noSync: true})
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
	if list, err = s.Entries(1, 1<<20); !errors.Is(err, ErrGap) {
		t.Errorf("after 1, when 2 was dropped: %d entries, %v", len(list), err)
	}
	if list, err = s.Entries(4, 1<<20); err != nil || len(list) != 0 {
		t.Errorf("after the last: %d entries, %v", len(list), err)
	}
	if err := s.DropEntries(4); err != nil || s.entries.Load() != 0 {
		t.Errorf("%d bytes are kept of none, %v", s.entries.Load(), err)
	}
}

// TestEntriesThatNobodyTakes are dropped when they have become too many; the next ones are kept.
func TestEntriesThatNobodyTakes(t *testing.T) {
	s := openDir(t, t.TempDir(), Options{KeepEntries: true, MaxEntries: 2000, noSync: true})
	put := func() {
		update(t, s, func(tx *Tx) error { return Events.Put(tx, &Event{ID: tx.NewID("evt"), AccountID: "acc_1"}) })
	}
	for end := time.Now().Add(time.Minute); ; {
		put()
		if _, err := s.Entries(0, 1<<20); errors.Is(err, ErrGap) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("entries are kept for ever")
		}
	}
	for s.droppingEntries.Load() {
		time.Sleep(time.Millisecond)
	}
	n := numberOf(t, s)
	put()
	list, err := s.Entries(n, 1<<20)
	if err != nil || len(list) != 1 || list[0].Number != n+1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestEntryOfALargeMessage: its bytes are not part of the entry, and it is applied once they are
// there.
func TestEntryOfALargeMessage(t *testing.T) {
	o := Options{KeepEntries: true, noSync: true}
	s, follower := openDir(t, t.TempDir(), o), openDir(t, t.TempDir(), o)
	ref := appendTest(t, s, strings.Repeat("large ", 60_000))
	update(t, s, func(tx *Tx) error {
		return errors.Join(tx.RefBlob(ref, "sub_1"), Submissions.Put(tx, &Submission{ID: "sub_1", Blob: ref}))
	})
	list, err := s.Entries(0, 1<<20)
	if err != nil || len(list) != 1 || len(list[0].Large) != 1 || len(list[0].Marshal()) > 1000 {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := follower.Apply(list[0]); err == nil {
		t.Fatal("it is applied without the message")
	}
	head, record, err := s.seg.ReadRecord(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := follower.seg.WriteRecord(head, ref, bytes.NewReader(record)); err != nil {
		t.Fatal(err)
	}
	if err := follower.Apply(list[0]); err != nil {
		t.Fatal(err)
	}
	if readTest(t, follower, ref) != readTest(t, s, ref) {
		t.Error("another message")
	}
}

func FuzzParseEntry(f *testing.F) {
	c := &changes{keep: true}
	c.row("msg", []byte("key"), rowChange{value: []byte("value")})
	c.row("msg", []byte("gone"), rowChange{deleted: true})
	c.sequence("account", 7)
	c.emptied("text_gone")
	c.blob(BlobRef{Segment: 1, Offset: 36, Head: 40, Length: 5})
	e := &Entry{Number: 3, row: c.encode(second(0))}
	e.blobs = []entryBlob{{ref: BlobRef{Segment: 1, Offset: 36, Head: 40, Length: 5}, record: make([]byte, 45)}}
	f.Add(e.Marshal())
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= 4 { // most are to get past the checksum
			data = binary.BigEndian.AppendUint32(data[:len(data)-4:len(data)-4], crc32.Checksum(data[:len(data)-4], castagnoli))
		}
		e, err := ParseEntry(data)
		if err != nil {
			return
		}
		again, err := ParseEntry(e.Marshal())
		if err != nil || again.Number != e.Number || !bytes.Equal(again.row, e.row) {
			t.Errorf("read again: %v", err)
		}
	})
}
