package store

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/diskroom"
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/segment/disktest"
)

func TestFailedSyncOfMessagesWritesNoRows(t *testing.T) {
	dir := t.TempDir()
	faults := &disktest.Faults{}
	var log bytes.Buffer
	s := openDir(t, dir, Options{disk: faults, Log: slog.New(slog.NewTextHandler(&log, nil))})
	addMailbox(t, s, 1)
	ref := appendTest(t, s, "lost")
	faults.Set(func() { faults.SyncErr = syscall.EIO })
	ran := false
	err := s.Update(func(tx *Tx) error {
		tx.After(func() { ran = true })
		return tx.AddMessage(&Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: ref}, nil)
	})
	if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) || ran {
		t.Errorf("got %v (after: %v), want %v", err, ran, ErrFailed)
	}
	faults.Set(func() { faults.SyncErr = nil })
	if err := s.Update(func(tx *Tx) error { return putAccount(tx, 1) }); !errors.Is(err, ErrFailed) {
		t.Errorf("the next write: %v, want %v", err, ErrFailed)
	}
	if _, err := s.Append(nil, s.NewSpool(0)); !errors.Is(err, ErrFailed) {
		t.Errorf("the next append: %v, want %v", err, ErrFailed)
	}
	if n := strings.Count(log.String(), "takes no more writes"); n != 1 {
		t.Errorf("the log tells of it %d times, want once: %s", n, &log)
	}
	messages := func(s *Store) (n int) {
		view(t, s, func(tx *Tx) error {
			for range tx.Messages(1, InboxID, 1, 100) {
				n++
			}
			return nil
		})
		return n
	}
	if n := messages(s); n != 0 {
		t.Errorf("%d messages are there, want none", n)
	}
	_ = s.Close() // it failed before
	s = openDir(t, dir, Options{})
	if n := messages(s); n != 0 {
		t.Errorf("%d messages are there after a restart, want none", n)
	}
	addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "kept")
}

func TestFullDiskIsToldAndPasses(t *testing.T) {
	faults := &disktest.Faults{}
	s := openTest(t, Options{disk: faults})
	addMailbox(t, s, 1)
	addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "before")
	faults.Set(func() { faults.WriteErr, faults.Room = syscall.ENOSPC, 10 })
	spool := s.NewSpool(100)
	defer spool.Close()
	if _, err := spool.Write([]byte("no room for this")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(nil, spool); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want %v", err, ErrFull)
	}
	faults.Set(func() { faults.WriteErr = nil })
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "after")
	if got := readTest(t, s, m.Blob); got != "after" {
		t.Errorf("got %q", got)
	}
}

func TestReadTransactionRefusesWrites(t *testing.T) {
	s := openTest(t, Options{})
	view(t, s, func(tx *Tx) error {
		for i, err := range []error{
			tx.CreateFolder(&Folder{Mailbox: 1, Name: "x"}),
			Accounts.Put(tx, &Account{ID: "acc_2"}),
		} {
			if !errors.Is(err, engine.ErrReadOnly) {
				t.Errorf("write %d: got %v, want %v", i, err, engine.ErrReadOnly)
			}
		}
		return nil
	})
}

func TestReserveIsKeptForDeletions(t *testing.T) {
	free := int64(1 << 40)
	room := func(string) (int64, int64, error) { return free, 1 << 40, nil }
	var log bytes.Buffer
	s := openTest(t, Options{Room: room, Log: slog.New(slog.NewTextHandler(&log, nil))})
	addMailbox(t, s, 1)
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "x")
	spool := s.NewSpool(10)
	defer spool.Close()
	_, _ = spool.Write([]byte("x"))
	for _, c := range []struct {
		name string
		free int64
		room bool
	}{
		{"enough", diskroom.Reserve, true}, {"short", diskroom.Reserve - 1, false}, {"shorter", diskroom.Reserve/2 - 1, false}, {"none", 0, false}, {"again", 1 << 40, true},
	} {
		free = c.free
		time.Sleep(diskroom.CheckInterval)
		want := func(what string, ok bool, err error) {
			t.Helper()
			if ok != (err == nil) || err != nil && !errors.Is(err, ErrFull) {
				t.Errorf("%s: %s: %v", c.name, what, err)
			}
		}
		ref, err := s.Append(nil, spool)
		want("message", c.room, err)
		s.Release(ref)
		want("record", c.room, s.Update(func(tx *Tx) error { return putAccount(tx, 1) }))
		want("queue", true, s.Update(func(tx *Tx) error { tx.MayUseReserve(); return putAccount(tx, 1) }))
		want("nothing written", true, s.Update(func(tx *Tx) error { return nil }))
	}
	if a, b := strings.Count(log.String(), "almost full"), strings.Count(log.String(), "room on the disk again"); a != 1 || b != 1 {
		t.Errorf("the log tells %d times of the end and %d times of new room: %s", a, b, &log)
	}
	free = 0
	time.Sleep(diskroom.CheckInterval)
	update(t, s, func(tx *Tx) error { return Accounts.Delete(tx, "acc_1") })
	update(t, s, func(tx *Tx) error { return tx.DeleteMessage(1, InboxID, m.UID) })
}
