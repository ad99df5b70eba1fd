package inbox

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

const (
	warmupPerView  = 2000 // messages that one read transaction examines
	warmupPerWrite = 200  // messages that one write transaction changes
	warmupSteps    = 20   // read transactions between two saves of the job's progress
)

// warmupKind returns the kind of the job that an account needs after its warm-up phrases or header
// fields have changed. The job finds the account's stored warm-up mail and sets BitWarmup
// accordingly. It does not read messages: a field counts if the account had it when the message
// arrived.
func (s *Service) warmupKind() jobs.Kind {
	return jobs.Kind{Name: "warmup_marks", Work: s.updateWarmup, Timeout: time.Hour}
}

// warmupArgs are the arguments of the job: the account, and the position at which the next attempt
// continues.
type warmupArgs struct {
	AccountID string `json:"account_id"`
	MailboxID string `json:"mailbox_id,omitempty"` // the first mailbox that is not done
	Folder    uint32 `json:"folder,omitempty"`
	UID       uint32 `json:"uid,omitempty"`
}

// PlanWarmup queues a job that sets BitWarmup of the account's stored mail. It is called after each
// change of the phrases and header fields. The jobs of an account run one after the other.
func (s *Service) PlanWarmup(tx *store.Tx, accountID string) error {
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: accountID, Kind: "warmup_marks", Key: accountID, Lane: "warmup " + accountID, Args: warmupArgs{AccountID: accountID},
	})
	return err
}

// updateWarmup works on the job: it examines a part of the account's mail, and reschedules the job
// for the rest.
func (s *Service) updateWarmup(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	at, err := jobs.Args[warmupArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	for range warmupSteps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		done, err := s.correctBatch(&at)
		if done || err != nil {
			return nil, err
		}
	}
	again := func(_ *store.Tx, j *store.Job) error { return jobs.SetArgs(j, at) }
	return again, jobs.Snooze(s.Now())
}

// A warmupChange is a message whose BitWarmup is wrong.
type warmupChange struct {
	mailbox, folder, uid uint32
	bits                 store.Bits // the right bits of the message
}

// correctBatch examines some messages from the position at, corrects their BitWarmup, and advances
// at.
func (s *Service) correctBatch(at *warmupArgs) (done bool, err error) {
	var changes []warmupChange
	from := *at
	err = s.Store.View(func(tx *store.Tx) (err error) {
		*at, changes = from, nil
		done, changes, err = findWrongBits(tx, at)
		return err
	})
	for err == nil && len(changes) > 0 {
		some := changes[:min(warmupPerWrite, len(changes))]
		changes = changes[len(some):]
		err = s.Store.Update(func(tx *store.Tx) error { return s.setWarmup(tx, at.AccountID, some) })
	}
	return done, err
}

// findWrongBits examines up to warmupPerView messages, and returns those whose BitWarmup is wrong.
func findWrongBits(tx *store.Tx, at *warmupArgs) (done bool, wrong []warmupChange, err error) {
	a, err := store.Accounts.FindShared(tx, at.AccountID)
	if err != nil {
		return false, nil, err
	}
	if a == nil {
		return true, nil, nil
	}
	w := warmupWalk{tx: tx, filter: newWarmupFilter(a), remaining: warmupPerView, at: at}
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
		if whole, err := w.examineMailbox(mb); err != nil || !whole {
			return false, w.changes, err
		}
	}
	return true, w.changes, nil
}

// A warmupWalk finds messages whose BitWarmup is wrong.
type warmupWalk struct {
	tx        *store.Tx
	filter    warmupFilter
	remaining int // messages that may still be examined
	at        *warmupArgs
	changes   []warmupChange
}

// examineMailbox examines the messages of a mailbox. whole is false if it stopped because
// `remaining` was used up.
func (w *warmupWalk) examineMailbox(mb *store.Mailbox) (whole bool, err error) {
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
			if w.remaining--; w.remaining < 0 {
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

// check adds the message to changes if its BitWarmup is wrong.
func (w *warmupWalk) check(m *store.Message) error {
	is, err := w.filter.matchesStored(w.tx, m)
	if err != nil {
		return err
	}
	bits := m.Bits &^ store.BitWarmup
	if is {
		bits |= store.BitWarmup
	}
	if bits != m.Bits {
		w.changes = append(w.changes, warmupChange{m.Mailbox, m.Folder, m.UID, bits})
	}
	return nil
}

// setWarmup writes the changes. It leaves out messages that no longer exist, and messages for which
// the change is no longer right, because the phrases or header fields have changed again.
func (s *Service) setWarmup(tx *store.Tx, accountID string, changes []warmupChange) error {
	a, err := store.Accounts.Read(tx, accountID)
	if err != nil {
		return err
	}
	filter := newWarmupFilter(a)
	for _, c := range changes {
		m, err := tx.Message(c.mailbox, c.folder, c.uid)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		is, err := filter.matchesStored(tx, m)
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

// A warmupFilter recognizes the warm-up mail of an account.
type warmupFilter struct {
	phrases []string // results of foldPhrase
	headers []store.WarmupHeader
}

func newWarmupFilter(a *store.Account) warmupFilter {
	return warmupFilter{foldPhrases(a.WarmupPhrases), a.WarmupHeaders}
}

// warmupFiled is the beginning of Meta.Warmup of a message that was filed as warm-up mail. The rest
// is a header field that matched, as matchingField returns it, or "".
const (
	warmupFiled    = "+"
	warmupNotFiled = "-"
)

// warmupText returns the text that is stored as Meta.Warmup.
func warmupText(filed bool, field string) string {
	switch {
	case filed:
		return warmupFiled + field
	case field != "":
		return warmupNotFiled + field
	}
	return ""
}

// matchingField returns the first of the header fields that one of the account's matches, in the
// form "Name: value"; "" if there is none.
func (f warmupFilter) matchingField(fields []msg.Header) string {
	for _, have := range fields {
		if f.matchesField(have.Name, have.Value) {
			return have.Name + ": " + have.Value
		}
	}
	return ""
}

// matchesField reports whether the account has a header field of that name with that value, or with
// any value.
func (f warmupFilter) matchesField(name, value string) bool {
	return slices.ContainsFunc(f.headers, func(h store.WarmupHeader) bool {
		return strings.EqualFold(h.Name, name) && (h.Value == nil || *h.Value == value)
	})
}

// matches reports whether a message is warm-up mail: whether its subject or preview contains one of
// the phrases, or meta has a header field of the account.
func (f warmupFilter) matches(subject, preview string, meta *store.Meta) bool {
	if meta.Warmup != "" {
		name, value, _ := strings.Cut(meta.Warmup[1:], ": ")
		if f.matchesField(name, value) {
			return true
		}
	}
	return len(f.phrases) > 0 && hasPhrase(f.phrases, subject, preview)
}

// matchesStored is matches for a stored message.
func (f warmupFilter) matchesStored(tx *store.Tx, m *store.Message) (bool, error) {
	if len(f.phrases)+len(f.headers) == 0 {
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
	return f.matches(subject, meta.Preview, meta), nil
}

// foldPhrases applies foldPhrase to all phrases.
func foldPhrases(phrases []string) []string {
	out := make([]string, 0, len(phrases))
	for _, p := range phrases {
		out = append(out, foldPhrase(p))
	}
	return out
}

// foldPhrase returns the text in lower case and with single spaces, so that texts can be compared.
func foldPhrase(text string) string { return strings.Join(strings.Fields(strings.ToLower(text)), " ") }

// hasPhrase reports whether the subject or the preview contains one of the phrases. The phrases are
// results of foldPhrase.
func hasPhrase(folded []string, subject, preview string) bool {
	text := foldPhrase(subject) + "\n" + foldPhrase(preview)
	for _, p := range folded {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}
