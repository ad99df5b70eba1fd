package service

import (
	"context"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/store"
)

// SubscribedNames lists the names that the mailbox is subscribed to and has no folders of.
func (s *Service) SubscribedNames(_ context.Context, u MailboxUser) (names []string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		if _, err := openMailbox(tx, u); err != nil {
			return err
		}
		names, err = namesWithout(tx, u.Mailbox)
		return err
	})
	return names, err
}

func namesWithout(tx *store.Tx, mailbox uint32) ([]string, error) {
	rec, err := store.SubscribedNames.Get(tx, store.SubscriptionsID(mailbox))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return rec.Names, nil
}

// Subscribe says whether clients show the folder. A name without a folder may be subscribed to as well.
func (s *Service) Subscribe(_ context.Context, u MailboxUser, name string, subscribed bool) error {
	name, err := folderName(name)
	if err != nil {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error {
		if _, err := openMailbox(tx, u); err != nil {
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
	names, err := namesWithout(tx, mailbox)
	if err != nil || slices.Contains(names, name) == subscribed {
		return err
	}
	if !subscribed {
		names = slices.DeleteFunc(names, func(n string) bool { return n == name })
	} else if names = append(names, name); len(names) > maxFolders {
		return Errorf(403, CodeFolderLimit, "A mailbox is subscribed to at most %d names without folders.", maxFolders)
	}
	if len(names) == 0 {
		return store.SubscribedNames.Delete(tx, store.SubscriptionsID(mailbox))
	}
	return store.SubscribedNames.Put(tx, &store.Subscriptions{Mailbox: mailbox, Names: names})
}

// adopt gives a folder that has come to a name the subscription that the name had.
func adopt(tx *store.Tx, f *Folder) error {
	names, err := namesWithout(tx, f.Mailbox)
	if err != nil || !slices.Contains(names, f.Name) {
		return err
	}
	if err := subscribeName(tx, f.Mailbox, f.Name, false); err != nil {
		return err
	}
	return tx.SetSubscribed(f, true)
}
