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
	indexPause = time.Second // mail of about this long is indexed together
	indexRetry = 10 * time.Second
	indexTell  = 10_000    // messages to do that the log hears of
	indexMost  = 1000      // messages of one account that are indexed together
	indexEach  = 250       // of them, of one mailbox
	indexText  = 4 << 20   // bytes of text, about
	readWhole  = 256 << 10 // messages up to this many bytes are read at once
	purgePause = time.Hour
	indexDrops = 500              // rows that one transaction deletes
	indexTurn  = time.Millisecond // between two rests, short beside the time that a message takes to come in
)

// indexTexts makes mail searchable soon after it came, until ctx ends; in a store without index all
// mail is to do. What is not done yet, searches look at message by message.
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

// DropAccountIndex deletes the text index, conversations and counts of an account whose mailboxes
// are gone, some rows at a time, between the steps of the indexer.
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

// next waits for pause, or without one until there is something to do, and says what comes then.
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

// An indexStep is something that is done, and how long to wait then; 0: until there is something to
// do.
type indexStep func(ctx context.Context) (time.Duration, error)

// An indexer makes mail searchable.
type indexer struct {
	s        *Service
	splitter tokenize.Splitter
	loggedAt time.Time // when the log heard of much that is to do
	pace     store.Pacer
}

func newIndexer(s *Service) *indexer { return &indexer{s: s, pace: store.Pacer{Work: indexTurn}} }

func (x *indexer) tidyAll(ctx context.Context) (time.Duration, error) {
	return time.Nanosecond, x.s.Store.TidyText(ctx, 0)
}

// Rebuild has the whole index made again.
func (x *indexer) Rebuild(context.Context) (time.Duration, error) {
	x.s.Log.Warn("the index for searches is damaged and is made anew")
	return time.Nanosecond, x.s.Store.ResetText()
}

// rebuildText has the index made again soon.
func (s *Service) rebuildText() {
	select {
	case s.textDamaged <- struct{}{}:
	default:
	}
}

func (x *indexer) purge(ctx context.Context) (time.Duration, error) {
	return time.Nanosecond, x.s.Store.PurgeText(ctx)
}

// Round indexes some mail of each account in turn, so that one with much does not hold up the
// others. It says how long to wait before the next; 0 if there is nothing to do.
func (x *indexer) Round(ctx context.Context) (time.Duration, error) {
	accounts, left, err := x.todo()
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

// logProgress has the log say now and then how far a large store is.
func (x *indexer) logProgress(left int) {
	now := x.s.Now()
	if left < indexTell || now.Sub(x.loggedAt) < time.Minute {
		return
	}
	x.loggedAt = now
	x.s.Log.Info("stored mail is being indexed for searches; until that is done they take several pages", "messages_left", left)
}

// todo gives the accounts that have something to do, and how many messages that are at most.
func (x *indexer) todo() (accounts []uint32, left int, err error) {
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

// batch indexes some mail of an account; more reports whether that was not all.
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

// Index adds gathered mail to the index.
func (x *indexer) Index(ctx context.Context, account uint32, work *store.TextWork, metas []*store.Meta) (err error) {
	b := store.NewTextBatch(account)
	summaries := make([]*msg.Summary, len(work.Messages))
	for i := range work.Messages {
		m := &work.Messages[i]
		if err := x.pace.Rest(ctx); err != nil {
			return err
		}
		b.Message(placeOf(m))
		summaries[i], err = x.add(b, m, metas[i])
		if err != nil {
			return fmt.Errorf("index message %d of mailbox %d: %w", m.UID, m.Mailbox, err)
		}
	}
	return x.s.Store.AddText(b, work.Done, func(tx *store.Tx) error {
		for i := len(summaries) - 1; i >= 0; i-- { // the newest last, which counts
			if err := recordSubject(tx, account, summaries[i], metas[i].ThreadID, work.Messages[i].Received); err != nil {
				return err
			}
		}
		return nil
	})
}

// Gather picks the messages, and reads what was found in them when they came.
func (x *indexer) Gather(account uint32) (work *store.TextWork, metas []*store.Meta, err error) {
	err = x.s.Store.View(func(tx *store.Tx) error {
		metas = nil
		work, err = tx.TextWork(account, store.TextLimits{Most: indexMost, Each: indexEach, Bytes: indexText, Message: readWhole})
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

// add adds the words of a message, and gives what its subject is noted by. One whose bytes cannot
// be read is found by its thread alone.
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
		x.s.Log.Error("read a message for searches", "mailbox", m.Mailbox, "uid", m.UID, "error", err)
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

// readMoved reads a message that compaction has moved since its row was gathered.
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

// searchTexts gives the texts that a message is found by.
func (s *Service) searchTexts(ref store.BlobRef, root *msg.Part) ([]string, error) {
	blob, err := s.Store.OpenBlob(ref)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	var r io.ReaderAt = blob
	if blob.Size() <= readWhole {
		whole := make([]byte, blob.Size())
		if _, err := blob.ReadAt(whole, 0); err != nil && err != io.EOF {
			return nil, err
		}
		r = bytes.NewReader(whole)
	}
	return msg.SearchTexts(r, root)
}

func placeOf(m *store.Message) store.InboxPos {
	return store.InboxPos{Received: m.Received, UID: m.UID, Num: m.Num}
}
