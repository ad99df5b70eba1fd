package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lyingDisk makes a store with messages and returns its directory in the state after a disk has
// lost some of the segments' bytes that it had reported as synced.
func lyingDisk(t *testing.T, size int64, bodies []string, lose func(segments string)) (dir string, refs []BlobRef) {
	t.Helper()
	s := openTest(t, Options{SegmentSize: size})
	addMailbox(t, s, 1)
	for _, body := range bodies {
		refs = append(refs, addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, body).Blob)
	}
	dir = copyStore(t, s)
	lose(filepath.Join(dir, "segments"))
	return dir, refs
}

// reopenLost opens such a store, adds a message and returns its place. The loss is reported, and no
// lost place is used again.
func reopenLost(t *testing.T, dir string, refs []BlobRef, kept []int) BlobRef {
	t.Helper()
	var log bytes.Buffer
	s, err := Open(dir, Options{SegmentSize: 8 << 10, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.LostMessages() == nil || !strings.Contains(log.String(), "the disk has lost") {
		t.Errorf("it is not told of: %v, %s", s.LostMessages(), &log)
	}
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "new")
	if got := readTest(t, s, m.Blob); got != "new" {
		t.Errorf("the new message reads %q", got)
	}
	for i, ref := range refs {
		blob, err := s.OpenBlob(ref)
		if there := slices.Contains(kept, i); there != (err == nil) {
			t.Errorf("message %d: %v", i, err)
		}
		if err == nil {
			blob.Close()
		}
	}
	return m.Blob
}

func TestLostTailIsToldOfAndItsPlaceIsNotUsed(t *testing.T) {
	for name, lose := range map[string]func(path string, from int64) error{
		"cut": os.Truncate,
		"zeros": func(path string, from int64) error {
			whole, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			clear(whole[from:])
			return os.WriteFile(path, whole, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var path string
			dir, refs := lyingDisk(t, 8<<10, []string{"first", "second", "third"}, func(segments string) {
				path = filepath.Join(segments, "00000001.seg")
			})
			if err := lose(path, int64(refs[1].Offset)); err != nil {
				t.Fatal(err)
			}
			at := reopenLost(t, dir, refs, []int{0})
			if at.Segment == refs[0].Segment {
				t.Errorf("the new message is at %+v", at)
			}
			s, err := Open(dir, Options{SegmentSize: 8 << 10})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if seq := sequenceOf(t, s, at); seq < 4 {
				t.Errorf("the new message has the sequence %d, which a lost one had", seq)
			}
		})
	}
}

// sequenceOf reads the sequence in the head of a message's record.
func sequenceOf(t *testing.T, s *Store, ref BlobRef) uint64 {
	t.Helper()
	whole, err := os.ReadFile(segmentPath(s, ref.Segment))
	if err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint64(whole[ref.Offset+24:])
}

// segmentPath is the file of a segment.
func segmentPath(s *Store, number uint32) string {
	return filepath.Join(s.dir, "segments", fmt.Sprintf("%08x.seg", number))
}

func TestLostSegmentsNumberIsNotUsed(t *testing.T) {
	bodies := slices.Repeat([]string{strings.Repeat("x", 900)}, 20)
	var last uint32
	dir, refs := lyingDisk(t, 8<<10, bodies, func(string) {})
	last = refs[len(refs)-1].Segment
	var kept []int
	for i, ref := range refs {
		if ref.Segment != last {
			kept = append(kept, i)
		}
	}
	if last < 2 {
		t.Fatalf("all are in segment %d", last)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "segments", "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(segments)
	if err := os.Remove(segments[len(segments)-1]); err != nil {
		t.Fatal(err)
	}
	at := reopenLost(t, dir, refs, kept)
	for _, ref := range refs {
		if ref.Segment == at.Segment && ref.Offset == at.Offset {
			t.Errorf("the new message is at %+v, where one was lost", at)
		}
	}
}

// TestNothingIsLostInATornTail: bytes behind the last reference were never acknowledged.
func TestNothingIsLostInATornTail(t *testing.T) {
	s := openTest(t, Options{SegmentSize: 8 << 10})
	addMailbox(t, s, 1)
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "kept")
	ref := appendTest(t, s, "never acknowledged")
	dir := copyStore(t, s)
	s.Release(ref)
	if err := os.Truncate(filepath.Join(dir, "segments", "00000001.seg"), int64(ref.Offset)+10); err != nil {
		t.Fatal(err)
	}
	s = openDir(t, dir, Options{SegmentSize: 8 << 10})
	if s.LostMessages() != nil {
		t.Error(s.LostMessages())
	}
	if again := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "after"); again.Blob.Segment != m.Blob.Segment {
		t.Errorf("a new segment was begun: %+v", again.Blob)
	}
}
