package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// importKept is how long a message that was imported is left out of further imports.
const importKept = 90 * 24 * time.Hour

// An ImportHeader is what an import knows of a message beside its text.
type ImportHeader struct {
	Key      string    `json:"key"`                // names it among all that come into the folder
	Flags    string    `json:"flags,omitempty"`    // letters of a Maildir's: P R S T D F; others do not count
	Keywords []string  `json:"keywords,omitempty"` // those that cannot be kept are left out
	Date     time.Time `json:"date"`               // when it arrived there; zero: now
}

// An ImportMessage is a message that comes into a folder of a mailbox from elsewhere.
type ImportMessage struct {
	ImportHeader
	Body store.Body
}

// What became of a message that was to be imported, other than an error.
const (
	ImportDone    = "imported"
	ImportSkipped = "skipped" // it came with an import before
)

// An ImportResult is what became of one message.
type ImportResult struct {
	Status string `json:"status"`          // ImportDone or ImportSkipped; "": it failed
	Error  string `json:"error,omitempty"` // why
}

// importFlags are the flags of a Maildir's letters; P is a keyword.
var importFlags = map[rune]store.Flags{'R': store.FlagAnswered, 'S': store.FlagSeen, 'T': store.FlagDeleted, 'D': store.FlagDraft, 'F': store.FlagFlagged}

// specialNames are the names, in lower case, that other servers give to folders that every mailbox
// here has.
var specialNames = map[string]string{
	"sent": "Sent", "sent items": "Sent", "sent messages": "Sent", "sent mail": "Sent", "sent-mail": "Sent",
	"drafts": "Drafts", "draft": "Drafts",
	"junk": "Junk", "spam": "Junk", "junk e-mail": "Junk", "junk email": "Junk", "junk mail": "Junk", "bulk mail": "Junk",
	"trash": "Trash", "deleted items": "Trash", "deleted messages": "Trash", "bin": "Trash",
	"archive": "Archive", "archives": "Archive",
}

// ImportFolder is the name here of a folder elsewhere, of which it gets the levels of the name.
func ImportFolder(levels []string) string {
	if len(levels) > 1 && strings.EqualFold(levels[0], inbox.InboxName) {
		levels = levels[1:] // some servers have all folders below the inbox
	}
	if len(levels) == 0 || len(levels) == 1 && strings.EqualFold(levels[0], inbox.InboxName) {
		return inbox.InboxName
	}
	if name, ok := specialNames[strings.ToLower(levels[0])]; ok && len(levels) == 1 {
		return name
	}
	named := make([]string, len(levels))
	for i, level := range levels {
		named[i] = strings.Map(func(c rune) rune {
			if c < ' ' || c == 0x7f || strings.ContainsRune("/*%", c) {
				return '_'
			}
			return c
		}, level)
		if named[i] == "" || i == 0 && named[i][0] == '#' {
			named[i] = "_" + named[i]
		}
	}
	return strings.Join(named, inbox.FolderSeparator)
}

// FindMailbox finds the mailbox that messages are to come into or go out of, by its address: the
// account's own one if there is one, and else that of whoever has the domain. It may
// be suspended.
func (s *Service) FindMailbox(address, accountID string) (u core.MailboxUser, err error) {
	address, err = core.NormalizeEmail("mailbox", address)
	if err != nil {
		return u, err
	}
	err = s.Store.View(func(tx *store.Tx) error {
		mb, err := store.MailboxByEmail.Of(tx, accountID, address)
		if core.IsGone(err) {
			mb, err = store.MailboxByEmail.Read(tx, address)
		}
		if core.IsGone(err) {
			mb, err = core.UnprovenMailbox(tx, address)
		}
		if err != nil {
			return err
		}
		u = core.MailboxUser{AccountID: mb.AccountID, AccountNum: mb.AccountNum, MailboxID: mb.ID, Mailbox: mb.Num, Email: mb.Email}
		return nil
	})
	if _, ours := core.AsError(err); core.IsGone(err) && !ours {
		return u, core.Errorf("not_found", "There is no mailbox %s.", address)
	}
	return u, err
}

// ImportMessages brings messages into a folder of a mailbox, which is made if it is missing, in
// their order. What came with an import before is left out, so that an import can be begun again
// after any end. No event tells of them, and no forward takes them. results has one for each
// message; the error is one that keeps all of those from coming that have no result.
func (s *Service) ImportMessages(ctx context.Context, u core.MailboxUser, folder string, in []ImportMessage) (results []ImportResult, err error) {
	name, err := inbox.CleanFolderName(folder)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(in))
	for i, m := range in {
		ids[i] = importedID(u, name, m.Key)
	}
	results = make([]ImportResult, len(in))
	err = s.Store.View(func(tx *store.Tx) error {
		for i, id := range ids {
			if known, err := store.ImportedMessages.Find(tx, id); err != nil {
				return err
			} else if known != nil {
				results[i].Status = ImportSkipped
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}

	// Read and write the messages outside the transaction.
	stored, dates := make([]*inbox.StoredMessage, len(in)), make([]time.Time, len(in))
	defer func() {
		for _, d := range stored {
			if d != nil {
				s.inbox.Release(d) // does nothing for what was filed
			}
		}
	}()
	for i, m := range in {
		if results[i].Status != "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if m.Date.IsZero() {
			m.Date = s.Now()
		}
		if m.Body.Size() == 0 {
			results[i].Error = "The message is empty."
			continue
		}
		dates[i] = time.UnixMilli(max(m.Date.UnixMilli(), 0)).UTC() // what keys can hold
		stored[i], err = s.inbox.Prepare(m.Body, inbox.Envelope{Received: dates[i], Mailbox: u.Mailbox})
		if err != nil {
			return nil, err
		}
	}
	for done := 0; done < len(in); {
		err := s.Store.Update(func(tx *store.Tx) error {
			mb, err := mailboxToFill(tx, u)
			if err != nil {
				return err
			}
			f, err := tx.FolderByName(u.Mailbox, name)
			if errors.Is(err, store.ErrNotFound) {
				if err := inbox.CreateFolder(tx, u.Mailbox, name, ""); err != nil {
					return err
				}
				f, err = tx.FolderByName(u.Mailbox, name)
			}
			if err != nil {
				return err
			}
			next := done
			for ; next < len(in) && !tx.Large(); next++ {
				d := stored[next]
				if d == nil {
					continue
				}
				r := &results[next]
				if known, err := store.ImportedMessages.Find(tx, ids[next]); err != nil {
					return err
				} else if known != nil { // it came with another import meanwhile, or twice with this one
					*r = ImportResult{Status: ImportSkipped}
					continue
				}
				if err := inbox.CheckQuota(tx, mb, in[next].Body.Size()); err != nil {
					if _, ours := core.AsError(err); !ours {
						return err
					}
					*r = ImportResult{Error: core.Explain(err).Message}
					continue
				}
				filing := inbox.Filing{Folder: f.ID, Received: dates[next]}
				for _, letter := range in[next].Flags {
					filing.Flags |= importFlags[letter]
					if letter == 'P' {
						filing.Keywords = []string{"$Forwarded"}
					}
				}
				if all := inbox.DistinctKeywords(append(filing.Keywords, in[next].Keywords...)); inbox.CheckKeywords(all) == nil {
					filing.Keywords = all
				}
				if _, err := s.inbox.File(tx, mb, d, filing); err != nil {
					return err
				}
				if err := store.ImportedMessages.Put(tx, &store.Imported{ID: ids[next], Expires: tx.Now().Add(importKept)}); err != nil {
					return err
				}
				*r = ImportResult{Status: ImportDone}
			}
			tx.After(func() { done = next })
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// mailboxToFill gives the mailbox that messages are brought into. It may be suspended: that keeps
// mail and log-ins away, and nothing that belongs to it.
func mailboxToFill(tx *store.Tx, u core.MailboxUser) (*store.Mailbox, error) {
	mb, err := store.Mailboxes.FindShared(tx, u.MailboxID)
	if err != nil || mb == nil || mb.Status != store.MailboxSuspended {
		return core.OpenMailbox(tx, u)
	}
	a, err := store.Accounts.Read(tx, mb.AccountID)
	if err == nil && !a.MayAct() {
		return nil, core.Errorf(core.CodeMailboxClosed, "This mailbox is closed.")
	}
	return mb, err
}

func importedID(u core.MailboxUser, folder, key string) string {
	sum := sha256.Sum256([]byte(folder + "\x00" + key))
	return store.ImportedID(u.Mailbox, [16]byte(sum[:16]))
}

// KnownImports tells of each key whether a message came with it into the folder before.
func (s *Service) KnownImports(_ context.Context, u core.MailboxUser, folder string, keys []string) ([]bool, error) {
	name, err := inbox.CleanFolderName(folder)
	if err != nil {
		return nil, err
	}
	known := make([]bool, len(keys))
	err = s.Store.View(func(tx *store.Tx) error {
		for i, key := range keys {
			row, err := store.ImportedMessages.Find(tx, importedID(u, name, key))
			if err != nil {
				return err
			}
			known[i] = row != nil
		}
		return nil
	})
	return known, err
}

// PruneImported forgets imported messages whose time is over.
func (s *Service) PruneImported(tx *store.Tx) (int, error) {
	return core.DeleteExpired(tx, store.ImportedMessages, store.ImportedByTime)
}
