package inbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	warmupQuotaShare = 10  // warm-up mail may fill one part of so many of a mailbox's quota
	warmupPerFiling  = 20  // old messages that one arriving message may replace
	warmupSkipped    = 500 // messages that are passed over to find one that was filed as warm-up mail
)

// CleanWarmupFolder returns the canonical form of the name of a folder for warm-up mail. The error
// says why it cannot be one.
func (s *Service) CleanWarmupFolder(name string) (string, error) {
	name, err := CleanFolderName(name)
	if e, ours := core.AsError(err); ours {
		return "", core.Invalid("warmup_folder", "invalid", "%s", e.Message)
	}
	standard := slices.ContainsFunc(roles, func(r struct{ name, use, folder string }) bool { return strings.EqualFold(r.folder, name) })
	if standard || strings.EqualFold(name, allMail) {
		return "", core.Invalid("warmup_folder", "not_allowed", "must not be a standard folder")
	}
	return name, nil
}

// IsFiledAsWarmup reports whether a message that arrives at a mailbox is filed as warm-up mail, by
// FileWarmup. size is that of the message in bytes.
func (s *Service) IsFiledAsWarmup(tx *store.Tx, mb *store.Mailbox, d *StoredMessage, size int64) (bool, error) {
	name, err := s.warmupFolder(tx, mb, d, size)
	return name != "", err
}

// warmupFolder returns the name of the folder in which a message that arrives at a mailbox is filed
// as warm-up mail. It is "" for other mail: the account must have such a folder, DMARC must prove
// the author, the message must not answer one that the account has sent, and it must fit into the
// part of the quota that warm-up mail may fill.
func (s *Service) warmupFolder(tx *store.Tx, mb *store.Mailbox, d *StoredMessage, size int64) (name string, err error) {
	if mb.External != nil || d.DMARC != "pass" || d.Bits&store.BitBounce != 0 || warmupShare(mb) < size {
		return "", nil
	}
	a, err := store.Accounts.FindShared(tx, mb.AccountID)
	if err != nil || a == nil || a.WarmupFolder == "" {
		return "", err
	}
	filter := newWarmupFilter(a)
	if filter.matchingField(d.Summary.XFields) == "" && !hasPhrase(filter.phrases, d.Summary.Subject, d.Summary.Preview) {
		return "", nil
	}
	answers, err := s.RepliesToSent(tx, mb.AccountID, d.Summary)
	if err != nil || answers {
		return "", err
	}
	return a.WarmupFolder, nil
}

// warmupShare returns how many bytes the folder for warm-up mail may have.
func warmupShare(mb *store.Mailbox) int64 {
	if mb.QuotaBytes == nil {
		return 1 << 62
	}
	return *mb.QuotaBytes / warmupQuotaShare
}

// FileWarmup files an arriving message in the account's folder for warm-up mail, and makes room for
// it there. It reports whether it did; other mail is filed by File.
func (s *Service) FileWarmup(tx *store.Tx, mb *store.Mailbox, d *StoredMessage, f Filing) (filed bool, err error) {
	name, err := s.warmupFolder(tx, mb, d, int64(d.Blob.Length))
	if name == "" || err != nil {
		return false, err
	}
	folder, err := ensureWarmupFolder(tx, mb, name)
	if folder == nil || err != nil {
		return false, err
	}
	f.Folder, f.warmup = folder.ID, true
	m, err := s.File(tx, mb, d, f)
	if err != nil {
		return false, err
	}
	w, err := store.WarmupFolders.Find(tx, store.WarmupFolderID(mb.Num, folder.ID))
	if err != nil {
		return false, err
	}
	if w == nil {
		w = &store.WarmupFolder{AccountID: mb.AccountID, Mailbox: mb.Num, Folder: folder.ID, First: m.UID}
		return true, store.WarmupFolders.Put(tx, w)
	}
	if mb.QuotaBytes != nil {
		_, err = s.trimWarmup(tx, w, warmupRules{share: warmupShare(mb)}, warmupPerFiling)
	}
	return true, err
}

// ensureWarmupFolder returns the folder of a mailbox with that name. If there is none, it creates
// the folder. It returns nil if the folder has become a standard folder, or if the mailbox has as
// many folders as it may have.
func ensureWarmupFolder(tx *store.Tx, mb *store.Mailbox, name string) (*Folder, error) {
	f, err := tx.FolderByName(mb.Num, name)
	if err == nil && roleOf(f) != "" {
		return nil, nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return f, err
	}
	err = CreateFolder(tx, mb.Num, name, "")
	if e, ours := core.AsError(err); ours && e.Code == CodeFolderLimit {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f, err = tx.FolderByName(mb.Num, name)
	if err != nil {
		return nil, err
	}
	return f, tx.SetSubscribed(f, true)
}

// warmupRules say which warm-up mail of a folder is deleted.
type warmupRules struct {
	age   time.Duration // mail that was filed longer ago; 0: none
	share int64         // the oldest, as long as the folder has more bytes
}

// trimWarmup deletes up to limit messages of a folder that were filed as warm-up mail, and notes
// where the others begin. It leaves the newest such message, unless it is too old. more reports
// whether there may be others to delete.
func (s *Service) trimWarmup(tx *store.Tx, w *store.WarmupFolder, rules warmupRules, limit int) (more bool, err error) {
	folder, err := tx.Folder(w.Mailbox, w.Folder)
	if errors.Is(err, store.ErrNotFound) {
		return false, store.WarmupFolders.Delete(tx, w.ID())
	}
	if err != nil {
		return false, err
	}
	first, over := w.First, folder.Bytes-rules.share
	for deleted := 0; ; deleted++ {
		m, end, err := nextWarmup(tx, w)
		switch {
		case err != nil:
			return false, err
		case m == nil && end:
			return false, store.WarmupFolders.Delete(tx, w.ID())
		case m == nil || deleted == limit:
			return true, store.WarmupFolders.Put(tx, w)
		}
		tooOld := rules.age > 0 && tx.Now().Sub(m.Saved) > rules.age
		if !tooOld && (over <= 0 || m.UID+1 == folder.UIDNext) {
			if w.First == first {
				return false, nil
			}
			return false, store.WarmupFolders.Put(tx, w)
		}
		if err := tx.DeleteMessage(m.Mailbox, m.Folder, m.UID); err != nil {
			return false, err
		}
		s.notifyWatchers(tx, m.Mailbox)
		over -= int64(m.Blob.Length)
	}
}

// nextWarmup returns the first message from w.First on that was filed as warm-up mail, and moves
// w.First to it. It passes over at most warmupSkipped other messages. If it finds none, m is nil,
// and end reports whether there is none in the folder.
func nextWarmup(tx *store.Tx, w *store.WarmupFolder) (m *store.Message, end bool, err error) {
	skipped := 0
	var meta store.Meta
	for next := range tx.Messages(w.Mailbox, w.Folder, w.First, maxUID) {
		w.First = next.UID
		if err := tx.ReadMeta(&meta, &next); err != nil {
			return nil, false, err
		}
		if strings.HasPrefix(meta.Warmup, warmupFiled) && next.Bits&store.BitMoved == 0 {
			return &next, false, nil
		}
		if skipped++; skipped == warmupSkipped {
			return nil, false, nil
		}
	}
	return nil, true, nil
}

// EmptyWarmup deletes the warm-up mail that has been in its folder for longer than the account
// says, and what is over the part of the quota that it may fill.
func (s *Service) EmptyWarmup(ctx context.Context) error {
	after := ""
	for more := true; more; {
		var old []string // ids of folders that have a message to delete
		err := s.Store.View(func(tx *store.Tx) error {
			old, more = nil, false
			looked := 0
			for w := range store.WarmupFolders.After(tx, after) {
				if looked++; looked > mailboxesPerView {
					more = true
					break
				}
				after = w.ID()
				is, err := hasOldWarmup(tx, w)
				if err != nil {
					return err
				}
				if is {
					old = append(old, w.ID())
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, id := range old {
			if err := s.emptyWarmupFolder(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasOldWarmup reports whether trimWarmup would change something.
func hasOldWarmup(tx *store.Tx, w *store.WarmupFolder) (bool, error) {
	rules, err := warmupRulesOf(tx, w)
	if err != nil {
		return false, err
	}
	folder, err := tx.Folder(w.Mailbox, w.Folder)
	if errors.Is(err, store.ErrNotFound) || err == nil && folder.Bytes > rules.share {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	from := *w
	m, _, err := nextWarmup(tx, &from)
	return m == nil || tx.Now().Sub(m.Saved) > rules.age, err
}

// emptyWarmupFolder deletes what EmptyWarmup finds in one folder, some messages in each
// transaction.
func (s *Service) emptyWarmupFolder(ctx context.Context, id string) error {
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Store.Update(func(tx *store.Tx) error {
			more = false
			w, err := store.WarmupFolders.Find(tx, id)
			if w == nil || err != nil {
				return err
			}
			rules, err := warmupRulesOf(tx, w)
			if err != nil {
				return err
			}
			more, err = s.trimWarmup(tx, w, rules, deletionsPerWrite)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// warmupRulesOf returns the rules of a folder by its account and mailbox.
func warmupRulesOf(tx *store.Tx, w *store.WarmupFolder) (rules warmupRules, err error) {
	days := core.DefaultWarmupDays
	a, err := store.Accounts.FindShared(tx, w.AccountID)
	if err != nil {
		return rules, err
	}
	if a != nil && a.WarmupDays > 0 {
		days = a.WarmupDays
	}
	rules = warmupRules{age: time.Duration(days) * 24 * time.Hour, share: 1 << 62}
	mb, err := store.MailboxByNum.Read(tx, store.NumKey(w.Mailbox))
	if core.IsGone(err) {
		return rules, nil // its folders are being deleted
	}
	if err != nil {
		return rules, err
	}
	rules.share = warmupShare(mb)
	return rules, nil
}
