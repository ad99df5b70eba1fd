package inbox

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"golang.org/x/text/unicode/norm"
)

// FolderSeparator separates the levels of a folder's name.
const FolderSeparator = "/"

const (
	InboxName     = "INBOX"
	maxFolders    = 1000
	maxFolderName = 255 // bytes
	PerWrite      = 250 // messages that one write transaction changes; all other writers wait for it
	maxUID        = math.MaxUint32

	maxFolderChanges  = 600 // commands a minute that may create, rename or delete folders of one mailbox
	foldersPerCommand = 100 // renaming a folder counts as one more command for each 100 folders in its tree
)

// A Folder is one folder of a mailbox, with its counters.
type Folder = store.Folder

// specialUses are the special-use attributes of RFC 6154 that a folder can have. At most one folder
// of a mailbox has each of them.
var specialUses = []string{`\Archive`, `\Drafts`, `\Junk`, `\Sent`, `\Trash`}

// Codes of errors for which the IMAP server has answers of its own.
const (
	CodeFolderNotFound    = "folder_not_found"
	CodeFolderExists      = "folder_exists"
	CodeFolderHasChildren = "folder_has_children"
	CodeFolderLimit       = "folder_limit_reached"
	CodeFolderRate        = "folder_changes_limited"
	CodeFolderName        = "folder_name_invalid"
	CodeSpecialUse        = "special_use_invalid"
	CodeKeywords          = "keywords_invalid"
	CodeMessageEmpty      = "message_empty"
	CodeMessageGone       = "message_gone"
)

// IsNotFound reports whether an error says that a mailbox, folder or message does not exist.
func IsNotFound(err error) bool {
	e, ok := core.AsError(err)
	return ok && (e.Code == "not_found" || e.Code == CodeFolderNotFound)
}

// IsDamaged reports whether an error says that the stored bytes of a message are damaged.
func IsDamaged(err error) bool { return errors.Is(err, store.ErrDamaged) }

func folderNotFound(name string) *core.Error {
	return core.Errorf(CodeFolderNotFound, "There is no folder %q.", name)
}

// CleanFolderName returns the canonical form of a folder name: normalized to NFC, INBOX in
// capitals, and without a separator at the end.
func CleanFolderName(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", core.Errorf(CodeFolderName, "A folder's name is UTF-8.")
	}
	name := norm.NFC.String(strings.TrimSuffix(text, FolderSeparator))
	top, below, nested := strings.Cut(name, FolderSeparator)
	if strings.EqualFold(top, InboxName) {
		name = InboxName
		if nested {
			name += FolderSeparator + below
		}
	}
	switch {
	case name == "" || len(name) > maxFolderName:
		return "", core.Errorf(CodeFolderName, "A folder's name has 1 to %d bytes.", maxFolderName)
	case slices.Contains(strings.Split(name, FolderSeparator), ""):
		return "", core.Errorf(CodeFolderName, "No level of a folder's name may be empty.")
	case strings.ContainsAny(name, "*%") || name[0] == '#' || strings.IndexFunc(name, unicode.IsControl) >= 0:
		return "", core.Errorf(CodeFolderName, "A folder's name has no control characters, no * and no %%, and does not begin with #.")
	}
	return name, nil
}

// cleanExistingName returns the canonical form of the name of a folder that should exist. For an
// invalid name, the error is folder_not_found.
func cleanExistingName(text string) (string, error) {
	name, err := CleanFolderName(text)
	if err != nil {
		return "", folderNotFound(text)
	}
	return name, nil
}

// folderByName returns the folder of a mailbox with the given canonical name. The error is
// folder_not_found if there is none.
func folderByName(tx *store.Tx, mailbox uint32, name string) (*Folder, error) {
	f, err := tx.FolderByName(mailbox, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, folderNotFound(name)
	}
	return f, err
}

// folderByID returns the folder with the ID that a session has selected. The error is
// folder_not_found if the folder was deleted in the meantime.
func folderByID(tx *store.Tx, mailbox, id uint32) (*Folder, error) {
	f, err := tx.Folder(mailbox, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, core.Errorf(CodeFolderNotFound, "The folder has been deleted.")
	}
	return f, err
}

// Folders lists the folders of a mailbox: INBOX first, the others in the order of their creation.
func (s *Service) Folders(_ context.Context, u core.MailboxUser) (folders []*Folder, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		if _, err := core.OpenMailbox(tx, u); err != nil {
			return err
		}
		folders, err = tx.Folders(u.Mailbox)
		return err
	})
	return folders, err
}

// FolderByName returns the folder with the given name. The error is folder_not_found if there is
// none.
func (s *Service) FolderByName(_ context.Context, u core.MailboxUser, name string) (f *Folder, err error) {
	known, err := cleanExistingName(name)
	if err != nil {
		return nil, err
	}
	err = s.Store.View(func(tx *store.Tx) error {
		if _, err := core.OpenMailbox(tx, u); err != nil {
			return err
		}
		f, err = folderByName(tx, u.Mailbox, known)
		return err
	})
	return f, err
}

// CountDeleted returns the number and the total size of a folder's messages that have FlagDeleted.
func (s *Service) CountDeleted(_ context.Context, u core.MailboxUser, folder uint32) (messages uint32, bytes int64, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		for m := range tx.Messages(u.Mailbox, folder, 1, maxUID) {
			if m.Flags&FlagDeleted != 0 {
				messages++
				bytes += int64(m.Blob.Length)
			}
		}
		return nil
	})
	return messages, bytes, err
}

// CreateFolder creates a folder and its missing parents. specialUse is a special-use attribute of
// RFC 6154, or "" for none.
func (s *Service) CreateFolder(_ context.Context, u core.MailboxUser, name, specialUse string) (f *Folder, err error) {
	name, err = CleanFolderName(name)
	if err != nil {
		return nil, err
	}
	if err := s.MayChangeFolders(u.Mailbox); err != nil {
		return nil, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		if _, err := core.OpenMailbox(tx, u); err != nil {
			return err
		}
		if err := CreateFolder(tx, u.Mailbox, name, specialUse); err != nil {
			return err
		}
		f, err = tx.FolderByName(u.Mailbox, name)
		return err
	})
	return f, err
}

// CreateFolder creates a folder and its missing parents in a transaction. name must be canonical,
// as CleanFolderName returns it.
func CreateFolder(tx *store.Tx, mailbox uint32, name, specialUse string) error {
	folders, err := tx.Folders(mailbox)
	if err != nil {
		return err
	}
	if specialUse != "" {
		taken := slices.ContainsFunc(folders, func(f *Folder) bool { return f.SpecialUse == specialUse })
		if taken || !slices.Contains(specialUses, specialUse) {
			return core.Errorf(CodeSpecialUse, "The role %s is unknown, or another folder has it.", specialUse)
		}
	}
	if slices.ContainsFunc(folders, func(f *Folder) bool { return f.Name == name }) {
		return core.Errorf(CodeFolderExists, "The folder %q exists already.", name)
	}
	names, err := subscribedNames(tx, mailbox)
	if err != nil {
		return err
	}
	if err := createMissingParents(tx, mailbox, folders, name, maxFolders-1, names); err != nil {
		return err
	}
	f := &Folder{Mailbox: mailbox, Name: name, SpecialUse: specialUse}
	f.Subscribed, err = takeSubscription(tx, mailbox, name, names)
	if err != nil {
		return err
	}
	return tx.CreateFolder(f)
}

// createMissingParents creates the missing parents of a folder. It returns an error if the mailbox
// would then have more than maxCount folders. subscribed has the subscribed names for which no
// folder exists.
func createMissingParents(tx *store.Tx, mailbox uint32, folders []*Folder, name string, maxCount int, subscribed map[string]bool) (err error) {
	missing := missingParents(folders, name)
	if len(folders)+len(missing) > maxCount {
		return core.Errorf(CodeFolderLimit, "A mailbox has at most %d folders.", maxFolders)
	}
	for _, n := range missing {
		f := &Folder{Mailbox: mailbox, Name: n}
		f.Subscribed, err = takeSubscription(tx, mailbox, n, subscribed)
		if err != nil {
			return err
		}
		if err := tx.CreateFolder(f); err != nil {
			return err
		}
	}
	return nil
}

// missingParents returns the names of the parents of a folder that do not exist, topmost first (RFC
// 3501 section 6.3.3).
func missingParents(folders []*Folder, name string) []string {
	have := map[string]bool{}
	for _, f := range folders {
		have[f.Name] = true
	}
	var missing []string
	for i := range name {
		if name[i] == FolderSeparator[0] && !have[name[:i]] {
			missing = append(missing, name[:i])
		}
	}
	return missing
}

// DeleteFolder deletes a folder and its messages. It refuses to delete INBOX or a folder that has
// children.
func (s *Service) DeleteFolder(_ context.Context, u core.MailboxUser, name string) error {
	name, err := cleanExistingName(name)
	if err != nil {
		return err
	}
	if name == InboxName {
		return core.Errorf(CodeFolderName, "INBOX cannot be deleted.")
	}
	if err := s.MayChangeFolders(u.Mailbox); err != nil {
		return err
	}
	var id uint32
	for done := false; !done; {
		err := s.Store.Update(func(tx *store.Tx) error {
			f, err := s.deletableFolder(tx, u, name)
			if err != nil {
				return err
			}
			if id != 0 && f.ID != id { // another session has deleted the folder and created a new one of that name
				done = true
				return nil
			}
			id = f.ID
			done, err = tx.DeleteFolder(u.Mailbox, f.ID, PerWrite)
			s.notifyWatchers(tx, u.Mailbox)
			if err == nil && done && f.Subscribed {
				err = subscribeName(tx, u.Mailbox, f.Name, true)
			}
			return err
		})
		if e, ok := core.AsError(err); ok && id != 0 && e.Code == CodeFolderNotFound {
			return nil // another session has deleted the folder already
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deletableFolder returns the folder with the given name, or an error if it must not be deleted.
func (s *Service) deletableFolder(tx *store.Tx, u core.MailboxUser, name string) (*Folder, error) {
	if _, err := core.OpenMailbox(tx, u); err != nil {
		return nil, err
	}
	folders, err := tx.Folders(u.Mailbox)
	if err != nil {
		return nil, err
	}
	var found *Folder
	for _, f := range folders {
		if f.Name == name {
			found = f
		}
		if strings.HasPrefix(f.Name, name+FolderSeparator) {
			return nil, core.Errorf(CodeFolderHasChildren, "Delete the folders below %q first.", name)
		}
	}
	if found == nil {
		return nil, folderNotFound(name)
	}
	return found, nil
}

// MayChangeFolders counts a command that changes folders of the mailbox. The error is
// folder_changes_limited if all sessions together have used too many such commands in the last
// minute.
func (s *Service) MayChangeFolders(mailbox uint32) error {
	key, now := store.SubscriptionsID(mailbox), s.Now()
	if s.folderChanges.Count(key, now) >= maxFolderChanges {
		return core.Errorf(CodeFolderRate, "A mailbox accepts %d folder changes a minute. Try again in a minute.", maxFolderChanges)
	}
	s.folderChanges.Add(key, now)
	return nil
}

// SubscribedNames lists the subscribed names of the mailbox for which no folder exists.
func (s *Service) SubscribedNames(_ context.Context, u core.MailboxUser) (names []string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		if _, err := core.OpenMailbox(tx, u); err != nil {
			return err
		}
		names, err = tx.SubscribedNames(u.Mailbox)
		return err
	})
	return names, err
}

// Subscribe subscribes to a folder name, or unsubscribes from it if subscribed is false. The folder
// need not exist. But a tainted mail client may subscribe only to existing folders, because it may
// not create names.
func (s *Service) Subscribe(_ context.Context, u core.MailboxUser, name string, subscribed bool) error {
	name, err := CleanFolderName(name)
	if err != nil {
		return err
	}
	if err := s.MayChangeFolders(u.Mailbox); err != nil {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error {
		if _, err := core.OpenMailbox(tx, u); err != nil {
			return err
		}
		f, err := tx.FolderByName(u.Mailbox, name)
		if errors.Is(err, store.ErrNotFound) {
			if subscribed && u.Policy.Taint {
				if err := agents.CheckUntainted(tx, agents.HolderOfLogin(u)); err != nil {
					return err
				}
			}
			return subscribeName(tx, u.Mailbox, name, subscribed)
		}
		if err != nil {
			return err
		}
		return tx.SetSubscribed(f, subscribed)
	})
}

// subscribeName adds or removes the subscription of a name for which no folder exists.
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

// subscribedNames returns the set of subscribed names for which no folder exists. An operation on
// several folders calls it once.
func subscribedNames(tx *store.Tx, mailbox uint32) (map[string]bool, error) {
	list, err := tx.SubscribedNames(mailbox)
	names := make(map[string]bool, len(list))
	for _, name := range list {
		names[name] = true
	}
	return names, err
}

// convertOldSubscriptions converts the subscriptions of a mailbox from the format of earlier
// versions. It is called before operations that change many subscriptions.
func (s *Service) convertOldSubscriptions(mailbox uint32) error {
	old := false
	err := s.Store.View(func(tx *store.Tx) error {
		_, err := store.OldSubscriptions.Read(tx, store.SubscriptionsID(mailbox))
		old = err == nil
		return nil
	})
	if err != nil || !old {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error { return tx.ConvertSubscriptions(mailbox) })
}

// takeSubscription deletes the subscription of a name for which no folder existed, and reports
// whether there was one. The new folder with this name is then subscribed instead.
func takeSubscription(tx *store.Tx, mailbox uint32, name string, names map[string]bool) (subscribed bool, err error) {
	if !names[name] {
		return false, nil
	}
	return true, tx.SetNameSubscribed(mailbox, name, false)
}
