package inbox

import (
	"context"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// ExpungeMessages deletes those of the messages, whose UIDs ascend, that have FlagDeleted, and says
// which.
func (s *Service) ExpungeMessages(_ context.Context, u core.MailboxUser, folder uint32, uids []uint32) ([]uint32, error) {
	marked, err := s.markedDeleted(u, folder, uids)
	if err != nil {
		return nil, err
	}
	var gone []uint32
	for batch := range slices.Chunk(marked, perWrite) {
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

// markedDeleted reads which messages have FlagDeleted, so that an EXPUNGE of nothing writes
// nothing.
func (s *Service) markedDeleted(u core.MailboxUser, folder uint32, uids []uint32) (marked []uint32, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		for m, err := range pick(tx, u.Mailbox, folder, uids) {
			if err != nil {
				return err
			}
			if m.Flags&FlagDeleted != 0 {
				marked = append(marked, m.UID)
			}
		}
		return nil
	})
	return marked, err
}

// Copied says which messages became which: From[i] is To[i] in the other folder.
type Copied struct {
	UIDValidity uint32
	From, To    []uint32
}

// perTransfer is how many messages one transaction copies or moves: each takes up to twenty writes,
// and others wait for it.
const perTransfer = 200

// CopyMessages copies the messages, whose UIDs ascend, into another folder, all or none: what was
// copied before a failure is taken back, by the next start if a crash has cut it. Until then other
// sessions see it.
func (s *Service) CopyMessages(ctx context.Context, u core.MailboxUser, folder uint32, uids []uint32, to string) (*Copied, error) {
	return s.transfer(ctx, u, folder, uids, to, false)
}

// MoveMessages moves the messages, whose UIDs ascend, into another folder. After an error, those
// that it names have been moved and the others have not (RFC 6851 section 3.3).
func (s *Service) MoveMessages(ctx context.Context, u core.MailboxUser, folder uint32, uids []uint32, to string) (*Copied, error) {
	return s.transfer(ctx, u, folder, uids, to, true)
}

func (s *Service) transfer(_ context.Context, u core.MailboxUser, folder uint32, uids []uint32, to string, move bool) (*Copied, error) {
	name, err := knownName(to)
	if err != nil {
		return nil, err
	}
	dest, err := s.roomFor(u, folder, uids, name, move)
	if err != nil {
		return nil, err
	}
	out := &Copied{UIDValidity: dest.UIDValidity}
	intent := "" // of a copy of several transactions
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

// recordCopy notes what a COPY of several transactions has copied so far, so that it is taken back
// if the last of them is never reached (RFC 3501 section 6.4.7); with the last the note goes. One
// transaction needs none.
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
		if c, err = store.CopyIntents.Get(tx, id); err != nil {
			return "", err
		}
	}
	if n := len(uids); n > 0 { // one after the other, since one transaction gave them
		c.Ranges = append(c.Ranges, [2]uint32{uids[0], uids[n-1]})
	}
	return c.ID, store.CopyIntents.Put(tx, c)
}

// undoCopy takes back the part of a COPY that was done before it failed.
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

// undoCopies takes back what a crash has cut: what was begun before this process was.
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

// roomFor gives the folder that messages shall go to, if the quota allows it: a copy counts once
// more, a move does not.
func (s *Service) roomFor(u core.MailboxUser, folder uint32, uids []uint32, name string, move bool) (dest *Folder, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		mb, err := core.OpenMailbox(tx, u)
		if err != nil {
			return err
		}
		if dest, err = folderByName(tx, u.Mailbox, name); err != nil || move {
			return err
		}
		var size int64
		for m, err := range pick(tx, u.Mailbox, folder, uids) {
			if err != nil {
				return err
			}
			size += int64(m.Blob.Length)
		}
		return checkQuota(tx, mb, size)
	})
	return dest, err
}

func checkQuota(tx *store.Tx, mb *store.Mailbox, size int64) error {
	left, err := QuotaLeft(tx, mb)
	if err == nil && left >= 0 && size > left {
		return core.Errorf(CodeQuota, "The mailbox is full. Delete messages, or ask for a larger quota.")
	}
	return err
}

func (s *Service) transferBatch(tx *store.Tx, u core.MailboxUser, folder uint32, uids []uint32, dest uint32, move bool, out *Copied) error {
	messages, err := s.messagesToChange(tx, u, folder, uids)
	if err != nil {
		return err
	}
	if _, err := folderByID(tx, u.Mailbox, dest); err != nil {
		return err
	}
	for _, m := range messages {
		copied, err := tx.CopyMessage(m, dest)
		if err != nil {
			return err
		}
		if move {
			if err := tx.DeleteMessage(u.Mailbox, folder, m.UID); err != nil {
				return err
			}
		}
		out.From, out.To = append(out.From, m.UID), append(out.To, copied.UID)
	}
	return nil
}
