package inbox

import (
	"context"
	"errors"
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

// perAppend is how many messages one transaction appends: a third of what it copies, since the
// references of each are looked up.
const perAppend = perTransfer / 3

// AppendMessages puts messages into a folder, all or none, and gives their UIDs, which ascend. No
// event tells of them.
func (s *Service) AppendMessages(_ context.Context, u core.MailboxUser, folder string, in ...Append) (validity uint32, uids []uint32, err error) {
	a := s.BeginAppend(u, folder)
	if err := a.Put(true, in...); err != nil {
		return 0, nil, errors.Join(err, a.Undo())
	}
	return a.UIDValidity, a.UIDs, nil
}

// An Appending is one APPEND of any number of messages (RFC 3502), which are put into the folder
// page by page: all or none, as CopyMessages does it. Whoever begins one ends it with the last page
// or with Undo.
type Appending struct {
	UIDValidity uint32
	UIDs        []uint32 // ascending

	service *Service
	user    core.MailboxUser
	folder  string
	id      uint32 // of the folder, once a page is in it
	intent  string // of an append of several transactions
}

// BeginAppend begins to append messages to a folder.
func (s *Service) BeginAppend(u core.MailboxUser, folder string) *Appending {
	return &Appending{service: s, user: u, folder: folder}
}

// Put appends messages, and with the last ones keeps all.
func (a *Appending) Put(last bool, in ...Append) error {
	for most := perAppend; len(in) > 0; {
		n := min(most, len(in))
		err := a.put(last && n == len(in), in[:n])
		if errors.Is(err, errMuch) {
			most = (n + 1) / 2
			continue
		}
		if err != nil {
			return err
		}
		in = in[n:]
	}
	return nil
}

// Undo takes back what was appended, where the last page was not reached.
func (a *Appending) Undo() error { return a.service.undoCopy(a.intent) }

// errMuch says that messages are too much for one transaction.
var errMuch = errors.New("too much for one transaction")

// put appends messages in one transaction.
func (a *Appending) put(last bool, in []Append) error {
	s, u := a.service, a.user
	name, err := knownName(a.folder)
	if err != nil {
		return err
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
			return err
		}
		stored, size, filings[i] = append(stored, d), size+a.Body.Size(), filing
	}
	var uids []uint32
	var validity, id uint32
	var intent string
	err = s.Store.Update(func(tx *store.Tx) error {
		mb, err := core.OpenMailbox(tx, u)
		if err != nil {
			return err
		}
		f, err := folderByName(tx, u.Mailbox, name)
		if err == nil && a.id != 0 && f.ID != a.id {
			err = folderNotFound(name) // someone has made a new one of the name
		}
		if err != nil {
			return err
		}
		if err := mayPut(tx, u, f); err != nil {
			return err
		}
		if err := CheckQuota(tx, mb, size); err != nil {
			return err
		}
		validity, id, uids = f.UIDValidity, f.ID, uids[:0]
		for i, d := range stored {
			if err := noteTainted(tx, u, d, filings[i].Keywords); err != nil {
				return err
			}
			filing := filings[i]
			filing.Folder = f.ID
			m, err := s.File(tx, mb, d, filing)
			if err != nil {
				return err
			}
			uids = append(uids, m.UID)
			if len(in) > 1 && tx.Over() {
				return errMuch
			}
		}
		intent, err = recordCopy(tx, a.intent, u.Mailbox, f.ID, uids, last)
		return err
	})
	if err != nil {
		return err
	}
	a.UIDValidity, a.id, a.intent, a.UIDs = validity, id, intent, append(a.UIDs, uids...)
	return nil
}

// prepareAppend reads a message and appends its bytes. Whoever does not file it releases it.
func (s *Service) prepareAppend(u core.MailboxUser, a Append) (*StoredMessage, Filing, error) {
	if err := CheckKeywords(a.Keywords); err != nil {
		return nil, Filing{}, err
	}
	if a.Received.IsZero() {
		a.Received = s.Now()
	}
	received := time.UnixMilli(max(a.Received.UnixMilli(), 0)).UTC() // what keys can hold
	d, err := s.Prepare(a.Body, Envelope{Received: received, Mailbox: u.Mailbox})
	return d, Filing{Received: received, Flags: a.Flags, Keywords: DistinctKeywords(a.Keywords)}, err
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
		room, err = core.QuotaLeft(tx, mb)
		if room < 0 {
			room = math.MaxInt64
		}
		if err != nil {
			return err
		}
		return CheckQuota(tx, mb, others+size)
	})
	return room, err
}
