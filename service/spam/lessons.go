package spam

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/classify"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

const (
	kindLearn = "learn_spam"

	maxTokens    = 200_000 // of an account
	lessonsMost  = 50      // messages that are learned in one transaction
	changesMost  = 3_000   // tokens that a transaction changes, or as many as one message has
	taughtEither = store.BitTaughtSpam | store.BitTaughtHam
)

// A Move is where a message was moved, or copied.
type Move struct{ FromJunk, ToJunk, ToTrash bool }

// Moved notes what the classifier of the account learns from a move of a message, which is the one
// that lies in the new place. Into Junk it is spam, and out of it, to anywhere but Trash, wanted
// mail. A message counts once, and a move back takes that back. It gives which of BitTaughtSpam and
// BitTaughtHam the message has then.
func (s *Service) Moved(tx *store.Tx, accountID string, m *store.Message, to Move) (taught store.Bits, err error) {
	taught = m.Bits & taughtEither
	l := &store.SpamLesson{AccountID: accountID, Blob: m.Blob}
	switch {
	case !s.On() || to.FromJunk == to.ToJunk || to.FromJunk && to.ToTrash:
		return taught, nil
	case to.ToJunk && taught == 0:
		taught, l.Spam = store.BitTaughtSpam, true
	case to.ToJunk && taught == store.BitTaughtHam:
		taught, l.Forget = 0, true
	case to.FromJunk && taught == 0:
		taught = store.BitTaughtHam
	case to.FromJunk && taught == store.BitTaughtSpam:
		taught, l.Spam, l.Forget = 0, true, true
	default:
		return taught, nil
	}
	var meta store.Meta
	if err := tx.ReadMeta(&meta, m); err != nil {
		return taught, err
	}
	l.ID, l.SPF, l.DKIM, l.DMARC = tx.NewID("les"), meta.SPF, meta.DKIM, meta.DMARC
	l.Answers = meta.OriginalMessageID != ""
	if err := tx.RefLesson(l.Blob, l.ID); err != nil {
		return taught, err
	}
	if err := store.SpamLessons.Put(tx, l); err != nil {
		return taught, err
	}
	if err := s.planLearning(tx, accountID); err != nil {
		return taught, err
	}
	return taught, tx.SetTaught(m, taught)
}

func (s *Service) planLearning(tx *store.Tx, accountID string) error {
	_, err := s.Queue.Add(tx, jobs.New{AccountID: accountID, Kind: kindLearn, Key: accountID, Lane: kindLearn + " " + accountID})
	return err
}

func (s *Service) learnKind() jobs.Kind {
	return jobs.Kind{Name: kindLearn, Work: s.learn, Max: 10, Timeout: time.Minute}
}

// learn learns the next lessons of an account.
func (s *Service) learn(_ context.Context, j *store.Job) (jobs.Writes, error) {
	// Read the lessons, and which tokens they are about.
	var lessons []*store.SpamLesson
	account := uint32(0)
	err := s.Store.View(func(tx *store.Tx) error {
		lessons = nil
		a, err := store.Accounts.Find(tx, j.AccountID)
		if a == nil || err != nil {
			return err
		}
		account = a.Num
		for _, l := range store.SpamLessonsByAccount.Asc(tx, j.AccountID, "") {
			if lessons = append(lessons, l); len(lessons) == lessonsMost {
				break
			}
		}
		return nil
	})
	if err != nil || len(lessons) == 0 {
		return nil, err
	}
	known, err := s.models.get(j.AccountID)
	if err != nil {
		return nil, err
	}
	learned := classify.NewModel()
	if known != nil {
		learned = known.Clone()
	}
	changed := map[classify.Token]bool{}
	day := uint16(store.DayNumber(s.Now()))
	for i, l := range lessons {
		tokens, err := s.tokens(l)
		if errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrNotFound) {
			s.Log.Warn("a message that was moved to or from Junk cannot be read; nothing is learned from it", "account_id", j.AccountID, "error", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		if i > 0 && len(changed)+len(tokens) > changesMost {
			lessons = lessons[:i]
			break
		}
		for _, t := range learned.Train(tokens, l.Spam, l.Forget, day) {
			changed[t] = true
		}
	}
	if over := learned.Len() - maxTokens; over > 0 {
		for _, t := range learned.LeastUsed(over) {
			learned.Set(t, classify.Count{})
			changed[t] = true
		}
	}
	tokens := make([]classify.Token, 0, len(changed))
	for t := range changed {
		tokens = append(tokens, t)
	}
	slices.Sort(tokens)

	return func(tx *store.Tx, _ *store.Job) error {
		if a, err := store.Accounts.Find(tx, j.AccountID); a == nil || err != nil {
			return err
		}
		for _, t := range tokens {
			if err := tx.PutSpamToken(account, uint64(t), store.SpamCount(learned.Get(t))); err != nil {
				return err
			}
		}
		err := store.SpamModels.Put(tx, &store.SpamModel{AccountID: j.AccountID, Spam: learned.Spam, Ham: learned.Ham})
		if err != nil {
			return err
		}
		for _, l := range lessons {
			now, err := store.SpamLessons.Get(tx, l.ID) // compaction may have moved its bytes
			if err == nil {
				err = tx.UnrefLesson(now.Blob, now.ID)
			}
			if err == nil {
				err = store.SpamLessons.Delete(tx, l.ID)
			}
			if err != nil {
				return fmt.Errorf("lesson %s: %w", l.ID, err)
			}
		}
		tx.After(func() { s.models.put(j.AccountID, learned) })
		if store.SpamLessonsByAccount.Has(tx, j.AccountID) {
			return s.planLearning(tx, j.AccountID)
		}
		return nil
	}, nil
}

// tokens reads the message of a lesson.
func (s *Service) tokens(l *store.SpamLesson) ([]classify.Token, error) {
	blob, err := s.Store.OpenBlob(l.Blob)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	root, err := msg.Scan(io.NewSectionReader(blob, 0, blob.Size()))
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	reading, err := classify.Read(blob, root, EvidenceOf(l.SPF, l.DKIM, l.DMARC, l.Answers))
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	return reading.Tokens(), nil
}

// EvidenceOf is what the server knows of a message: what the checks of its sender found, and
// whether it answers one that the account has sent, which counts if DMARC has passed.
func EvidenceOf(spf, dkim, dmarc string, answers bool) classify.Evidence {
	return classify.Evidence{SPF: spf, DKIM: dkim, DMARC: dmarc, WrittenTo: answers && dmarc == "pass"}
}
