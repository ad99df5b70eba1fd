package servicetest

import (
	"io"
	"math"
	"testing"

	"github.com/mailstead/mailstead/store"
)

// Mailbox and Domain are records that tests change directly, where the service has no operation.
type (
	Mailbox = store.Mailbox
	Domain  = store.Domain
)

// ChangeMailbox changes the record of a mailbox with fn.
func (b *Sandbox) ChangeMailbox(t testing.TB, email string, fn func(*Mailbox)) {
	t.Helper()
	b.update(t, func(tx *store.Tx) error {
		mb, err := store.MailboxByEmail.Get(tx, email)
		if err != nil {
			return err
		}
		fn(mb)
		return store.Mailboxes.Put(tx, mb)
	})
}

// ChangeDomain changes the record of a domain with fn.
func (b *Sandbox) ChangeDomain(t testing.TB, name string, fn func(*Domain)) {
	t.Helper()
	b.update(t, func(tx *store.Tx) error {
		d, err := store.DomainByName.Get(tx, name)
		if err != nil {
			return err
		}
		fn(d)
		return store.Domains.Put(tx, d)
	})
}

// A Stored is a message in a folder.
type Stored struct {
	store.Meta
	UID  uint32
	blob store.BlobRef
}

// Folder returns the messages of a mailbox's folder with UIDs of at least from.
func (b *Sandbox) Folder(t testing.TB, email, folder string, from uint32) []Stored {
	t.Helper()
	var out []Stored
	b.view(t, func(tx *store.Tx) error {
		mb, err := store.MailboxByEmail.Get(tx, email)
		if err != nil {
			return err
		}
		f, err := tx.FolderByName(mb.Num, folder)
		if err != nil {
			return err
		}
		for m := range tx.Messages(mb.Num, f.ID, from, 1<<32-1) {
			meta, err := tx.Meta(mb.Num, f.ID, m.UID)
			if err != nil {
				return err
			}
			out = append(out, Stored{Meta: *meta, UID: m.UID, blob: m.Blob})
		}
		return nil
	})
	return out
}

// NextUID returns the UID that the next message in a mailbox's INBOX will have.
func (b *Sandbox) NextUID(t testing.TB, email string) (uid uint32) {
	t.Helper()
	b.view(t, func(tx *store.Tx) error {
		mb, err := store.MailboxByEmail.Get(tx, email)
		if err != nil {
			return err
		}
		f, err := tx.Folder(mb.Num, store.InboxID)
		if err == nil {
			uid = f.UIDNext
		}
		return err
	})
	return uid
}

// Text returns the bytes of a message as a string.
func (b *Sandbox) Text(t testing.TB, m Stored) string {
	t.Helper()
	blob, err := b.Core.Store.OpenBlob(m.blob)
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	text, err := io.ReadAll(io.NewSectionReader(blob, 0, blob.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Map records that a relay has given a message of the account another Message-ID.
func (b *Sandbox) Map(t testing.TB, accountID, original, provided string) {
	t.Helper()
	b.update(t, func(tx *store.Tx) error {
		return store.Mappings.Put(tx, &store.MessageIDMapping{
			ID: tx.NewID("map"), AccountID: accountID, Original: original, Provided: provided, Provider: "r1", Recipient: "far@far.test",
			Sender: "ann@boxes.test", SendingDomain: "boxes.test", RelayedAt: tx.Now(),
		})
	})
}

// CountEvents counts the events of a type.
func (b *Sandbox) CountEvents(t testing.TB, kind string) (n int) {
	t.Helper()
	b.view(t, func(tx *store.Tx) error {
		for e := range store.Events.All(tx) {
			if e.Type == kind {
				n++
			}
		}
		return nil
	})
	return n
}

// Sent returns the recipients in the sending log of all accounts.
func (b *Sandbox) Sent(t testing.TB) (recipients []string) {
	t.Helper()
	b.view(t, func(tx *store.Tx) error {
		for o := range store.Outgoings.All(tx) {
			recipients = append(recipients, o.Recipient)
		}
		return nil
	})
	return recipients
}

// Repeat copies a message within INBOX until there are `count` copies.
func (b *Sandbox) Repeat(t testing.TB, email string, uid uint32, count int) {
	t.Helper()
	for have := 1; have < count; have += 100 {
		b.update(t, func(tx *store.Tx) error {
			m, err := messageOfInbox(tx, email, uid)
			for n := have; n < min(count, have+100) && err == nil; n++ {
				_, err = tx.CopyMessage(m, store.InboxID)
			}
			return err
		})
	}
}

// LeaveUIDs copies a message from INBOX into a folder. It gives the copy a UID after which the
// folder has only `left` UIDs remaining.
func (b *Sandbox) LeaveUIDs(t testing.TB, email string, uid uint32, folder string, left uint32) {
	t.Helper()
	b.update(t, func(tx *store.Tx) error {
		m, err := messageOfInbox(tx, email, uid)
		if err != nil {
			return err
		}
		meta, err := tx.Meta(m.Mailbox, m.Folder, m.UID)
		if err != nil {
			return err
		}
		f, err := tx.FolderByName(m.Mailbox, folder)
		if err != nil {
			return err
		}
		m.Folder, m.UID = f.ID, math.MaxUint32-left-1
		return tx.AddMessageAt(m, meta)
	})
}

func messageOfInbox(tx *store.Tx, email string, uid uint32) (*store.Message, error) {
	mb, err := store.MailboxByEmail.Get(tx, email)
	if err != nil {
		return nil, err
	}
	return tx.Message(mb.Num, store.InboxID, uid)
}

// CopyIntents counts the records of unfinished copies.
func (b *Sandbox) CopyIntents(t testing.TB) (n int) {
	t.Helper()
	b.view(t, func(tx *store.Tx) error {
		for range store.CopyIntents.All(tx) {
			n++
		}
		return nil
	})
	return n
}

func (b *Sandbox) view(t testing.TB, fn func(*store.Tx) error) {
	t.Helper()
	if err := b.Core.Store.View(fn); err != nil {
		t.Fatal(err)
	}
}

// LargestAnswerKept returns the size in bytes of the largest answer stored for an Idempotency-Key.
func (b *Sandbox) LargestAnswerKept(t testing.TB) (most int) {
	t.Helper()
	err := b.Core.Store.View(func(tx *store.Tx) error {
		for kept := range store.Idempotencies.All(tx) {
			most = max(most, len(kept.Sealed))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return most
}

// Ping waits until all earlier transactions have ended, by running an empty transaction.
func (b *Sandbox) Ping() error { return b.Core.Store.Update(func(*store.Tx) error { return nil }) }
