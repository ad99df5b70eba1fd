package inbox

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// An Append is a message that a mail client appends to a folder. The caller closes Body.
type Append struct {
	Flags    Flags
	Keywords []string
	Received time.Time // zero: the current time
	Body     store.Body
}

// perAppend is how many messages one transaction appends: a third of perTransfer, since each append
// also looks up the message's references.
const perAppend = perTransfer / 3

// AppendMessages appends messages to a folder, all or none, and returns their UIDs, which ascend.
// It emits no event.
func (s *Service) AppendMessages(_ context.Context, u core.MailboxUser, folder string, in ...Append) (validity uint32, uids []uint32, err error) {
	a := s.BeginAppend(u, folder)
	if err := a.Put(true, in...); err != nil {
		return 0, nil, errors.Join(err, a.Undo())
	}
	return a.UIDValidity, a.UIDs, nil
}

// An Appending is one APPEND of any number of messages (RFC 3502). Put writes them to the folder
// page by page; like CopyMessages, it appends all or none. Whoever begins one must either call Put
// with last set or call Undo.
type Appending struct {
	UIDValidity uint32
	UIDs        []uint32 // ascending

	service *Service
	user    core.MailboxUser
	folder  string
	id      uint32 // of the folder; 0 until a page has been written
	intent  string // ID of the CopyIntent of an append of several transactions, else ""
}

// BeginAppend begins to append messages to a folder.
func (s *Service) BeginAppend(u core.MailboxUser, folder string) *Appending {
	return &Appending{service: s, user: u, folder: folder}
}

// Put appends a page of messages. With last set, the append is complete and cannot be undone.
func (a *Appending) Put(last bool, in ...Append) error {
	for most := perAppend; len(in) > 0; {
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

// Undo deletes the messages that were appended, unless Put was called with last set.
func (a *Appending) Undo() error { return a.service.undoCopy(a.intent) }

// errBatchTooLarge is returned when the messages exceed the bounds of one transaction.
var errBatchTooLarge = errors.New("the appended messages exceed one transaction")

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
			s.Release(d) // no effect on a filed message
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
			err = folderNotFound(name) // another session has created a new folder of that name
		}
		if err != nil {
			return err
		}
		if err := checkTaintedAppend(tx, u, f); err != nil {
			return err
		}
		if err := CheckQuota(tx, mb, size); err != nil {
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
			if len(in) > 1 && tx.Over() {
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

// prepareAppend parses a message and appends its bytes to a segment. A caller that does not file
// the message must release it.
func (s *Service) prepareAppend(u core.MailboxUser, a Append) (*StoredMessage, Filing, error) {
	if err := CheckKeywords(a.Keywords); err != nil {
		return nil, Filing{}, err
	}
	if a.Received.IsZero() {
		a.Received = s.Now()
	}
	received := time.UnixMilli(max(a.Received.UnixMilli(), 0)).UTC() // message keys hold no time before 1970
	d, err := s.Prepare(a.Body, Envelope{Received: received, Mailbox: u.Mailbox})
	return d, Filing{Received: received, Flags: a.Flags, Keywords: DistinctKeywords(a.Keywords)}, err
}

// CheckAppend is called before a message of an APPEND is received over the network. It returns the
// error with which AppendMessages would refuse the message. size is the size of the message, others
// the total size of the messages before it in the same APPEND. room is how many bytes all messages
// of the APPEND may have together.
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
		return CheckQuota(tx, mb, others+size)
	})
	return room, err
}
