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

// A Blob is the bytes of one stored message, open for reading.
type Blob = store.Blob

const (
	maxFolderWords  = 200     // distinct keywords that a Selection lists
	maxRows         = 500     // messages that one transaction reads
	maxRowStructure = 4 << 20 // bytes of structures that one transaction reads
)

// A Selection is the state of a folder when it was selected.
type Selection struct {
	Folder      Folder
	UIDs        []uint32 // ascending
	FirstUnseen uint32   // UID of the first unseen message; 0 if all are seen
	Keywords    []string // keywords of its messages, at most 200
}

// SelectFolder lists the messages of a folder.
func (s *Service) SelectFolder(_ context.Context, u core.MailboxUser, name string) (*Selection, error) {
	name, err := knownName(name)
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
		if len(sel.Keywords) < maxFolderWords && !HasKeyword(sel.Keywords, k) {
			sel.Keywords = append(sel.Keywords, k)
		}
	}
}

// A MessageRow is the stored data of a message that is available without reading its bytes.
type MessageRow struct {
	UID      uint32
	Flags    Flags
	Keywords []string
	ModSeq   uint64
	Was      uint64 // the MODSEQ before ChangeFlags; equal to ModSeq if nothing changed
	Kept     bool   // ChangeFlags skipped the message, since its MODSEQ is above UnchangedSince
	Received time.Time
	Saved    time.Time // when the message was added to its folder
	Size     int64

	// Set only if the RowQuery asks for them.
	Structure []byte // for msg.DecodePart
	EmailID   string
	ThreadID  string // "" if the message has no thread
	Preview   string
}

func rowOf(m *store.Message) (row MessageRow) {
	row.set(m)
	return row
}

// set fills in the fields that do not need the Meta.
func (row *MessageRow) set(m *store.Message) {
	row.UID, row.Flags, row.Keywords, row.ModSeq = m.UID, m.Flags, m.Keywords, m.ModSeq
	row.Received, row.Saved, row.Size = m.Received, m.Saved, int64(m.Blob.Length)
}

// A Known is a session's state of the folder that it has selected.
type Known struct {
	Folder  uint32
	UIDs    []uint32 // ascending
	UIDNext uint32
	ModSeq  uint64
	Own     int // how many changes the session itself has made since ModSeq; each has raised ModSeq by one
}

// FolderChanges is how a folder differs from a Known.
type FolderChanges struct {
	Folder  Folder
	New     []uint32     // ascending
	Gone    []uint32     // of Known.UIDs, ascending
	Changed []MessageRow // of Known.UIDs; their flags may have changed
}

// FolderChanges compares the folder with a session's state of it.
func (s *Service) FolderChanges(_ context.Context, u core.MailboxUser, k Known) (*FolderChanges, error) {
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
		// Every change raises MODSEQ by one. If the new messages and the session's own changes
		// account for the difference, the known messages are unchanged.
		if f.ModSeq != k.ModSeq+uint64(len(c.New)+k.Own) {
			c.compare(tx, u.Mailbox, k)
		}
		return nil
	})
	return c, err
}

// compare finds which of the known messages are gone or changed.
func (c *FolderChanges) compare(tx *store.Tx, mailbox uint32, k Known) {
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

// A RowQuery selects the optional fields that EachRow and MessageRows read.
type RowQuery struct {
	Structure    bool
	EmailID      bool
	ThreadID     bool
	Preview      bool
	ChangedSince uint64 // skips messages whose MODSEQ is not greater
}

// EachRow calls fn for each of the messages (uids must ascend) until fn returns false or the
// limits of one transaction are reached; rest holds the UIDs that it did not reach. Deleted
// messages are skipped. fn runs in a transaction: it must not block, and must not keep the row
// after it returns.
func (s *Service) EachRow(_ context.Context, u core.MailboxUser, folder uint32, uids []uint32, q RowQuery, fn func(*MessageRow) bool) (rest []uint32, err error) {
	batch := uids[:min(len(uids), maxRows)]
	rest = uids[len(batch):]
	err = s.Store.View(func(tx *store.Tx) error {
		read := 0 // bytes
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

// readMeta reads the Meta of a message and fills in the fields of the row that the query selects.
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
		row.ThreadID, err = threadNow(tx, m.Account, meta.ThreadID)
	}
	if q.Preview {
		row.Preview = meta.Preview
	}
	return err
}

// MessageRows is EachRow that returns copies of the rows.
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

// OpenMessage opens the bytes of a message. The error is not_found if the message is gone.
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

// CheckKeywords refuses a list with too many keywords, or with one that is empty or too long.
func CheckKeywords(list []string) error {
	if len(list) > MaxKeywords || slices.ContainsFunc(list, func(k string) bool { return k == "" || len(k) > MaxKeyword }) {
		return core.Errorf(CodeKeywords, "A message has at most %d keywords of at most %d bytes.", MaxKeywords, MaxKeyword)
	}
	return nil
}

// ChangeFlags changes the flags of the messages (uids must ascend) and returns their rows after
// the change. Deleted messages are skipped; messages that UnchangedSince excluded have Kept set.
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
			if c.Flags&store.FlagDeleted != 0 { // \Deleted precedes EXPUNGE, which frees space
				tx.MayUseReserve()
			}
			for _, m := range messages {
				if c.UnchangedSince != nil && m.ModSeq > *c.UnchangedSince {
					row := rowOf(m)
					row.Was, row.Kept = m.ModSeq, true
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
				row.Was = was
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

// messagesToChange reads the messages that still exist, and notifies watchers once the transaction
// is on disk.
func (s *Service) messagesToChange(tx *store.Tx, u core.MailboxUser, folder uint32, uids []uint32) ([]*store.Message, error) {
	if _, err := core.OpenMailbox(tx, u); err != nil {
		return nil, err
	}
	s.changed(tx, u.Mailbox)
	messages := make([]*store.Message, 0, len(uids))
	err := tx.EachMessage(u.Mailbox, folder, uids, false, func(m *store.Message, _ []byte) bool {
		one := *m
		messages = append(messages, &one)
		return true
	})
	return messages, err
}

// ExpungeMessages deletes those of the messages (uids must ascend) that have FlagDeleted, and
// returns their UIDs.
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

// markedDeleted lists the messages that have FlagDeleted, so that an EXPUNGE without any needs no
// write transaction.
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

// Copied maps the UIDs of copied messages: the message From[i] has the UID To[i] in the other
// folder.
type Copied struct {
	UIDValidity uint32
	From, To    []uint32
}

// perTransfer is how many messages one transaction copies or moves. Each message takes up to twenty
// writes, and other writers wait during the transaction.
const perTransfer = 300

// CopyMessages copies the messages (uids must ascend) into another folder, all or none: after a
// failure it deletes the copies made so far; after a crash the next start does. Until then other
// sessions see them.
func (s *Service) CopyMessages(ctx context.Context, u core.MailboxUser, folder uint32, uids []uint32, to string) (*Copied, error) {
	return s.transfer(ctx, u, folder, uids, to, false)
}

// MoveMessages moves the messages (uids must ascend) into another folder. After an error, the
// messages in Copied have been moved and the others have not (RFC 6851 section 3.3).
func (s *Service) MoveMessages(ctx context.Context, u core.MailboxUser, folder uint32, uids []uint32, to string) (*Copied, error) {
	return s.transfer(ctx, u, folder, uids, to, true)
}

func (s *Service) transfer(_ context.Context, u core.MailboxUser, folder uint32, uids []uint32, to string, move bool) (*Copied, error) {
	name, err := knownName(to)
	if err != nil {
		return nil, err
	}
	dest, err := s.destination(u, folder, uids, name, move)
	if err != nil {
		return nil, err
	}
	out := &Copied{UIDValidity: dest.UIDValidity}
	intent := "" // ID of the CopyIntent, if the copy takes several transactions
	for batch := range slices.Chunk(uids, perTransfer) {
		last := len(batch) < perTransfer || batch[len(batch)-1] == uids[len(uids)-1]
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

// recordCopy adds the messages of one transaction of a COPY or APPEND to its CopyIntent, so that
// they are deleted if the last transaction is never reached (RFC 3501 section 6.4.7). The last
// transaction deletes the CopyIntent. A COPY or APPEND of one transaction needs none.
func recordCopy(tx *store.Tx, id string, mailbox, folder uint32, uids []uint32, last bool) (string, error) {
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
	if n := len(uids); n > 0 { // consecutive, since one transaction assigned them
		if last := len(c.Ranges) - 1; last >= 0 && c.Ranges[last][1]+1 == uids[0] {
			c.Ranges[last][1] = uids[n-1]
		} else {
			c.Ranges = append(c.Ranges, [2]uint32{uids[0], uids[n-1]})
		}
	}
	return c.ID, store.CopyIntents.Put(tx, c)
}

// undoCopy deletes the messages that a COPY or APPEND wrote before it failed.
func (s *Service) undoCopy(id string) error {
	for done := id == ""; !done; {
		err := s.Store.Update(func(tx *store.Tx) error {
			done = true
			c, err := store.CopyIntents.Find(tx, id)
			if c == nil || err != nil {
				return err
			}
			s.changed(tx, c.Mailbox)
			n := 0
			for i, r := range c.Ranges {
				for m := range tx.Messages(c.Mailbox, c.Folder, r[0], r[1]) {
					if n++; n > perTransfer {
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

// undoCopies undoes every COPY or APPEND that an earlier process left incomplete.
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

// destination returns the folder that messages are to be copied or moved to. A copy counts against
// the quota; a move does not.
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
		return CheckQuota(tx, mb, size)
	})
	return dest, err
}

// CheckQuota returns quota_exceeded if a message of that size would exceed the mailbox's quota.
func CheckQuota(tx *store.Tx, mb *store.Mailbox, size int64) error {
	return checkQuotaAfter(tx, mb, size, 0)
}

// checkQuotaAfter is CheckQuota for a mailbox from which gone bytes are deleted first.
func checkQuotaAfter(tx *store.Tx, mb *store.Mailbox, size, gone int64) error {
	if mb.QuotaBytes == nil {
		return nil
	}
	used, err := tx.MailboxUsage(mb.Num)
	if err == nil && size > max(*mb.QuotaBytes-used.Bytes+gone, 0) {
		return core.Errorf(CodeQuota, "The mailbox is full. Delete messages, or request a larger quota.")
	}
	return err
}

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
		if err := s.copied(tx, u.AccountID, taint, from, to, m, copies[i]); err != nil {
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

// movedBits returns the bits for messages that a caller copies or moves; none for a tainted caller.
func movedBits(taint *store.Taint) store.Bits {
	if taint != nil {
		return 0
	}
	return store.BitMoved
}

// copied updates a copy for its new folder: Drafts marks it as drafted, and the spam classifier
// learns from it unless the caller is tainted.
func (s *Service) copied(tx *store.Tx, accountID string, taint *store.Taint, from, to *Folder, m, copied *store.Message) error {
	if roleOf(to) == roleDrafts {
		if err := tx.SetDrafted(copied); err != nil {
			return err
		}
	}
	if taint != nil {
		return nil // the classifier must not learn from it
	}
	return s.learnMove(tx, accountID, from, to, m, copied)
}

// learnMove lets the account's spam classifier learn from a message that is copied or moved to
// another folder. The message and its copy both record what it was learned as.
func (s *Service) learnMove(tx *store.Tx, accountID string, from, to *Folder, m, copied *store.Message) error {
	move := spam.Move{FromJunk: roleOf(from) == roleJunk, ToJunk: roleOf(to) == roleJunk, ToTrash: roleOf(to) == roleTrash}
	taught, err := s.spam.Moved(tx, accountID, copied, move)
	if err != nil {
		return err
	}
	return tx.SetTaught(m, taught)
}
