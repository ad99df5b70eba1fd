package spam

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/classify"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

const (
	kindLearn = "learn_spam"

	maxTokens         = 200_000 // tokens in the model of one account
	maxLessons        = 50      // messages learned in one transaction, and examples of wanted mail
	maxChanges        = 2_000   // tokens counted in one transaction; as many more may have to be forgotten
	maxOwingMailboxes = 200     // mailboxes for which the examples that they still need are counted
	taughtEither      = store.BitTaughtSpam | store.BitTaughtHam
)

// A Move says from and to which folders a message was moved or copied.
type Move struct{ FromJunk, ToJunk, ToTrash bool }

// Moved records what the classifier of the account learns from a moved message; m is the message at
// its new place. A message moved into Junk is spam; one moved out of it, except to Trash, is wanted
// mail. A message counts once, and moving it back undoes that. If a read message is moved to a
// folder other than Junk and Trash, and its mailbox still needs examples of wanted mail, Moved
// queues learning. Moved returns which of BitTaughtSpam and BitTaughtHam the message has
// afterwards.
func (s *Service) Moved(tx *store.Tx, accountID string, m *store.Message, to Move) (taught store.Bits, err error) {
	taught = m.Bits & taughtEither
	if !s.On() || to.FromJunk && (to.ToJunk || to.ToTrash) {
		return taught, nil
	}
	if !to.FromJunk && !to.ToJunk {
		if to.ToTrash || m.Flags&store.FlagSeen == 0 {
			return taught, nil
		}
		known, err := store.SpamModels.Find(tx, accountID)
		if known != nil && known.Owed[m.Mailbox] > 0 {
			err = s.queueLearning(tx, accountID)
		}
		return taught, err
	}
	note := func(spam, forget bool) {
		if err == nil {
			err = s.addLesson(tx, accountID, m, spam, forget)
		}
	}
	switch {
	case to.ToJunk && taught == 0:
		note(true, false)
		taught = store.BitTaughtSpam
	case to.ToJunk && taught == store.BitTaughtHam:
		note(false, true)
		taught = 0
	case to.ToJunk && taught == taughtEither: // it was an example of wanted mail
		note(false, true)
		note(true, false)
		taught = store.BitTaughtSpam
	case to.FromJunk && taught == 0:
		note(false, false)
		taught = store.BitTaughtHam
	case to.FromJunk && taught == store.BitTaughtSpam:
		note(true, true)
		taught = 0
	default:
		return taught, nil
	}
	if err == nil {
		err = s.queueLearning(tx, accountID)
	}
	if err == nil {
		err = tx.SetTaught(m, taught)
	}
	return taught, err
}

func (s *Service) addLesson(tx *store.Tx, accountID string, m *store.Message, spam, forget bool) error {
	var meta store.Meta
	if err := tx.ReadMeta(&meta, m); err != nil {
		return err
	}
	l := &store.SpamLesson{
		ID: tx.NewID("les"), AccountID: accountID, Mailbox: m.Mailbox, Blob: m.Blob, Spam: spam, Forget: forget,
		SPF: meta.SPF, DKIM: meta.DKIM, DMARC: meta.DMARC, Answers: meta.OriginalMessageID != "",
	}
	if err := store.LessonBlobs.Ref(tx, l.Blob, l.ID); err != nil {
		return err
	}
	return store.SpamLessons.Put(tx, l)
}

func (s *Service) queueLearning(tx *store.Tx, accountID string) error {
	_, err := s.Queue.Add(tx, jobs.New{AccountID: accountID, Kind: kindLearn, Key: accountID, Lane: kindLearn + " " + accountID})
	return err
}

func (s *Service) learnKind() jobs.Kind {
	return jobs.Kind{Name: kindLearn, Work: s.learn, Max: 10, Timeout: time.Minute}
}

// learn works on a learn_spam job: it learns the next lessons of an account. People mark spam far
// more often than wanted mail, so that words in all mail of an account would count as signs of
// spam. For each spam message learn therefore takes one example of wanted mail.
func (s *Service) learn(_ context.Context, j *store.Job) (jobs.Writes, error) {
	// Read the lessons.
	var lessons []*store.SpamLesson
	account, owed := uint32(0), map[uint32]uint32{}
	err := s.Store.View(func(tx *store.Tx) error {
		lessons, owed = nil, map[uint32]uint32{}
		a, err := store.Accounts.Find(tx, j.AccountID)
		if a == nil || err != nil {
			return err
		}
		account = a.Num
		if kept, err := store.SpamModels.Find(tx, j.AccountID); err != nil {
			return err
		} else if kept != nil {
			maps.Copy(owed, kept.Owed)
		}
		for _, l := range store.SpamLessonsByAccount.Asc(tx, j.AccountID, "") {
			lessons = append(lessons, l)
			if len(lessons) == maxLessons {
				break
			}
		}
		return nil
	})
	if err != nil || len(lessons)+len(owed) == 0 {
		return nil, err
	}
	known, err := s.models.get(j.AccountID)
	if err != nil {
		return nil, err
	}

	// Count them, and examples of wanted mail, in a copy of the account's model, if it has one.
	learned := classify.NewModel()
	if known != nil {
		learned = known.Clone()
	}
	changed := map[classify.Token]bool{}
	day := uint16(store.DayNumber(s.Now()))
	train := func(tokens []classify.Token, spam, forget bool) {
		for _, t := range learned.Train(tokens, spam, forget, day) {
			changed[t] = true
		}
	}
	for i, l := range lessons {
		tokens, err := s.tokens(l.Blob, EvidenceOf(l.SPF, l.DKIM, l.DMARC, l.Answers))
		if isUnreadable(err) {
			s.Log.Warn("could not read a message that was moved to or from Junk; nothing is learned from it", "account_id", j.AccountID, "error", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		if i > 0 && len(changed)+len(tokens) > maxChanges/2 { // the other half is for examples
			lessons = lessons[:i]
			break
		}
		train(tokens, l.Spam, l.Forget)
		updateOwed(owed, learned, l)
	}
	examples, more, err := s.examples(account, owed, learned)
	if err != nil {
		return nil, err
	}
	for i, e := range examples {
		tokens, err := s.tokens(e.message.Blob, e.evidence)
		switch {
		case isUnreadable(err):
			tokens = nil
		case err != nil:
			return nil, err
		}
		if len(changed)+len(tokens) > maxChanges {
			examples, more = examples[:i], true
			break
		}
		train(tokens, false, false)
		if owed[e.message.Mailbox]--; owed[e.message.Mailbox] == 0 {
			delete(owed, e.message.Mailbox)
		}
	}
	if over := learned.Len() - maxTokens; over > 0 {
		for _, t := range learned.LeastUsed(over) {
			learned.Set(t, classify.Count{})
			changed[t] = true
		}
	}
	tokens := slices.Sorted(maps.Keys(changed))

	return func(tx *store.Tx, _ *store.Job) error {
		if a, err := store.Accounts.Find(tx, j.AccountID); a == nil || err != nil {
			return err
		}
		for i := range examples {
			m := examples[i].message
			now, err := tx.Message(m.Mailbox, m.Folder, m.UID)
			if err != nil || now.Bits&taughtEither != 0 || now.Flags&store.FlagSeen == 0 {
				return jobs.RetryAt(tx.Now(), errors.New("an example of wanted mail was moved or marked since it was read"))
			}
			if err := tx.SetTaught(&m, taughtEither); err != nil {
				return err
			}
		}
		for _, t := range tokens {
			if err := tx.PutSpamToken(account, uint64(t), store.SpamCount(learned.Get(t))); err != nil {
				return err
			}
		}
		err := store.SpamModels.Put(tx, &store.SpamModel{AccountID: j.AccountID, Spam: learned.Spam, Ham: learned.Ham, Owed: owed})
		if err != nil {
			return err
		}
		for _, l := range lessons {
			now, err := store.SpamLessons.Get(tx, l.ID) // compaction may have moved its bytes
			if err == nil {
				err = store.LessonBlobs.Unref(tx, now.Blob, now.ID)
			}
			if err == nil {
				err = store.SpamLessons.Delete(tx, l.ID)
			}
			if err != nil {
				return fmt.Errorf("delete spam lesson %s: %w", l.ID, err)
			}
		}
		tx.After(func() { s.models.put(j.AccountID, learned) })
		if more || store.SpamLessonsByAccount.Has(tx, j.AccountID) {
			return s.queueLearning(tx, j.AccountID)
		}
		return nil
	}, nil
}

// updateOwed updates owed, the number of examples of wanted mail that each mailbox still needs,
// after the lesson l was learned. If no mailbox needs any, but the model has more spam than wanted
// mail, an example was undone or an older version wrote the model. Then updateOwed adds the
// difference.
func updateOwed(owed map[uint32]uint32, learned *classify.Model, l *store.SpamLesson) {
	switch n := owed[l.Mailbox]; {
	case !l.Spam:
	case l.Forget && n > 1:
		owed[l.Mailbox]--
	case l.Forget:
		delete(owed, l.Mailbox)
	case len(owed) == 0:
		owed[l.Mailbox] = max(1, learned.Spam-min(learned.Spam, learned.Ham))
	case n > 0 || len(owed) < maxOwingMailboxes:
		owed[l.Mailbox]++
	}
}

// tokens reads a message and returns its tokens.
func (s *Service) tokens(ref store.BlobRef, e classify.Evidence) ([]classify.Token, error) {
	blob, err := s.Store.OpenBlob(ref)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	root, err := msg.Scan(io.NewSectionReader(blob, 0, blob.Size()))
	if err != nil {
		return nil, fmt.Errorf("parse a message for the spam classifier: %w", err)
	}
	reading, err := classify.Read(blob, root, e)
	if err != nil {
		return nil, fmt.Errorf("read the words of a message for the spam classifier: %w", err)
	}
	return reading.Tokens(), nil
}

// isUnreadable reports whether a message can never be read.
func isUnreadable(err error) bool {
	return errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrNotFound)
}

// EvidenceOf returns the evidence about a message: the results of the checks of its sender, and
// whether it answers a message that the account has sent, which counts only if DMARC has passed.
func EvidenceOf(spf, dkim, dmarc string, answers bool) classify.Evidence {
	return classify.Evidence{SPF: spf, DKIM: dkim, DMARC: dmarc, WrittenTo: answers && dmarc == "pass"}
}
