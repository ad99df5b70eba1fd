package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/segment/disktest"

	"github.com/mailstead/mailstead/store/segment"
)

// compactStore opens a store with small segments and no grace, with one mailbox.
func compactStore(t *testing.T, o Options) *Store {
	t.Helper()
	o.SegmentSize = 4000
	if o.Grace == 0 {
		o.Grace = -1
	}
	s := openTest(t, o)
	addMailbox(t, s, 1)
	return s
}

// fill adds n messages of 400 bytes to INBOX; a segment of 4000 bytes holds some of them.
func fill(t *testing.T, s *Store, n int) (added []*Message) {
	t.Helper()
	for i := range n {
		added = append(added, addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, fmt.Sprintf("%04d%s", i, strings.Repeat(".", 396))))
	}
	return added
}

func deleteTest(t testing.TB, s *Store, messages ...*Message) {
	t.Helper()
	update(t, s, func(tx *Tx) error {
		for _, m := range messages {
			if err := tx.DeleteMessage(m.Mailbox, m.Folder, m.UID); err != nil {
				return err
			}
		}
		return nil
	})
}

func compact(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func hasSegment(s *Store, number uint32) bool {
	return slices.ContainsFunc(s.seg.List(), func(i segment.Info) bool { return i.Number == number })
}

// current reads the current row of a message.
func current(t testing.TB, s *Store, m *Message) *Message {
	t.Helper()
	var now *Message
	view(t, s, func(tx *Tx) (err error) { now, err = tx.Message(m.Mailbox, m.Folder, m.UID); return err })
	return now
}

func TestDeadSegmentsGoAfterTheGrace(t *testing.T) {
	clock := second(0)
	s := compactStore(t, Options{Grace: time.Minute, Now: func() time.Time { return clock }})
	all := fill(t, s, 40)
	first := all[0].Blob
	deleteTest(t, s, all...)
	compact(t, s)
	clock = clock.Add(59 * time.Second)
	compact(t, s)
	if got := readTest(t, s, first); !strings.HasPrefix(got, "0000") {
		t.Errorf("within the grace the blob is %q", got)
	}
	clock = clock.Add(time.Second)
	compact(t, s)
	if _, err := s.OpenBlob(first); !errors.Is(err, ErrNotFound) {
		t.Errorf("after the grace: %v, want %v", err, ErrNotFound)
	}
	if left := s.seg.List(); len(left) != 1 || !left[0].Active {
		t.Errorf("segments %v are left, want the active one", left)
	}
}

func TestLiveMessagesMoveOutOfHalfDeadSegments(t *testing.T) {
	s := compactStore(t, Options{})
	all := fill(t, s, 80)
	kept := slices.DeleteFunc(slices.Clone(all), func(m *Message) bool { return m.UID%4 != 0 })
	update(t, s, func(tx *Tx) error {
		for _, m := range kept {
			if _, err := tx.CopyMessage(m, 2); err != nil {
				return err
			}
			id := fmt.Sprint("sub_", m.UID)
			err := errors.Join(
				SubmissionBlobs.Ref(tx, m.Blob, id), Submissions.Put(tx, &Submission{ID: id, Blob: m.Blob}),
				ReportBlobs.Ref(tx, m.Blob, id), ReportMails.Put(tx, &ReportMail{ID: id, Blob: m.Blob}),
				CopyBlobs.Ref(tx, m.Blob, id), RemoteCopies.Put(tx, &RemoteCopy{ID: id, Blob: m.Blob}),
			)
			if err != nil {
				return err
			}
		}
		return nil
	})
	deleteTest(t, s, slices.DeleteFunc(slices.Clone(all), func(m *Message) bool { return m.UID%4 == 0 })...)
	before := len(s.seg.List())
	compact(t, s)
	if after := len(s.seg.List()); after > before/2 {
		t.Errorf("%d segments of %d are left", after, before)
	}
	for i, m := range kept {
		now := current(t, s, m)
		want := fmt.Sprintf("%04d", m.UID-1)
		if got := readTest(t, s, now.Blob); got[:4] != want || now.ModSeq != m.ModSeq {
			t.Errorf("message %d is %.4q with MODSEQ %d, was %d", m.UID, got, now.ModSeq, m.ModSeq)
		}
		copied := current(t, s, &Message{Mailbox: 1, Folder: 2, UID: uint32(i + 1)})
		view(t, s, func(tx *Tx) error {
			id := fmt.Sprint("sub_", m.UID)
			sub, err1 := Submissions.Get(tx, id)
			report, err2 := ReportMails.Get(tx, id)
			remote, err3 := RemoteCopies.Get(tx, id)
			err := errors.Join(err1, err2, err3)
			if err == nil && (copied.Blob != now.Blob || sub.Blob != now.Blob || report.Blob != now.Blob || remote.Blob != now.Blob) {
				t.Errorf("message %d is at %v, others that have its bytes at %v, %v, %v, %v", m.UID, now.Blob, copied.Blob, sub.Blob, report.Blob, remote.Blob)
			}
			return err
		})
	}
	err := s.Update(func(tx *Tx) error { return SubmissionBlobs.Ref(tx, kept[0].Blob, "sub_new") })
	if !errors.Is(err, ErrNotFound) {
		t.Errorf("reference to where a message was: %v, want %v", err, ErrNotFound)
	}
}

func TestAppendedBlobsStayUntilReleased(t *testing.T) {
	s := compactStore(t, Options{})
	leased := []BlobRef{appendTest(t, s, "used later"), appendTest(t, s, "released")}
	deleteTest(t, s, fill(t, s, 40)...)
	compact(t, s)
	if got := readTest(t, s, leased[0]); got != "used later" {
		t.Fatalf("an appended blob is %q after compaction", got)
	}
	s.Release(leased[1])
	if err := s.Update(func(tx *Tx) error { return SubmissionBlobs.Ref(tx, leased[1], "sub_1") }); !errors.Is(err, ErrNotFound) {
		t.Errorf("reference to a released blob: %v, want %v", err, ErrNotFound)
	}
	failed := s.Update(func(tx *Tx) error {
		return errors.Join(tx.AddMessage(&Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: leased[0]}, nil), errTest)
	})
	if compact(t, s); !errors.Is(failed, errTest) || !hasSegment(s, leased[0].Segment) {
		t.Fatalf("a transaction that failed (%v) has released its blob", failed)
	}
	m := &Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: leased[0]}
	update(t, s, func(tx *Tx) error { return tx.AddMessage(m, nil) })
	compact(t, s)
	if hasSegment(s, leased[0].Segment) || readTest(t, s, current(t, s, m).Blob) != "used later" {
		t.Error("the blob has not moved once a message referred to it")
	}
}

func TestCompactionWaitsForAppendsUnderWay(t *testing.T) {
	s := compactStore(t, Options{})
	done := s.leases.BeginAppend()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := s.Compact(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("compaction beside an append: %v, want it to wait", err)
	}
	done()
	compact(t, s)
}

func TestDamagedMessageKeepsItsSegment(t *testing.T) {
	s := compactStore(t, Options{})
	all := fill(t, s, 24)
	damaged, whole := all[1], all[2]
	deleteTest(t, s, slices.DeleteFunc(slices.Clone(all), func(m *Message) bool { return m == damaged || m == whole })...)
	f, err := os.OpenFile(segmentPath(s, damaged.Blob.Segment), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := int64(damaged.Blob.Offset + damaged.Blob.Head)
	if _, err := f.WriteAt([]byte("J"), at); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Compact(t.Context()); !errors.Is(err, segment.ErrDamaged) {
			t.Errorf("compaction of a damaged message: %v", err)
		}
	}
	if !hasSegment(s, damaged.Blob.Segment) || current(t, s, damaged).Blob != damaged.Blob {
		t.Error("the damaged message's segment is gone")
	}
	if now := current(t, s, whole); now.Blob == whole.Blob || !strings.HasPrefix(readTest(t, s, now.Blob), "0002") {
		t.Errorf("its neighbour is at %v", now.Blob)
	}
	if _, err := f.WriteAt([]byte("0"), at); err != nil {
		t.Fatal(err)
	}
}

func TestCompactionOnAFullDiskLosesNothing(t *testing.T) {
	faults := &disktest.Faults{}
	s := compactStore(t, Options{disk: faults})
	all := fill(t, s, 40)
	kept := []*Message{all[3], all[13]}
	deleteTest(t, s, slices.DeleteFunc(slices.Clone(all), func(m *Message) bool { return slices.Contains(kept, m) })...)
	faults.Set(func() { faults.WriteErr, faults.Room = syscall.ENOSPC, 500 })
	if err := s.Compact(t.Context()); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want %v", err, ErrFull)
	}
	faults.Set(func() { faults.WriteErr = nil })
	for _, m := range kept {
		readTest(t, s, current(t, s, m).Blob)
	}
	if n := s.leases.Len(); n != 0 {
		t.Errorf("%d blobs are still leased", n)
	}
	for _, info := range s.seg.List() {
		if s.leases.InSegment(info.Number) {
			t.Errorf("segment %08x has leases still", info.Number)
		}
	}
	compact(t, s)
	if n := len(s.seg.List()); n > 2 {
		t.Errorf("%d segments are left", n)
	}
}

// TestSegmentsFoundByANewDatabaseStay is what happens when the database is lost and the segments
// are not.
func TestSegmentsFoundByANewDatabaseStay(t *testing.T) {
	dir := t.TempDir()
	o := Options{SegmentSize: 4000, Grace: -1}
	s := openDir(t, dir, o)
	addMailbox(t, s, 1)
	found := fill(t, s, 40)
	closeTest(t, s)
	if err := os.Remove(filepath.Join(dir, "mailstead.db")); err != nil {
		t.Fatal(err)
	}
	s = openDir(t, dir, o)
	addMailbox(t, s, 1)
	added := fill(t, s, 40)
	deleteTest(t, s, added...)
	for range 2 {
		compact(t, s)
		for _, m := range found {
			readTest(t, s, m.Blob)
		}
		closeTest(t, s)
		s = openDir(t, dir, o)
	}
	if hasSegment(s, added[20].Blob.Segment) {
		t.Error("the new database's own dead segment is left")
	}
}

// TestCompactionBesideEverythingElse also copies the directory as a crash would leave it, again and
// again.
func TestCompactionBesideEverythingElse(t *testing.T) {
	s := compactStore(t, Options{noSync: true, Grace: time.Minute})
	addMailbox(t, s, 2, 3, 4)
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	loop := func(fn func(i int)) {
		busy.Go(func() {
			for i := 0; ctx.Err() == nil && !t.Failed(); i++ {
				fn(i)
			}
		})
	}
	for mailbox := uint32(1); mailbox <= 4; mailbox++ {
		var kept []*Message
		loop(func(i int) {
			kept = append(kept, addTest(t, s, Message{Account: 1, Mailbox: mailbox, Folder: InboxID}, fmt.Sprint("body ", mailbox, strings.Repeat(".", i%700))))
			if i%3 > 0 {
				deleteTest(t, s, kept[0])
				kept = kept[1:]
			}
		})
	}
	loop(func(int) {
		view(t, s, func(tx *Tx) error {
			for m := range tx.Messages(2, InboxID, 1, math.MaxUint32) {
				if got := readTest(t, s, m.Blob); !strings.HasPrefix(got, "body 2") {
					t.Errorf("message %d is %q", m.UID, got)
				}
			}
			return nil
		})
	})
	loop(func(int) { compact(t, s) })
	crashes := 8
	if testing.Short() {
		crashes = 3
	}
	var acknowledged []*Message
	for range crashes {
		time.Sleep(30 * time.Millisecond)
		acknowledged = append(acknowledged, addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: 2}, "acknowledged"))
		crash(t, s, acknowledged)
	}
	stop()
	busy.Wait()
}

// crash copies the directory between two commits, while segments change, and opens the copy. All
// acknowledged messages must be complete there.
func crash(t *testing.T, s *Store, acknowledged []*Message) {
	t.Helper()
	dir := t.TempDir()
	update(t, s, func(*Tx) error {
		return copyFile(filepath.Join(dir, "mailstead.db"), filepath.Join(s.dir, "mailstead.db"))
	})
	// The segments are copied later: messages appended since then are garbage to the copy, and it
	// must not need removed segments.
	names, err := filepath.Glob(filepath.Join(s.dir, "segments", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "segments"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := copyFile(filepath.Join(dir, "segments", filepath.Base(name)), name); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	copied := openDir(t, dir, Options{SegmentSize: 4000, Grace: -1})
	if err := copied.Check(); err != nil {
		t.Errorf("after the crash: %v", err)
	}
	addTest(t, copied, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "after the crash")
	compact(t, copied)
	for _, m := range acknowledged {
		if got := readTest(t, copied, current(t, copied, m).Blob); got != "acknowledged" {
			t.Errorf("after the crash an acknowledged message is %q", got)
		}
	}
	closeTest(t, copied)
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}
