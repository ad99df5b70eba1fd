// Package indexer adds the words of stored mail to the text index, which searches use. It does not
// know who searches, nor which texts a reader may see.
package indexer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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
	purgeInterval      = time.Hour        // interval between two deletions of index data that is no longer needed
	dropsPerWrite      = 500              // rows that one transaction deletes
	indexSlice         = time.Millisecond // how long the indexer works between two pauses; short compared with the time to receive a message
)

// MaxReadWhole is the size in bytes up to which Texts reads a message into memory at once. Of a
// longer message it reads the parts that have text.
const MaxReadWhole = 256 << 10

// RecordSubject records the subject and thread of an indexed message.
type RecordSubject func(tx *store.Tx, account uint32, sum *msg.Summary, threadID string, at time.Time) error

// A Service keeps the text index of an installation.
type Service struct {
	*core.Core
	recordSubject RecordSubject
	damaged       chan struct{} // contains a value if the index must be rebuilt
	lock          chan struct{} // contains a value while a goroutine changes the index
}

// New returns a Service. It calls recordSubject in the transaction in which a message becomes
// searchable.
func New(c *core.Core, recordSubject RecordSubject) *Service {
	return &Service{Core: c, recordSubject: recordSubject, damaged: make(chan struct{}, 1), lock: make(chan struct{}, 1)}
}

// Run indexes new mail for searches until ctx ends. In a store without an index, all mail counts as
// new. Searches read the messages that are not indexed yet.
func (s *Service) Run(ctx context.Context) {
	x := s.NewWorker()
	purge, stop := s.Store.Clock().Every(purgeInterval)
	defer stop()
	for step := indexStep(x.mergeAll); ctx.Err() == nil; {
		s.lock <- struct{}{}
		pause, err := step(ctx)
		<-s.lock
		if err != nil && ctx.Err() == nil {
			s.Log.Error("index mail for searches", "error", err)
			pause = indexRetryDelay
		}
		if errors.Is(err, store.ErrTextDamaged) {
			s.RequestRebuild()
		}
		step = x.next(ctx, pause, purge)
	}
}

// DropAccount deletes the text index, threads and counts of an account. It is called after the
// account's mailboxes are deleted. It deletes dropsPerWrite rows in each transaction. The indexer
// can work between these transactions.
func (s *Service) DropAccount(ctx context.Context, account uint32) error {
	for done := false; !done; {
		select {
		case s.lock <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := s.Store.Update(func(tx *store.Tx) (err error) {
			done, err = tx.DropAccountIndex(account, dropsPerWrite)
			return err
		})
		<-s.lock
		if err != nil {
			return err
		}
	}
	return nil
}

// next waits for the duration wait; if that is 0, it waits until there is work. Then it returns the
// next step.
func (x *Worker) next(ctx context.Context, wait time.Duration, purge <-chan struct{}) indexStep {
	var over <-chan time.Time
	wake := x.s.Store.TextWake()
	if wait > 0 {
		core.Sleep(ctx, wait)
		over, wake = time.After(0), nil
	}
	select {
	case <-purge:
		return x.purge
	case <-x.s.damaged:
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

// A Worker indexes mail, batch by batch. Only one may work at a time.
type Worker struct {
	s        *Service
	splitter tokenize.Splitter
	loggedAt time.Time // when the backlog was last logged
	pace     store.Pacer
}

// NewWorker returns a Worker, which indexes when its methods are called.
func (s *Service) NewWorker() *Worker { return &Worker{s: s, pace: store.Pacer{Work: indexSlice}} }

// mergeAll merges the runs of the text indexes of all accounts. It is the indexer's first step.
func (x *Worker) mergeAll(ctx context.Context) (wait time.Duration, err error) {
	return time.Nanosecond, x.s.Store.TidyText(ctx, 0)
}

// Rebuild deletes the index, so that all mail is indexed again.
func (x *Worker) Rebuild(context.Context) (wait time.Duration, err error) {
	x.s.Log.Warn("the text index is damaged and is being rebuilt")
	return time.Nanosecond, x.s.Store.ResetText()
}

// RequestRebuild requests a rebuild of the text index. It does not wait for it.
func (s *Service) RequestRebuild() {
	select {
	case s.damaged <- struct{}{}:
	default:
	}
}

// purge rewrites the runs of the text index that contain deleted messages.
func (x *Worker) purge(ctx context.Context) (wait time.Duration, err error) {
	return time.Nanosecond, x.s.Store.PurgeText(ctx)
}

// IndexRound indexes one batch of each account that has new mail, so that an account with much mail
// does not delay the others. It returns how long to wait before the next round, or 0 if there is no
// work.
func (x *Worker) IndexRound(ctx context.Context) (wait time.Duration, err error) {
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
func (x *Worker) logProgress(left int) {
	now := x.s.Now()
	if left < minLoggedBacklog || now.Sub(x.loggedAt) < time.Minute {
		return
	}
	x.loggedAt = now
	x.s.Log.Info("stored mail is being indexed for searches; until that is done they take several pages", "messages_left", left)
}

// backlog returns the accounts with mail that is not indexed yet. left is an upper bound of the
// number of these messages.
func (x *Worker) backlog() (accounts []uint32, left int, err error) {
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
func (x *Worker) batch(ctx context.Context, account uint32) (more bool, err error) {
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
func (x *Worker) IndexBatch(ctx context.Context, account uint32, work *store.TextWork, metas []*store.Meta) (err error) {
	b := store.NewTextBatch(account)
	summaries := make([]*msg.Summary, len(work.Messages))
	for i := range work.Messages {
		m := &work.Messages[i]
		if err := x.pace.Rest(ctx); err != nil {
			return err
		}
		b.AddMessage(store.InboxPos{Received: m.Received, UID: m.UID, Num: m.Num})
		summaries[i], err = x.add(b, m, metas[i])
		if err != nil {
			return fmt.Errorf("index message %d of mailbox %d: %w", m.UID, m.Mailbox, err)
		}
	}
	return x.s.Store.AddText(b, work.Done, func(tx *store.Tx) error {
		for i := len(summaries) - 1; i >= 0; i-- { // oldest first: for each subject the newest message must be recorded last
			if err := x.s.recordSubject(tx, account, summaries[i], metas[i].ThreadID, work.Messages[i].Received); err != nil {
				return err
			}
		}
		return nil
	})
}

// Gather selects the messages of the next batch and reads their Metas.
func (x *Worker) Gather(account uint32) (work *store.TextWork, metas []*store.Meta, err error) {
	err = x.s.Store.View(func(tx *store.Tx) error {
		metas = nil
		work, err = tx.TextWork(account, store.TextLimits{Most: maxBatchMessages, Each: maxBatchPerMailbox, Bytes: maxBatchBytes, Message: MaxReadWhole})
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
func (x *Worker) add(b *store.TextBatch, m *store.Message, meta *store.Meta) (*msg.Summary, error) {
	if meta.ThreadID != "" {
		b.AddWord([]byte(ThreadWord(meta.ThreadID)))
	}
	root, err := msg.DecodePart(meta.Structure)
	var texts []string
	if err == nil {
		texts, err = Texts(x.s.Store, m.Blob, root)
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

// withoutGroups returns the addresses without group markers.
func withoutGroups(list []msg.Address) []msg.Address {
	return slices.DeleteFunc(slices.Clone(list), func(a msg.Address) bool { return a.IsGroupMarker() })
}

// readMoved reads the texts of a message whose bytes were moved by compaction after Gather.
func (x *Worker) readMoved(m *store.Message, root *msg.Part) ([]string, error) {
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
	return Texts(x.s.Store, ref, root)
}

// Texts returns the texts of a message in which searches look for words.
func Texts(s *store.Store, ref store.BlobRef, root *msg.Part) ([]string, error) {
	blob, err := s.OpenBlob(ref)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	var r io.ReaderAt = blob
	if blob.Size() <= MaxReadWhole {
		whole := make([]byte, blob.Size())
		if _, err := blob.ReadAt(whole, 0); err != nil && err != io.EOF {
			return nil, err
		}
		r = bytes.NewReader(whole)
	}
	return msg.SearchTexts(r, root)
}

// ThreadWord returns the word that stands for a thread in the text index. It differs from all words
// of texts, because they never contain \x01.
func ThreadWord(id string) string { return "\x01" + id }
