package inbox

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// SubscribedNames lists the names that the mailbox is subscribed to and has no folders of.
func (s *Service) SubscribedNames(_ context.Context, u core.MailboxUser) (names []string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		if _, err := core.OpenMailbox(tx, u); err != nil {
			return err
		}
		names, err = tx.Subscribed(u.Mailbox)
		return err
	})
	return names, err
}

// Subscribe says whether clients show the folder. A name without a folder may be subscribed to as
// well.
func (s *Service) Subscribe(_ context.Context, u core.MailboxUser, name string, subscribed bool) error {
	name, err := folderName(name)
	if err != nil {
		return err
	}
	if err := s.mayChangeFolders(u.Mailbox); err != nil {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error {
		if _, err := core.OpenMailbox(tx, u); err != nil {
			return err
		}
		f, err := tx.FolderByName(u.Mailbox, name)
		if errors.Is(err, store.ErrNotFound) {
			return subscribeName(tx, u.Mailbox, name, subscribed)
		}
		if err != nil {
			return err
		}
		return tx.SetSubscribed(f, subscribed)
	})
}

// subscribeName keeps or forgets a name that no folder has.
func subscribeName(tx *store.Tx, mailbox uint32, name string, subscribed bool) error {
	names, err := subscribedNames(tx, mailbox)
	if err != nil || names[name] == subscribed {
		return err
	}
	if subscribed && len(names) >= maxFolders {
		return core.Errorf(CodeFolderLimit, "A mailbox is subscribed to at most %d names without folders.", maxFolders)
	}
	return tx.SetNameSubscribed(mailbox, name, subscribed)
}

// subscribedNames are the names without folders. An operation that changes several folders reads
// them once.
func subscribedNames(tx *store.Tx, mailbox uint32) (map[string]bool, error) {
	list, err := tx.Subscribed(mailbox)
	names := make(map[string]bool, len(list))
	for _, name := range list {
		names[name] = true
	}
	return names, err
}

// moveSubscriptions has the names of a mailbox in the form of today before an operation that
// changes many of them.
func (s *Service) moveSubscriptions(mailbox uint32) error {
	old := false
	err := s.Store.View(func(tx *store.Tx) error {
		_, err := store.SubscribedNames.Read(tx, store.SubscriptionsID(mailbox))
		old = err == nil
		return nil
	})
	if err != nil || !old {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error { return tx.MoveSubscriptions(mailbox) })
}

// adopt says whether a folder that comes to a name is to be subscribed since the name was, and
// forgets that of the name.
func adopt(tx *store.Tx, mailbox uint32, name string, names map[string]bool) (bool, error) {
	if !names[name] {
		return false, nil
	}
	return true, tx.SetNameSubscribed(mailbox, name, false)
}
