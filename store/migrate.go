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

// storeFormat is the number of the current format. It is raised with each change after which an
// older version of the program would misread a row or lose a part of it. The number of a store is
// in bucketMeta, in a form that every version can read. Before an older store is used, the
// migrations after its number run, each in transactions of at most migrationRows rows. Each
// transaction also stores the key at which the migration continues; the last one stores the new
// number. If the process is killed, the migration continues from that key.
const (
	storeFormat   = 11
	bucketMeta    = "meta"
	formatKey     = "format"    // → number 4 | program | crc32c 4
	progressKey   = "migration" // → number 4 | key to continue at | crc32c 4; only during a migration
	migrationRows = 5000
)

// A migration changes a store of the format to-1 to the format `to`.
type migration struct {
	to   uint32
	name string
	// step migrates about `rows` rows, starting at the key `from`, which is nil at first. It
	// returns the key to continue at, or nil at the end.
	step func(tx *Tx, from []byte, rows int) (next []byte, err error)
}

// migrations has one migration for each format number, in ascending order. createBuckets brings a
// store without a number to format 1.
var migrations = []migration{
	{2, "inboxes by class", (*Tx).fillInboxIndexes},
	{3, "a class for flagged messages", (*Tx).moveFlaggedEntries},
	// Rows without checksums are still read, and get a checksum when they are next written.
	{4, "rows with versions and checksums", noRowsToMigrate},
	// Older programs must not open the store: they would lose the new fields of queued messages.
	{5, "scheduled and held messages", noRowsToMigrate},
	// Older programs must not open the store: they would lose the new fields of mailboxes.
	{6, "lists of all folders", (*Tx).listFolders},
	// Older versions would lose the policies of tokens and mailboxes, and send messages that need
	// approval.
	{7, "policies and approvals", noRowsToMigrate},
	// Older versions would lose the facts about senders and the readings of tokens.
	{8, "proof of senders, readings of keys and imported passwords", (*Tx).indexTaintingAndHashed},
	// Older programs must not open the store: they would serve removed DNS records again, could not
	// read rows of warm-up mail, and would lose the settings of accounts and where the bare name
	// and the mail of a domain lead.
	{9, "zones with a history, records at DNS providers in rows, and warm-up mail in a folder", (*Tx).moveEdgeRecords},
	// Older programs must not open the store: they could not read rows of the sending log.
	{10, "requests in the sending log", noRowsToMigrate},
	// Older programs must not open the store: they would leave the new indexes as they are.
	{11, "mailboxes by address, domains in trouble, and failed messages", (*Tx).indexLists},
}

func noRowsToMigrate(*Tx, []byte, int) ([]byte, error) { return nil, nil }

func metaSum() rowform.Sum { return rowform.SumOf(bucketMeta) }

// readMetaRow reads a row of bucketMeta: the number n and what follows it. If the row or the bucket
// is missing, n is 0.
func readMetaRow(b *bolt.Tx, key string) (n uint32, rest []byte, err error) {
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
		return 0, nil, fmt.Errorf("read row %s of bucket %s: %w", key, bucketMeta, err)
	}
	return binary.BigEndian.Uint32(row), row[4:], nil
}

func putMetaRow(b *bolt.Tx, key string, n uint32, rest []byte) error {
	row := append(binary.BigEndian.AppendUint32(nil, n), rest...)
	return b.Bucket([]byte(bucketMeta)).Put([]byte(key), metaSum().Seal([]byte(key), row))
}

// checkFormat returns ErrNewer for a store that this version cannot read. For an older store it
// calls mayMigrate, which may be nil, and returns its error.
func (s *Store) checkFormat(mayMigrate func(from, to uint32) error) error {
	return s.db.View(func(tx *engine.Tx) error {
		b := engine.Bolt(tx)
		format, program, err := readMetaRow(b, formatKey)
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

// createAndMigrate creates missing buckets and brings the store to the current format, unless the
// options leave it unmigrated.
func (s *Store) createAndMigrate(o Options) error {
	program := o.Program
	var format uint32
	ready := true
	err := s.db.View(func(tx *engine.Tx) (err error) {
		b := engine.Bolt(tx)
		for _, name := range bucketNames() {
			ready = ready && b.Bucket([]byte(name)) != nil
		}
		format, _, err = readMetaRow(b, formatKey)
		return err
	})
	if ready && format == storeFormat || err != nil {
		return err
	}
	s.WriteFreelist()
	killpoint.At("migrate.begin")
	if err := s.setup(func(tx *Tx) error { return s.createBuckets(tx, program) }); err != nil {
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

// createBuckets creates the missing buckets. If the store has no format number, it stores one: the
// current number in a new store, 1 in an old one.
func (s *Store) createBuckets(tx *Tx, program string) error {
	b := engine.Bolt(tx)
	fresh := b.Bucket([]byte(mailrow.BucketLive.Name())) == nil
	withoutClaims := b.Bucket([]byte(DomainsByName.Name())) == nil
	withoutText := b.Bucket([]byte(mailrow.BucketTextTodo.Name())) == nil
	for _, name := range bucketNames() {
		if _, err := b.CreateBucketIfNotExists([]byte(name)); err != nil {
			return fmt.Errorf("create bucket %s: %w", name, err)
		}
	}
	if err := s.initFiledMark(b); err != nil {
		return err
	}
	format, _, err := readMetaRow(b, formatKey)
	if format > 0 || err != nil {
		return err
	}
	if fresh {
		return errors.Join(putMetaRow(b, formatKey, storeFormat, []byte(program)),
			b.Bucket([]byte(mailrow.BucketInbox.Name())).SetSequence(flaggedClassSequence), s.keepExistingSegments(tx))
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

// migrate does the next part of the migrations, about `rows` rows. done reports whether none is
// left.
func (s *Store) migrate(tx *Tx, program string, rows int) (done bool, err error) {
	b := engine.Bolt(tx)
	format, _, err := readMetaRow(b, formatKey)
	if format == storeFormat || err != nil {
		return true, err
	}
	m := migrations[format-1]
	to, from, err := readMetaRow(b, progressKey)
	if err != nil {
		return false, err
	}
	if to != m.to {
		from = nil
		s.log.Info("migrating the store", "to", m.to, "of", storeFormat, "what", m.name)
	}
	// No entry contains the writes that follow, so copies of the store must start again from a full
	// backup.
	if err := tx.EndEntries(); err != nil {
		return false, err
	}
	next, err := m.step(tx, bytes.Clone(from), rows)
	if err = errors.Join(err, tx.Err()); err != nil {
		return false, fmt.Errorf("migrate the store to format %d (%s): %w", m.to, m.name, err)
	}
	if next != nil {
		return false, putMetaRow(b, progressKey, m.to, next)
	}
	return m.to == storeFormat, errors.Join(putMetaRow(b, formatKey, m.to, []byte(program)),
		b.Bucket([]byte(bucketMeta)).Delete([]byte(progressKey)))
}

// oldInboxBucket is a bucket that only stores before format 2 have.
const oldInboxBucket = "inbox"

// fillInboxIndexes fills the inbox indexes of stores whose keys had no class yet, and deletes the
// old indexes.
func (tx *Tx) fillInboxIndexes(from []byte, rows int) (next []byte, err error) {
	if engine.NamedBucket(tx, oldInboxBucket) == nil {
		return nil, nil
	}
	for k, row := range tx.Ascend(mailrow.BucketMessage, from) {
		if rows--; rows < 0 {
			return bytes.Clone(k), nil
		}
		var m Message
		if err := m.Decode(k, row); err != nil {
			return nil, fmt.Errorf("read message %x: %w", k, err)
		}
		if m.Folder != InboxID {
			continue
		}
		if err := mailindex.AddToLists(&tx.Tx, &m, m.Mailbox); err != nil {
			return nil, err
		}
	}
	return nil, errors.Join(engine.Bolt(tx).DeleteBucket([]byte(oldInboxBucket)), engine.Bolt(tx).DeleteBucket([]byte("inbox_mbx")))
}

// listFolders migrates stores in which only the messages of INBOX were in lists. It numbers the
// other folders, then lists their messages and queues them for the text index. It is not known when
// a message came into its folder, so the messages in Junk and Trash are treated as if they came
// now: they are deleted some time after that. The first byte of the key to continue at is 0 during
// the folders and 1 during the messages.
func (tx *Tx) listFolders(from []byte, rows int) (next []byte, err error) {
	if len(from) == 0 || from[0] == 0 {
		for k, row := range tx.Ascend(mailrow.BucketFolder, from[min(len(from), 1):]) {
			if rows--; rows < 0 {
				return append([]byte{0}, k...), nil
			}
			var f Folder
			if err := f.Decode(k, row); err != nil {
				return nil, fmt.Errorf("read folder %x: %w", k, err)
			}
			if f.Num != 0 {
				continue
			}
			if err := errors.Join(mailindex.AssignFolderNum(&tx.Tx, &f), mailindex.PutFolder(&tx.Tx, &f)); err != nil {
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
			return nil, fmt.Errorf("read message %x: %w", k, err)
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
		if in.SpecialUse == `\Junk` || in.SpecialUse == `\Trash` { // messages in these folders are deleted when they are old
			m.Saved = mailrow.StorableTime(tx.Now())
			if err := tx.PutRow(mailrow.BucketMessage, bytes.Clone(k), m.Row()); err != nil {
				return nil, err
			}
		}
		if err := errors.Join(mailindex.AddToLists(&tx.Tx, &m, in.Num), mailindex.MarkUnindexed(&tx.Tx, &m, in.Num, true)); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// indexTaintingAndHashed fills the new indexes TokensTainting and MailboxesHashed, one after the
// other.
func (tx *Tx) indexTaintingAndHashed(from []byte, rows int) (next []byte, err error) {
	const mailbox = "eu_" // prefix of mailbox ids; a key with it means that the tokens are done
	if !bytes.HasPrefix(from, []byte(mailbox)) {
		next, err = TokensTainting.Fill(tx, from, rows)
		if next == nil && err == nil {
			next = []byte(mailbox)
		}
		return next, err
	}
	return MailboxesHashed.Fill(tx, from, rows)
}

// indexLists fills the new indexes MailboxesOfAccount, DomainsByTrouble and OutgoingsFailed, one
// after the other. The first byte of the key to continue at is the index's place in that order.
func (tx *Tx) indexLists(from []byte, rows int) (next []byte, err error) {
	indexes := []*engine.AnyIndex{&MailboxesOfAccount.AnyIndex, &DomainsByTrouble.AnyIndex, &OutgoingsFailed.AnyIndex}
	at := byte(0)
	if len(from) > 0 {
		at, from = from[0], from[1:]
	}
	next, err = indexes[at].Fill(tx, from, rows)
	if next == nil {
		at++
	}
	if int(at) == len(indexes) || err != nil {
		return nil, err
	}
	return append([]byte{at}, next...), nil
}

// moveEdgeRecords moves the records at DNS providers of each domain from its own row to rows of
// their own. A domain has few of them in a store before format 9.
func (tx *Tx) moveEdgeRecords(from []byte, rows int) (next []byte, err error) {
	var move []*Domain
	for d := range Domains.After(tx, string(from)) {
		if rows <= 0 {
			next = from
			break
		}
		rows -= 1 + 2*len(d.EdgeRecords)
		from = []byte(d.ID)
		if len(d.EdgeRecords) > 0 {
			move = append(move, d)
		}
	}
	for _, d := range move {
		for id, purpose := range d.EdgeRecords {
			err = errors.Join(err, EdgeRecords.Put(tx, &EdgeRecord{DomainID: d.ID, RecordID: id, Purpose: purpose}))
		}
		d.EdgeRecords = nil
		err = errors.Join(err, Domains.Put(tx, d))
	}
	return next, err
}

// flaggedClassSequence is the sequence of the bucket inbox_class in a store whose inbox keys have a
// class for flagged messages. In older stores the sequence is 0.
const flaggedClassSequence = 1

// moveFlaggedEntries moves the inbox entries of flagged messages to their class, in stores that are
// older than this class.
func (tx *Tx) moveFlaggedEntries(from []byte, rows int) (next []byte, err error) {
	index := tx.Bucket(mailrow.BucketInbox)
	if index.Sequence() == flaggedClassSequence {
		return nil, nil
	}
	for k, v := range tx.Ascend(mailrow.BucketInbox, from) {
		if rows--; rows < 0 {
			return bytes.Clone(k), nil
		}
		if len(k) != 21 || len(v) != 2 {
			return nil, fmt.Errorf("read inbox entry %x: %w", k, ErrDamagedRow)
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
		err := errors.Join(tx.DeleteRow(mailrow.BucketInbox, byAccount[:]), tx.DeleteRow(mailrow.BucketInboxOf, byMailbox[:]), mailindex.AddToLists(&tx.Tx, m, m.Mailbox))
		if err != nil {
			return nil, err
		}
	}
	return nil, index.SetSequence(flaggedClassSequence)
}

// claimDomains adds claims to the domains of a store that is older than claims. Domains that are
// complete or were bought here count as proven. An external domain counts as proven only if a
// log-in to one of its mailboxes has succeeded and not everybody can get a mailbox there. The
// claims of the others begin now. It also indexes mailboxes by domain and address, since two claims
// of a name may have mailboxes with the same address.
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
		proven := d.Source == DomainSourceRegistered || external && loggedIn[d.ID] && !IsPublicMail(d.Name) || !external && !d.CompletedAt.IsZero()
		d.Claim = ClaimProven
		if !proven {
			d.Claim, d.ClaimedAt = ClaimOpen, tx.Now()
		}
		err := Domains.PutRow(tx, d)
		for _, x := range []*Index[Domain]{DomainByName, DomainsByName, DomainOfAccount, DomainsOpen} {
			err = errors.Join(err, x.Add(tx, d))
		}
		if err != nil {
			return fmt.Errorf("make the claim of domain %s: %w", d.Name, err)
		}
	}
	if old := []byte("mailbox.email"); b.Bucket(old) != nil {
		return errors.Join(tx.Err(), b.DeleteBucket(old))
	}
	return tx.Err()
}
