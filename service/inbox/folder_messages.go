package inbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/spam"
	"github.com/mailstead/mailstead/store"
)

// A Blob is an open reader of the bytes of one stored message.
type Blob = store.Blob

const (
	maxFolderKeywords = 200     // distinct keywords that a Selection lists
	maxRows           = 500     // messages that one transaction reads
	maxRowStructure   = 4 << 20 // bytes of MIME structures that one transaction reads
)

// A Selection is the state of a folder at the time of an IMAP SELECT.
type Selection struct {
	Folder      Folder
	UIDs        []uint32 // ascending
	FirstUnseen uint32   // UID of the first unseen message; 0 if all are seen
	Keywords    []string // the keywords of the folder's messages, at most maxFolderKeywords
}

// SelectFolder returns the state of a folder and the UIDs of its messages.
func (s *Service) SelectFolder(_ context.Context, u core.MailboxUser, name string) (*Selection, error) {
	name, err := cleanExistingName(name)
	if err != nil {
		return nil, err
	}
	var sel *Selection
	err = s.Store.View(func(tx *store.Tx) error {
		if _, err := core.OpenMailbox(tx, u); err != nil {
			return err
		}
		f, err := folderByName(tx, u.Mailbox, name)
		if err != nil {
			return err
		}
		sel = &Selection{Folder: *f, UIDs: make([]uint32, 0, f.Messages)}
		for m := range tx.Messages(u.Mailbox, f.ID, 1, maxUID) {
			sel.add(&m)
		}
		return nil
	})
	return sel, err
}

func (sel *Selection) add(m *store.Message) {
	sel.UIDs = append(sel.UIDs, m.UID)
	if sel.FirstUnseen == 0 && m.Flags&FlagSeen == 0 {
		sel.FirstUnseen = m.UID
	}
	for _, k := range m.Keywords {
		if len(sel.Keywords) < maxFolderKeywords && !HasKeyword(sel.Keywords, k) {
			sel.Keywords = append(sel.Keywords, k)
		}
	}
}

// A MessageRow has the stored data of a message that can be read without the message's bytes.
type MessageRow struct {
	UID       uint32
	Flags     Flags
	Keywords  []string
	ModSeq    uint64
	OldModSeq uint64 // the MODSEQ before ChangeFlags; the same as ModSeq if nothing changed
	Skipped   bool   // ChangeFlags did not change the message, because its MODSEQ is above UnchangedSince
	Received  time.Time
	Saved     time.Time // when the message was added to its folder
	Size      int64

	// The following fields are set only if the RowQuery selects them.
	Structure []byte // for msg.DecodePart
	EmailID   string
	ThreadID  string // "" if the message has no thread
	Preview   string
}

func rowOf(m *store.Message) (row MessageRow) {
	row.set(m)
	return row
}

// set fills in the fields that are stored in the message's row, not in its Meta.
func (row *MessageRow) set(m *store.Message) {
	row.UID, row.Flags, row.Keywords, row.ModSeq = m.UID, m.Flags, m.Keywords, m.ModSeq
	row.Received, row.Saved, row.Size = m.Received, m.Saved, int64(m.Blob.Length)
}

// A KnownFolder is the state of a folder that an IMAP session knows, which may be outdated.
type KnownFolder struct {
	Folder     uint32
	UIDs       []uint32 // ascending
	UIDNext    uint32
	ModSeq     uint64
	OwnChanges int // how many changes the session itself has made since ModSeq; each raised the folder's mod-sequence by one
}

// FolderChanges has the differences between a folder and the KnownFolder of a session.
type FolderChanges struct {
	Folder  Folder
	New     []uint32     // UIDs of new messages, ascending
	Gone    []uint32     // the UIDs in KnownFolder.UIDs whose messages are gone, ascending
	Changed []MessageRow // messages in KnownFolder.UIDs whose flags may have changed
}

// FolderChanges compares a folder with the state of it that a session knows.
func (s *Service) FolderChanges(_ context.Context, u core.MailboxUser, k KnownFolder) (*FolderChanges, error) {
	var c *FolderChanges
	err := s.Store.View(func(tx *store.Tx) error {
		if _, err := core.OpenMailbox(tx, u); err != nil {
			return err
		}
		f, err := folderByID(tx, u.Mailbox, k.Folder)
		if err != nil {
			return err
		}
		c = &FolderChanges{Folder: *f}
		if f.ModSeq == k.ModSeq {
			return nil
		}
		for m := range tx.Messages(u.Mailbox, f.ID, k.UIDNext, maxUID) {
			c.New = append(c.New, m.UID)
		}
		// Every change raises the folder's mod-sequence by one. If the new messages and the
		// session's own changes explain the difference, the other messages are unchanged.
		if f.ModSeq != k.ModSeq+uint64(len(c.New)+k.OwnChanges) {
			c.compare(tx, u.Mailbox, k)
		}
		return nil
	})
	return c, err
}

// compare finds the messages in k.UIDs that are gone or may have changed.
func (c *FolderChanges) compare(tx *store.Tx, mailbox uint32, k KnownFolder) {
	known := k.UIDs
	for m := range tx.Messages(mailbox, k.Folder, 1, k.UIDNext-1) {
		for len(known) > 0 && known[0] < m.UID {
			c.Gone, known = append(c.Gone, known[0]), known[1:]
		}
		if len(known) == 0 || known[0] != m.UID {
			continue
		}
		known = known[1:]
		if m.ModSeq > k.ModSeq {
			c.Changed = append(c.Changed, rowOf(&m))
		}
	}
	c.Gone = append(c.Gone, known...)
}

// A RowQuery selects the optional fields of MessageRow that EachRow and MessageRows fill in.
type RowQuery struct {
	Structure    bool   // fill in MessageRow.Structure
	EmailID      bool   // fill in MessageRow.EmailID
	ThreadID     bool   // fill in MessageRow.ThreadID
	Preview      bool   // fill in MessageRow.Preview
	ChangedSince uint64 // a mod-sequence: messages whose MODSEQ is not greater are skipped
}

// EachRow calls fn for each of the messages, until fn returns false or the limits of one
// transaction are reached. uids must ascend. rest has the UIDs that were not reached. Deleted
// messages are skipped. fn runs in a transaction: it must not block, and must not use the row after
// it has returned.
func (s *Service) EachRow(_ context.Context, u core.MailboxUser, folder uint32, uids []uint32, q RowQuery, fn func(*MessageRow) bool) (rest []uint32, err error) {
	batch := uids[:min(len(uids), maxRows)]
	rest = uids[len(batch):]
	err = s.Store.View(func(tx *store.Tx) error {
		read := 0 // bytes of structures and previews
		var row MessageRow
		var meta store.Meta
		withMeta := q.EmailID || q.ThreadID || q.Preview
		var failed error
		err := tx.EachMessage(u.Mailbox, folder, batch, q.Structure && !withMeta, func(m *store.Message, structure []byte) bool {
			if m.ModSeq <= q.ChangedSince {
				return true
			}
			row.set(m)
			row.Structure = structure
			if withMeta {
				if failed = q.readMeta(tx, m, &meta, &row); failed != nil {
					return false
				}
			}
			read += len(row.Structure) + len(row.Preview)
			if more := fn(&row); more && read <= maxRowStructure {
				return true
			}
			done, _ := slices.BinarySearch(uids, m.UID+1)
			rest = uids[done:]
			return false
		})
		return cmp.Or(failed, err)
	})
	return rest, err
}

// readMeta reads the Meta of a message and fills in the selected fields of the row.
func (q RowQuery) readMeta(tx *store.Tx, m *store.Message, meta *store.Meta, row *MessageRow) (err error) {
	if err := tx.ReadMeta(meta, m); err != nil {
		return err
	}
	if q.Structure {
		row.Structure = meta.Structure
	}
	if q.EmailID {
		row.EmailID = emailID(m, meta)
	}
	if q.ThreadID {
		row.ThreadID, err = currentThreadID(tx, m.Account, meta.ThreadID)
	}
	if q.Preview {
		row.Preview = meta.Preview
	}
	return err
}

// MessageRows is like EachRow, but returns copies of the rows.
func (s *Service) MessageRows(ctx context.Context, u core.MailboxUser, folder uint32, uids []uint32, q RowQuery) (rows []MessageRow, rest []uint32, err error) {
	rows = make([]MessageRow, 0, min(len(uids), maxRows))
	rest, err = s.EachRow(ctx, u, folder, uids, q, func(row *MessageRow) bool {
		kept := *row
		kept.Structure = bytes.Clone(row.Structure)
		rows = append(rows, kept)
		return true
	})
	return rows, rest, err
}

// OpenMessage opens the bytes of a message. The error is not_found if the message does not exist.
func (s *Service) OpenMessage(_ context.Context, u core.MailboxUser, folder, uid uint32) (*Blob, error) {
	var ref store.BlobRef
	err := s.Store.View(func(tx *store.Tx) error {
		m, err := tx.Message(u.Mailbox, folder, uid)
		if err == nil {
			ref = m.Blob
		}
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, core.NotFound("message").Because(err)
	}
	if err != nil {
		return nil, err
	}
	return s.Store.OpenBlob(ref)
}

// CheckKeywords returns an error if the list has too many keywords, or an empty or too long one.
func CheckKeywords(list []string) error {
	if len(list) > MaxKeywords || slices.ContainsFunc(list, func(k string) bool { return k == "" || len(k) > MaxKeyword }) {
		return core.Errorf(CodeKeywords, "A message has at most %d keywords of at most %d bytes.", MaxKeywords, MaxKeyword)
	}
	return nil
}

// ChangeFlags changes the flags of messages and returns their rows after the change. uids must
// ascend. Deleted messages are left out. Messages that were not changed because of UnchangedSince
// have Skipped set.
func (s *Service) ChangeFlags(_ context.Context, u core.MailboxUser, folder uint32, uids []uint32, c FlagChange) ([]MessageRow, error) {
	if err := CheckKeywords(c.Keywords); err != nil {
		return nil, err
	}
	rows := make([]MessageRow, 0, len(uids))
	for batch := range slices.Chunk(uids, PerWrite) {
		var changed []MessageRow
		err := s.Store.Update(func(tx *store.Tx) error {
			changed = changed[:0]
			messages, err := s.messagesToChange(tx, u, folder, batch)
			if err != nil {
				return err
			}
			taint, err := taintOf(tx, u)
			if err != nil {
				return err
			}
			if c.Flags&store.FlagDeleted != 0 { // clients set \Deleted before EXPUNGE, which frees space
				tx.MayUseReserve()
			}
			for _, m := range messages {
				if c.UnchangedSince != nil && m.ModSeq > *c.UnchangedSince {
					row := rowOf(m)
					row.OldModSeq, row.Skipped = m.ModSeq, true
					changed = append(changed, row)
					continue
				}
				flags, keywords := c.apply(m.Flags, m.Keywords)
				if err := errors.Join(CheckKeywords(keywords), checkTaintedKeywords(taint, keywords, m.Keywords)); err != nil {
					return err
				}
				was := m.ModSeq
				if err := tx.SetFlags(m, flags, keywords); err != nil {
					return err
				}
				row := rowOf(m)
				row.OldModSeq = was
				changed = append(changed, row)
			}
			return nil
		})
		if err != nil {
			return rows, err
		}
		rows = append(rows, changed...)
	}
	return rows, nil
}

// messagesToChange returns those of the messages that exist. It makes the transaction notify
// watchers once it is on disk.
func (s *Service) messagesToChange(tx *store.Tx, u core.MailboxUser, folder uint32, uids []uint32) ([]*store.Message, error) {
	if _, err := core.OpenMailbox(tx, u); err != nil {
		return nil, err
	}
	s.notifyWatchers(tx, u.Mailbox)
	messages := make([]*store.Message, 0, len(uids))
	err := tx.EachMessage(u.Mailbox, folder, uids, false, func(m *store.Message, _ []byte) bool {
		one := *m
		messages = append(messages, &one)
		return true
	})
	return messages, err
}

// ExpungeMessages deletes those of the messages that have FlagDeleted, and returns their UIDs. uids
// must ascend.
func (s *Service) ExpungeMessages(_ context.Context, u core.MailboxUser, folder uint32, uids []uint32) ([]uint32, error) {
	marked, err := s.markedDeleted(u, folder, uids)
	if err != nil {
		return nil, err
	}
	var gone []uint32
	for batch := range slices.Chunk(marked, PerWrite) {
		var deleted []uint32
		err := s.Store.Update(func(tx *store.Tx) error {
			deleted = deleted[:0]
			messages, err := s.messagesToChange(tx, u, folder, batch)
			if err != nil {
				return err
			}
			for _, m := range messages {
				if m.Flags&FlagDeleted == 0 {
					continue
				}
				if err := tx.DeleteMessage(u.Mailbox, folder, m.UID); err != nil {
					return err
				}
				deleted = append(deleted, m.UID)
			}
			return nil
		})
		if err != nil {
			return gone, err
		}
		gone = append(gone, deleted...)
	}
	return gone, nil
}

// markedDeleted returns those of the messages that have FlagDeleted. It reads only, so an EXPUNGE
// that deletes nothing needs no write transaction.
func (s *Service) markedDeleted(u core.MailboxUser, folder uint32, uids []uint32) (marked []uint32, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		return tx.EachMessage(u.Mailbox, folder, uids, false, func(m *store.Message, _ []byte) bool {
			if m.Flags&FlagDeleted != 0 {
				marked = append(marked, m.UID)
			}
			return true
		})
	})
	return marked, err
}

// Copied has the UIDs of messages that were copied or moved: the message with the UID From[i] in
// the old folder has the UID To[i] in the new one.
type Copied struct {
	UIDValidity uint32
	From, To    []uint32
}

// transfersPerWrite is how many messages one transaction copies or moves. Each message takes up to
// twenty writes, and all other writers wait for the transaction.
const transfersPerWrite = 300

// CopyMessages copies the messages into another folder, all or none. uids must ascend. If it fails,
// it deletes the copies that it has made; if the process crashes, the next start deletes them.
// Until then other sessions see these copies.
func (s *Service) CopyMessages(ctx context.Context, u core.MailboxUser, folder uint32, uids []uint32, to string) (*Copied, error) {
	return s.copyOrMove(ctx, u, folder, uids, to, false)
}

// MoveMessages moves the messages into another folder. uids must ascend. After an error, the
// messages in Copied have been moved and the others have not (RFC 6851 section 3.3).
func (s *Service) MoveMessages(ctx context.Context, u core.MailboxUser, folder uint32, uids []uint32, to string) (*Copied, error) {
	return s.copyOrMove(ctx, u, folder, uids, to, true)
}

func (s *Service) copyOrMove(_ context.Context, u core.MailboxUser, folder uint32, uids []uint32, to string, move bool) (*Copied, error) {
	name, err := cleanExistingName(to)
	if err != nil {
		return nil, err
	}
	dest, err := s.destination(u, folder, uids, name, move)
	if err != nil {
		return nil, err
	}
	out := &Copied{UIDValidity: dest.UIDValidity}
	intent := "" // ID of the CopyIntent, if the copy takes several transactions
	for batch := range slices.Chunk(uids, transfersPerWrite) {
		last := len(batch) < transfersPerWrite || batch[len(batch)-1] == uids[len(uids)-1]
		var part Copied
		var id string
		err := s.Store.Update(func(tx *store.Tx) error {
			part, id = Copied{}, intent
			if err := s.transferBatch(tx, u, folder, batch, dest.ID, move, &part); err != nil || move {
				return err
			}
			id, err = recordCopy(tx, id, u.Mailbox, dest.ID, part.To, last)
			return err
		})
		if err != nil && !move {
			return nil, errors.Join(err, s.undoCopy(intent))
		}
		if err != nil {
			return out, err
		}
		intent = id
		out.From, out.To = append(out.From, part.From...), append(out.To, part.To...)
	}
	return out, nil
}

// recordCopy writes the UIDs that one transaction of a COPY or APPEND has added into its
// CopyIntent. If the last transaction is never reached, these messages are deleted (RFC 3501
// section 6.4.7). The last transaction deletes the CopyIntent. A COPY or APPEND of only one
// transaction has no CopyIntent. id is the ID of the CopyIntent, and intent its ID after the call;
// "" if there is none.
func recordCopy(tx *store.Tx, id string, mailbox, folder uint32, uids []uint32, last bool) (intent string, err error) {
	switch {
	case last && id == "":
		return "", nil
	case last:
		return "", store.CopyIntents.Delete(tx, id)
	}
	c := &store.CopyIntent{ID: tx.NewID("cpy"), Mailbox: mailbox, Folder: folder}
	if id != "" {
		var err error
		c, err = store.CopyIntents.Get(tx, id)
		if err != nil {
			return "", err
		}
	}
	if n := len(uids); n > 0 { // the UIDs are consecutive, because one transaction assigned them
		if last := len(c.Ranges) - 1; last >= 0 && c.Ranges[last][1]+1 == uids[0] {
			c.Ranges[last][1] = uids[n-1]
		} else {
			c.Ranges = append(c.Ranges, [2]uint32{uids[0], uids[n-1]})
		}
	}
	return c.ID, store.CopyIntents.Put(tx, c)
}

// undoCopy deletes the messages that an incomplete COPY or APPEND has written. id is the ID of its
// CopyIntent, or "" if it has none.
func (s *Service) undoCopy(id string) error {
	for done := id == ""; !done; {
		err := s.Store.Update(func(tx *store.Tx) error {
			done = true
			c, err := store.CopyIntents.Find(tx, id)
			if c == nil || err != nil {
				return err
			}
			s.notifyWatchers(tx, c.Mailbox)
			n := 0
			for i, r := range c.Ranges {
				for m := range tx.Messages(c.Mailbox, c.Folder, r[0], r[1]) {
					if n++; n > transfersPerWrite {
						c.Ranges, done = c.Ranges[i:], false
						return store.CopyIntents.Put(tx, c)
					}
					if err := tx.DeleteMessage(m.Mailbox, m.Folder, m.UID); err != nil {
						return err
					}
				}
			}
			return store.CopyIntents.Delete(tx, id)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// undoCopies deletes the messages of every COPY or APPEND that an earlier process did not complete.
func (s *Service) undoCopies() error {
	var ids []string
	err := s.Store.View(func(tx *store.Tx) error {
		for c := range store.CopyIntents.All(tx) {
			if c.ID < s.firstCopy {
				ids = append(ids, c.ID)
			}
		}
		return nil
	})
	for _, id := range ids {
		err = errors.Join(err, s.undoCopy(id))
	}
	return err
}

// destination returns the folder with the given name. For a copy, it also checks that the messages
// fit into the mailbox's quota.
func (s *Service) destination(u core.MailboxUser, folder uint32, uids []uint32, name string, move bool) (dest *Folder, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		mb, err := core.OpenMailbox(tx, u)
		if err != nil {
			return err
		}
		dest, err = folderByName(tx, u.Mailbox, name)
		if err != nil || move {
			return err
		}
		var size int64
		err = tx.EachMessage(u.Mailbox, folder, uids, false, func(m *store.Message, _ []byte) bool {
			size += int64(m.Blob.Length)
			return true
		})
		if err != nil {
			return err
		}
		return core.CheckQuota(tx, mb, size)
	})
	return dest, err
}

// transferBatch copies or moves messages in one transaction and adds their UIDs to out.
func (s *Service) transferBatch(tx *store.Tx, u core.MailboxUser, folder uint32, uids []uint32, dest uint32, move bool, out *Copied) error {
	messages, err := s.messagesToChange(tx, u, folder, uids)
	if err != nil {
		return err
	}
	to, err := folderByID(tx, u.Mailbox, dest)
	if err != nil {
		return err
	}
	if len(messages) == 0 {
		return nil
	}
	from, err := folderByID(tx, u.Mailbox, folder)
	if err != nil {
		return err
	}
	taint, err := taintOf(tx, u)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := checkTaintedMove(tx, taint, m, from, to); err != nil {
			return err
		}
	}
	copies, err := tx.CopyMessages(messages, dest, movedBits(taint))
	if err != nil {
		return err
	}
	for i, m := range messages {
		if err := s.completeCopy(tx, u.AccountID, taint, from, to, m, copies[i]); err != nil {
			return err
		}
		if move {
			if err := tx.DeleteMessage(u.Mailbox, folder, m.UID); err != nil {
				return err
			}
		}
		out.From, out.To = append(out.From, m.UID), append(out.To, copies[i].UID)
	}
	return nil
}

// movedBits returns the bits of a message that a mail client has copied or moved: BitMoved, or none
// if the client is tainted.
func movedBits(taint *store.Taint) store.Bits {
	if taint != nil {
		return 0
	}
	return store.BitMoved
}

// completeCopy updates a copy for its new folder. In Drafts, it records that the message has been
// there. The spam classifier learns from the copy, unless the caller is tainted.
func (s *Service) completeCopy(tx *store.Tx, accountID string, taint *store.Taint, from, to *Folder, m, copied *store.Message) error {
	if roleOf(to) == roleDrafts {
		if err := tx.SetDrafted(copied); err != nil {
			return err
		}
	}
	if taint != nil {
		return nil // a tainted caller must not train the classifier
	}
	return s.learnMove(tx, accountID, from, to, m, copied)
}

// learnMove trains the account's spam classifier with a message that was copied or moved to another
// folder. It records in the message and in its copy whether they were learned as spam or as wanted.
func (s *Service) learnMove(tx *store.Tx, accountID string, from, to *Folder, m, copied *store.Message) error {
	move := spam.Move{FromJunk: roleOf(from) == roleJunk, ToJunk: roleOf(to) == roleJunk, ToTrash: roleOf(to) == roleTrash}
	taught, err := s.spam.Moved(tx, accountID, copied, move)
	if err != nil {
		return err
	}
	return tx.SetTaught(m, taught)
}
