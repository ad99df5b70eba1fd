package inbox

import (
	"errors"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// roles are the names that requests have for the standard folders, in the order of lists.
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
	allMail    = "all" // every folder but Junk and Trash
)

// IsStandardFolder reports whether a folder has the name that this server gave it.
func IsStandardFolder(name string) bool {
	return slices.ContainsFunc(roles, func(r struct{ name, use, folder string }) bool { return r.folder == name })
}

// roleOf is the role of a folder; "" if it has none.
func roleOf(f *Folder) string {
	for _, r := range roles {
		if f.ID == store.InboxID && r.name == roleInbox || r.use != "" && f.SpecialUse == r.use {
			return r.name
		}
	}
	return ""
}

// findFolder gives the folder of a mailbox that a request names by its role or its IMAP name; ""
// is the inbox. The error is not_found.
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
	known, err := knownName(name)
	if err != nil {
		return nil, core.NotFound("folder")
	}
	f, err := tx.FolderByName(mb.Num, known)
	if errors.Is(err, store.ErrNotFound) {
		return nil, core.NotFound("folder")
	}
	return f, err
}

// ofRole gives the folder of a role, which is made where the mailbox has none.
func ofRole(tx *store.Tx, mb *store.Mailbox, role string) (*Folder, error) {
	f, err := findFolder(tx, mb, role)
	if e, ours := core.AsError(err); !ours || e.Code != "not_found" {
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

// ValidFolder reports whether a name can be that of a folder: a role, or an IMAP name.
func ValidFolder(name string) bool {
	if name == "" || name == allMail {
		return false
	}
	_, err := knownName(name)
	return err == nil
}

// FolderName is the IMAP name of the folder that a role or a name leads to. A standard folder that
// the mailbox does not have is made as it is needed; for another one this is the inbox.
func FolderName(tx *store.Tx, mb *store.Mailbox, name string) (string, error) {
	f, err := findFolder(tx, mb, name)
	if e, ours := core.AsError(err); ours && e.Code == "not_found" {
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

// FolderID is the id of the folder that FolderName gave, or of a role. It makes a standard folder
// that is missing; of another one that is gone it is the inbox's.
func FolderID(tx *store.Tx, mb *store.Mailbox, name string) (uint32, error) {
	f, err := findFolder(tx, mb, name)
	if e, ours := core.AsError(err); ours && e.Code == "not_found" {
		f = &Folder{ID: store.InboxID}
		for _, r := range roles {
			if r.name == name || r.folder == name {
				f, err = ofRole(tx, mb, r.name)
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

// SentFolder gives the id of the folder of sent mail, which is made where the mailbox has none.
func (s *Service) SentFolder(tx *store.Tx, mb *store.Mailbox) (uint32, error) {
	f, err := ofRole(tx, mb, roleSent)
	if err != nil {
		return 0, err
	}
	return f.ID, nil
}

// foldersToList gives the folders of a mailbox that a list is of: the one that a request names, or
// all but Junk and Trash.
func foldersToList(tx *store.Tx, mb *store.Mailbox, name string) ([]*Folder, error) {
	if name != allMail {
		f, err := findFolder(tx, mb, name)
		return []*Folder{f}, err
	}
	folders, err := tx.Folders(mb.Num)
	return slices.DeleteFunc(folders, func(f *Folder) bool { return roleOf(f) == roleJunk || roleOf(f) == roleTrash }), err
}
