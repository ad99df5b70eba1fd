package inbox

import (
	"errors"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// roles are the standard folders, in the order of lists: each with its name in requests, its
// special-use attribute, and its IMAP name.
var roles = []struct{ name, use, folder string }{
	{"inbox", "", InboxName}, {"drafts", `\Drafts`, "Drafts"}, {"sent", `\Sent`, "Sent"},
	{"archive", `\Archive`, "Archive"}, {"junk", `\Junk`, "Junk"}, {"trash", `\Trash`, "Trash"},
}

const (
	roleInbox  = "inbox"
	roleDrafts = "drafts"
	roleSent   = "sent"
	roleJunk   = "junk"
	roleTrash  = "trash"
	allMail    = "all" // all folders except Junk and Trash
)

// IsStandardFolder reports whether name is the IMAP name of a standard folder.
func IsStandardFolder(name string) bool {
	return slices.ContainsFunc(roles, func(r struct{ name, use, folder string }) bool { return r.folder == name })
}

// roleOf returns the role of a folder, such as roleTrash; "" if it is not a standard folder.
func roleOf(f *Folder) string {
	for _, r := range roles {
		if f.ID == store.InboxID && r.name == roleInbox || r.use != "" && f.SpecialUse == r.use {
			return r.name
		}
	}
	return ""
}

// findFolder returns the folder of a mailbox that has the given role or IMAP name; "" means INBOX.
// The error is not_found if there is none.
func findFolder(tx *store.Tx, mb *store.Mailbox, name string) (*Folder, error) {
	if name == "" || name == roleInbox || strings.EqualFold(name, InboxName) {
		return tx.Folder(mb.Num, store.InboxID)
	}
	if slices.ContainsFunc(roles, func(r struct{ name, use, folder string }) bool { return r.name == name }) {
		folders, err := tx.Folders(mb.Num)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(folders, func(f *Folder) bool { return roleOf(f) == name }); i >= 0 {
			return folders[i], nil
		}
	}
	known, err := cleanExistingName(name)
	if err != nil {
		return nil, core.NotFound("folder")
	}
	f, err := tx.FolderByName(mb.Num, known)
	if errors.Is(err, store.ErrNotFound) {
		return nil, core.NotFound("folder")
	}
	return f, err
}

// ensureRoleFolder returns the folder that has a role. If the mailbox has none, it creates the
// folder.
func ensureRoleFolder(tx *store.Tx, mb *store.Mailbox, role string) (*Folder, error) {
	f, err := findFolder(tx, mb, role)
	if !core.IsNotFound(err) {
		return f, err
	}
	i := slices.IndexFunc(roles, func(r struct{ name, use, folder string }) bool { return r.name == role })
	f, err = tx.FolderByName(mb.Num, roles[i].folder)
	if errors.Is(err, store.ErrNotFound) {
		f = &Folder{Mailbox: mb.Num, Name: roles[i].folder, SpecialUse: roles[i].use, Subscribed: true}
		err = tx.CreateFolder(f)
	}
	return f, err
}

// IsValidFolder reports whether name is a role or a valid IMAP name of a folder.
func IsValidFolder(name string) bool {
	if name == "" || name == allMail {
		return false
	}
	_, err := cleanExistingName(name)
	return err == nil
}

// FolderName returns the IMAP name of the folder that has the given role or IMAP name. If a
// standard folder is missing, it returns the folder's default name. If another folder is missing,
// it returns INBOX.
func FolderName(tx *store.Tx, mb *store.Mailbox, name string) (string, error) {
	f, err := findFolder(tx, mb, name)
	if core.IsNotFound(err) {
		for _, r := range roles {
			if r.name == name || r.folder == name {
				return r.folder, nil
			}
		}
		return InboxName, nil
	}
	if err != nil {
		return "", err
	}
	return f.Name, nil
}

// FolderID returns the ID of the folder that has the given role or IMAP name. If a standard folder
// is missing, it creates the folder. If another folder is missing, it returns the ID of INBOX.
func FolderID(tx *store.Tx, mb *store.Mailbox, name string) (uint32, error) {
	f, err := findFolder(tx, mb, name)
	if core.IsNotFound(err) {
		f = &Folder{ID: store.InboxID}
		for _, r := range roles {
			if r.name == name || r.folder == name {
				f, err = ensureRoleFolder(tx, mb, r.name)
				if err != nil {
					return 0, err
				}
			}
		}
		return f.ID, nil
	}
	if err != nil {
		return 0, err
	}
	return f.ID, nil
}

// SentFolder returns the ID of the Sent folder. If the mailbox has none, it creates the folder.
func (s *Service) SentFolder(tx *store.Tx, mb *store.Mailbox) (uint32, error) {
	f, err := ensureRoleFolder(tx, mb, roleSent)
	if err != nil {
		return 0, err
	}
	return f.ID, nil
}

// foldersToList returns the folders that a list is to contain: the folder with the given name, or
// for "all" every folder except Junk and Trash.
func foldersToList(tx *store.Tx, mb *store.Mailbox, name string) ([]*Folder, error) {
	if name != allMail {
		f, err := findFolder(tx, mb, name)
		return []*Folder{f}, err
	}
	folders, err := tx.Folders(mb.Num)
	return slices.DeleteFunc(folders, func(f *Folder) bool { return roleOf(f) == roleJunk || roleOf(f) == roleTrash }), err
}
