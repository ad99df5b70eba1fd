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
	indexDelay         = time.Second      // how long the indexer waits after new mail, so that the mail of this time is indexed together
	indexRetryDelay    = 10 * time.Second // how long the indexer waits after an error
	minLoggedBacklog   = 10_000           // number of unindexed messages from which progress is logged
	maxBatchMessages   = 1000             // messages of one account that are indexed in one batch
	maxBatchPerMailbox = 250              // messages of one mailbox that are indexed in one batch
	maxBatchBytes      = 4 << 20          // bytes of text that are indexed in one batch, approximately
	maxReadWhole       = 256 << 10        // messages up to this size, in bytes, are read into memory at once
	purgeInterval      = time.Hour        // interval between two deletions of index data that is no longer needed
	dropsPerWrite      = 500              // rows that one transaction deletes
	indexSlice         = time.Millisecond // how long the indexer works between two pauses; short compared with the time to receive a message
)

// indexTexts indexes new mail for searches until ctx ends. In a store without an index, all mail
// counts as new. Searches read the messages that are not indexed yet.
func (s *Service) indexTexts(ctx context.Context) {
	x := newIndexer(s)
	purge, stop := s.Store.Clock().Every(purgeInterval)
	defer stop()
	for step := indexStep(x.mergeAll); ctx.Err() == nil; {
		s.textIndexLock <- struct{}{}
		pause, err := step(ctx)
		<-s.textIndexLock
		if err != nil && ctx.Err() == nil {
			s.Log.Error("index mail for searches", "error", err)
			pause = indexRetryDelay
		}
		if errors.Is(err, store.ErrTextDamaged) {
			s.rebuildText()
		}
		step = x.next(ctx, pause, purge)
	}
}

// DropAccountIndex deletes the text index, threads and counts of an account. It is called after the
// account's mailboxes are deleted. It deletes dropsPerWrite rows in each transaction. The indexer
// can work between these transactions.
func (s *Service) DropAccountIndex(ctx context.Context, account uint32) error {
	for done := false; !done; {
		select {
		case s.textIndexLock <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := s.Store.Update(func(tx *store.Tx) (err error) {
			done, err = tx.DropAccountIndex(account, dropsPerWrite)
			return err
		})
		<-s.textIndexLock
		if err != nil {
			return err
		}
	}
	return nil
}

// next waits for the duration wait; if that is 0, it waits until there is work. Then it returns the
// next step.
func (x *indexer) next(ctx context.Context, wait time.Duration, purge <-chan struct{}) indexStep {
	var over <-chan time.Time
	wake := x.s.Store.TextWake()
	if wait > 0 {
		core.Sleep(ctx, wait)
		over, wake = time.After(0), nil
	}
	select {
	case <-purge:
		return x.purge
	case <-x.s.textDamaged:
		return x.Rebuild
	case <-wake:
		core.Sleep(ctx, indexDelay)
	case <-over:
	case <-ctx.Done():
	}
	return x.IndexRound
}

// An indexStep is one unit of the indexer's work. wait is how long to wait before the next step; 0:
// until there is work.
type indexStep func(ctx context.Context) (wait time.Duration, err error)

// An indexer adds the words of mail to the text index, for searches.
type indexer struct {
	s        *Service
	splitter tokenize.Splitter
	loggedAt time.Time // when the backlog was last logged
	pace     store.Pacer
}

func newIndexer(s *Service) *indexer { return &indexer{s: s, pace: store.Pacer{Work: indexSlice}} }

// mergeAll merges the runs of the text indexes of all accounts. It is the indexer's first step.
func (x *indexer) mergeAll(ctx context.Context) (wait time.Duration, err error) {
	return time.Nanosecond, x.s.Store.TidyText(ctx, 0)
}

// Rebuild deletes the index, so that all mail is indexed again.
func (x *indexer) Rebuild(context.Context) (wait time.Duration, err error) {
	x.s.Log.Warn("the text index is damaged and is being rebuilt")
	return time.Nanosecond, x.s.Store.ResetText()
}

// rebuildText requests a rebuild of the text index. It does not wait for it.
func (s *Service) rebuildText() {
	select {
	case s.textDamaged <- struct{}{}:
	default:
	}
}

// purge rewrites the runs of the text index that contain deleted messages.
func (x *indexer) purge(ctx context.Context) (wait time.Duration, err error) {
	return time.Nanosecond, x.s.Store.PurgeText(ctx)
}

// IndexRound indexes one batch of each account that has new mail, so that an account with much mail
// does not delay the others. It returns how long to wait before the next round, or 0 if there is no
// work.
func (x *indexer) IndexRound(ctx context.Context) (wait time.Duration, err error) {
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
	return indexDelay, nil
}

// logProgress logs the size of a large backlog, at most once a minute.
func (x *indexer) logProgress(left int) {
	now := x.s.Now()
	if left < minLoggedBacklog || now.Sub(x.loggedAt) < time.Minute {
		return
	}
	x.loggedAt = now
	x.s.Log.Info("stored mail is being indexed for searches; until that is done they take several pages", "messages_left", left)
}

// backlog returns the accounts with mail that is not indexed yet. left is an upper bound of the
// number of these messages.
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

// batch indexes one batch of an account's messages. more is true if the account has more to index.
func (x *indexer) batch(ctx context.Context, account uint32) (more bool, err error) {
	work, metas, err := x.Gather(account)
	if err != nil {
		return false, err
	}
	if err := x.IndexBatch(ctx, account, work, metas); err != nil {
		return false, err
	}
	return work.More, x.s.Store.TidyText(ctx, account)
}

// IndexBatch adds a batch of messages to the index. work and metas are results of Gather.
func (x *indexer) IndexBatch(ctx context.Context, account uint32, work *store.TextWork, metas []*store.Meta) (err error) {
	b := store.NewTextBatch(account)
	summaries := make([]*msg.Summary, len(work.Messages))
	for i := range work.Messages {
		m := &work.Messages[i]
		if err := x.pace.Rest(ctx); err != nil {
			return err
		}
		b.AddMessage(positionOf(m))
		summaries[i], err = x.add(b, m, metas[i])
		if err != nil {
			return fmt.Errorf("index message %d of mailbox %d: %w", m.UID, m.Mailbox, err)
		}
	}
	return x.s.Store.AddText(b, work.Done, func(tx *store.Tx) error {
		for i := len(summaries) - 1; i >= 0; i-- { // oldest first: for each subject the newest message must be recorded last
			if err := recordSubject(tx, account, summaries[i], metas[i].ThreadID, work.Messages[i].Received); err != nil {
				return err
			}
		}
		return nil
	})
}

// Gather selects the messages of the next batch and reads their Metas.
func (x *indexer) Gather(account uint32) (work *store.TextWork, metas []*store.Meta, err error) {
	err = x.s.Store.View(func(tx *store.Tx) error {
		metas = nil
		work, err = tx.TextWork(account, store.TextLimits{Most: maxBatchMessages, Each: maxBatchPerMailbox, Bytes: maxBatchBytes, Message: maxReadWhole})
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

// add adds the words of a message to the batch and returns a Summary for recordSubject. If the
// message's bytes cannot be read, it adds only the thread.
func (x *indexer) add(b *store.TextBatch, m *store.Message, meta *store.Meta) (*msg.Summary, error) {
	if meta.ThreadID != "" {
		b.AddWord([]byte(threadWord(meta.ThreadID)))
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
		x.splitter.Split(text, func(word []byte, _ bool) { b.AddWord(word) })
	}
	e := root.Envelope
	if e == nil {
		e = &msg.Envelope{}
	}
	return &msg.Summary{Subject: e.Subject, From: withoutGroups(e.From), To: withoutGroups(e.To), Cc: withoutGroups(e.Cc)}, nil
}

// readMoved reads the texts of a message whose bytes were moved by compaction after Gather.
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

// searchTexts returns the texts of a message in which searches look for words.
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

// threadWord returns the word that stands for a thread in the text index. It differs from all words
// of texts, because they never contain \x01.
func threadWord(id string) string { return "\x01" + id }
