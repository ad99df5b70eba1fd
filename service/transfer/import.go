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

// importRecordTTL is how long further imports skip an imported message.
const importRecordTTL = 90 * 24 * time.Hour

// An ImportHeader is the metadata of a message to import.
type ImportHeader struct {
	Key      string    `json:"key"`                // identifies the message among all imports into the folder
	Flags    string    `json:"flags,omitempty"`    // Maildir flag letters P R S T D F; others are ignored
	Keywords []string  `json:"keywords,omitempty"` // invalid ones are ignored
	Date     time.Time `json:"date"`               // when it arrived at its source; zero: now
}

// An ImportMessage is a message to import into a folder of a mailbox.
type ImportMessage struct {
	ImportHeader
	Body store.Body
}

// Results of importing a message, unless it failed.
const (
	ImportDone    = "imported"
	ImportSkipped = "skipped" // an earlier import had it
)

// An ImportResult is the result of importing one message.
type ImportResult struct {
	Status string `json:"status"`          // ImportDone or ImportSkipped; "" if it failed
	Error  string `json:"error,omitempty"` // why it failed
}

// importFlags maps Maildir flag letters to flags. P is the keyword $Forwarded instead.
var importFlags = map[rune]store.Flags{'R': store.FlagAnswered, 'S': store.FlagSeen, 'T': store.FlagDeleted, 'D': store.FlagDraft, 'F': store.FlagFlagged}

// specialNames maps folder names of other servers, in lower case, to the standard folders here.
var specialNames = map[string]string{
	"sent": "Sent", "sent items": "Sent", "sent messages": "Sent", "sent mail": "Sent", "sent-mail": "Sent",
	"drafts": "Drafts", "draft": "Drafts",
	"junk": "Junk", "spam": "Junk", "junk e-mail": "Junk", "junk email": "Junk", "junk mail": "Junk", "bulk mail": "Junk",
	"trash": "Trash", "deleted items": "Trash", "deleted messages": "Trash", "bin": "Trash",
	"archive": "Archive", "archives": "Archive",
}

// ImportFolder returns the name here for a folder elsewhere, given the levels of its name.
func ImportFolder(levels []string) string {
	if len(levels) > 1 && strings.EqualFold(levels[0], inbox.InboxName) {
		levels = levels[1:] // some servers have all folders below INBOX
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

// FindMailbox finds a mailbox by its address, to import into or export from: the account's own
// mailbox if there is one, else the mailbox of the account that has the domain. It may be
// suspended.
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

// ImportMessages imports messages in order into a folder of a mailbox, which it creates if it is
// missing. It skips messages that an earlier import had, so that an interrupted import can be
// repeated. It emits no events and forwards nothing. results has an entry for each message; err is
// an error that affects all messages.
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

	// Parse and store the messages outside the transaction.
	stored, dates := make([]*inbox.StoredMessage, len(in)), make([]time.Time, len(in))
	defer func() {
		for _, d := range stored {
			if d != nil {
				s.inbox.Release(d) // no effect if it was filed
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
		dates[i] = time.UnixMilli(max(m.Date.UnixMilli(), 0)).UTC() // message keys hold no time before 1970
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
				} else if known != nil { // another import had it meanwhile, or this one has it twice
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
				if err := store.ImportedMessages.Put(tx, &store.Imported{ID: ids[next], Expires: tx.Now().Add(importRecordTTL)}); err != nil {
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

// mailboxToFill returns the mailbox to import into. It may be suspended: a suspension stops new
// mail and logins only.
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

// KnownImports reports for each key whether an earlier import into the folder had the message.
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

// PruneImported deletes the records of imported messages that have expired.
func (s *Service) PruneImported(tx *store.Tx) (int, error) {
	return core.DeleteExpired(tx, store.ImportedMessages, store.ImportedByTime)
}
