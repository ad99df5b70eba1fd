package store

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
)

func nodeOf(text string) (n ThreadNode) {
	copy(n[:], text)
	return n
}

// forget drops every old row, some at a time.
func forget(t *testing.T, s *Store) (dropped int) {
	t.Helper()
	var next []byte
	for {
		var old [][]byte
		view(t, s, func(tx *Tx) (err error) {
			old, next, err = tx.OldThreads(next, 2)
			return err
		})
		dropped += len(old)
		update(t, s, func(tx *Tx) error { return tx.DropThreads(old) })
		if next == nil {
			return dropped
		}
	}
}

// TestThreadsAreForgottenInTime: rows that no message has had to do with for long go, with the
// notes of what was joined; those on the way of an answer stay.
func TestThreadsAreForgottenInTime(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := openTest(t, Options{Now: func() time.Time { return now }})
	join := func(root, n string) {
		update(t, s, func(tx *Tx) error { return tx.JoinThread(1, nodeOf(root), nodeOf(n)) })
	}
	root := func(n string) (root ThreadNode, known bool) {
		view(t, s, func(tx *Tx) (err error) {
			root, known, err = tx.Thread(1, nodeOf(n))
			return err
		})
		return root, known
	}
	join("old", "answer")
	join("live", "second")
	join("late", "third")
	join("second", "late") // ties two together
	if n := forget(t, s); n != 0 {
		t.Errorf("%d rows of today were dropped", n)
	}
	now = now.Add(ThreadLifetime - 100*24*time.Hour)
	join("third", "third") // as of an answer that names it
	join("third", "fourth")
	now = now.Add(200 * 24 * time.Hour)
	if n := forget(t, s); n != 3 { // old, answer, second
		t.Errorf("%d rows were dropped", n)
	}
	for n, want := range map[string]string{"third": "live", "fourth": "live", "late": "live", "answer": "answer", "second": "second"} {
		if got, _ := root(n); got != nodeOf(want) {
			t.Errorf("%s is in %q, want %s", n, bytes.Trim(got[:], "\x00"), want)
		}
	}
	view(t, s, func(tx *Tx) error {
		names, err := tx.ThreadNames(1, nodeOf("live"))
		if err == nil && !slices.Equal(names, []ThreadNode{nodeOf("live"), nodeOf("late")}) {
			t.Errorf("names: %q", names)
		}
		return err
	})
	if err := s.Check(); err != nil {
		t.Error(err)
	}

	update(t, s, func(tx *Tx) error { // as they were before days were noted
		n := nodeOf("early")
		return tx.PutRow(mailrow.BucketThread, mailrow.ThreadKey(1, n), n[:])
	})
	if n := forget(t, s); n != 1 {
		t.Errorf("%d rows of no age", n)
	}
	if _, known := root("early"); !known {
		t.Error("a row of no age was dropped")
	}
	now = now.Add(2 * ThreadLifetime)
	forget(t, s)
	if _, known := root("fourth"); known {
		t.Error("it is known for ever")
	}
}

// TestThreadsThatAreTiedOneByOne: whoever writes messages that tie one thread after the other
// together makes no chain that takes long to follow, or that cannot be followed at all.
func TestThreadsThatAreTiedOneByOne(t *testing.T) {
	s := openTest(t, Options{})
	name := func(n int) ThreadNode { return nodeOf(strconv.Itoa(n)) }
	for n := range 300 {
		update(t, s, func(tx *Tx) error { return tx.JoinThread(1, name(n), nodeOf("answer to "+strconv.Itoa(n))) })
	}
	for n := 1; n < 300; n++ {
		update(t, s, func(tx *Tx) error { return tx.JoinThread(1, name(n), name(n-1)) })
	}
	view(t, s, func(tx *Tx) error {
		for n := range 300 {
			top, _, err := tx.Thread(1, name(n))
			names, err2 := tx.ThreadNames(1, name(n))
			answers, _, err3 := tx.Thread(1, nodeOf("answer to "+strconv.Itoa(n)))
			if err := errors.Join(err, err2, err3); err != nil || answers != top || !slices.Contains(names, name(n)) || names[0] != top {
				t.Fatalf("thread %d is %q, its answer's %q, one of %d names: %v", n, top, answers, len(names), err)
			}
		}
		return nil
	})
}

// TestThreadsThatManyAreTiedTo bounds what a message costs that ties one more conversation to very
// many.
func TestThreadsThatManyAreTiedTo(t *testing.T) {
	s := openTest(t, Options{})
	top := nodeOf("top") // as stores from before there was a bound have it
	update(t, s, func(tx *Tx) error { return mailindex.PutThread(&tx.Tx, 1, top, top) })
	for part := range 5 {
		update(t, s, func(tx *Tx) error {
			for n := range 1000 {
				below := nodeOf(strconv.Itoa(1000*part + n))
				if err := errors.Join(mailindex.PutThread(&tx.Tx, 1, below, top), tx.PutRow(mailrow.BucketThreadJoined, mailrow.ThreadKey(1, top, below), nil)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	update(t, s, func(tx *Tx) error {
		return errors.Join(tx.JoinThread(1, nodeOf("other"), nodeOf("x")), tx.JoinThread(1, nodeOf("top"), nodeOf("other")), tx.JoinThread(1, nodeOf("other"), nodeOf("top")))
	})
	view(t, s, func(tx *Tx) error {
		names, err := tx.ThreadNames(1, nodeOf("top"))
		if err != nil || len(names) != mailindex.MaxJoinedThreads || names[0] != nodeOf("top") {
			t.Errorf("a search is for %d names, %v", len(names), err)
		}
		if root, _, _ := tx.Thread(1, nodeOf("x")); root != nodeOf("other") {
			t.Errorf("the thread was joined to one that is full: %q", root)
		}
		return nil
	})
}
