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

// RebuildDatabase replaces a damaged database. It copies the rows that can be read and have a valid
// checksum to a new file, and derives everything else from these rows. If an index entry in the
// damaged file names a message whose row is lost, that row is made later, see RowsToMake.

const (
	newDatabase     = DatabaseFile + ".new"     // the new database while it is being made
	damagedDatabase = DatabaseFile + ".damaged" // with a number after it: a damaged database that is kept
	rebuildRows     = 5000                      // rows written in one transaction
)

// A RebuildResult is the result of RebuildDatabase.
type RebuildResult struct {
	Damaged string         // path of the damaged database, which is kept
	Damage  []error        // damage that was found in it
	Kept    map[string]int // number of copied rows of each bucket
	Folders int            // number of lost folders that were made again
	Lost    []string       // names of lost records that indexes still name
}

// A copiedBucket is a bucket whose rows are copied, since they cannot be derived from other rows.
type copiedBucket struct {
	sum   rowform.Sum
	check func(key, row []byte) error // returns an error if the bucket cannot have this row
}

// A rebuilder is one run of RebuildDatabase.
type rebuilder struct {
	s        *Store   // uses the new database
	old      *os.File // the damaged database
	size     int64    // size of the damaged database
	progress func(what string, done, all int64)
	out      *RebuildResult

	sources   map[string]copiedBucket // the copied buckets by name
	indexes   map[string]string       // name of the table by name of the index
	sequences map[string]uint64       // by name of the bucket
	waiting   []newRow                // rows to be written by flushRows
	bytes     int                     // size of waiting

	folders   map[[2]uint32]*folderSum // by mailbox and folder
	mailboxes map[uint32]*mailrow.MailboxCounts
	accounts  map[uint32]Usage
	live      map[uint32]int64 // live bytes by segment
	last      BlobRef          // the last blob in the segments that a row refers to
}

// A newRow is a row to be written to the new database.
type newRow struct {
	bucket     string
	key, value []byte
}

// RebuildDatabase makes a new database from what can be read of the one in dir, which no process
// may have open. The new database takes the place of the damaged one, which is kept beside it. If
// the process is killed at any point, RebuildDatabase can be run again. Rows that must be made from
// the bytes of messages are left to the caller, who opens the store and asks for RowsToMake.
// progress, which may be nil, is called with the name of the work, how much is done and how much
// there is.
func RebuildDatabase(dir, program string, progress func(what string, done, all int64)) (*RebuildResult, error) {
	path := filepath.Join(dir, DatabaseFile)
	// bbolt locks the file, so that no other process opens the store.
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
		s:   &Store{dir: dir, db: db, clock: wall, log: slog.Default(), index: newIndex(db, segment.NewLeases(), mailindex.DefaultMaxExpunged)},
		old: old, size: info.Size(), progress: progress, out: &RebuildResult{Kept: map[string]int{}},
		sources: copiedBuckets(), indexes: map[string]string{}, sequences: map[string]uint64{},
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
		r.copyRows, func() error { return r.checkFormat(program) }, r.indexTables, r.indexMessages, r.addRecordRefs, r.findLostRows,
		r.makeLostFolders, r.countFolders, r.listFolders, r.writeCounts, r.dropLeftovers, r.joinThreads, r.resetText, r.setSequences, r.markFiled,
	} {
		if err == nil {
			err = step()
		}
	}
	return err
}

// copiedBuckets returns all buckets whose rows are copied, by bucket name.
func copiedBuckets() map[string]copiedBucket {
	all := map[string]copiedBucket{}
	add := func(name string, check func(key, row []byte) error) {
		all[name] = copiedBucket{rowform.SumOf(name), check}
	}
	for _, t := range tables {
		add(t.Name(), func(key, row []byte) error { return checkTableRow(t, key, row) })
	}
	sized := func(n int, check func(key, row []byte) error) func(key, row []byte) error {
		return func(key, row []byte) error {
			if len(key) != n {
				return ErrDamagedRow
			}
			return check(key, row)
		}
	}
	message := func(i *engine.Bucket, check func(key, row []byte) error) { add(i.Name(), check) }
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
		_, err := parseSpamTokenRow(key, row)
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
	add(bucketRebuild.Name(), func(key, row []byte) error { // rows that an unfinished earlier run has left
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
		if string(key) != filedRowKey {
			return ErrDamagedRow
		}
		_, err := parseFiledMark(row)
		return err
	})
	return all
}

// checkTableRow returns an error if the table cannot have this row. A row of a newer form is
// accepted.
func checkTableRow(t *engine.AnyTable, key, row []byte) error {
	rec, err := t.Decode(key, row)
	if errors.Is(err, ErrNewer) {
		return nil
	}
	if err == nil && t.ID(rec) != string(key) {
		err = ErrDamagedRow
	}
	return err
}

// copyRows copies every row with a valid checksum. After a damaged page, a row may be found under
// the wrong bucket. Its checksum also covers the name of its bucket, and so shows where it belongs.
func (r *rebuilder) copyRows() error {
	var failed error
	rows := boltfile.RowVisitor{
		Bucket: func(name string, sequence uint64) {
			if sequence <= maxSequence(name) {
				r.sequences[name] = max(r.sequences[name], sequence)
			}
		},
		Row: func(bucket string, key, value []byte) bool {
			if failed != nil {
				return true
			}
			name, ok := r.bucketOf(bucket, key, value)
			if ok && name != "" {
				failed = r.queueRow(name, key, value)
			}
			return ok
		},
	}
	damage, err := boltfile.Salvage(r.old, r.size, rows)
	r.out.Damage = damage
	return errors.Join(err, failed, r.flushRows())
}

// bucketOf returns the name of the bucket that a row belongs to. readFrom is the bucket that the
// row was read from. name is "" if the row is not copied. ok is false for a damaged row of a bucket
// whose rows are copied.
func (r *rebuilder) bucketOf(readFrom string, key, value []byte) (name string, ok bool) {
	at, known := r.sources[readFrom]
	if known && at.check(key, value) == nil {
		return readFrom, true
	}
	for name, other := range r.sources {
		if _, err := other.sum.Open(key, value); err == nil && name != readFrom && other.check(key, value) == nil {
			return name, true
		}
	}
	return "", !known && readFrom != ""
}

// queueRow queues a row to be written to the new database. A row that exists there already stays.
func (r *rebuilder) queueRow(bucket string, key, value []byte) error {
	r.waiting = append(r.waiting, newRow{bucket, bytes.Clone(key), bytes.Clone(value)})
	r.bytes += len(key) + len(value)
	if len(r.waiting) < rebuildRows && r.bytes < 4<<20 {
		return nil
	}
	return r.flushRows()
}

// flushRows writes the queued rows in one transaction.
func (r *rebuilder) flushRows() error {
	err := r.s.Setup(func(tx *engine.Tx) error {
		b := engine.Bolt(tx)
		for _, row := range r.waiting {
			to := b.Bucket([]byte(row.bucket))
			if to.Get(row.key) != nil {
				continue
			}
			if err := to.Put(row.key, row.value); err != nil {
				return fmt.Errorf("write row to bucket %s: %w", row.bucket, err)
			}
			r.out.Kept[row.bucket]++
		}
		return nil
	})
	r.waiting, r.bytes = nil, 0
	return err
}

// eachRow calls fn for every row of a bucket in the new database, in several transactions of a
// bounded number of rows. fn may write.
func (r *rebuilder) eachRow(bucket string, fn func(tx *Tx, key, value []byte) error) error {
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
					return fmt.Errorf("rebuild from row %x of bucket %s: %w", k, bucket, err)
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

// checkFormat returns an error for a store whose format cannot be rebuilt, and otherwise stores the
// current format number.
func (r *rebuilder) checkFormat(program string) error {
	return r.s.Setup(func(tx *engine.Tx) error {
		b := engine.Bolt(tx)
		format, by, err := readMetaRow(b, formatKey)
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
		err := r.eachRow(name, func(tx *Tx, key, row []byte) error {
			r.sequences[name] = max(r.sequences[name], shortNumber(t, key, row))
			err := t.AddIndexEntries(tx, key, row)
			if !errors.Is(err, ErrExists) {
				return err
			}
			r.addLost("%s %s, since another record has its value of a unique index", name, key)
			return t.DropRow(tx, key)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// shortNumber returns the short number of an account or mailbox, which was drawn from the sequence
// of its bucket. It returns 0 for other records.
func shortNumber(t *engine.AnyTable, key, row []byte) uint64 {
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

// addLost adds the name of a lost record to RebuildResult.Lost, which has at most maxProblems
// names.
func (r *rebuilder) addLost(format string, args ...any) {
	switch n := len(r.out.Lost); {
	case n < maxProblems:
		r.out.Lost = append(r.out.Lost, fmt.Sprintf(format, args...))
	case n == maxProblems:
		r.out.Lost = append(r.out.Lost, "and more")
	}
}

// indexMessages writes the references and inbox entries that follow from the rows of messages, and
// counts the messages.
func (r *rebuilder) indexMessages() error {
	done := int64(0)
	return r.eachRow(mailrow.BucketMessage.Name(), func(tx *Tx, key, row []byte) error {
		if done++; done%rebuildRows == 0 {
			r.progress("messages", done, int64(r.out.Kept[mailrow.BucketMessage.Name()]))
		}
		var m Message
		if err := m.Decode(key, row); err != nil {
			return err
		}
		if err := r.addRef(tx, m.Blob, mailrow.MessageOwner(&m)); err != nil {
			return err
		}
		if m.Folder == InboxID { // messages of other folders are listed later, when their folders have numbers
			if err := mailindex.AddToLists(&tx.Tx, &m, m.Mailbox); err != nil {
				return err
			}
		}
		sum := r.folderSumOf(m.Mailbox, m.Folder)
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

// addRef writes the reference of an owner to the bytes at ref, and counts the live bytes of the
// segment.
func (r *rebuilder) addRef(tx *Tx, ref BlobRef, owner []byte) error {
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

// addRecordRefs writes the references of the records that have blobs.
func (r *rebuilder) addRecordRefs() error {
	return r.update(func(tx *Tx) error {
		for _, b := range blobTables {
			for id, blob := range b.all(tx) {
				if blob.IsZero() {
					continue
				}
				if err := r.addRef(tx, blob, b.owner(id)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// findLostRows reads the damaged database again and looks for index entries whose rows are lost. A
// row that was deleted on purpose has none: its index entries were deleted with it.
func (r *rebuilder) findLostRows() error {
	var found []newRow
	addFound := func(kind byte, key, value []byte) {
		found = append(found, newRow{bucketRebuild.Name(), append([]byte{kind}, key...), value})
	}
	lost := map[string]bool{}
	err := r.s.View(func(tx *Tx) error {
		_, err := boltfile.Salvage(r.old, r.size, boltfile.RowVisitor{
			Bucket: func(string, uint64) {},
			Row: func(bucket string, key, value []byte) bool {
				switch bucket {
				case mailrow.BucketFolderName.Name():
					if len(key) > 4 && len(value) == 4 {
						at := mailrow.FolderKey(binary.BigEndian.Uint32(key), binary.BigEndian.Uint32(value))
						if tx.GetRow(mailrow.BucketFolder, at[:]) == nil {
							addFound(rebuildFolder, at[:], bytes.Clone(key[4:]))
						}
					}
				case mailrow.BucketRef.Name():
					ref, owner, err := mailrow.DecodeRef(key, value)
					if err == nil && len(owner) == 13 && owner[0] == mailrow.OwnerMessage && tx.isRowLost(ref, owner[1:]) {
						addFound(rebuildMessage, owner[1:], ref.AppendTo(nil))
					}
				case mailrow.BucketInbox.Name(), mailrow.BucketInboxOf.Name():
					if at, marks := parseInboxEntry(key, value); at != nil && tx.GetRow(mailrow.BucketMessage, at) == nil {
						addFound(rebuildMarks, at, marks)
					}
				default:
					table := r.indexes[bucket]
					if id := table + " " + string(value); table != "" && len(value) > 0 && !lost[id] && engine.NamedBucket(tx, table).Get(value) == nil {
						lost[id] = true
						r.addLost("%s", strings.ToValidUTF8(id, "?"))
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
	found, err = r.withoutDamagedRefs(found)
	if err != nil {
		return err
	}
	for _, row := range found {
		if row.key[0] == rebuildMessage {
			sum := r.folderSumOf(binary.BigEndian.Uint32(row.key[1:]), binary.BigEndian.Uint32(row.key[5:]))
			sum.lost++
			sum.UIDNext = max(sum.UIDNext, binary.BigEndian.Uint32(row.key[9:])+1)
		}
		if row.key[0] == rebuildMarks && len(row.value) != marksSize {
			continue
		}
		if err := r.queueRow(row.bucket, row.key, row.value); err != nil {
			return err
		}
	}
	return r.flushRows()
}

// withoutDamagedRefs returns the found rows, except those that only a damaged entry of blob_ref
// names. An entry counts as damaged if the new database has a message with the same bytes for which
// the damaged database has no entry: the damaged entry was that message's.
func (r *rebuilder) withoutDamagedRefs(found []newRow) ([]newRow, error) {
	entries := map[string]map[string]bool{} // owners of each blob in the damaged database
	for _, row := range found {
		if row.key[0] == rebuildMessage {
			entries[string(row.value)] = map[string]bool{}
		}
	}
	if len(entries) == 0 {
		return found, nil
	}
	_, err := boltfile.Salvage(r.old, r.size, boltfile.RowVisitor{
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

// isRowLost reports whether the row of a message that an entry of blob_ref names is lost; key is
// the key of the row. A row that exists is not lost. If another message of the same folder has the
// same bytes, the row does not count as lost either: the entry itself may be damaged.
func (tx *Tx) isRowLost(ref BlobRef, key []byte) bool {
	if tx.GetRow(mailrow.BucketMessage, key) != nil {
		return false
	}
	owners, err := mailindex.Owners(&tx.Tx, ref)
	for _, o := range owners {
		if o[0] == mailrow.OwnerMessage && bytes.HasPrefix(o[1:], key[:8]) {
			return false
		}
	}
	return err == nil
}

// parseInboxEntry parses an entry of an inbox index. at is the key of the message in the bucket
// msg. marks are its account, received time, flags and bits. Both are nil if the entry is damaged
// or not for a message of INBOX.
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
		return nil, nil // for a message of another folder
	}
	place := mailrow.MessageKey(mailbox, InboxID, binary.BigEndian.Uint32(key[13:]))
	marks = append(binary.BigEndian.AppendUint32(nil, account), key[5:13]...)
	return place[:], append(marks, value...)
}
