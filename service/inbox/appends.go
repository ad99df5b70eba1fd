package inbox

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// An Append is a message that a mail client puts into a folder. The caller closes Body.
type Append struct {
	Folder   string
	Flags    Flags
	Keywords []string
	Received time.Time // zero: now
	Body     *core.Spool
}

// AppendMessage puts a message into a folder; no event tells of it.
func (s *Service) AppendMessage(ctx context.Context, u core.MailboxUser, in Append) (validity, uid uint32, err error) {
	if err := checkKeywords(in.Keywords); err != nil {
		return 0, 0, err
	}
	if err := s.CheckAppend(ctx, u, in.Folder, in.Body.Size()); err != nil {
		return 0, 0, err
	}
	name, err := knownName(in.Folder)
	if err != nil {
		return 0, 0, err
	}
	if in.Received.IsZero() {
		in.Received = s.Now()
	}
	in.Received = time.UnixMilli(max(in.Received.UnixMilli(), 0)).UTC() // what keys can hold
	d, err := s.Prepare(in.Body, Envelope{Received: in.Received})
	if err != nil {
		return 0, 0, err
	}
	defer s.Release(d) // does nothing for what was filed
	err = s.Store.Update(func(tx *store.Tx) error {
		mb, err := core.OpenMailbox(tx, u)
		if err != nil {
			return err
		}
		f, err := folderByName(tx, u.Mailbox, name)
		if err != nil {
			return err
		}
		if err := checkQuota(tx, mb, in.Body.Size()); err != nil {
			return err
		}
		m, err := s.File(tx, mb, d, Filing{
			Folder: f.ID, Received: in.Received, Flags: in.Flags, keywords: distinctKeywords(in.Keywords),
		})
		if err != nil {
			return err
		}
		validity, uid = f.UIDValidity, m.UID
		return nil
	})
	return validity, uid, err
}

// CheckAppend tells, before a message is taken over the network, whether AppendMessage would refuse
// one of the size.
func (s *Service) CheckAppend(_ context.Context, u core.MailboxUser, folder string, size int64) error {
	name, err := knownName(folder)
	if err != nil {
		return err
	}
	if size == 0 {
		return core.Errorf(CodeMessageEmpty, "The message is empty.")
	}
	return s.Store.View(func(tx *store.Tx) error {
		mb, err := core.OpenMailbox(tx, u)
		if err != nil {
			return err
		}
		if _, err := folderByName(tx, u.Mailbox, name); err != nil {
			return err
		}
		return checkQuota(tx, mb, size)
	})
}
