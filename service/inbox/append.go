package inbox

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// An Append is a message that a mail client adds to a folder with the IMAP command APPEND. The
// caller closes Body.
type Append struct {
	Flags    Flags
	Keywords []string
	Received time.Time // INTERNALDATE; if zero, the current time
	Body     store.Body
}

// appendsPerWrite is how many messages one transaction appends. It is a third of transfersPerWrite,
// because each append also looks up the messages that the new message refers to.
const appendsPerWrite = transfersPerWrite / 3

// AppendMessages appends all messages to a folder, or none if one fails. It returns their UIDs in
// ascending order. It emits no event.
func (s *Service) AppendMessages(_ context.Context, u core.MailboxUser, folder string, in ...Append) (validity uint32, uids []uint32, err error) {
	a := s.BeginAppend(u, folder)
	if err := a.Put(true, in...); err != nil {
		return 0, nil, errors.Join(err, a.Undo())
	}
	return a.UIDValidity, a.UIDs, nil
}

// A MultiAppend is one IMAP APPEND of any number of messages (RFC 3502). Each call of Put writes
// some of them to the folder. Since all messages or none must be appended, the caller must end it:
// by Put with last set, or by Undo.
type MultiAppend struct {
	UIDValidity uint32
	UIDs        []uint32 // ascending

	service *Service
	user    core.MailboxUser
	folder  string
	id      uint32 // the folder's ID; 0 until Put has written a message
	intent  string // the ID of the CopyIntent, if the append takes several transactions; else ""
}

// BeginAppend starts an APPEND to a folder. It writes nothing yet.
func (s *Service) BeginAppend(u core.MailboxUser, folder string) *MultiAppend {
	return &MultiAppend{service: s, user: u, folder: folder}
}

// Put appends messages. After Put with last set, the APPEND is complete and cannot be undone.
func (a *MultiAppend) Put(last bool, in ...Append) error {
	for most := appendsPerWrite; len(in) > 0; {
		n := min(most, len(in))
		err := a.put(last && n == len(in), in[:n])
		if errors.Is(err, errBatchTooLarge) {
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

// Undo deletes all messages that earlier calls of Put have written. It does nothing after Put with
// last set.
func (a *MultiAppend) Undo() error { return a.service.undoCopy(a.intent) }

// errBatchTooLarge is returned by MultiAppend.put if the messages exceed the limits of one
// transaction.
var errBatchTooLarge = errors.New("append messages: too much for one transaction")

// put appends messages in one transaction.
func (a *MultiAppend) put(last bool, in []Append) error {
	s, u := a.service, a.user
	name, err := cleanExistingName(a.folder)
	if err != nil {
		return err
	}
	stored, size := make([]*StoredMessage, 0, len(in)), int64(0)
	defer func() {
		for _, d := range stored {
			s.Release(d) // does nothing if the message was filed
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
			err = folderNotFound(name) // another session has replaced the folder by a new one of that name
		}
		if err != nil {
			return err
		}
		if err := checkTaintedAppend(tx, u, f); err != nil {
			return err
		}
		if err := core.CheckQuota(tx, mb, size); err != nil {
			return err
		}
		validity, id, uids = f.UIDValidity, f.ID, uids[:0]
		for i, d := range stored {
			if err := setOrigin(tx, u, d, filings[i].Keywords); err != nil {
				return err
			}
			filing := filings[i]
			filing.Folder = f.ID
			m, err := s.File(tx, mb, d, filing)
			if err != nil {
				return err
			}
			uids = append(uids, m.UID)
			if len(in) > 1 && tx.IsOverLimits() {
				return errBatchTooLarge
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

// prepareAppend parses a message and appends its bytes to a segment. If the caller does not file
// the message, it must call Release.
func (s *Service) prepareAppend(u core.MailboxUser, a Append) (*StoredMessage, Filing, error) {
	if err := CheckKeywords(a.Keywords); err != nil {
		return nil, Filing{}, err
	}
	if a.Received.IsZero() {
		a.Received = s.Now()
	}
	received := time.UnixMilli(max(a.Received.UnixMilli(), 0)).UTC() // the keys of messages cannot hold a time before 1970
	d, err := s.Prepare(a.Body, Envelope{Received: received, Mailbox: u.Mailbox})
	return d, Filing{Received: received, Flags: a.Flags, Keywords: DistinctKeywords(a.Keywords)}, err
}

// CheckAppend returns the error with which AppendMessages would refuse a message of this size. It
// is called before the message is received over the network. earlier is the total size of the
// messages that the same APPEND has added before. room is how many bytes all messages of the APPEND
// may have together.
func (s *Service) CheckAppend(_ context.Context, u core.MailboxUser, folder string, size, earlier int64) (room int64, err error) {
	name, err := cleanExistingName(folder)
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
			err = checkTaintedAppend(tx, u, f)
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
		return core.CheckQuota(tx, mb, earlier+size)
	})
	return room, err
}
