package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/tokenize"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	indexPause      = time.Second // delay after new mail, so that mail that arrives in this time is indexed together
	indexRetry      = 10 * time.Second
	indexLogBacklog = 10_000    // backlog of messages from which progress is logged
	indexBatch      = 1000      // messages of one account that are indexed together
	indexPerMailbox = 250       // of these, messages of one mailbox
	indexBytes      = 4 << 20   // bytes of text that are indexed together, approximately
	maxReadWhole    = 256 << 10 // messages up to this size are read into memory at once
	purgePause      = time.Hour
	indexDrops      = 500              // rows that one transaction deletes
	indexWork       = time.Millisecond // work between two pauses, short compared with the time that a message takes to arrive
)

// indexTexts indexes new mail for searches until ctx ends. In a store without an index, all mail is
// new. Searches read the messages that are not indexed yet.
func (s *Service) indexTexts(ctx context.Context) {
	x := newIndexer(s)
	purge, stop := s.Store.Clock().Every(purgePause)
	defer stop()
	for step := indexStep(x.tidyAll); ctx.Err() == nil; {
		s.textTurn <- struct{}{}
		pause, err := step(ctx)
		<-s.textTurn
		if err != nil && ctx.Err() == nil {
			s.Log.Error("index mail for searches", "error", err)
			pause = indexRetry
		}
		if errors.Is(err, store.ErrTextDamaged) {
			s.rebuildText()
		}
		step = x.next(ctx, pause, purge)
	}
}

// DropAccountIndex deletes the text index, threads and counts of an account after its mailboxes are
// deleted, indexDrops rows at a time, between the steps of the indexer.
func (s *Service) DropAccountIndex(ctx context.Context, account uint32) error {
	for done := false; !done; {
		select {
		case s.textTurn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := s.Store.Update(func(tx *store.Tx) (err error) {
			done, err = tx.DropAccountIndex(account, indexDrops)
			return err
		})
		<-s.textTurn
		if err != nil {
			return err
		}
	}
	return nil
}

// next waits for pause or, if pause is 0, until there is work. It returns the next step.
func (x *indexer) next(ctx context.Context, pause time.Duration, purge <-chan struct{}) indexStep {
	var over <-chan time.Time
	wake := x.s.Store.TextWake()
	if pause > 0 {
		core.Sleep(ctx, pause)
		over, wake = time.After(0), nil
	}
	select {
	case <-purge:
		return x.purge
	case <-x.s.textDamaged:
		return x.Rebuild
	case <-wake:
		core.Sleep(ctx, indexPause)
	case <-over:
	case <-ctx.Done():
	}
	return x.Round
}

// An indexStep does some work and returns how long to wait before the next step; 0: until there is
// work.
type indexStep func(ctx context.Context) (time.Duration, error)

// An indexer indexes mail for searches.
type indexer struct {
	s        *Service
	splitter tokenize.Splitter
	loggedAt time.Time // when the backlog was last logged
	pace     store.Pacer
}

func newIndexer(s *Service) *indexer { return &indexer{s: s, pace: store.Pacer{Work: indexWork}} }

func (x *indexer) tidyAll(ctx context.Context) (time.Duration, error) {
	return time.Nanosecond, x.s.Store.TidyText(ctx, 0)
}

// Rebuild resets the index, so that all mail is indexed again.
func (x *indexer) Rebuild(context.Context) (time.Duration, error) {
	x.s.Log.Warn("the text index is damaged and is being rebuilt")
	return time.Nanosecond, x.s.Store.ResetText()
}

// rebuildText makes the indexer rebuild the index soon.
func (s *Service) rebuildText() {
	select {
	case s.textDamaged <- struct{}{}:
	default:
	}
}

func (x *indexer) purge(ctx context.Context) (time.Duration, error) {
	return time.Nanosecond, x.s.Store.PurgeText(ctx)
}

// Round indexes some mail of each account in turn, so that an account with much mail does not delay
// the others. It returns how long to wait before the next round; 0 if there is no work.
func (x *indexer) Round(ctx context.Context) (time.Duration, error) {
	accounts, left, err := x.backlog()
	if err != nil || len(accounts) == 0 {
		return 0, err
	}
	x.logProgress(left)
	full := false
	for _, account := range accounts {
		more, err := x.batch(ctx, account)
		if err == nil {
			err = x.pace.Rest(ctx)
		}
		if err != nil {
			return 0, err
		}
		full = full || more
	}
	if full {
		return time.Nanosecond, nil
	}
	return indexPause, nil
}

// logProgress logs the size of a large backlog, at most once a minute.
func (x *indexer) logProgress(left int) {
	now := x.s.Now()
	if left < indexLogBacklog || now.Sub(x.loggedAt) < time.Minute {
		return
	}
	x.loggedAt = now
	x.s.Log.Info("stored mail is being indexed for searches; until that is done they take several pages", "messages_left", left)
}

// backlog returns the accounts that have mail to index, and an upper bound of the number of
// messages.
func (x *indexer) backlog() (accounts []uint32, left int, err error) {
	err = x.s.Store.View(func(tx *store.Tx) error {
		for t := range tx.TextTodos(0) {
			if len(accounts) == 0 || accounts[len(accounts)-1] != t.Account {
				accounts = append(accounts, t.Account)
			}
			if t.Single {
				left++
			} else if f, err := tx.Folder(tx.FolderOfNum(t.Num)); err == nil && f.UIDNext > t.UID {
				left += int(f.UIDNext - t.UID)
			}
		}
		return nil
	})
	return accounts, left, err
}

// batch indexes some mail of an account; more reports whether there is more.
func (x *indexer) batch(ctx context.Context, account uint32) (more bool, err error) {
	work, metas, err := x.Gather(account)
	if err != nil {
		return false, err
	}
	if err := x.Index(ctx, account, work, metas); err != nil {
		return false, err
	}
	return work.More, x.s.Store.TidyText(ctx, account)
}

// Index adds the gathered messages to the index.
func (x *indexer) Index(ctx context.Context, account uint32, work *store.TextWork, metas []*store.Meta) (err error) {
	b := store.NewTextBatch(account)
	summaries := make([]*msg.Summary, len(work.Messages))
	for i := range work.Messages {
		m := &work.Messages[i]
		if err := x.pace.Rest(ctx); err != nil {
			return err
		}
		b.Message(positionOf(m))
		summaries[i], err = x.add(b, m, metas[i])
		if err != nil {
			return fmt.Errorf("index message %d of mailbox %d: %w", m.UID, m.Mailbox, err)
		}
	}
	return x.s.Store.AddText(b, work.Done, func(tx *store.Tx) error {
		for i := len(summaries) - 1; i >= 0; i-- { // in the order of arrival: the newest message of a subject decides
			if err := recordSubject(tx, account, summaries[i], metas[i].ThreadID, work.Messages[i].Received); err != nil {
				return err
			}
		}
		return nil
	})
}

// Gather selects messages to index and reads their Metas.
func (x *indexer) Gather(account uint32) (work *store.TextWork, metas []*store.Meta, err error) {
	err = x.s.Store.View(func(tx *store.Tx) error {
		metas = nil
		work, err = tx.TextWork(account, store.TextLimits{Most: indexBatch, Each: indexPerMailbox, Bytes: indexBytes, Message: maxReadWhole})
		if err != nil {
			return err
		}
		for _, m := range work.Messages {
			meta, err := tx.Meta(m.Mailbox, m.Folder, m.UID)
			if err != nil {
				return err
			}
			metas = append(metas, meta)
		}
		return nil
	})
	return work, metas, err
}

// add adds the words of a message to the batch, and returns a Summary for recordSubject. If the
// bytes of the message cannot be read, only its thread is indexed.
func (x *indexer) add(b *store.TextBatch, m *store.Message, meta *store.Meta) (*msg.Summary, error) {
	if meta.ThreadID != "" {
		b.Word([]byte(threadWord(meta.ThreadID)))
	}
	root, err := msg.DecodePart(meta.Structure)
	var texts []string
	if err == nil {
		texts, err = x.s.searchTexts(m.Blob, root)
	}
	if errors.Is(err, store.ErrNotFound) {
		texts, err = x.readMoved(m, root)
	}
	if errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrFailed) {
		return nil, err
	}
	if err != nil {
		x.s.Log.Error("read a message for the text index", "mailbox", m.Mailbox, "uid", m.UID, "error", err)
		return &msg.Summary{}, nil
	}
	for _, text := range texts {
		x.splitter.Split(text, func(word []byte, _ bool) { b.Word(word) })
	}
	e := root.Envelope
	if e == nil {
		e = &msg.Envelope{}
	}
	return &msg.Summary{Subject: e.Subject, From: withoutGroups(e.From), To: withoutGroups(e.To), Cc: withoutGroups(e.Cc)}, nil
}

// readMoved reads a message whose bytes compaction has moved since its row was gathered.
func (x *indexer) readMoved(m *store.Message, root *msg.Part) ([]string, error) {
	var ref store.BlobRef
	err := x.s.Store.View(func(tx *store.Tx) error {
		now, err := tx.Message(m.Mailbox, m.Folder, m.UID)
		if err == nil {
			ref = now.Blob
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return x.s.searchTexts(ref, root)
}

// searchTexts returns the texts of a message that searches match.
func (s *Service) searchTexts(ref store.BlobRef, root *msg.Part) ([]string, error) {
	blob, err := s.Store.OpenBlob(ref)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	var r io.ReaderAt = blob
	if blob.Size() <= maxReadWhole {
		whole := make([]byte, blob.Size())
		if _, err := blob.ReadAt(whole, 0); err != nil && err != io.EOF {
			return nil, err
		}
		r = bytes.NewReader(whole)
	}
	return msg.SearchTexts(r, root)
}

// threadWord returns the word under which the text index has a thread: words of texts never contain
// \x01.
func threadWord(id string) string { return "\x01" + id }
