package servicetest

import (
	"errors"
	"strings"

	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// Keep adds a message to a folder of the mailbox and returns its thread. A message in INBOX counts
// as one that has arrived.
func Keep(i *Installation, mb *store.Mailbox, folder, message string) string {
	i.T.Helper()
	return KeepIn(i, mb, folder, inbox.Filing{Received: i.St.Now(), Arrived: folder == "INBOX"}, message)
}

func KeepIn(i *Installation, mb *store.Mailbox, folder string, how inbox.Filing, message string) string {
	i.T.Helper()
	body := i.St.NewSpool(1 << 20)
	defer body.Close()
	if _, err := body.Write([]byte(strings.ReplaceAll(message, "\n", "\r\n"))); err != nil {
		i.T.Fatal(err)
	}
	d, err := i.Svc.Inbox.Prepare(body, inbox.Envelope{Received: i.St.Now()})
	if err != nil {
		i.T.Fatal(err)
	}
	var thread string
	i.Update(func(tx *store.Tx) error {
		f, err := tx.FolderByName(mb.Num, folder)
		if errors.Is(err, store.ErrNotFound) {
			f = &store.Folder{Mailbox: mb.Num, Name: folder}
			err = tx.CreateFolder(f)
		}
		if err != nil {
			return err
		}
		how.Folder = f.ID
		m, err := i.Svc.Inbox.File(tx, mb, d, how)
		if err != nil {
			return err
		}
		meta, err := tx.Meta(mb.Num, f.ID, m.UID)
		if err == nil {
			thread = meta.ThreadID
		}
		return err
	})
	return thread
}
