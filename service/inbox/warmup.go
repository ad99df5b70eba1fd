package inbox

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

const (
	warmupLook  = 2000 // messages that are looked at in one view
	warmupWrite = 200  // that one transaction changes
	warmupSteps = 20   // looks between two notes of how far the job is
)

// warmupKind marks stored mail again when the account's warm-up phrases have changed.
func (s *Service) warmupKind() jobs.Kind {
	return jobs.Kind{Name: "warmup_marks", Work: s.markWarmup, Timeout: time.Hour}
}

// warmupArgs is whose mail is to be marked, and from where on: every attempt goes on where the last
// one was.
type warmupArgs struct {
	AccountID string `json:"account_id"`
	MailboxID string `json:"mailbox_id,omitempty"` // the first that is not done
	Folder    uint32 `json:"folder,omitempty"`
	UID       uint32 `json:"uid,omitempty"`
}

// PlanWarmup has the account's stored mail marked by its phrases. One job after the other does
// that; a phrase that changes while one runs is for the next.
func (s *Service) PlanWarmup(tx *store.Tx, accountID string) error {
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: accountID, Kind: "warmup_marks", Key: accountID, Lane: "warmup " + accountID, Args: warmupArgs{AccountID: accountID},
	})
	return err
}

// markWarmup does some of the job and has the rest done by another attempt.
func (s *Service) markWarmup(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	at, err := jobs.Args[warmupArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	for range warmupSteps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		done, err := s.markSome(&at)
		if done || err != nil {
			return nil, err
		}
	}
	again := func(_ *store.Tx, j *store.Job) error { return jobs.SetArgs(j, at) }
	return again, jobs.Snooze(s.Now())
}

// A warmupChange is a message whose mark is wrong.
type warmupChange struct {
	mailbox, folder, uid uint32
	bits                 store.Bits
}

// markSome looks at some messages from at on, changes the marks that are wrong and moves at behind
// them.
func (s *Service) markSome(at *warmupArgs) (done bool, err error) {
	var changes []warmupChange
	from := *at
	err = s.Store.View(func(tx *store.Tx) (err error) {
		*at, changes = from, nil
		done, changes, err = wrongMarks(tx, at)
		return err
	})
	for err == nil && len(changes) > 0 {
		some := changes[:min(warmupWrite, len(changes))]
		changes = changes[len(some):]
		err = s.Store.Update(func(tx *store.Tx) error { return s.setWarmup(tx, at.AccountID, some) })
	}
	return done, err
}

func wrongMarks(tx *store.Tx, at *warmupArgs) (done bool, wrong []warmupChange, err error) {
	a, err := store.Accounts.FindShared(tx, at.AccountID)
	if err != nil {
		return false, nil, err
	}
	if a == nil {
		return true, nil, nil
	}
	w := warmupWalk{tx: tx, phrases: foldPhrases(a.WarmupPhrases), left: warmupLook, at: at}
	for key, id := range store.MailboxesByAccount.Keys(tx, a.ID, "") {
		if key < a.ID+at.MailboxID {
			continue
		}
		mb, err := store.Mailboxes.Read(tx, id)
		if err != nil {
			return false, nil, err
		}
		if at.MailboxID != id {
			at.MailboxID, at.Folder, at.UID = id, 0, 0
		}
		if whole, err := w.mailbox(mb); err != nil || !whole {
			return false, w.wrong, err
		}
	}
	return true, w.wrong, nil
}

// A warmupWalk looks for messages whose marks are wrong.
type warmupWalk struct {
	tx      *store.Tx
	phrases []string
	left    int
	at      *warmupArgs
	wrong   []warmupChange
}

// mailbox reports whether it came to the end of the mailbox.
func (w *warmupWalk) mailbox(mb *store.Mailbox) (whole bool, err error) {
	folders, err := w.tx.Folders(mb.Num)
	if err != nil {
		return false, err
	}
	for _, f := range folders {
		if f.ID < w.at.Folder {
			continue
		}
		if f.ID > w.at.Folder {
			w.at.Folder, w.at.UID = f.ID, 1
		}
		for m := range w.tx.Messages(mb.Num, f.ID, w.at.UID, math.MaxUint32) {
			if w.left--; w.left < 0 {
				return false, nil
			}
			if err := w.check(&m); err != nil {
				return false, err
			}
			w.at.UID = m.UID + 1
		}
	}
	return true, nil
}

func (w *warmupWalk) check(m *store.Message) error {
	is, err := storedWarmup(w.tx, w.phrases, m)
	if err != nil {
		return err
	}
	bits := m.Bits &^ store.BitWarmup
	if is {
		bits |= store.BitWarmup
	}
	if bits != m.Bits {
		w.wrong = append(w.wrong, warmupChange{m.Mailbox, m.Folder, m.UID, bits})
	}
	return nil
}

// setWarmup writes marks, unless the phrases have changed since or the message is gone.
func (s *Service) setWarmup(tx *store.Tx, accountID string, changes []warmupChange) error {
	a, err := store.Accounts.Read(tx, accountID)
	if err != nil {
		return err
	}
	phrases := foldPhrases(a.WarmupPhrases)
	for _, c := range changes {
		m, err := tx.Message(c.mailbox, c.folder, c.uid)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		is, err := storedWarmup(tx, phrases, m)
		if err != nil {
			return err
		}
		if is != (c.bits&store.BitWarmup != 0) {
			continue
		}
		if err := tx.SetBits(m, c.bits); err != nil {
			return err
		}
		tx.After(func() { s.Hub.Changed(c.mailbox) })
	}
	return nil
}

// storedWarmup reports whether a stored message is warm-up traffic, by what is known of it without
// its bytes.
func storedWarmup(tx *store.Tx, phrases []string, m *store.Message) (bool, error) {
	if len(phrases) == 0 {
		return false, nil
	}
	meta, err := tx.Meta(m.Mailbox, m.Folder, m.UID)
	if err != nil {
		return false, err
	}
	root, err := msg.DecodePart(meta.Structure)
	if err != nil {
		return false, err
	}
	subject := ""
	if root.Envelope != nil {
		subject = root.Envelope.Subject
	}
	return hasPhrase(phrases, subject, meta.Preview), nil
}

func foldPhrases(phrases []string) []string {
	out := make([]string, 0, len(phrases))
	for _, p := range phrases {
		out = append(out, foldPhrase(p))
	}
	return out
}

// foldPhrase makes texts comparable that differ in case and space.
func foldPhrase(text string) string { return strings.Join(strings.Fields(strings.ToLower(text)), " ") }

func hasPhrase(folded []string, subject, preview string) bool {
	text := foldPhrase(subject) + "\n" + foldPhrase(preview)
	for _, p := range folded {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}
