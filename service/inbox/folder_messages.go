package inbox

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A Blob is the bytes of one stored message, open for reading.
type Blob = store.Blob

const (
	maxUID          = math.MaxUint32
	maxFolderWords  = 200     // keywords that a selection names
	maxRows         = 500     // messages that are read in one transaction
	maxRowStructure = 4 << 20 // bytes of structures read in one transaction
)

// changed tells whoever watches the mailbox, once the transaction is on disk.
func (s *Service) changed(tx *store.Tx, mailbox uint32) { tx.After(func() { s.Hub.Changed(mailbox) }) }

// A Selection is a folder as it stood at one moment.
type Selection struct {
	Folder      Folder
	UIDs        []uint32 // ascending
	FirstUnseen uint32   // its UID; 0 if all are seen
	Keywords    []string // that its messages have, at most 200
}

// SelectFolder reads which messages a folder has.
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

// A MessageRow is what is known of a message without reading it.
type MessageRow struct {
	UID       uint32
	Flags     Flags
	Keywords  []string
	ModSeq    uint64
	Was       uint64 // the MODSEQ before the change that ChangeFlags made; the same if it made none
	Kept      bool   // ChangeFlags has left the message as it was, since it has changed before
	Received  time.Time
	Size      int64
	Structure []byte // for msg.DecodePart; only where it was asked for
}

func rowOf(m *store.Message) MessageRow {
	return MessageRow{
		UID: m.UID, Flags: m.Flags, Keywords: m.Keywords, ModSeq: m.ModSeq, Received: m.Received, Size: int64(m.Blob.Length),
	}
}

// A Known is what a session knows of the folder that it has selected.
type Known struct {
	Folder  uint32
	UIDs    []uint32 // ascending
	UIDNext uint32
	ModSeq  uint64
	Own     int // changes that the session has made itself since ModSeq, each of which has raised it by one
}

// FolderChanges is what has happened to a folder since a Known.
type FolderChanges struct {
	Folder  Folder
	New     []uint32     // ascending
	Gone    []uint32     // of Known.UIDs, ascending
	Changed []MessageRow // of Known.UIDs; their flags may be other ones than before
}

// FolderChanges compares the folder with what a session knows of it.
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
		// Every change takes one MODSEQ, so if these are all, nothing has happened to the messages
		// before.
		if f.ModSeq != k.ModSeq+uint64(len(c.New)+k.Own) {
			c.compare(tx, u.Mailbox, k)
		}
		return nil
	})
	return c, err
}

// compare walks over the messages that the session knows.
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

// pick walks over those of the messages with these ascending UIDs that are there.
func pick(tx *store.Tx, mailbox, folder uint32, uids []uint32) iter.Seq2[*store.Message, error] {
	return func(yield func(*store.Message, error) bool) {
		if len(uids) == 0 {
			return
		}
		last := uids[len(uids)-1]
		if int64(last-uids[0]) > 8*int64(len(uids)) {
			pickEach(tx, mailbox, folder, uids, yield)
			return
		}
		for m := range tx.Messages(mailbox, folder, uids[0], last) {
			for len(uids) > 0 && uids[0] < m.UID {
				uids = uids[1:]
			}
			if uids[0] == m.UID && !yield(&m, nil) {
				return
			}
		}
	}
}

func pickEach(tx *store.Tx, mailbox, folder uint32, uids []uint32, yield func(*store.Message, error) bool) {
	for _, uid := range uids {
		m, err := tx.Message(mailbox, folder, uid)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if !yield(m, err) || err != nil {
			return
		}
	}
}

// A RowQuery says what MessageRows reads.
type RowQuery struct {
	Structure    bool
	ChangedSince uint64 // leaves out messages whose MODSEQ is not greater
}

// MessageRows reads the rows of a bounded number of the messages, whose UIDs ascend; rest are the
// UIDs that it has not come to. Messages that are gone are left out.
func (s *Service) MessageRows(_ context.Context, u core.MailboxUser, folder uint32, uids []uint32, q RowQuery) (rows []MessageRow, rest []uint32, err error) {
	batch := uids[:min(len(uids), maxRows)]
	rows = make([]MessageRow, 0, len(batch))
	rest = uids[len(batch):]
	err = s.Store.View(func(tx *store.Tx) error {
		bytes := 0
		for m, err := range pick(tx, u.Mailbox, folder, batch) {
			if err != nil {
				return err
			}
			if m.ModSeq <= q.ChangedSince {
				continue
			}
			row := rowOf(m)
			if q.Structure {
				meta, err := tx.Meta(u.Mailbox, folder, m.UID)
				if err != nil {
					return err
				}
				row.Structure = meta.Structure
			}
			rows = append(rows, row)
			if bytes += len(row.Structure); bytes > maxRowStructure {
				done, _ := slices.BinarySearch(uids, m.UID+1)
				rest = uids[done:]
				return nil
			}
		}
		return nil
	})
	return rows, rest, err
}

// OpenMessage opens the bytes of a message, or answers a not_found.
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
