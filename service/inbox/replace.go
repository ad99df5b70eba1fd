package inbox

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// ReplaceMessage appends a message to a folder and deletes the message old of the folder from, both
// or neither (RFC 8508). The quota counts old as deleted. It emits no event.
func (s *Service) ReplaceMessage(_ context.Context, u core.MailboxUser, from, old uint32, folder string, a Append) (validity, uid uint32, err error) {
	d, filing, err := s.prepareAppend(u, a)
	if err != nil {
		return 0, 0, err
	}
	defer s.Release(d) // no effect on a filed message
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

// CheckReplace reports, before a message is received over the network, whether ReplaceMessage would
// refuse a message of that size.
func (s *Service) CheckReplace(_ context.Context, u core.MailboxUser, from, old uint32, folder string, size int64) error {
	return s.Store.View(func(tx *store.Tx) error {
		_, _, err := checkReplace(tx, u, from, old, folder, size)
		return err
	})
}

// checkReplace returns the mailbox and the destination folder if a message of that size may replace
// old.
func checkReplace(tx *store.Tx, u core.MailboxUser, from, old uint32, folder string, size int64) (*store.Mailbox, *Folder, error) {
	mb, err := core.OpenMailbox(tx, u)
	if err != nil {
		return nil, nil, err
	}
	name, err := knownName(folder)
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
	return mb, f, checkQuotaAfter(tx, mb, size, int64(m.Blob.Length))
}
