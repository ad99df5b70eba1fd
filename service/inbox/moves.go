package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A MovedResult says to which folder a message was moved, and which UID it has there.
type MovedResult struct {
	Mailbox string `json:"mailbox" words:"ours"` // The mailbox's address.
	UID     string `json:"uid" words:"ours"`     // The IMAP UID.
	Folder  string `json:"folder" words:"theirs" known:"folders"`
	NewUID  string `json:"new_uid" words:"ours"` // Its UID in that folder.
}

// moveTo moves a message to a folder, which is given by its role or its IMAP name.
func (s *Service) moveTo(tx *store.Tx, who core.Actor, mb *store.Mailbox, m *store.Message, to string) (MovedResult, error) {
	f, err := findFolder(tx, mb, to)
	if core.IsNotFound(err) && slices.ContainsFunc(roles, func(r struct{ name, use, folder string }) bool { return r.name == to }) {
		f, err = ensureRoleFolder(tx, mb, to)
	}
	if err != nil {
		return MovedResult{}, err
	}
	moved, err := s.moveMessage(tx, who, mb, m, f)
	if err != nil {
		return MovedResult{}, err
	}
	return MovedResult{mb.Email, core.UIDText(m.UID), f.Name, core.UIDText(moved.UID)}, nil
}

// BulkMoveMessagesIn is the body of bulk_move_messages.
type BulkMoveMessagesIn struct {
	Messages []MessageRef `json:"messages" required:"true" min:"1" max:"200" items:"judged"`
	To       string       `json:"to" required:"true" max:"255" example:"archive"` // A role (`inbox archive junk trash sent drafts`) or an IMAP name.
}

// MessagesMoved has the number of moved messages and where they are now, and an error for each
// other message.
type MessagesMoved struct {
	Moved   int            `json:"moved"`
	Failed  int            `json:"failed"`
	Errors  []MessageError `json:"errors"`
	Results []MovedResult  `json:"results"`
}

// BulkMoveMessages moves up to 200 messages into a folder of their mailboxes. It uses one
// transaction.
func (s *Service) BulkMoveMessages(ctx context.Context, who core.Actor, in BulkMoveMessagesIn) (*MessagesMoved, error) {
	if in.To == "" || in.To == allMail {
		return nil, core.Invalid("to", "invalid", "must be a folder: inbox, archive, junk, trash, sent, drafts or an IMAP name")
	}
	out := &MessagesMoved{}
	done, failed, err := s.changeMany(ctx, who, in.Messages, bulkChange{
		refusesExternal: true, begin: func() { out.Results = []MovedResult{} },
		local: func(tx *store.Tx, mb *store.Mailbox, m *store.Message) error {
			moved, err := s.moveTo(tx, who, mb, m, in.To)
			if err == nil {
				out.Results = append(out.Results, moved)
			}
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	out.Moved, out.Failed, out.Errors = done, len(failed), failed
	return out, nil
}

// A MailFolder is a folder as the API shows it.
type MailFolder struct {
	ID       string  `json:"id" words:"ours" example:"fld_80000007"`                        // Stays when the folder is renamed; IMAP's MAILBOXID.
	Name     string  `json:"name" words:"theirs" known:"folders" example:"Projects/Garden"` // Its name over IMAP, with `/` between levels.
	Role     *string `json:"role" enum:"inbox|drafts|sent|archive|junk|trash"`              // Its purpose; null for folders that people created.
	Messages int64   `json:"messages" example:"12"`
	Unread   int64   `json:"unread" example:"3"`
}

// MailboxID returns the MAILBOXID of a folder (RFC 8474). It does not change when the folder is
// renamed, and is never used for another folder.
func MailboxID(f *Folder) string { return fmt.Sprintf("fld_%08x", f.Num) }

func mailFolderOut(f *Folder) MailFolder {
	return MailFolder{MailboxID(f), f.Name, core.OrNull(roleOf(f)), int64(f.Messages), int64(f.Unseen)}
}

// ListFolders lists the folders of a mailbox: first the standard folders, then the others by name.
func (s *Service) ListFolders(_ context.Context, who core.Actor, in core.EmailUserIn) (*core.List[MailFolder], error) {
	var out []MailFolder
	err := s.Store.View(func(tx *store.Tx) error {
		mb, err := core.ReadMailbox(tx, who, in.UserID)
		if err != nil {
			return err
		}
		folders, err := tx.Folders(mb.Num)
		for _, r := range roles {
			for _, f := range folders {
				if roleOf(f) == r.name {
					out = append(out, mailFolderOut(f))
				}
			}
		}
		others := slices.DeleteFunc(folders, func(f *Folder) bool { return roleOf(f) != "" })
		slices.SortFunc(others, func(a, b *Folder) int { return strings.Compare(a.Name, b.Name) })
		for _, f := range others {
			out = append(out, mailFolderOut(f))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return core.ListOf(out), nil
}

// FolderIn names a folder by its mailbox and its ID.
type FolderIn struct {
	UserID   string `path:"user_id"`
	FolderID string `path:"folder_id"`
}

// find returns the folder and its mailbox.
func (in FolderIn) find(tx *store.Tx, who core.Actor) (*store.Mailbox, *Folder, error) {
	mb, err := core.ReadMailbox(tx, who, in.UserID)
	if err != nil {
		return nil, nil, err
	}
	folders, err := tx.Folders(mb.Num)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(folders, func(f *Folder) bool { return MailboxID(f) == in.FolderID })
	if i < 0 {
		return nil, nil, core.NotFound("folder")
	}
	return mb, folders[i], nil
}

// CreateFolderIn is the request of create_folder.
type CreateFolderIn struct {
	UserID string `path:"user_id"`
	Name   string `json:"name" required:"true" example:"Projects/Garden"`
}

// folderError converts an error about a folder from the code that IMAP uses to the code of the API.
func folderError(err error) error {
	e, ours := core.AsError(err)
	if !ours {
		return err
	}
	switch e.Code {
	case CodeFolderName:
		return core.Invalid("name", "invalid", "%s", e.Message)
	case CodeFolderLimit:
		return core.Errorf("too_many_items", "%s", e.Message)
	case CodeFolderRate:
		return core.Errorf("rate_limited", "%s", e.Message)
	case CodeFolderNotFound:
		return core.NotFound("folder")
	}
	return err
}

// CreateMailFolder creates a folder of a mailbox and its missing parents. The error is
// folder_exists if the name is in use.
func (s *Service) CreateMailFolder(_ context.Context, who core.Actor, in CreateFolderIn) (out *MailFolder, err error) {
	name, err := CleanFolderName(in.Name)
	if err != nil {
		return nil, folderError(err)
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		mb, err := core.ReadMailbox(tx, who, in.UserID)
		if err != nil {
			return err
		}
		if err := CreateFolder(tx, mb.Num, name, ""); err != nil {
			return err
		}
		f, err := tx.FolderByName(mb.Num, name)
		if err != nil {
			return err
		}
		made := mailFolderOut(f)
		out = &made
		s.notifyWatchers(tx, mb.Num)
		return errors.Join(tx.SetSubscribed(f, true), core.Audit(tx, who, folderTarget(mb, f)))
	})
	if err != nil {
		return nil, folderError(err)
	}
	return out, nil
}

func folderTarget(mb *store.Mailbox, f *Folder) store.AuditTarget {
	return store.AuditTarget{Type: "folder", ID: MailboxID(f), Name: mb.Email}
}

// UpdateFolderIn is the request of update_folder.
type UpdateFolderIn struct {
	FolderIn
	Name *string `json:"name" example:"Projects/House"`
}

// folderProtectedError returns the error for a standard folder that cannot be renamed or deleted.
func folderProtectedError(f *Folder) error {
	return core.Errorf("folder_protected", "%s is a standard folder: it can be neither renamed nor deleted.", f.Name)
}

// UpdateMailFolder renames a folder and all its descendants.
func (s *Service) UpdateMailFolder(_ context.Context, who core.Actor, in UpdateFolderIn) (out *MailFolder, err error) {
	name, err := CleanFolderName(*in.Name)
	if err != nil {
		return nil, folderError(err)
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		mb, f, err := in.find(tx, who)
		if err != nil {
			return err
		}
		if roleOf(f) != "" {
			return folderProtectedError(f)
		}
		if f.Name != name {
			if _, err := renameFolder(tx, mb.Num, f.Name, name); err != nil {
				return err
			}
		}
		s.notifyWatchers(tx, mb.Num)
		now, err := tx.Folder(mb.Num, f.ID)
		if err != nil {
			return err
		}
		renamed := mailFolderOut(now)
		out = &renamed
		return core.Audit(tx, who, folderTarget(mb, f))
	})
	if err != nil {
		return nil, folderError(err)
	}
	return out, nil
}

// FolderDeleted says that a folder was deleted.
type FolderDeleted struct {
	Message string `json:"message" words:"ours" example:"The folder Projects is deleted. Its messages are in Trash."` // For people; the text may change.
	ID      string `json:"id" words:"ours" example:"fld_80000007"`
}

// DeleteMailFolder deletes a folder. Before that, it moves the folder's messages to Trash, PerWrite
// in each transaction.
func (s *Service) DeleteMailFolder(ctx context.Context, who core.Actor, in FolderIn) (*FolderDeleted, error) {
	out := &FolderDeleted{ID: in.FolderID}
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := s.Store.Update(func(tx *store.Tx) error {
			mb, f, err := in.find(tx, who)
			if err != nil {
				return err
			}
			if roleOf(f) != "" {
				return folderProtectedError(f)
			}
			folders, err := tx.Folders(mb.Num)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(folders, func(o *Folder) bool { return strings.HasPrefix(o.Name, f.Name+FolderSeparator) }) {
				return core.Errorf(CodeFolderHasChildren, "Delete the folders below %s first.", f.Name)
			}
			trash, err := ensureRoleFolder(tx, mb, roleTrash)
			if err != nil {
				return err
			}
			n := 0
			for m := range tx.Messages(mb.Num, f.ID, 1, maxUID) {
				if n++; n > PerWrite {
					return nil
				}
				if _, err := s.moveMessage(tx, who, mb, &m, trash); err != nil {
					return err
				}
			}
			done = true
			out.Message = fmt.Sprintf("The folder %s is deleted. Its messages are in Trash.", f.Name)
			if _, err := tx.DeleteFolder(mb.Num, f.ID, 1); err != nil {
				return err
			}
			s.notifyWatchers(tx, mb.Num)
			return core.Audit(tx, who, folderTarget(mb, f))
		})
		if err != nil {
			return nil, folderError(err)
		}
	}
	return out, nil
}
