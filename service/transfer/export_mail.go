package transfer

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// An ExportFolder is a folder of a mailbox that can be exported.
type ExportFolder struct {
	ID       uint32   `json:"id"`
	Name     []string `json:"name"` // the levels of its name
	Messages int64    `json:"messages"`
}

// ExportFolders lists the folders of a mailbox.
func (s *Service) ExportFolders(_ context.Context, u core.MailboxUser) (out []ExportFolder, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		folders, err := tx.Folders(u.Mailbox)
		for _, f := range folders {
			out = append(out, ExportFolder{f.ID, strings.Split(f.Name, inbox.FolderSeparator), int64(f.Messages)})
		}
		return err
	})
	return out, err
}

// An ExportMessage is a message with the data that a Maildir or mbox file has of it.
type ExportMessage struct {
	UID    uint32
	Flags  string // Maildir flag letters in alphabetical order, as in ImportHeader
	Date   time.Time
	Sender string // the sender of the SMTP envelope; "" if it is not known
	Text   []byte
	Err    error // set if the stored bytes are damaged or cannot be read
}

// ExportMessages returns messages of a folder in the order of their UIDs, beginning with the UID
// from. It returns at most size bytes, but at least one message. more is true if there are more
// messages.
func (s *Service) ExportMessages(ctx context.Context, u core.MailboxUser, folder, from uint32, size int64) (out []ExportMessage, more bool, err error) {
	var refs []store.BlobRef
	err = s.Store.View(func(tx *store.Tx) error {
		for m := range tx.Messages(u.Mailbox, folder, from, math.MaxUint32) {
			size -= int64(m.Blob.Length)
			if len(out) > 0 && (size < 0 || len(out) == inbox.PerWrite) {
				more = true
				break
			}
			one := ExportMessage{UID: m.UID, Date: m.Received}
			for _, letter := range "DFPRST" {
				kept := m.Flags&importFlags[letter] != 0
				for _, k := range m.Keywords {
					kept = kept || letter == 'P' && strings.EqualFold(k, "$Forwarded")
				}
				if kept {
					one.Flags += string(letter)
				}
			}
			meta, err := tx.Meta(m.Mailbox, m.Folder, m.UID)
			if err == nil {
				one.Sender = meta.ReturnPath
			}
			out, refs = append(out, one), append(refs, m.Blob)
		}
		return nil
	})
	for i := range refs {
		if err != nil || ctx.Err() != nil {
			break
		}
		out[i].Text, out[i].Err = s.readBlob(refs[i])
	}
	return out, more, err
}

// readBlob reads a message and verifies its checksum.
func (s *Service) readBlob(ref store.BlobRef) ([]byte, error) {
	blob, err := s.Store.OpenBlob(ref)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	text := make([]byte, blob.Size())
	_, err = blob.ReadAt(text, 0)
	return text, err
}
