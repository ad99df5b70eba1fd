package store

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/diskroom"
)

func TestReserveIsKeptForDeletions(t *testing.T) {
	free := int64(1 << 40)
	room := func(string) (int64, int64, error) { return free, 1 << 40, nil }
	var log bytes.Buffer
	s := openTest(t, Options{Room: room, Log: slog.New(slog.NewTextHandler(&log, nil))})
	addMailbox(t, s, 1)
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "x")
	update(t, s, func(tx *Tx) error { return putText(tx, "old", 100) })
	spool := s.NewSpool(10)
	defer spool.Close()
	_, _ = spool.Write([]byte("x"))
	for _, c := range []struct {
		name                           string
		free                           int64
		message, large, small, allowed bool
	}{
		{"enough", diskroom.Reserve, true, true, true, true},
		{"short", diskroom.Reserve - 1, false, false, true, true},
		{"least", diskroom.Reserve/2 - 1, false, false, false, true},
		{"none", 0, false, false, false, true},
		{"again", 1 << 40, true, true, true, true},
	} {
		free = c.free
		time.Sleep(diskroom.Interval)
		want := func(what string, ok bool, err error) {
			t.Helper()
			if ok != (err == nil) || err != nil && !errors.Is(err, ErrFull) {
				t.Errorf("%s: %s: %v", c.name, what, err)
			}
		}
		ref, err := s.Append(nil, spool)
		want("message", c.message, err)
		s.Release(ref)
		want("large", c.large, s.Update(func(tx *Tx) error { return putText(tx, "new", 20_000) }))
		want("small", c.small, s.Update(func(tx *Tx) error { return putText(tx, "new", 100) }))
		want("queue", c.allowed, s.Update(func(tx *Tx) error { tx.MayUseReserve(); return putText(tx, "new", 100) }))
		want("nothing written", true, s.Update(func(tx *Tx) error { return nil }))
	}
	if a, b := strings.Count(log.String(), "almost full"), strings.Count(log.String(), "room on the disk again"); a != 1 || b != 1 {
		t.Errorf("the log tells %d times of the end and %d times of new room: %s", a, b, &log)
	}
	free = 0
	time.Sleep(diskroom.Interval)
	update(t, s, func(tx *Tx) error { return Templates.Delete(tx, "old") })
	update(t, s, func(tx *Tx) error { return tx.DeleteMessage(1, InboxID, m.UID) })
}
