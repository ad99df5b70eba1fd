package inbox

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// ReplaceMessage appends a message to a folder and deletes the message with the UID old in the
// folder from (RFC 8508). It does both or neither. For the quota, old counts as already deleted. It
// emits no event.
func (s *Service) ReplaceMessage(_ context.Context, u core.MailboxUser, from, old uint32, folder string, a Append) (validity, uid uint32, err error) {
	d, filing, err := s.prepareAppend(u, a)
	if err != nil {
		return 0, 0, err
	}
	defer s.Release(d) // does nothing if the message was filed
	err = s.Store.Update(func(tx *store.Tx) error {
		mb, f, err := checkReplace(tx, u, from, old, folder, a.Body.Size())
		if err != nil {
			return err
		}
		if err := tx.DeleteMessage(u.Mailbox, from, old); err != nil {
			return err
		}
		if err := setOrigin(tx, u, d, filing.Keywords); err != nil {
			return err
		}
		filing.Folder = f.ID
		m, err := s.File(tx, mb, d, filing)
		if err != nil {
			return err
		}
		validity, uid = f.UIDValidity, m.UID
		return nil
	})
	return validity, uid, err
}

// CheckReplace returns the error with which ReplaceMessage would refuse a message of the given
// size. It is called before the message is received over the network.
func (s *Service) CheckReplace(_ context.Context, u core.MailboxUser, from, old uint32, folder string, size int64) error {
	return s.Store.View(func(tx *store.Tx) error {
		_, _, err := checkReplace(tx, u, from, old, folder, size)
		return err
	})
}

// checkReplace returns the mailbox and the destination folder for ReplaceMessage, or an error if a
// message of the given size must not replace old.
func checkReplace(tx *store.Tx, u core.MailboxUser, from, old uint32, folder string, size int64) (*store.Mailbox, *Folder, error) {
	mb, err := core.OpenMailbox(tx, u)
	if err != nil {
		return nil, nil, err
	}
	name, err := cleanExistingName(folder)
	if err != nil {
		return nil, nil, err
	}
	f, err := folderByName(tx, u.Mailbox, name)
	if err != nil {
		return nil, nil, err
	}
	replaced, err := folderByID(tx, u.Mailbox, from)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(checkTaintedAppend(tx, u, f), checkTaintedAppend(tx, u, replaced)); err != nil {
		return nil, nil, err
	}
	m, err := tx.Message(u.Mailbox, from, old)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil, core.Errorf(CodeMessageGone, "The message that is to be replaced has been deleted.")
	case err != nil:
		return nil, nil, err
	case size == 0:
		return nil, nil, core.Errorf(CodeMessageEmpty, "The message is empty.")
	}
	return mb, f, core.CheckQuotaAfter(tx, mb, size, int64(m.Blob.Length))
}
