package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/textindex"
)

// maxProblems is the largest number of problems that Check names.
const maxProblems = 100

// problems collects the problems that a check finds: the first maxProblems as errors, the others as
// a count.
type problems struct {
	errs []error
	more int
}

func (p *problems) add(format string, args ...any) {
	if len(p.errs) == maxProblems {
		p.more++
		return
	}
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

// run runs one part of the check. A damaged page can cause a panic; run records it as a problem.
func (p *problems) run(part string, check func()) {
	defer func() {
		if v := recover(); v != nil {
			p.add("%s: %w: %v", part, ErrDatabase, v)
		}
	}()
	check()
}

func (p *problems) join() error {
	if p.more > 0 {
		return errors.Join(append(p.errs, fmt.Errorf("%d more problems are not listed", p.more))...)
	}
	return errors.Join(p.errs...)
}

// Check runs CheckRows and CheckMessages.
func (s *Store) Check() error { return errors.Join(s.CheckRows(), s.CheckMessages(nil)) }

// CheckRows verifies every table, index, counter and reference in one snapshot. The error names the
// first hundred problems; it is nil if there are none.
func (s *Store) CheckRows() error {
	if err := s.compact.lock(context.Background()); err != nil {
		return err
	}
	defer s.compact.unlock()
	p := &problems{}
	err := s.View(func(tx *Tx) error {
		known := bucketNames()
		p.run("names of buckets", func() {
			c := engine.Bolt(tx).Cursor()
			for name, _ := c.First(); name != nil; name, _ = c.Next() {
				if string(name) == bucketRebuild.Name() {
					p.add("%w", errRebuilding)
				} else if !slices.Contains(known, string(name)) {
					p.add("bucket %q is unknown to this version, or its name is damaged", name)
				} else if n := engine.Bolt(tx).Bucket(name).Sequence(); n > maxSequence(string(name)) {
					p.add("the sequence of bucket %s is too high: %d", name, n)
				}
			}
		})
		for _, t := range tables {
			p.run("table "+t.Name(), func() { t.Check(tx, p.add) })
		}
		tx.checkMessages(p)
		p.run("entries", func() { tx.checkEntries(p) })
		s.CheckCachedRecords(p.add)
		return nil
	})
	return errors.Join(p.join(), err)
}

// CheckMessages reads and verifies the bytes of every message. Others may write meanwhile;
// compaction waits. progress, which may be nil, is called with the bytes of the segments that are
// verified and of all segments.
func (s *Store) CheckMessages(progress func(done, all int64)) error {
	if err := s.compact.lock(context.Background()); err != nil {
		return err
	}
	defer s.compact.unlock()
	p := &problems{}
	err := s.verifyBlobs(p, progress)
	return errors.Join(p.join(), err)
}

// maxSequence returns the highest value that the sequence of a bucket may have. It is 0 for a
// bucket that uses no sequence.
func maxSequence(bucket string) uint64 {
	switch bucket {
	case Accounts.Name(), Mailboxes.Name():
		return math.MaxUint32
	case mailrow.BucketLive.Name(), mailrow.BucketTextRun.Name(), engine.EntryBucket:
		return math.MaxUint64
	case mailrow.BucketInbox.Name():
		return flaggedClassSequence
	case mailrow.BucketFolderNum.Name():
		return math.MaxUint32 - mailrow.FirstFolderNum
	case mailrow.BucketTextTodo.Name():
		return textindex.ResettingSequence
	}
	return 0
}

// checkEntries verifies the kept entries, and the rows of the bucket meta.
func (tx *Tx) checkEntries(p *problems) {
	tx.CheckEntries(p.add)
	b := engine.Bolt(tx)
	c := b.Bucket([]byte(bucketMeta)).Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		if _, _, err := readMetaRow(b, string(k)); err != nil {
			p.add("%w", err)
		}
	}
}

// A messageCheck verifies the message index. It counts the rows that it finds.
type messageCheck struct {
	*problems
	tx       *Tx
	folders  int
	messages int
	inbox    int // messages in INBOX folders
	numbered int // folders other than INBOX, which have numbers of their own
	accounts map[uint32]Usage
	text     *textindex.Check
}

// checkMessages verifies the message index. It walks the folders and messages and looks up each row
// that must exist for them; then each bucket must have as many rows as were looked up. So only the
// counts of accounts are kept in memory.
func (tx *Tx) checkMessages(p *problems) {
	c := &messageCheck{problems: p, tx: tx, accounts: map[uint32]Usage{}, text: textindex.NewCheck(&tx.Tx, p.add)}
	p.run("list of messages to index", func() {
		for range tx.TextTodos(0) {
			continue // the iterator reports damaged rows
		}
	})
	p.run("mailboxes, folders and messages", c.checkMailboxes)
	p.run("text index", c.text.CheckRuns)
	p.run("threads", c.checkThreads)
	p.run("expunged messages", c.checkExpunged)
	p.run("counters of accounts", c.checkAccounts)
	p.run("number of rows", c.checkSizes)
	p.run("blobs", c.checkBlobs)
	p.run("submissions, reports, copies and arrivals", c.checkRecordBlobs)
}

// checkMailboxes walks the folders of each mailbox and the messages of each folder.
func (c *messageCheck) checkMailboxes() {
	var mailbox uint32
	var sum mailrow.MailboxCounts
	for k, row := range c.tx.Ascend(mailrow.BucketFolder, nil) {
		var f Folder
		if err := f.Decode(k, row); err != nil {
			c.add("folder %x: %w", k, err)
			continue
		}
		c.folders++
		if f.Mailbox != mailbox {
			c.checkMailbox(mailbox, sum)
			mailbox, sum = f.Mailbox, mailrow.MailboxCounts{}
		}
		c.checkFolder(&f)
		sum.NextFolder = max(sum.NextFolder, f.ID+1)
		sum.Validity = max(sum.Validity, f.UIDValidity)
		sum.ModSeq = max(sum.ModSeq, f.ModSeq)
		sum.Messages += int64(f.Messages)
		sum.Bytes += f.Bytes
	}
	c.checkMailbox(mailbox, sum)
	for k, row := range c.tx.Ascend(mailrow.BucketMailbox, nil) {
		var box mailrow.MailboxCounts
		if err := box.Decode(k, row); err != nil {
			c.add("counters of mailbox %x: %w", k, err)
			continue
		}
		if len(k) != 4 {
			c.add("counters of mailbox %x: %w", k, ErrDamagedRow)
			continue
		}
		mailbox := binary.BigEndian.Uint32(k)
		if folders, err := c.tx.Folders(mailbox); err == nil && len(folders) == 0 {
			c.checkMailbox(mailbox, mailrow.MailboxCounts{})
		}
	}
}

// checkMailbox compares the counters in a mailbox's row with the sums over its folders.
func (c *messageCheck) checkMailbox(mailbox uint32, sum mailrow.MailboxCounts) {
	if mailbox == 0 {
		return
	}
	box, err := mailindex.MailboxCounts(&c.tx.Tx, mailbox)
	if err != nil {
		c.add("mailbox %d: %w", mailbox, err)
		return
	}
	if box.Messages != sum.Messages || box.Bytes != sum.Bytes {
		c.add("mailbox %d counts %d messages of %d bytes; its folders have %d of %d bytes together", mailbox, box.Messages, box.Bytes, sum.Messages, sum.Bytes)
	}
	if box.NextFolder < sum.NextFolder || box.Validity < sum.Validity || box.ModSeq < sum.ModSeq {
		c.add("mailbox %d: its counters of folders, UIDVALIDITY and MODSEQ are lower than those of its folders", mailbox)
	}
}

// checkFolder verifies a folder's name and counters, and each of its messages.
func (c *messageCheck) checkFolder(f *Folder) {
	key := mailrow.FolderKey(f.Mailbox, f.ID)
	if id := c.tx.GetRow(mailrow.BucketFolderName, mailrow.FolderNameKey(f.Mailbox, f.Name)); string(id) != string(key[4:]) {
		c.add("folder %d of mailbox %d: not found by its name %q", f.ID, f.Mailbox, f.Name)
	}
	if f.ID != InboxID {
		c.numbered++
		if mailbox, id := c.tx.FolderOfNum(f.Num); f.Num < mailrow.FirstFolderNum || mailbox != f.Mailbox || id != f.ID {
			c.add("folder %d of mailbox %d: its number %08x is invalid or leads to another folder", f.ID, f.Mailbox, f.Num)
		}
	}
	var sum mailrow.FolderCounts
	first := mailrow.MessageKey(f.Mailbox, f.ID, 0)
	for k, row := range c.tx.Ascend(mailrow.BucketMessage, first[:]) {
		if string(k[:8]) != string(first[:8]) {
			break
		}
		c.messages++
		var m Message
		if err := m.Decode(k, row); err != nil {
			c.add("message %x: %w", k, err)
			continue
		}
		c.checkMessage(&m, f)
		sum.Messages++
		sum.Bytes += int64(m.Blob.Length)
		if m.Flags&FlagSeen == 0 {
			sum.Unseen++
		}
		u := c.accounts[m.Account]
		c.accounts[m.Account] = Usage{Messages: u.Messages + 1, Bytes: u.Bytes + int64(m.Blob.Length)}
	}
	if sum.Messages != f.Messages || sum.Unseen != f.Unseen || sum.Bytes != f.Bytes {
		c.add("folder %d of mailbox %d counts %d messages, %d unseen, %d bytes; it has %d, %d, %d",
			f.ID, f.Mailbox, f.Messages, f.Unseen, f.Bytes, sum.Messages, sum.Unseen, sum.Bytes)
	}
}

// checkMessage looks up the rows that must exist for a message.
func (c *messageCheck) checkMessage(m *Message, f *Folder) {
	wrong := func(format string, args ...any) {
		c.add("message %d in folder %d of mailbox %d: %w", m.UID, m.Folder, m.Mailbox, fmt.Errorf(format, args...))
	}
	if m.UID == 0 || m.UID >= f.UIDNext {
		wrong("its UID is not below its folder's next UID %d", f.UIDNext)
	}
	if m.ModSeq > f.ModSeq {
		wrong("its MODSEQ %d is above its folder's %d", m.ModSeq, f.ModSeq)
	}
	if _, err := c.tx.Meta(m.Mailbox, m.Folder, m.UID); err != nil {
		wrong("%w", err)
	}
	prefix := mailrow.BlobPrefix(m.Blob)
	if string(c.tx.GetRow(mailrow.BucketRef, append(prefix[:], mailrow.MessageOwner(m)...))) != string(mailrow.RefRow(m.Blob)) {
		wrong("its blob at %d in segment %08x lacks its reference", m.Blob.Offset, m.Blob.Segment)
	}
	c.text.AddMessage(m, f.Num)
	marks := string([]byte{byte(m.Flags), byte(m.Bits)})
	byFolder := mailrow.InboxOfKey(m, f.Num)
	if string(c.tx.GetRow(mailrow.BucketInboxOf, byFolder[:])) != marks {
		wrong("it is missing in the list of its folder, or has other flags there")
	}
	if m.Folder != InboxID {
		return
	}
	c.inbox++
	byAccount := mailrow.InboxKey(m)
	if string(c.tx.GetRow(mailrow.BucketInbox, byAccount[:])) != marks {
		wrong("it is missing in the account's inbox, or has other flags there")
	}
}

// checkAccounts compares the accounts' counters with the sums over their messages.
func (c *messageCheck) checkAccounts() {
	for k := range c.tx.Ascend(mailrow.BucketAccount, nil) {
		if len(k) != 4 {
			c.add("counters of account %x: %w", k, ErrDamagedRow)
			continue
		}
		if account := binary.BigEndian.Uint32(k); c.accounts[account] == (Usage{}) {
			c.accounts[account] = Usage{} // it has counters, but no messages
		}
	}
	for account, sum := range c.accounts {
		u, err := c.tx.AccountUsage(account)
		if err != nil {
			c.add("%w", err)
			continue
		}
		if u != sum {
			c.add("account %d counts %d messages of %d bytes; it has %d of %d bytes", account, u.Messages, u.Bytes, sum.Messages, sum.Bytes)
		}
	}
}

// checkSizes compares the number of rows in each bucket with the number that folders and messages
// need. A bucket with more has rows that belong to nothing.
func (c *messageCheck) checkSizes() {
	for _, want := range []struct {
		bucket *engine.Bucket
		rows   int
	}{
		{mailrow.BucketMessage, c.messages}, {mailrow.BucketMeta, c.messages}, {mailrow.BucketInbox, c.inbox}, {mailrow.BucketInboxOf, c.messages}, {mailrow.BucketFolderName, c.folders}, {mailrow.BucketFolderNum, c.numbered},
	} {
		if have := c.tx.Bucket(want.bucket).Stats().KeyN; have != want.rows {
			c.add("bucket %s has %d rows, the folders and messages need %d", want.bucket.Name(), have, want.rows)
		}
	}
}

// checkBlobs verifies the references to each blob, and the live bytes of each segment.
func (c *messageCheck) checkBlobs() {
	var last BlobRef
	live := map[uint32]int64{}
	for k, row := range c.tx.Ascend(mailrow.BucketRef, nil) {
		ref, owner, err := mailrow.DecodeRef(k, row)
		if err != nil {
			c.add("%w", err)
			continue
		}
		c.checkOwner(ref, owner)
		if ref.Segment != last.Segment || ref.Offset != last.Offset {
			live[ref.Segment] += ref.Size()
			last = ref
		} else if ref != last {
			c.add("blob at %d in segment %08x: references differ in its length", ref.Offset, ref.Segment)
		}
	}
	for k := range c.tx.Ascend(mailrow.BucketStructure, nil) {
		if len(k) != 8 {
			c.add("structure of a blob %x: %w", k, ErrDamagedRow)
		} else if r, _ := c.tx.Bucket(mailrow.BucketRef).Cursor().Seek(k); !bytes.HasPrefix(r, k) {
			c.add("structure row %x: no row refers to its blob", k)
		}
		if _, err := mailindex.Structure(&c.tx.Tx, k); err != nil {
			c.add("%w", err)
		}
	}
	there := map[uint32]bool{}
	for _, info := range c.tx.s.seg.List() {
		there[info.Number] = true
	}
	for segment, sum := range live {
		if !there[segment] {
			c.add("segment %08x is missing, which has %d bytes of messages", segment, sum)
		}
	}
	for k := range c.tx.Ascend(mailrow.BucketLive, nil) {
		if len(k) != 4 {
			c.add("live bytes of segment %x: %w", k, ErrDamagedRow)
			continue
		}
		segment := binary.BigEndian.Uint32(k)
		live[segment] += 0
	}
	for segment, sum := range live {
		if have, err := mailindex.LiveBytes(&c.tx.Tx, segment); err != nil || have != sum {
			c.add("segment %08x counts %d live bytes; its references have %d", segment, have, sum)
		}
	}
}

// checkOwner verifies that the owner that a reference names exists, and that this owner has the
// referenced blob.
func (c *messageCheck) checkOwner(ref BlobRef, owner []byte) {
	var points BlobRef
	if b, id := blobTableOf(owner); b != nil {
		blob, err := b.blobOf(c.tx, id)
		if err != nil {
			c.add("blob of %s %s: %w", b.what, id, err)
			return
		}
		points = blob
	} else {
		m, err := mailindex.OwnerMessage(&c.tx.Tx, owner)
		if err != nil {
			c.add("blob of a message: %w", err)
			return
		}
		points = m.Blob
	}
	if points != ref {
		c.add("owner %q has a reference to the blob at %d in segment %08x, but points to %d in %08x",
			owner, ref.Offset, ref.Segment, points.Offset, points.Segment)
	}
}

// checkRecordBlobs verifies that every record with a blob has a reference to it.
func (c *messageCheck) checkRecordBlobs() {
	for _, b := range blobTables {
		for id, blob := range b.all(c.tx) {
			prefix := mailrow.BlobPrefix(blob)
			if !blob.IsZero() && string(c.tx.GetRow(mailrow.BucketRef, append(prefix[:], b.owner(id)...))) != string(mailrow.RefRow(blob)) {
				c.add("%s %s: its blob at %d in segment %08x lacks its reference", b.what, id, blob.Offset, blob.Segment)
			}
		}
	}
}

// verifyBlobs reads every blob that a row refers to. It lists a few blobs at a time, each time in a
// new snapshot, so that no snapshot stays open for long. The caller holds the lock of compaction,
// so that no listed blob is moved before it is read.
func (s *Store) verifyBlobs(p *problems, progress func(done, all int64)) error {
	var done, all int64
	for _, info := range s.seg.List() {
		all += info.Size
	}
	for _, info := range s.seg.List() {
		if progress != nil {
			progress(done, all)
		}
		done += info.Size
		for from := uint32(0); ; {
			blobs, err := s.liveBlobs(info.Number, from)
			if err != nil {
				return err
			}
			if len(blobs) == 0 {
				break
			}
			for _, ref := range blobs {
				if err := s.seg.Verify(ref); err != nil {
					p.add("%w; it is %s", err, s.ownersText(ref))
				}
			}
			from = blobs[len(blobs)-1].Offset + 1
		}
	}
	return nil
}

// ownersText returns the names of the messages and records that refer to a blob, for a report.
func (s *Store) ownersText(ref BlobRef) string {
	var texts []string
	err := s.View(func(tx *Tx) error {
		texts = nil
		owners, err := mailindex.Owners(&tx.Tx, ref)
		for _, o := range owners {
			if b, id := blobTableOf(o); b != nil {
				texts = append(texts, b.what+" "+id)
				continue
			}
			m, err := mailindex.OwnerMessage(&tx.Tx, o)
			if err != nil {
				return err
			}
			where := fmt.Sprintf("mailbox %d", m.Mailbox)
			if box, err := MailboxByNum.Find(tx, NumKey(m.Mailbox)); err == nil && box != nil {
				where = box.Email
			}
			texts = append(texts, fmt.Sprintf("message %d in folder %d of %s", m.UID, m.Folder, where))
		}
		return err
	})
	if err != nil {
		return err.Error()
	}
	return strings.Join(texts, ", ")
}

// checkThreads verifies the rows of threads, joined threads, thread subjects and spam tokens.
func (c *messageCheck) checkThreads() {
	for k := range c.tx.Ascend(mailrow.BucketThread, nil) {
		if len(k) != 4+mailrow.ThreadNodeSize {
			c.add("thread %x: %w", k, ErrDamagedRow)
			continue
		}
		if _, _, err := c.tx.Thread(binary.BigEndian.Uint32(k), ThreadNode(k[4:])); err != nil {
			c.add("%w", err)
		}
	}
	for k := range c.tx.Ascend(mailrow.BucketThreadJoined, nil) {
		if len(k) != 4+2*mailrow.ThreadNodeSize {
			c.add("joined thread %x: %w", k, ErrDamagedRow)
			continue
		}
		account, top, below := binary.BigEndian.Uint32(k), ThreadNode(k[4:4+mailrow.ThreadNodeSize]), ThreadNode(k[4+mailrow.ThreadNodeSize:])
		if up, _, found, err := mailindex.ThreadRow(&c.tx.Tx, mailrow.ThreadKey(account, below)); err != nil || !found || up != top {
			c.add("thread %x has a row as joined to %x, but is not joined to it", below, top)
		}
	}
	for k, v := range c.tx.Ascend(mailrow.BucketSubject, nil) {
		if _, err := mailrow.SubjectThread(k, v); err != nil {
			c.add("%w", err)
		}
	}
	for k, v := range c.tx.Ascend(mailrow.BucketSpamToken, nil) {
		if _, err := parseSpamTokenRow(k, v); err != nil {
			c.add("%w", err)
		}
	}
}

// checkExpunged verifies the rows of expunged messages.
func (c *messageCheck) checkExpunged() {
	for k, row := range c.tx.Ascend(mailrow.BucketExpunged, nil) {
		var r mailrow.ExpungedRow
		if err := r.Decode(k, row); err != nil {
			c.add("expunged messages %x: %w", k, err)
			continue
		}
		f, err := c.tx.Folder(binary.BigEndian.Uint32(k), binary.BigEndian.Uint32(k[4:]))
		if err != nil {
			c.add("expunged messages %x: %w", k, err)
		} else if r.ModSeq > f.ModSeq {
			c.add("expunged messages %x: their MODSEQ is above their folder's %d", k, f.ModSeq)
		}
	}
}
