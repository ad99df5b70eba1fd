package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/clock"
	"github.com/mailstead/mailstead/store/boltfile"
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/rowform"
	"github.com/mailstead/mailstead/store/segment"
)

// RebuildDatabase replaces a damaged database: the rows that can be read and have a valid checksum
// are copied to a new file, and everything that follows from rows is derived from them. Index
// entries that survive in the damaged file name messages whose rows are lost; those rows are made
// later, see RowsToMake.

const (
	newDatabase     = DatabaseFile + ".new"     // while it is being made
	damagedDatabase = DatabaseFile + ".damaged" // and a number: the damaged database
	rebuildRows     = 5000                      // rows written in one transaction
)

// A Rebuilt is the result of RebuildDatabase.
type Rebuilt struct {
	Damaged string         // path of the damaged database, which is kept
	Damage  []error        // what could not be read
	Kept    map[string]int // number of rows by bucket
	Folders int            // new folders, made for messages that are in them
	Lost    []string       // records that indexes name but that are lost
}

// A source is a bucket whose rows cannot be derived from others.
type source struct {
	sum   rowform.Sum
	sound func(key, row []byte) error
}

type rebuilder struct {
	s        *Store // over the new database
	old      *os.File
	size     int64
	progress func(what string, done, all int64)
	out      *Rebuilt

	sources   map[string]source
	indexes   map[string]string // the table of each index
	sequences map[string]uint64
	waiting   []newRow
	bytes     int // size of waiting

	folders   map[[2]uint32]*folderSum
	mailboxes map[uint32]*mailrow.MailboxCounts
	accounts  map[uint32]Usage
	live      map[uint32]int64
	last      BlobRef // the newest blob that a row refers to
}

type newRow struct {
	bucket     string
	key, value []byte
}

// RebuildDatabase makes a new database from what can be read of the one in dir, which no process
// may have open. It replaces the damaged one, which is kept beside it. If it is killed at any
// point, it can be run again. Rows that must be made from the bytes of messages are left to the
// caller that opens the store, see RowsToMake. progress is called with how far it is; it may be
// nil.
func RebuildDatabase(dir, program string, progress func(what string, done, all int64)) (*Rebuilt, error) {
	path := filepath.Join(dir, DatabaseFile)
	// bbolt locks the file, so that no process opens the store meanwhile.
	lock, err := engine.OpenOffline(path, true, time.Now, slog.Default())
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	old, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer old.Close()
	info, err := old.Stat()
	if err != nil {
		return nil, err
	}
	newPath := filepath.Join(dir, newDatabase)
	if err := os.Remove(newPath); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	wall := clock.New(nil, 0)
	db, err := engine.OpenOffline(newPath, false, func() time.Time { return wholeMillis(wall.Now()) }, slog.Default())
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(string, int64, int64) {}
	}
	r := &rebuilder{
		s:   &Store{dir: dir, db: db, clock: wall, log: slog.Default(), index: newIndex(db, segment.NewLeases(), mailindex.MaxExpunged)},
		old: old, size: info.Size(), progress: progress, out: &Rebuilt{Kept: map[string]int{}},
		sources: sources(), indexes: map[string]string{}, sequences: map[string]uint64{},
		folders: map[[2]uint32]*folderSum{}, mailboxes: map[uint32]*mailrow.MailboxCounts{}, accounts: map[uint32]Usage{}, live: map[uint32]int64{},
	}
	for _, t := range tables {
		for _, x := range t.Indexes() {
			r.indexes[x.Name()] = t.Name()
		}
	}
	if err := errors.Join(r.run(program), db.Sync(), db.Close()); err != nil {
		return nil, err
	}
	r.out.Damaged, err = keepDamaged(path, info)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(newPath, path); err != nil {
		return nil, err
	}
	return r.out, syncDir(dir)
}

// keepDamaged gives the damaged database a second name, unless an earlier attempt has done so, and
// returns that name.
func keepDamaged(path string, info os.FileInfo) (string, error) {
	for n := 1; ; n++ {
		kept := fmt.Sprintf("%s-%d", filepath.Join(filepath.Dir(path), damagedDatabase), n)
		there, err := os.Stat(kept)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return kept, os.Link(path, kept)
		case err != nil:
			return "", err
		case os.SameFile(there, info):
			return kept, nil
		}
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (r *rebuilder) run(program string) error {
	err := r.s.Setup(func(tx *engine.Tx) error {
		b := engine.Bolt(tx)
		for _, name := range append(bucketNames(), bucketRebuild.Name()) {
			if _, err := b.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	for _, step := range []func() error{
		r.copyRows, func() error { return r.checkFormat(program) }, r.indexTables, r.indexMessages, r.referOwners, r.findLostRows,
		r.nameFolders, r.countFolders, r.listFolders, r.writeCounts, r.dropLeftovers, r.joinThreads, r.resetText, r.setSequences, r.markFiled,
	} {
		if err == nil {
			err = step()
		}
	}
	return err
}

// sources returns all buckets whose rows are copied, by name.
func sources() map[string]source {
	all := map[string]source{}
	add := func(name string, sound func(key, row []byte) error) { all[name] = source{rowform.SumOf(name), sound} }
	for _, t := range tables {
		add(t.Name(), func(key, row []byte) error { return sound(t, key, row) })
	}
	sized := func(n int, sound func(key, row []byte) error) func(key, row []byte) error {
		return func(key, row []byte) error {
			if len(key) != n {
				return ErrDamagedRow
			}
			return sound(key, row)
		}
	}
	message := func(i *engine.Bucket, sound func(key, row []byte) error) { add(i.Name(), sound) }
	message(mailrow.BucketMessage, sized(12, func(key, row []byte) error { return new(Message).Decode(key, row) }))
	message(mailrow.BucketMeta, sized(12, func(key, row []byte) error {
		_, err := new(Meta).Decode(key, row)
		return err
	}))
	message(mailrow.BucketFolder, sized(8, func(key, row []byte) error { return new(Folder).Decode(key, row) }))
	message(mailrow.BucketMailbox, sized(4, func(key, row []byte) error { return new(mailrow.MailboxCounts).Decode(key, row) }))
	message(mailrow.BucketThread, sized(4+mailrow.ThreadNodeSize, func(key, row []byte) error {
		if len(row) == mailrow.ThreadNodeSize || len(row) == mailrow.ThreadNodeSize+2 {
			return nil
		}
		row, err := mailrow.BucketThread.Open(key, row)
		if err == nil && len(row) != 1+mailrow.ThreadNodeSize+2 {
			err = ErrDamagedRow
		}
		return err
	}))
	message(mailrow.BucketSubject, sized(2+4+mailrow.SubjectKeySize, func(key, row []byte) error {
		_, err := mailrow.SubjectThread(key, row)
		return err
	}))
	message(mailrow.BucketSpamToken, sized(4+8, func(key, row []byte) error {
		_, err := spamTokenRow(key, row)
		return err
	}))
	message(mailrow.BucketStructure, sized(8, func(key, row []byte) error {
		if len(row) > 0 && row[0] < 0x10 {
			return nil
		}
		_, err := mailrow.BucketStructure.Open(key, row)
		return err
	}))
	message(mailrow.BucketSubscribed, func(key, row []byte) error {
		if len(key) <= 4 || len(row) > 0 {
			return ErrDamagedRow
		}
		return nil
	})
	add(bucketRebuild.Name(), func(key, row []byte) error { //  left by an attempt that did not finish
		kinds := map[byte][2]int{rebuildMessage: {13, 16}, rebuildMarks: {13, marksSize}, rebuildMissing: {5, 0}}
		if len(key) == 0 || kinds[key[0]] != [2]int{len(key), len(row)} {
			return ErrDamagedRow
		}
		return nil
	})
	add(bucketMeta, func(key, row []byte) error {
		row, err := metaSum().Open(key, row)
		if err == nil && len(row) < 4 {
			err = ErrDamagedRow
		}
		return err
	})
	add(bucketAccepted.Name(), func(key, row []byte) error {
		if string(key) != filedKey {
			return ErrDamagedRow
		}
		_, err := parseFiled(row)
		return err
	})
	return all
}

// sound returns an error if a row cannot belong to the table. A row of a newer form is accepted.
func sound(t *engine.AnyTable, key, row []byte) error {
	rec, err := t.Decode(key, row)
	if errors.Is(err, ErrNewer) {
		return nil
	}
	if err == nil && t.ID(rec) != string(key) {
		err = ErrDamagedRow
	}
	return err
}

// copyRows copies every row with a valid checksum. After a damaged page, a row may be found in the
// wrong bucket; then its checksum, which covers the name of its bucket, says where it belongs.
func (r *rebuilder) copyRows() error {
	var failed error
	rows := boltfile.Rows{
		Bucket: func(name string, sequence uint64) {
			if sequence <= maxSequence(name) {
				r.sequences[name] = max(r.sequences[name], sequence)
			}
		},
		Row: func(bucket string, key, value []byte) bool {
			if failed != nil {
				return true
			}
			name, ok := r.place(bucket, key, value)
			if ok && name != "" {
				failed = r.put(name, key, value)
			}
			return ok
		},
	}
	damage, err := boltfile.Salvage(r.old, r.size, rows)
	r.out.Damage = damage
	return errors.Join(err, failed, r.flush())
}

// place returns the name of the bucket to which a row belongs; the row was read from `bucket`. name
// is "" if the row is not to be copied. ok is false only if the row is damaged and would have had
// to be copied.
func (r *rebuilder) place(bucket string, key, value []byte) (name string, ok bool) {
	at, known := r.sources[bucket]
	if known && at.sound(key, value) == nil {
		return bucket, true
	}
	for name, other := range r.sources {
		if _, err := other.sum.Open(key, value); err == nil && name != bucket && other.sound(key, value) == nil {
			return name, true
		}
	}
	return "", !known && bucket != ""
}

// put queues a row for the new database. flush does not overwrite an existing row.
func (r *rebuilder) put(bucket string, key, value []byte) error {
	r.waiting = append(r.waiting, newRow{bucket, bytes.Clone(key), bytes.Clone(value)})
	r.bytes += len(key) + len(value)
	if len(r.waiting) < rebuildRows && r.bytes < 4<<20 {
		return nil
	}
	return r.flush()
}

func (r *rebuilder) flush() error {
	err := r.s.Setup(func(tx *engine.Tx) error {
		b := engine.Bolt(tx)
		for _, row := range r.waiting {
			to := b.Bucket([]byte(row.bucket))
			if to.Get(row.key) != nil {
				continue
			}
			if err := to.Put(row.key, row.value); err != nil {
				return fmt.Errorf("write row of bucket %s: %w", row.bucket, err)
			}
			r.out.Kept[row.bucket]++
		}
		return nil
	})
	r.waiting, r.bytes = nil, 0
	return err
}

// each calls fn for every row of a bucket in the new database, in transactions of a bounded number
// of rows. fn may write.
func (r *rebuilder) each(bucket string, fn func(tx *Tx, key, value []byte) error) error {
	var after []byte
	for more := true; more; {
		more = false
		err := r.update(func(tx *Tx) error {
			n := 0
			for k, v := range engine.AscendNamed(tx, bucket, after) {
				if after != nil && bytes.Equal(k, after) {
					continue
				}
				if n++; n > rebuildRows {
					more = true
					return nil
				}
				after = bytes.Clone(k)
				if err := fn(tx, after, bytes.Clone(v)); err != nil {
					return fmt.Errorf("row %x of bucket %s: %w", k, bucket, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *rebuilder) update(fn func(tx *Tx) error) error {
	return r.s.setup(fn)
}

// checkFormat returns an error for a format that cannot be rebuilt without its indexes, and stores
// the current format.
func (r *rebuilder) checkFormat(program string) error {
	return r.s.Setup(func(tx *engine.Tx) error {
		b := engine.Bolt(tx)
		format, by, err := metaRow(b, formatKey)
		switch {
		case err != nil:
			return err
		case format > storeFormat:
			return fmt.Errorf("the store is of format %d, and this program knows formats up to %d: use mailstead %s: %w", format, storeFormat, by, ErrNewer)
		case format == 1:
			return errors.New("the store is of format 1, which was not migrated yet: restore it from a backup")
		}
		return errors.Join(putMetaRow(b, formatKey, storeFormat, []byte(program)), b.Bucket([]byte(bucketMeta)).Delete([]byte(progressKey)))
	})
}

// indexTables fills the indexes of all tables.
func (r *rebuilder) indexTables() error {
	for i, t := range tables {
		r.progress("indexes", int64(i), int64(len(tables)))
		name := t.Name()
		err := r.each(name, func(tx *Tx, key, row []byte) error {
			r.sequences[name] = max(r.sequences[name], number(t, key, row))
			err := t.AddEntries(tx, key, row)
			if !errors.Is(err, ErrExists) {
				return err
			}
			r.lost("%s %s, since another record has its value of a unique index", name, key)
			return t.DropRow(tx, key)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// number returns the short number of a record, which comes from the sequence of its bucket; 0 if it
// has none.
func number(t *engine.AnyTable, key, row []byte) uint64 {
	rec, err := t.Decode(key, row)
	if err != nil {
		return 0
	}
	switch rec := rec.(type) {
	case *Account:
		return uint64(rec.Num)
	case *Mailbox:
		return uint64(rec.Num)
	}
	return 0
}

// lost records the name of a lost record, up to maxProblems.
func (r *rebuilder) lost(format string, args ...any) {
	switch n := len(r.out.Lost); {
	case n < maxProblems:
		r.out.Lost = append(r.out.Lost, fmt.Sprintf(format, args...))
	case n == maxProblems:
		r.out.Lost = append(r.out.Lost, "and more")
	}
}

// indexMessages makes the rows that follow from the rows of messages, and sums the messages up.
func (r *rebuilder) indexMessages() error {
	done := int64(0)
	return r.each(mailrow.BucketMessage.Name(), func(tx *Tx, key, row []byte) error {
		if done++; done%rebuildRows == 0 {
			r.progress("messages", done, int64(r.out.Kept[mailrow.BucketMessage.Name()]))
		}
		var m Message
		if err := m.Decode(key, row); err != nil {
			return err
		}
		if err := r.refer(tx, m.Blob, mailrow.MessageOwner(&m)); err != nil {
			return err
		}
		if m.Folder == InboxID { // messages of other folders are listed when their folders have numbers
			if err := mailindex.AddToLists(&tx.Tx, &m, m.Mailbox); err != nil {
				return err
			}
		}
		sum := r.folder(m.Mailbox, m.Folder)
		sum.Messages++
		sum.Bytes += int64(m.Blob.Length)
		if m.Flags&FlagSeen == 0 {
			sum.Unseen++
		}
		sum.UIDNext, sum.ModSeq = max(sum.UIDNext, m.UID+1), max(sum.ModSeq, m.ModSeq)
		u := r.accounts[m.Account]
		r.accounts[m.Account] = Usage{Messages: u.Messages + 1, Bytes: u.Bytes + int64(m.Blob.Length)}
		if _, err := tx.Meta(m.Mailbox, m.Folder, m.UID); err != nil {
			return tx.PutRow(bucketRebuild, append([]byte{rebuildMeta}, key...), m.Blob.AppendTo(nil))
		}
		return nil
	})
}

// refer writes the reference of an owner to the bytes at ref, and counts the live bytes.
func (r *rebuilder) refer(tx *Tx, ref BlobRef, owner []byte) error {
	_, found, err := mailindex.FindRef(&tx.Tx, ref)
	if err != nil {
		return err
	}
	if !found {
		r.live[ref.Segment] += ref.Size()
	}
	if ref.Compare(r.last) > 0 {
		r.last = ref
	}
	prefix := mailrow.BlobPrefix(ref)
	return tx.PutRow(mailrow.BucketRef, append(prefix[:], owner...), mailrow.RefRow(ref))
}

// referOwners writes the references of the records that have blobs.
func (r *rebuilder) referOwners() error {
	return r.update(func(tx *Tx) (err error) {
		note := func(kind byte, id string, blob BlobRef) {
			if err == nil && !blob.IsZero() {
				err = r.refer(tx, blob, append([]byte{kind}, id...))
			}
		}
		for sub := range Submissions.All(tx) {
			note(mailrow.OwnerSubmission, sub.ID, sub.Blob)
		}
		for m := range ReportMails.All(tx) {
			note(mailrow.OwnerReport, m.ID, m.Blob)
		}
		for m := range RemoteCopies.All(tx) {
			note(mailrow.OwnerCopy, m.ID, m.Blob)
		}
		for a := range Arrivals.All(tx) {
			note(mailrow.OwnerArrival, a.ID, a.Blob)
		}
		for b := range Batches.All(tx) {
			note(mailrow.OwnerBatch, b.ID, b.Blob)
		}
		for l := range SpamLessons.All(tx) {
			note(mailrow.OwnerLesson, l.ID, l.Blob)
		}
		for a := range Approvals.All(tx) {
			note(mailrow.OwnerApproval, a.ID, a.Blob)
		}
		return err
	})
}

// findLostRows reads the damaged database once more, for index entries that name lost rows. A
// deleted row has none: they were deleted with it.
func (r *rebuilder) findLostRows() error {
	var found []newRow
	witness := func(kind byte, key, value []byte) {
		found = append(found, newRow{bucketRebuild.Name(), append([]byte{kind}, key...), value})
	}
	lost := map[string]bool{}
	err := r.s.View(func(tx *Tx) error {
		_, err := boltfile.Salvage(r.old, r.size, boltfile.Rows{
			Bucket: func(string, uint64) {},
			Row: func(bucket string, key, value []byte) bool {
				switch bucket {
				case mailrow.BucketFolderName.Name():
					if len(key) > 4 && len(value) == 4 {
						at := mailrow.FolderKey(binary.BigEndian.Uint32(key), binary.BigEndian.Uint32(value))
						if tx.GetRow(mailrow.BucketFolder, at[:]) == nil {
							witness(rebuildFolder, at[:], bytes.Clone(key[4:]))
						}
					}
				case mailrow.BucketRef.Name():
					ref, owner, err := mailrow.DecodeRef(key, value)
					if err == nil && len(owner) == 13 && owner[0] == mailrow.OwnerMessage && !tx.mayBeListed(ref, owner[1:]) {
						witness(rebuildMessage, owner[1:], ref.AppendTo(nil))
					}
				case mailrow.BucketInbox.Name(), mailrow.BucketInboxOf.Name():
					if at, marks := parseInboxEntry(key, value); at != nil && tx.GetRow(mailrow.BucketMessage, at) == nil {
						witness(rebuildMarks, at, marks)
					}
				default:
					table := r.indexes[bucket]
					if id := table + " " + string(value); table != "" && len(value) > 0 && !lost[id] && engine.NamedBucket(tx, table).Get(value) == nil {
						lost[id] = true
						r.lost("%s", strings.ToValidUTF8(id, "?"))
					}
				}
				return true
			},
		})
		return err
	})
	if err != nil {
		return err
	}
	found, err = r.withoutDamaged(found)
	if err != nil {
		return err
	}
	for _, row := range found {
		if row.key[0] == rebuildMessage {
			sum := r.folder(binary.BigEndian.Uint32(row.key[1:]), binary.BigEndian.Uint32(row.key[5:]))
			sum.lost++
			sum.UIDNext = max(sum.UIDNext, binary.BigEndian.Uint32(row.key[9:])+1)
		}
		if row.key[0] == rebuildMarks && len(row.value) != marksSize {
			continue
		}
		if err := r.put(row.bucket, row.key, row.value); err != nil {
			return err
		}
	}
	return r.flush()
}

// withoutDamaged drops entries of blob_ref that are damaged themselves. An entry counts as damaged
// if a message in the new database has the same bytes but had no entry in the damaged database:
// then the entry was that message's own.
func (r *rebuilder) withoutDamaged(found []newRow) ([]newRow, error) {
	entries := map[string]map[string]bool{} // owners in the damaged database, by blob
	for _, row := range found {
		if row.key[0] == rebuildMessage {
			entries[string(row.value)] = map[string]bool{}
		}
	}
	if len(entries) == 0 {
		return found, nil
	}
	_, err := boltfile.Salvage(r.old, r.size, boltfile.Rows{
		Bucket: func(string, uint64) {},
		Row: func(bucket string, key, value []byte) bool {
			if bucket == mailrow.BucketRef.Name() {
				if ref, owner, err := mailrow.DecodeRef(key, value); err == nil && entries[string(ref.AppendTo(nil))] != nil {
					entries[string(ref.AppendTo(nil))][string(owner)] = true
				}
			}
			return true
		},
	})
	if err != nil {
		return nil, err
	}
	err = r.s.View(func(tx *Tx) error {
		found = slices.DeleteFunc(found, func(row newRow) bool {
			if row.key[0] != rebuildMessage {
				return false
			}
			ref, err := segment.ParseRef(row.value)
			owners, ownersErr := mailindex.Owners(&tx.Tx, ref)
			return err != nil || ownersErr != nil || slices.ContainsFunc(owners, func(o []byte) bool { return !entries[string(row.value)][string(o)] })
		})
		return nil
	})
	return found, err
}

// mayBeListed reports whether an entry of blob_ref may be left as it is. Either the message that it
// names has its row; or the entry may be damaged itself, since another message of the same folder
// has the bytes.
func (tx *Tx) mayBeListed(ref BlobRef, key []byte) bool {
	if tx.GetRow(mailrow.BucketMessage, key) != nil {
		return true
	}
	owners, err := mailindex.Owners(&tx.Tx, ref)
	for _, o := range owners {
		if o[0] == mailrow.OwnerMessage && bytes.HasPrefix(o[1:], key[:8]) {
			return true
		}
	}
	return err != nil
}

// parseInboxEntry parses an entry of an inbox index. It returns the key of the message in msg, and
// its account, received time, flags and bits; both are nil if the entry is damaged or not of an
// INBOX.
func parseInboxEntry(key, value []byte) (at, marks []byte) {
	if len(value) != 2 || len(key) != 21 && len(key) != 17 {
		return nil, nil
	}
	m := Message{Flags: Flags(value[0]), Bits: Bits(value[1])}
	if m.Class() != key[4] {
		return nil, nil
	}
	account, mailbox := uint32(0), binary.BigEndian.Uint32(key)
	if len(key) == 21 {
		account, mailbox = mailbox, binary.BigEndian.Uint32(key[17:])
	}
	if mailbox >= mailrow.FirstFolderNum {
		return nil, nil // of another folder; the account's list cannot confirm it
	}
	place := mailrow.MessageKey(mailbox, InboxID, binary.BigEndian.Uint32(key[13:]))
	marks = append(binary.BigEndian.AppendUint32(nil, account), key[5:13]...)
	return place[:], append(marks, value...)
}
