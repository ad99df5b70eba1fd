package inbox

import (
	"context"
	"math"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// An Append is a message that a mail client puts into a folder. The caller closes Body.
type Append struct {
	Flags    Flags
	Keywords []string
	Received time.Time // zero: now
	Body     store.Body
}

// AppendMessages puts messages into a folder, all or none, and gives their UIDs, which ascend. No
// event tells of them. Messages that are too much for one transaction are refused.
func (s *Service) AppendMessages(_ context.Context, u core.MailboxUser, folder string, in ...Append) (validity uint32, uids []uint32, err error) {
	name, err := knownName(folder)
	if err != nil {
		return 0, nil, err
	}
	stored, size := make([]*StoredMessage, 0, len(in)), int64(0)
	defer func() {
		for _, d := range stored {
			s.Release(d) // does nothing for what was filed
		}
	}()
	filings := make([]Filing, len(in))
	for i, a := range in {
		d, filing, err := s.prepareAppend(u, a)
		if err != nil {
			return 0, nil, err
		}
		stored, size, filings[i] = append(stored, d), size+a.Body.Size(), filing
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		mb, err := core.OpenMailbox(tx, u)
		if err != nil {
			return err
		}
		f, err := folderByName(tx, u.Mailbox, name)
		if err != nil {
			return err
		}
		if err := mayPut(tx, u, f); err != nil {
			return err
		}
		if err := checkQuota(tx, mb, size); err != nil {
			return err
		}
		validity, uids = f.UIDValidity, uids[:0]
		for i, d := range stored {
			filing := filings[i]
			filing.Folder = f.ID
			m, err := s.File(tx, mb, d, filing)
			if err != nil {
				return err
			}
			if uids = append(uids, m.UID); len(in) > 1 && tx.Over() {
				return core.Errorf(CodeAppendSize, "These messages are too much for one command. Append fewer of them at a time.")
			}
		}
		return nil
	})
	return validity, uids, err
}

// prepareAppend reads a message and appends its bytes. Whoever does not file it releases it.
func (s *Service) prepareAppend(u core.MailboxUser, a Append) (*StoredMessage, Filing, error) {
	if err := checkKeywords(a.Keywords); err != nil {
		return nil, Filing{}, err
	}
	if a.Received.IsZero() {
		a.Received = s.Now()
	}
	received := time.UnixMilli(max(a.Received.UnixMilli(), 0)).UTC() // what keys can hold
	d, err := s.Prepare(a.Body, Envelope{Received: received, Mailbox: u.Mailbox})
	return d, Filing{Received: received, Flags: a.Flags, Keywords: distinctKeywords(a.Keywords)}, err
}

// CheckAppend tells, before a message is taken over the network, whether AppendMessages would
// refuse one of the size behind others that have so many bytes in all. It gives how many bytes all
// of them may have.
func (s *Service) CheckAppend(_ context.Context, u core.MailboxUser, folder string, size, others int64) (room int64, err error) {
	name, err := knownName(folder)
	if err != nil {
		return 0, err
	}
	if size == 0 {
		return 0, core.Errorf(CodeMessageEmpty, "The message is empty.")
	}
	err = s.Store.View(func(tx *store.Tx) error {
		mb, err := core.OpenMailbox(tx, u)
		if err != nil {
			return err
		}
		f, err := folderByName(tx, u.Mailbox, name)
		if err == nil {
			err = mayPut(tx, u, f)
		}
		if err != nil {
			return err
		}
		if room, err = QuotaLeft(tx, mb); room < 0 {
			room = math.MaxInt64
		}
		if err != nil {
			return err
		}
		return checkQuota(tx, mb, others+size)
	})
	return room, err
}
