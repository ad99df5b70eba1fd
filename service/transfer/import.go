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

// importRecordTTL is how long an imported message is recorded, so that further imports skip it.
const importRecordTTL = 90 * 24 * time.Hour

// An ImportHeader has the data of a message to import, except its text.
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

// Results of the import of a message that did not fail.
const (
	ImportDone    = "imported"
	ImportSkipped = "skipped" // an earlier import has already imported it
)

// An ImportResult is the result of the import of one message.
type ImportResult struct {
	Status string `json:"status"`          // ImportDone or ImportSkipped; "" if it failed
	Error  string `json:"error,omitempty"` // why it failed
}

// importFlags maps Maildir flag letters to IMAP flags. The letter P is not among them: it stands
// for the keyword $Forwarded.
var importFlags = map[rune]store.Flags{'R': store.FlagAnswered, 'S': store.FlagSeen, 'T': store.FlagDeleted, 'D': store.FlagDraft, 'F': store.FlagFlagged}

// standardFolders maps names of folders on other servers, in lower case, to the standard folders
// here.
var standardFolders = map[string]string{
	"sent": "Sent", "sent items": "Sent", "sent messages": "Sent", "sent mail": "Sent", "sent-mail": "Sent",
	"drafts": "Drafts", "draft": "Drafts",
	"junk": "Junk", "spam": "Junk", "junk e-mail": "Junk", "junk email": "Junk", "junk mail": "Junk", "bulk mail": "Junk",
	"trash": "Trash", "deleted items": "Trash", "deleted messages": "Trash", "bin": "Trash",
	"archive": "Archive", "archives": "Archive",
}

// ImportFolder returns the name of the folder here into which a folder from elsewhere is imported.
// levels are the levels of that folder's name.
func ImportFolder(levels []string) string {
	if len(levels) > 1 && strings.EqualFold(levels[0], inbox.InboxName) {
		levels = levels[1:] // some servers put all folders below INBOX
	}
	if len(levels) == 0 || len(levels) == 1 && strings.EqualFold(levels[0], inbox.InboxName) {
		return inbox.InboxName
	}
	if name, ok := standardFolders[strings.ToLower(levels[0])]; ok && len(levels) == 1 {
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

// FindMailbox finds the mailbox for an import or export by its address. If several accounts have a
// mailbox with this address, it returns that of the account accountID or, if this account has none,
// that of the account that has proven the domain. The mailbox may be suspended. The error is
// not_found if there is none.
func (s *Service) FindMailbox(address, accountID string) (u core.MailboxUser, err error) {
	address, err = core.NormalizeEmail("mailbox", address)
	if err != nil {
		return u, err
	}
	err = s.Store.View(func(tx *store.Tx) error {
		mb, err := store.MailboxByEmail.OfAccount(tx, accountID, address)
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

// ImportMessages imports messages in order into a folder of a mailbox. It creates the folder if it
// is missing. It skips messages that an earlier import has imported, so that an interrupted import
// can be repeated. It emits no events and forwards nothing. results has one entry for each message.
// err is an error that affects all messages.
func (s *Service) ImportMessages(ctx context.Context, u core.MailboxUser, folder string, in []ImportMessage) (results []ImportResult, err error) {
	name, err := inbox.CleanFolderName(folder)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(in))
	for i, m := range in {
		ids[i] = importRecordID(u, name, m.Key)
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

	// Parse and store the messages before the transaction, because that is slow.
	stored, dates := make([]*inbox.StoredMessage, len(in)), make([]time.Time, len(in))
	defer func() {
		for _, d := range stored {
			if d != nil {
				s.inbox.Release(d) // does nothing if the message was filed
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
		dates[i] = time.UnixMilli(max(m.Date.UnixMilli(), 0)).UTC() // the keys of messages cannot hold a time before 1970
		stored[i], err = s.inbox.Prepare(m.Body, inbox.Envelope{Received: dates[i], Mailbox: u.Mailbox})
		if err != nil {
			return nil, err
		}
	}
	for done := 0; done < len(in); {
		err := s.Store.Update(func(tx *store.Tx) error {
			mb, err := importableMailbox(tx, u)
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
			for ; next < len(in) && !tx.IsLarge(); next++ {
				d := stored[next]
				if d == nil {
					continue
				}
				r := &results[next]
				if known, err := store.ImportedMessages.Find(tx, ids[next]); err != nil {
					return err
				} else if known != nil { // another import was faster, or this message occurs twice
					*r = ImportResult{Status: ImportSkipped}
					continue
				}
				if err := core.CheckQuota(tx, mb, in[next].Body.Size()); err != nil {
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
				if err := store.ImportedMessages.Put(tx, &store.ImportedMessage{ID: ids[next], Expires: tx.Now().Add(importRecordTTL)}); err != nil {
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

// importableMailbox returns the mailbox for an import. It may be suspended, because a suspension
// stops only new mail and logins.
func importableMailbox(tx *store.Tx, u core.MailboxUser) (*store.Mailbox, error) {
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

// importRecordID returns the ID of the record which says that a message was imported into a folder.
func importRecordID(u core.MailboxUser, folder, key string) string {
	sum := sha256.Sum256([]byte(folder + "\x00" + key))
	return store.ImportedID(u.Mailbox, [16]byte(sum[:16]))
}

// KnownImports reports, for each key, whether the message was already imported into the folder.
func (s *Service) KnownImports(_ context.Context, u core.MailboxUser, folder string, keys []string) ([]bool, error) {
	name, err := inbox.CleanFolderName(folder)
	if err != nil {
		return nil, err
	}
	known := make([]bool, len(keys))
	err = s.Store.View(func(tx *store.Tx) error {
		for i, key := range keys {
			row, err := store.ImportedMessages.Find(tx, importRecordID(u, name, key))
			if err != nil {
				return err
			}
			known[i] = row != nil
		}
		return nil
	})
	return known, err
}

// PruneImported deletes expired records of imported messages. It returns how many it has deleted.
func (s *Service) PruneImported(tx *store.Tx) (deleted int, err error) {
	return core.DeleteExpired(tx, store.ImportedMessages, store.ImportedByTime)
}
