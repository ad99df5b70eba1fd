package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/rowform"
)

// The number of the store's format counts up with each change after which an older version would
// not understand a row, or would lose a part of it. It stands in bucketMeta, in a form that every
// version reads. Before the rows of an older store are used, the migrations behind its number run,
// each in transactions of at most migrationRows rows. Each says with its rows how far it is, and
// the last one the new number: killed anywhere, it goes on where it was.
const (
	storeFormat   = 8
	bucketMeta    = "meta"
	formatKey     = "format"    // → number 4 | program | crc32c 4
	progressKey   = "migration" // → number 4 | where to go on | crc32c 4; while one runs
	migrationRows = 5000
)

// A migration makes a store of the format before it one of the format `to`.
type migration struct {
	to   uint32
	name string
	// step does a part, of about so many rows, from a key on, nil at first. It gives where to go
	// on; nil at the end.
	step func(tx *Tx, from []byte, rows int) (next []byte, err error)
}

// migrations are in the order of formats; each goes up by one. Format 1 is what prepare makes of a
// store that has no number.
var migrations = []migration{
	{2, "inboxes by class", (*Tx).sortInbox},
	{3, "a class for flagged messages", (*Tx).moveFlagged},
	// Rows without checksums are read as they are, and get one when they are written again.
	{4, "rows with versions and checksums", nothingToDo},
	// Older versions would lose what was added to messages that wait.
	{5, "scheduled and held messages", nothingToDo},
	// Older versions would lose what was added to mailboxes, too.
	{6, "lists of all folders", (*Tx).listFolders},
	// Older versions would lose what tokens and mailboxes may send, and send what is to be
	// approved.
	{7, "policies and approvals", nothingToDo},
	// Older versions would lose what was found out about senders and what keys have read.
	{8, "proof of senders, readings of keys and imported passwords", (*Tx).indexTaintingAndHashed},
}

func nothingToDo(*Tx, []byte, int) ([]byte, error) { return nil, nil }

func metaSum() rowform.Sum { return rowform.SumOf(bucketMeta) }

// metaRow reads a row of bucketMeta, which may be missing; n is 0 where the row is.
func metaRow(b *bolt.Tx, key string) (n uint32, rest []byte, err error) {
	meta := b.Bucket([]byte(bucketMeta))
	if meta == nil {
		return 0, nil, nil
	}
	row := meta.Get([]byte(key))
	if row == nil {
		return 0, nil, nil
	}
	row, err = metaSum().Open([]byte(key), row)
	if err == nil && len(row) < 4 {
		err = ErrDamagedRow
	}
	if err != nil {
		return 0, nil, fmt.Errorf("row %s of bucket %s: %w", key, bucketMeta, err)
	}
	return binary.BigEndian.Uint32(row), row[4:], nil
}

func putMetaRow(b *bolt.Tx, key string, n uint32, rest []byte) error {
	row := append(binary.BigEndian.AppendUint32(nil, n), rest...)
	return b.Bucket([]byte(bucketMeta)).Put([]byte(key), metaSum().Seal([]byte(key), row))
}

// checkFormat returns ErrNewer for a store that this version cannot read, and asks mayMigrate,
// which may be nil, about an older one.
func (s *Store) checkFormat(mayMigrate func(from, to uint32) error) error {
	return s.db.View(func(tx *engine.Tx) error {
		b := engine.Bolt(tx)
		format, program, err := metaRow(b, formatKey)
		if err != nil {
			return err
		}
		if format > storeFormat {
			use := "the version that wrote it"
			if len(program) > 0 {
				use = "mailstead " + string(program)
			}
			return fmt.Errorf("the store in %s is of format %d, and this program knows formats up to %d: use %s, or a later one: %w",
				s.dir, format, storeFormat, use, ErrNewer)
		}
		if fresh := b.Bucket([]byte(mailrow.BucketLive.Name())) == nil; fresh || format == storeFormat || mayMigrate == nil {
			return nil
		}
		return mayMigrate(max(format, 1), storeFormat)
	})
}

// prepare makes the buckets that are not there yet, and a store of today's format unless the
// options leave it in that of its entries.
func (s *Store) prepare(o Options) error {
	program := o.Program
	var format uint32
	ready := true
	err := s.db.View(func(tx *engine.Tx) (err error) {
		b := engine.Bolt(tx)
		for _, name := range bucketNames() {
			ready = ready && b.Bucket([]byte(name)) != nil
		}
		format, _, err = metaRow(b, formatKey)
		return err
	})
	if ready && format == storeFormat || err != nil {
		return err
	}
	s.WriteFreelist()
	killpoint.At("migrate.begin")
	if err := s.setup(func(tx *Tx) error { return s.begin(tx, program) }); err != nil {
		return err
	}
	for done := o.Unmigrated; !done; {
		killpoint.At("migrate.step")
		err := s.setup(func(tx *Tx) (err error) {
			done, err = s.migrate(tx, program, migrationRows)
			return err
		})
		if err != nil {
			return err
		}
	}
	killpoint.At("migrate.done")
	return nil
}

// begin makes what is missing. A store without a number gets one: a new one today's, an old one 1.
func (s *Store) begin(tx *Tx, program string) error {
	b := engine.Bolt(tx)
	fresh := b.Bucket([]byte(mailrow.BucketLive.Name())) == nil
	withoutClaims := b.Bucket([]byte(DomainsByName.Name())) == nil
	withoutText := b.Bucket([]byte(mailrow.BucketTextTodo.Name())) == nil
	for _, name := range bucketNames() {
		if _, err := b.CreateBucketIfNotExists([]byte(name)); err != nil {
			return fmt.Errorf("make bucket %s: %w", name, err)
		}
	}
	if err := s.beginAccepted(b); err != nil {
		return err
	}
	format, _, err := metaRow(b, formatKey)
	if format > 0 || err != nil {
		return err
	}
	if fresh {
		return errors.Join(putMetaRow(b, formatKey, storeFormat, []byte(program)),
			b.Bucket([]byte(mailrow.BucketInbox.Name())).SetSequence(inboxForm), s.keepFoundSegments(tx))
	}
	if withoutClaims {
		if err := tx.claimDomains(); err != nil {
			return err
		}
	}
	if withoutText {
		if _, err := mailindex.MarkAllUnindexed(&tx.Tx, nil, 0); err != nil {
			return err
		}
	}
	return putMetaRow(b, formatKey, 1, []byte(program))
}

// migrate does the next part of the migrations, of about so many rows; done where none is left.
func (s *Store) migrate(tx *Tx, program string, rows int) (done bool, err error) {
	b := engine.Bolt(tx)
	format, _, err := metaRow(b, formatKey)
	if format == storeFormat || err != nil {
		return true, err
	}
	m := migrations[format-1]
	to, from, err := metaRow(b, progressKey)
	if err != nil {
		return false, err
	}
	if to != m.to {
		from = nil
		s.log.Info("the store is migrated", "to", m.to, "of", storeFormat, "what", m.name)
	}
	// What is written here is in no entry: copies of the store begin anew.
	if err := tx.EndEntries(); err != nil {
		return false, err
	}
	next, err := m.step(tx, bytes.Clone(from), rows)
	if err = errors.Join(err, tx.Err()); err != nil {
		return false, fmt.Errorf("migration to format %d, %s: %w", m.to, m.name, err)
	}
	if next != nil {
		return false, putMetaRow(b, progressKey, m.to, next)
	}
	return m.to == storeFormat, errors.Join(putMetaRow(b, formatKey, m.to, []byte(program)),
		b.Bucket([]byte(bucketMeta)).Delete([]byte(progressKey)))
}

// oldInbox is a bucket that only old stores have.
const oldInbox = "inbox"

// sortInbox makes the inbox indexes of stores from before their entries were sorted by class.
func (tx *Tx) sortInbox(from []byte, rows int) (next []byte, err error) {
	if engine.NamedBucket(tx, oldInbox) == nil {
		return nil, nil
	}
	for k, row := range tx.Ascend(mailrow.BucketMessage, from) {
		if rows--; rows < 0 {
			return bytes.Clone(k), nil
		}
		var m Message
		if err := m.Decode(k, row); err != nil {
			return nil, fmt.Errorf("message %x: %w", k, err)
		}
		if m.Folder != InboxID {
			continue
		}
		if err := mailindex.ListMessage(&tx.Tx, &m, m.Mailbox); err != nil {
			return nil, err
		}
	}
	return nil, errors.Join(engine.Bolt(tx).DeleteBucket([]byte(oldInbox)), engine.Bolt(tx).DeleteBucket([]byte("inbox_mbx")))
}

// listFolders numbers the folders that are not INBOX, then lists their messages and has them
// indexed, in stores in which INBOX alone was listed. When messages came into their folders is not
// known; those in Junk and Trash begin to wait there now. The key to go on at begins with what is
// done: 0 for folders, 1 for messages.
func (tx *Tx) listFolders(from []byte, rows int) (next []byte, err error) {
	if len(from) == 0 || from[0] == 0 {
		for k, row := range tx.Ascend(mailrow.BucketFolder, from[min(len(from), 1):]) {
			if rows--; rows < 0 {
				return append([]byte{0}, k...), nil
			}
			var f Folder
			if err := f.Decode(k, row); err != nil {
				return nil, fmt.Errorf("folder %x: %w", k, err)
			}
			if f.Num != 0 {
				continue
			}
			if err := errors.Join(mailindex.NumberFolder(&tx.Tx, &f), mailindex.PutFolder(&tx.Tx, &f)); err != nil {
				return nil, err
			}
		}
		return []byte{1}, nil
	}
	var in Folder
	for k, row := range tx.Ascend(mailrow.BucketMessage, from[1:]) {
		if rows--; rows < 0 {
			return append([]byte{1}, k...), nil
		}
		var m Message
		if err := m.Decode(k, row); err != nil {
			return nil, fmt.Errorf("message %x: %w", k, err)
		}
		if m.Folder == InboxID {
			continue
		}
		if m.Mailbox != in.Mailbox || m.Folder != in.ID {
			f, err := tx.Folder(m.Mailbox, m.Folder)
			if err != nil {
				return nil, err
			}
			in = *f
		}
		if in.SpecialUse == `\Junk` || in.SpecialUse == `\Trash` { // which are emptied of what is long in them
			m.Saved = mailrow.Storable(tx.Now())
			if err := tx.PutRow(mailrow.BucketMessage, bytes.Clone(k), m.Row()); err != nil {
				return nil, err
			}
		}
		if err := errors.Join(mailindex.ListMessage(&tx.Tx, &m, in.Num), mailindex.MarkUnindexed(&tx.Tx, &m, in.Num, true)); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// indexTaintingAndHashed makes two indexes, the one of mailboxes behind that of tokens.
func (tx *Tx) indexTaintingAndHashed(from []byte, rows int) (next []byte, err error) {
	const mailbox = "eu_" // an id begins so
	if !bytes.HasPrefix(from, []byte(mailbox)) {
		next, err = TokensTainting.Fill(tx, from, rows)
		if next == nil && err == nil {
			next = []byte(mailbox)
		}
		return next, err
	}
	return MailboxesHashed.Fill(tx, from, rows)
}

// inboxForm is the sequence of the account-wide inbox index where its keys, and those of the
// mailboxes', tell what is flagged.
const inboxForm = 1

// moveFlagged gives flagged messages their class, in stores from before there was one.
func (tx *Tx) moveFlagged(from []byte, rows int) (next []byte, err error) {
	index := tx.Bucket(mailrow.BucketInbox)
	if index.Sequence() == inboxForm {
		return nil, nil
	}
	for k, v := range tx.Ascend(mailrow.BucketInbox, from) {
		if rows--; rows < 0 {
			return bytes.Clone(k), nil
		}
		if len(k) != 21 || len(v) != 2 {
			return nil, fmt.Errorf("inbox entry %x: %w", k, ErrDamagedRow)
		}
		if Flags(v[0])&FlagFlagged == 0 || k[4]&mailrow.ClassFlagged != 0 {
			continue
		}
		at := mailrow.ParsePlace(k[5:], 0)
		m := &Message{
			Account: binary.BigEndian.Uint32(k), Mailbox: at.Num, Folder: InboxID, UID: at.UID, Received: at.Received, Flags: Flags(v[0]), Bits: Bits(v[1]),
		}
		byAccount, byMailbox := mailrow.InboxKey(m), mailrow.InboxOfKey(m, m.Mailbox)
		byAccount[4] &^= mailrow.ClassFlagged
		byMailbox[4] &^= mailrow.ClassFlagged
		err := errors.Join(tx.DeleteRow(mailrow.BucketInbox, byAccount[:]), tx.DeleteRow(mailrow.BucketInboxOf, byMailbox[:]), mailindex.ListMessage(&tx.Tx, m, m.Mailbox))
		if err != nil {
			return nil, err
		}
	}
	return nil, index.SetSequence(inboxForm)
}

// claimDomains turns the domains of a store from before there were claims into claims. Those that
// are complete, or were bought here, count as proven; external ones only where a log-in to one of
// their mailboxes has succeeded. The claims of the others begin now. Mailboxes are found by domain
// and address from then on, since two claims of a name may have the same address.
func (tx *Tx) claimDomains() error {
	b := engine.Bolt(tx)
	loggedIn := map[string]bool{}
	for m := range Mailboxes.All(tx) {
		loggedIn[m.DomainID] = loggedIn[m.DomainID] || !m.LastSyncAt.IsZero()
		if err := MailboxByAddress.Add(tx, m); err != nil {
			return err
		}
	}
	var all []*Domain
	for d := range Domains.All(tx) {
		all = append(all, d)
	}
	if err := b.DeleteBucket([]byte(DomainByName.Name())); err != nil {
		return err
	}
	if _, err := b.CreateBucket([]byte(DomainByName.Name())); err != nil {
		return err
	}
	for _, d := range all {
		external := d.DNSProvider == DomainProviderExternal
		proven := d.Source == DomainSourceRegistered || external && loggedIn[d.ID] && !PublicMail(d.Name) || !external && !d.CompletedAt.IsZero()
		d.Claim = ClaimProven
		if !proven {
			d.Claim, d.ClaimedAt = ClaimOpen, tx.Now()
		}
		err := Domains.PutRow(tx, d)
		for _, x := range []*Index[Domain]{DomainByName, DomainsByName, DomainOfAccount, DomainsOpen} {
			err = errors.Join(err, x.Add(tx, d))
		}
		if err != nil {
			return fmt.Errorf("claim of %s: %w", d.Name, err)
		}
	}
	if old := []byte("mailbox.email"); b.Bucket(old) != nil {
		return errors.Join(tx.Err(), b.DeleteBucket(old))
	}
	return tx.Err()
}
