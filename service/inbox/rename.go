package inbox

import (
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// RenameFolder renames a folder and all its descendants. If from is INBOX, it moves the messages of
// INBOX to a new folder and keeps the empty INBOX (RFC 3501 section 6.3.5).
func (s *Service) RenameFolder(ctx context.Context, u core.MailboxUser, from, to string) error {
	from, err := cleanExistingName(from)
	if err != nil {
		return err
	}
	to, err = CleanFolderName(to)
	if err != nil {
		return err
	}
	if err := s.MayChangeFolders(u.Mailbox); err != nil {
		return err
	}
	if from == InboxName {
		return s.moveInbox(ctx, u, to)
	}
	if err := s.convertOldSubscriptions(u.Mailbox); err != nil {
		return err
	}
	renamed := 0
	err = s.Store.Update(func(tx *store.Tx) error {
		if _, err := core.OpenMailbox(tx, u); err != nil {
			return err
		}
		renamed, err = renameFolder(tx, u.Mailbox, from, to)
		return err
	})
	for range renamed / foldersPerCommand { // renaming a large tree counts as several commands
		s.folderChanges.Add(store.SubscriptionsID(u.Mailbox), s.Now())
	}
	return err
}

// renameFolder renames a folder and its descendants and returns their number. It uses one
// transaction, so that no client sees a partly renamed tree. With maxFolders folders and as many
// subscribed names, this takes about 4000 writes: as long as filing 50 messages.
func renameFolder(tx *store.Tx, mailbox uint32, from, to string) (renamed int, err error) {
	folders, err := tx.Folders(mailbox)
	if err != nil {
		return 0, err
	}
	named := func(name string) bool {
		return slices.ContainsFunc(folders, func(f *Folder) bool { return f.Name == name })
	}
	switch {
	case !named(from):
		return 0, folderNotFound(from)
	case named(to):
		return 0, core.Errorf(CodeFolderExists, "The folder %q exists already.", to)
	case strings.HasPrefix(to, from+FolderSeparator):
		return 0, core.Errorf(CodeFolderName, "A folder cannot be moved below itself.")
	}
	var tree []*Folder
	for _, f := range folders {
		rest, ok := strings.CutPrefix(f.Name, from)
		if !ok || rest != "" && rest[0] != FolderSeparator[0] {
			continue
		}
		if len(to)+len(rest) > maxFolderName {
			return 0, core.Errorf(CodeFolderName, "The name of a folder below it would be longer than %d bytes.", maxFolderName)
		}
		tree = append(tree, f)
	}
	names, err := subscribedNames(tx, mailbox)
	if err != nil {
		return 0, err
	}
	if err := createMissingParents(tx, mailbox, folders, to, maxFolders, names); err != nil {
		return 0, err
	}
	for _, f := range tree {
		name := to + f.Name[len(from):]
		subscribed, err := takeSubscription(tx, mailbox, name, names)
		if err != nil {
			return 0, err
		}
		f.Subscribed = f.Subscribed || subscribed
		if err := tx.RenameFolder(f, name); err != nil {
			return 0, err
		}
	}
	return len(tree), nil
}

// moveInbox moves the messages that are in INBOX at the start of the call into a new folder. It
// lists them before the write transaction.
func (s *Service) moveInbox(ctx context.Context, u core.MailboxUser, to string) error {
	var uids []uint32
	err := s.Store.View(func(tx *store.Tx) error {
		_, err := core.OpenMailbox(tx, u)
		if err != nil {
			return err
		}
		if _, err := tx.FolderByName(u.Mailbox, to); err == nil {
			return core.Errorf(CodeFolderExists, "The folder %q exists already.", to)
		}
		for m := range tx.Messages(u.Mailbox, store.InboxID, 1, maxUID) {
			uids = append(uids, m.UID)
		}
		return nil
	})
	if err == nil {
		err = s.Store.Update(func(tx *store.Tx) error {
			if _, err := core.OpenMailbox(tx, u); err != nil {
				return err
			}
			return CreateFolder(tx, u.Mailbox, to, "")
		})
	}
	if err != nil {
		return err
	}
	_, err = s.MoveMessages(ctx, u, store.InboxID, uids, to)
	return err
}
