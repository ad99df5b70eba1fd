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
	warmupReads  = 2000 // messages that one view transaction reads
	warmupWrites = 200  // messages that one write transaction changes
	warmupSteps  = 20   // views between two saves of the job's progress
)

// warmupKind is the job that marks stored mail again after the account's warm-up phrases have
// changed.
func (s *Service) warmupKind() jobs.Kind {
	return jobs.Kind{Name: "warmup_marks", Work: s.markWarmup, Timeout: time.Hour}
}

// warmupArgs are the account whose mail is to be marked, and the position to continue from: each
// attempt continues where the previous one stopped.
type warmupArgs struct {
	AccountID string `json:"account_id"`
	MailboxID string `json:"mailbox_id,omitempty"` // the first mailbox that is not done
	Folder    uint32 `json:"folder,omitempty"`
	UID       uint32 `json:"uid,omitempty"`
}

// PlanWarmup queues a job that marks the account's stored mail by its warm-up phrases. The jobs of
// an account run one after the other; a phrase that changes during a job is for the next job.
func (s *Service) PlanWarmup(tx *store.Tx, accountID string) error {
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: accountID, Kind: "warmup_marks", Key: accountID, Lane: "warmup " + accountID, Args: warmupArgs{AccountID: accountID},
	})
	return err
}

// markWarmup does part of the job and reschedules it for the rest.
func (s *Service) markWarmup(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	at, err := jobs.Args[warmupArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	for range warmupSteps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		done, err := s.markBatch(&at)
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

// markBatch checks some messages from at on, corrects their marks and advances at past them.
func (s *Service) markBatch(at *warmupArgs) (done bool, err error) {
	var changes []warmupChange
	from := *at
	err = s.Store.View(func(tx *store.Tx) (err error) {
		*at, changes = from, nil
		done, changes, err = wrongMarks(tx, at)
		return err
	})
	for err == nil && len(changes) > 0 {
		some := changes[:min(warmupWrites, len(changes))]
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
	w := warmupWalk{tx: tx, phrases: foldPhrases(a.WarmupPhrases), left: warmupReads, at: at}
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

// A warmupWalk finds messages with wrong marks.
type warmupWalk struct {
	tx      *store.Tx
	phrases []string
	left    int
	at      *warmupArgs
	wrong   []warmupChange
}

// mailbox checks the messages of a mailbox; whole is false if it stopped at the limit.
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

// setWarmup writes the marks, unless the phrases have changed since or a message is gone.
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

// storedWarmup reports whether a stored message is warm-up mail, according to its subject and
// preview.
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

// foldPhrase normalizes case and space, so that texts can be compared.
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
