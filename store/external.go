package store

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A RemoteBox is how far the INBOX of an external mailbox has been read. UIDs and UIDVALIDITY are
// the remote server's.
type RemoteBox struct {
	MailboxID   string
	AccountID   string
	UIDValidity uint32        // 0: what is stored is of another one and is to go
	Seen        uint32        // messages up to this UID are no news
	Done        bool          // all that were there at first have been read
	ModSeq      uint64        // HIGHESTMODSEQ up to which flags are known; 0: none
	Lost        uint32        // messages that the server counts and does not give
	WalkedAt    time.Time     // when every row was last compared
	ActiveAt    time.Time     // when new mail was last found
	Wait        time.Duration // between looks, where the server does not tell by itself
	Fails       int           // looks in a row that failed
	Refusals    int           // log-ins in a row that were refused
}

// RemoteBoxes keeps the state of external mailboxes.
var (
	RemoteBoxes          = newTable("remote_box", func(r *RemoteBox) string { return r.MailboxID })
	RemoteBoxesByAccount = RemoteBoxes.index("account", func(r *RemoteBox) string { return r.AccountID })
)

// A RemoteCopy is a message that is to be put into a folder on the server of an external mailbox,
// kept until that is done or given up.
type RemoteCopy struct {
	ID        string    `json:",omitzero"` // rcp_…
	AccountID string    `json:",omitzero"`
	MailboxID string    `json:",omitzero"`
	MessageID string    `json:",omitzero"` // RFC 5322, with brackets: what is there already is not put there again
	Sent      bool      `json:",omitzero"` // into the folder of sent mail, as one that was read; else into INBOX
	Blob      BlobRef   `json:",omitzero"`
	CreatedAt time.Time `json:",omitzero"`
}

// RemoteCopies keeps them; Check counts their blobs among the references.
var (
	RemoteCopies          = newTable("remote_copy", func(c *RemoteCopy) string { return c.ID })
	RemoteCopiesByAccount = RemoteCopies.index("account", func(c *RemoteCopy) string { return c.AccountID })
)

// AddMessageAt is AddMessage for a message whose UID, that of another server, is given with m. It
// returns ErrExists where the folder has one of the UID.
func (tx *Tx) AddMessageAt(m *Message, meta *Meta) error {
	if m.UID == 0 || m.UID == math.MaxUint32 {
		return ErrFolderFull
	}
	key := m.key()
	if tx.getRow(bktMessage, key[:]) != nil {
		return ErrExists
	}
	return tx.add(m, meta)
}

// AdoptUIDs gives an empty folder the UIDVALIDITY of another server; UIDs begin again at 1.
func (tx *Tx) AdoptUIDs(mailbox, folder, validity uint32) error {
	f, err := tx.Folder(mailbox, folder)
	if err != nil {
		return err
	}
	if f.Messages > 0 {
		return fmt.Errorf("folder %d of mailbox %d has %d messages: %w", folder, mailbox, f.Messages, ErrExists)
	}
	box, err := tx.mailboxRow(mailbox)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	box.validity = max(box.validity, validity)
	f.UIDValidity, f.UIDNext = validity, 1
	if err := tx.putMailbox(mailbox, box); err != nil {
		return err
	}
	return tx.putFolder(f)
}
