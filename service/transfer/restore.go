package transfer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// MailboxRestored has the number and the size of the restored messages.
type MailboxRestored struct {
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"bytes"`
}

// RestoreMailbox copies the messages that a mailbox had in an older copy of this store, with their
// flags and dates. Messages of INBOX go into the given folder, and messages of other folders go
// into folders with the same names below it. It returns an error if the folder is not empty or the
// messages would exceed the quota. It emits no events. After an error it deletes the folders that
// it has created.
func (s *Service) RestoreMailbox(ctx context.Context, old *store.Store, address, folder string) (out MailboxRestored, err error) {
	address, err = core.NormalizeEmail("mailbox", address)
	if err != nil {
		return out, err
	}
	folder, err = inbox.CleanFolderName(folder)
	if err != nil {
		return out, err
	}

	// Read the folders in the old store, and check the names that they will get.
	var was *store.Mailbox
	var folders []*store.Folder
	var usage store.Usage
	err = old.View(func(tx *store.Tx) error {
		was, err = store.MailboxByEmail.Get(tx, address)
		if err != nil {
			return err
		}
		usage, err = tx.MailboxUsage(was.Num)
		if err != nil {
			return err
		}
		folders, err = tx.Folders(was.Num)
		return err
	})
	if core.IsGone(err) {
		return out, core.Errorf("not_found", "There was no mailbox %s then.", address)
	}
	if err != nil {
		return out, err
	}
	into := func(f *store.Folder) string {
		if f.ID == store.InboxID {
			return folder
		}
		return folder + inbox.FolderSeparator + f.Name
	}
	for _, f := range folders {
		if _, err := inbox.CleanFolderName(into(f)); err != nil {
			return out, err
		}
	}
	var u core.MailboxUser
	empty := false // the destination folder exists and is empty
	err = s.Store.View(func(tx *store.Tx) error {
		mb, err := store.MailboxByEmail.Read(tx, address)
		if err != nil {
			return err
		}
		u = core.MailboxUser{AccountID: mb.AccountID, AccountNum: mb.AccountNum, MailboxID: mb.ID, Mailbox: mb.Num, Email: mb.Email}
		if _, err := core.OpenMailbox(tx, u); err != nil {
			return err
		}
		there, err := tx.Folders(u.Mailbox)
		if err != nil {
			return err
		}
		for _, f := range there {
			if f.Name == folder && f.Messages == 0 && f.ID != store.InboxID {
				empty = true
			} else if f.Name == folder || strings.HasPrefix(f.Name, folder+inbox.FolderSeparator) {
				return core.Errorf(inbox.CodeFolderExists, "The folder %q is not empty. Give --into another name.", f.Name)
			}
		}
		return core.CheckQuota(tx, mb, usage.Bytes)
	})
	if core.IsGone(err) {
		return out, core.Errorf("not_found", "There is no mailbox %s now. Create it first.", address)
	}
	if err == nil {
		err = s.inbox.MayChangeFolders(u.Mailbox)
	}
	if err != nil {
		return out, err
	}

	var made []string
	defer func() {
		if err == nil {
			return
		}
		for _, name := range made {
			if gone := s.inbox.DeleteFolder(context.WithoutCancel(ctx), u, name); gone != nil {
				err = errors.Join(err, fmt.Errorf("delete folder %s: %w", name, gone))
			}
		}
	}()
	for _, f := range folders {
		name := into(f)
		if name != folder || !empty {
			if _, err := s.inbox.CreateFolder(ctx, u, name, ""); err != nil {
				return out, err
			}
		}
		made = append(made, name)
		for uid := uint32(1); uid != 0; {
			var page []store.Message
			err := old.View(func(tx *store.Tx) error {
				for m := range tx.Messages(was.Num, f.ID, uid, math.MaxUint32) {
					page = append(page, m)
					if len(page) == inbox.PerWrite {
						break
					}
				}
				return nil
			})
			if err != nil {
				return out, err
			}
			uid = 0
			for i := range page {
				if err := s.restoreMessage(ctx, old, u, name, &page[i]); err != nil {
					return out, err
				}
				out.Messages++
				out.Bytes += int64(page[i].Blob.Length)
			}
			if len(page) == inbox.PerWrite {
				uid = page[len(page)-1].UID + 1
			}
		}
	}
	return out, nil
}

// restoreMessage copies a message from an older store into a folder.
func (s *Service) restoreMessage(ctx context.Context, old *store.Store, u core.MailboxUser, folder string, m *store.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	blob, err := old.OpenBlob(m.Blob)
	if err != nil {
		return err
	}
	defer blob.Close()
	_, _, err = s.inbox.AppendMessages(ctx, u, folder, inbox.Append{Flags: m.Flags, Keywords: m.Keywords, Received: m.Received, Body: blob})
	return err
}
