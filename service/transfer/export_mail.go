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

// An ExportFolder is a folder as those who take mail out of a mailbox see it.
type ExportFolder struct {
	ID       uint32   `json:"id"`
	Name     []string `json:"name"` // its levels
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

// An ExportMessage is a message with all that a Maildir or an mbox file keeps of it.
type ExportMessage struct {
	UID    uint32
	Flags  string // letters, as an ImportMessage has them, sorted
	Date   time.Time
	Sender string // of its envelope; "" where none is known
	Text   []byte
	Err    error // it cannot be read: the bytes on the disk are not those that were written
}

// ExportMessages gives messages of a folder from a UID on, in order: so many bytes, or one message.
// more reports whether there are more behind the last one.
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

// readBlob reads a message, and verifies it.
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
