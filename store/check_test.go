package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
)

// damageStore makes a store that has everything that Check looks at, and damages it.
func damageStore(t *testing.T, damage func(tx *Tx, m *Message) error) error {
	t.Helper()
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	addMailbox(t, s, 1, 2)
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID, Received: second(1)}, "hello")
	update(t, s, func(tx *Tx) error {
		if err := SubmissionBlobs.Ref(tx, m.Blob, "sub_1"); err != nil {
			return err
		}
		return Submissions.Put(tx, &Submission{ID: "sub_1", Blob: m.Blob})
	})
	if err := s.Check(); err != nil {
		t.Fatalf("before the damage: %v", err)
	}
	update(t, s, func(tx *Tx) error { return damage(tx, m) })
	return s.Check()
}

func TestCheckFindsEveryKindOfDamage(t *testing.T) {
	flip := func(bucket *engine.Bucket, key func(*Message) []byte, at int) func(*Tx, *Message) error {
		return func(tx *Tx, m *Message) error {
			row := append([]byte(nil), tx.GetRow(bucket, key(m))...)
			row[at] ^= 0x40
			return tx.PutRow(bucket, key(m), row)
		}
	}
	// change is flip, and mends the checksum: what a mistake of ours might write.
	change := func(bucket *engine.Bucket, key func(*Message) []byte, at int) func(*Tx, *Message) error {
		return func(tx *Tx, m *Message) error {
			row, err := bucket.Open(key(m), tx.GetRow(bucket, key(m)))
			if err != nil {
				return err
			}
			row = bytes.Clone(row)
			row[at] ^= 0x40
			return tx.PutRow(bucket, key(m), bucket.Seal(key(m), row))
		}
	}
	drop := func(bucket *engine.Bucket, key func(*Message) []byte) func(*Tx, *Message) error {
		return func(tx *Tx, m *Message) error { return tx.DeleteRow(bucket, key(m)) }
	}
	extra := func(bucket *engine.Bucket, key []byte, row string) func(*Tx, *Message) error {
		return func(tx *Tx, _ *Message) error { return tx.PutRow(bucket, key, []byte(row)) }
	}
	message := func(m *Message) []byte { k := m.Key(); return k[:] }
	folder := func(m *Message) []byte { k := mailrow.FolderKey(1, InboxID); return k[:] }
	inbox := func(m *Message) []byte { k := mailrow.InboxKey(m); return k[:] }
	inboxOf := func(m *Message) []byte { k := mailrow.InboxOfKey(m, m.Mailbox); return k[:] }
	number := func(n uint32) func(*Message) []byte {
		return func(*Message) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	}
	ref := func(owner string) func(*Message) []byte {
		return func(m *Message) []byte {
			k := mailrow.BlobPrefix(m.Blob)
			if owner == "" {
				return append(k[:], mailrow.MessageOwner(m)...)
			}
			return append(k[:], owner...)
		}
	}
	for name, c := range map[string]struct {
		damage func(*Tx, *Message) error
		want   string
	}{
		"message row":            {flip(mailrow.BucketMessage, message, 20), "damaged row"},
		"message row's version":  {change(mailrow.BucketMessage, message, 0), "newer version"},
		"message's bits":         {change(mailrow.BucketMessage, message, 2), "the account's inbox"},
		"message's account":      {change(mailrow.BucketMessage, message, 3), "account"},
		"message's modseq":       {change(mailrow.BucketMessage, message, 15), "MODSEQ"},
		"message's blob":         {change(mailrow.BucketMessage, message, 26), "lacks its reference"},
		"message gone":           {drop(mailrow.BucketMessage, message), "it has 0, 0, 0"},
		"message in no folder":   {extra(mailrow.BucketMessage, make([]byte, 12), "x"), "msg has 2 rows"},
		"meta gone":              {drop(mailrow.BucketMeta, message), "not found"},
		"meta row":               {flip(mailrow.BucketMeta, message, 0), "damaged row"},
		"meta of nothing":        {extra(mailrow.BucketMeta, make([]byte, 12), "x"), "msg_meta has 2 rows"},
		"inbox entry gone":       {drop(mailrow.BucketInbox, inbox), "missing in the account's inbox"},
		"inbox entry":            {flip(mailrow.BucketInbox, inbox, 0), "the account's inbox"},
		"inbox of nothing":       {extra(mailrow.BucketInbox, make([]byte, 21), "xx"), "inbox_class has 2 rows"},
		"mailbox entry gone":     {drop(mailrow.BucketInboxOf, inboxOf), "missing in the list of its folder"},
		"mailbox entry":          {flip(mailrow.BucketInboxOf, inboxOf, 1), "the list of its folder"},
		"mailbox of nothing":     {extra(mailrow.BucketInboxOf, make([]byte, 17), "xx"), "inbox_mbx_class has 2 rows"},
		"mailbox row":            {flip(mailrow.BucketMailbox, number(1), 7), "damaged row"},
		"folder row":             {flip(mailrow.BucketFolder, folder, 0), "damaged row"},
		"folder's next UID":      {change(mailrow.BucketFolder, folder, 6), ""},
		"folder's messages":      {change(mailrow.BucketFolder, folder, 20), "counts"},
		"folder's unseen":        {change(mailrow.BucketFolder, folder, 24), "counts"},
		"folder's bytes":         {change(mailrow.BucketFolder, folder, 32), "counts"},
		"folder gone":            {drop(mailrow.BucketFolder, folder), "folder_name has 4 rows"},
		"folder name gone":       {drop(mailrow.BucketFolderName, func(*Message) []byte { return mailrow.FolderNameKey(1, "INBOX") }), "not found by its name"},
		"folder name of nothing": {extra(mailrow.BucketFolderName, mailrow.FolderNameKey(1, "x"), "xxxx"), "folder_name has 5 rows"},
		"mailbox counters":       {change(mailrow.BucketMailbox, number(1), 20), "mailbox 1 counts"},
		"mailbox's modseq":       {drop(mailrow.BucketMailbox, number(1)), "mailbox 1"},
		"mailbox of no folder":   {extra(mailrow.BucketMailbox, number(9)(nil), string((&mailrow.MailboxCounts{Messages: 1}).Row(number(9)(nil)))), "mailbox 9 counts"},
		"account's messages":     {flip(mailrow.BucketAccount, number(1), 5), "account 1 counts"},
		"account's bytes":        {flip(mailrow.BucketAccount, number(1), 12), "account 1 counts"},
		"account of nothing":     {extra(mailrow.BucketAccount, number(9)(nil), "xxxxxxxxxxxxxxxx"), "account 9 counts"},
		"reference gone":         {drop(mailrow.BucketRef, ref("")), "lacks its reference"},
		"reference's length":     {flip(mailrow.BucketRef, ref(""), 6), "references differ"},
		"reference of nothing":   {func(tx *Tx, m *Message) error { return mailindex.AddRef(&tx.Tx, m.Blob, []byte("snobody")) }, "submission nobody"},
		"reference of no kind":   {func(tx *Tx, m *Message) error { return mailindex.AddRef(&tx.Tx, m.Blob, []byte("xyz")) }, "damaged row"},
		"submission's reference": {drop(mailrow.BucketRef, ref("ssub_1")), "submission sub_1"},
		"submission gone":        {func(tx *Tx, _ *Message) error { return Submissions.Delete(tx, "sub_1") }, "submission sub_1"},
		"submission's blob":      {func(tx *Tx, _ *Message) error { return Submissions.Put(tx, &Submission{ID: "sub_1"}) }, "points to"},
		"live bytes":             {flip(mailrow.BucketLive, number(1), 6), "live bytes"},
		"live bytes of nothing":  {extra(mailrow.BucketLive, number(9)(nil), "xxxxxxxx"), "segment 00000009"},
	} {
		t.Run(name, func(t *testing.T) {
			err := damageStore(t, c.damage)
			if name == "folder's next UID" {
				// Too high does no harm; too low would.
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("check: %v, want %q", err, c.want)
			}
		})
	}
}

func TestCheckReadsEveryMessage(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	addMailbox(t, s, 1)
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "hello")
	f, err := os.OpenFile(segmentPath(s, m.Blob.Segment), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("J"), int64(m.Blob.Offset+m.Blob.Head)); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "body checksum") {
		t.Errorf("check: %v", err)
	}
}

func TestCheckMissesALostSegment(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir, Options{})
	addMailbox(t, s, 1)
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "hello")
	path := segmentPath(s, m.Blob.Segment)
	closeTest(t, s)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "segment 00000001 is missing") {
		t.Errorf("check: %v", err)
	}
}

func TestCheckNamesTheFirstHundredFaults(t *testing.T) {
	err := damageStore(t, func(tx *Tx, _ *Message) error {
		for n := range uint32(250) {
			if err := tx.PutRow(mailrow.BucketFolder, fmt.Appendf(nil, "folder %d", n), []byte("x")); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil || strings.Count(err.Error(), "\n") > 101 || !strings.Contains(err.Error(), "more") {
		t.Errorf("check: %v", err)
	}
}
