package inbound

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/feedback"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
)

const (
	maxUnfiled        = 1000                   // acknowledged messages that are not filed yet; at the limit new ones wait
	maxFiledTogether  = 128                    // messages that one transaction files
	fileInterval      = 20 * time.Millisecond  // minimum interval between the starts of two filing transactions, unless somebody waits
	fileRetryInterval = time.Second            // between attempts to file a message
	maxReadWait       = 500 * time.Millisecond // how long a reader waits for acknowledged messages to be filed
	maxStartWait      = 30 * time.Second       // how long the start waits for messages that the last run left to be filed
	acceptedVersion   = 1
)

// An acceptedEnvelope is stored in the record of an accepted message beside its bytes. It has
// everything that the message's rows need. It is JSON; later versions may add fields.
type acceptedEnvelope struct {
	inbox.Envelope
	store.Facts
	Version    int               `json:"version"`
	Places     []string          `json:"places"`           // for each destination, the address of To that leads to it
	Author     string            `json:"author,omitempty"` // domain
	Count      *store.DMARCCount `json:"count,omitempty"`  // the message's count for the DMARC report to the author's domain
	RequireTLS bool              `json:"require_tls,omitempty"`
	Decisions  decisions         `json:"decisions,omitempty"`
}

// arrivalRecord returns the record from which the message is filed.
func (e *acceptedEnvelope) arrivalRecord(blob store.BlobRef) *store.Arrival {
	return &store.Arrival{
		Facts: e.Facts, Blob: blob, Sender: e.From, From: e.Author, To: slices.Clone(e.Places), Placed: map[string]bool{}, ReceivedAt: e.Received,
		RequireTLS: e.RequireTLS, Decisions: e.Decisions.encode(),
	}
}

// An acceptedMessage is a message that was accepted and is to be filed.
type acceptedMessage struct {
	id       string          // its ID in its Received field; "" if an earlier process accepted it
	cause    context.Context // context of the request that brought it, for traces; nil if an earlier process accepted it
	envelope acceptedEnvelope
	stored   *inbox.StoredMessage
	logged   bool             // it has a record of accepted mail, so that it will be filed even after a crash
	reserved map[uint64]int64 // as in the filer
	done     chan error       // gets one value when the message is filed
}

// A filer writes the rows of accepted messages, in the order in which they arrived. Its goroutine
// runs while messages wait.
type filer struct {
	unfiled chan struct{} // holds a value for each acknowledged message that is not filed

	mu       sync.Mutex
	waiting  []*acceptedMessage
	running  bool          // the goroutine is running
	idle     chan struct{} // closed while the goroutine is not running
	taken    uint64        // messages that were ever queued
	ended    uint64        // messages that were filed or failed
	progress chan struct{} // closed and replaced when ended rises
	// reserved has the bytes of messages that are not filed, by mailbox number, and by account
	// number shifted by 32 bits.
	reserved map[uint64]int64
	urgent   chan struct{} // holds a value if somebody waits for filing
	last     time.Time     // start of the last transaction
	closing  chan struct{}
	closed   bool
}

func newFiler() *filer {
	idle := make(chan struct{})
	close(idle)
	return &filer{
		unfiled: make(chan struct{}, maxUnfiled), idle: idle, progress: make(chan struct{}), reserved: map[uint64]int64{},
		urgent: make(chan struct{}, 1), closing: make(chan struct{}),
	}
}

// close makes the filer end as soon as all queued messages are filed or failed.
func (f *filer) close() {
	f.mu.Lock()
	if !f.closed {
		f.closed = true
		close(f.closing)
	}
	f.mu.Unlock()
	<-f.whenIdle()
}

// fileNow makes the filer file the queued messages at once.
func (f *filer) fileNow() {
	select {
	case f.urgent <- struct{}{}:
	default:
	}
}

// waitForMoreMessages waits for more messages if some were filed a moment ago: a transaction for
// twenty messages costs little more than a transaction for one, and no sender waits for it.
func (f *filer) waitForMoreMessages() {
	select {
	case <-f.urgent:
	default:
		if rest := time.Until(f.last.Add(fileInterval)); rest > 0 {
			pause := time.NewTimer(rest)
			defer pause.Stop()
			select {
			case <-pause.C:
			case <-f.urgent:
			case <-f.closing:
			}
		}
	}
	f.last = time.Now()
}

// whenIdle returns a channel that is closed when no message waits to be filed.
func (f *filer) whenIdle() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.idle
}

// accept appends a message and queues it for filing. When it returns nil the message is on disk,
// and will be filed even if the process ends.
func (s *Service) accept(ctx context.Context, id string, in Incoming, h *head, stored *inbox.StoredMessage, env acceptedEnvelope) error {
	select {
	case s.filer.unfiled <- struct{}{}:
	case <-ctx.Done():
		return core.SMTPErrorf(451, "4.3.2", "Server busy, try again later")
	}
	it := &acceptedMessage{id: id, cause: ctx, envelope: env, stored: stored, logged: true, done: make(chan error, 1)}
	queued := false
	defer func() {
		if !queued {
			s.unreserve(it)
			<-s.filer.unfiled
		}
	}()
	var err error
	var places []*recipients.Destination
	it.reserved, it.envelope.Places, places, err = s.reserve(in, h, stored)
	if err != nil {
		return err
	}
	judged, err := s.classify(places, stored, in.Body, func(string) bool { return false })
	if err != nil {
		return err
	}
	it.envelope.Decisions = judged
	query := automationQuery{stored: stored, size: in.Body.Size(), sender: in.From, judged: judged, junk: env.Junk}
	automatic, err := s.automationsOf(query, it.envelope.Places, places)
	if err != nil {
		return err
	}
	if len(automatic) > 0 {
		it.envelope.Decisions, err = s.evaluateAutomations(ctx, automatic, stored, in.Body, in.Body.Size(), in.From, judged)
		if err != nil {
			return err
		}
		if refused := it.envelope.Decisions.refusal(len(it.envelope.Places) == 1, automatic); refused != nil {
			return refused
		}
	}
	stored.Root = nil // it may be large, and up to maxUnfiled messages may wait
	text, err := json.Marshal(it.envelope)
	if err != nil {
		return fmt.Errorf("encode envelope: %w", err)
	}
	killpoint.At("accept.reserved")
	stored.Blob, err = s.Store.AppendAccepted(text, in.Body)
	if errors.Is(err, store.ErrEnvelope) {
		// The envelope does not fit into a record: acknowledge the message only after it is filed.
		it.logged = false
		text, err = json.Marshal(inbox.Envelope{From: env.From, Received: env.Received})
		if err == nil {
			stored.Blob, err = s.Store.Append(text, in.Body)
		}
	}
	if err != nil {
		return err
	}
	queued = true
	killpoint.At("accept.file")
	s.queueForFiling(it)
	if it.logged && !s.Config.WaitForRows {
		return nil
	}
	select {
	case err := <-it.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reserve reserves space for a message in the mailboxes of its recipients and their accounts, until
// it is filed. to has one address for each distinct destination, and destinations has these
// destinations. If one of them refuses the message, reserve returns its error.
func (s *Service) reserve(in Incoming, h *head, stored *inbox.StoredMessage) (reserved map[uint64]int64, to []string, destinations []*recipients.Destination, err error) {
	size := in.Body.Size()
	// While the lock is held, the filer releases no reservation, which it does after it commits the
	// rows. So each earlier message is either still reserved, or its rows are in this view.
	s.filer.mu.Lock()
	defer s.filer.mu.Unlock()
	err = s.Store.View(func(tx *store.Tx) error {
		places := map[string]bool{}
		reserved, to, destinations = map[uint64]int64{}, nil, nil
		for _, r := range in.Recipients {
			dest, err := s.rooms.Recipients.Resolve(tx, in.From, r.address, size)
			if err == nil && dest.Mailbox != nil {
				err = dest.CheckDeliverable(tx, size+s.filer.reserved[uint64(dest.Mailbox.Num)])
			}
			if err == nil {
				err = feedback.CheckRowAddress(tx, dest, stored)
			}
			if err == nil {
				err = h.checkLoop(dest, r.address)
			}
			if err != nil {
				return err
			}
			if place := dest.PlaceKey(); !places[place] {
				places[place] = true
				to, destinations = append(to, r.address), append(destinations, dest)
				if dest.Mailbox == nil {
					continue
				}
				account := uint64(dest.Mailbox.AccountNum) << 32
				reserved[uint64(dest.Mailbox.Num)] = size
				reserved[account] += size
				left, err := tx.StorageLeft(dest.Mailbox.AccountID)
				if err != nil {
					return err
				}
				if !dest.Only && left < reserved[account]+s.filer.reserved[account] {
					return core.SMTPErrorf(452, "4.2.2", "Mailbox full")
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	for place, n := range reserved {
		s.filer.reserved[place] += n
	}
	return reserved, to, destinations, nil
}

// unreserve releases the space that was reserved for a message.
func (s *Service) unreserve(it *acceptedMessage) {
	s.filer.mu.Lock()
	defer s.filer.mu.Unlock()
	for place, n := range it.reserved {
		s.filer.reserved[place] -= n
		if s.filer.reserved[place] == 0 {
			delete(s.filer.reserved, place)
		}
	}
	it.reserved = nil
}

// queueForFiling queues a message for filing.
func (s *Service) queueForFiling(it *acceptedMessage) {
	f := s.filer
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, it)
	f.taken++
	if !it.logged || s.Config.WaitForRows || len(f.waiting) >= maxFiledTogether {
		f.fileNow()
	}
	if !f.running {
		f.running, f.idle = true, make(chan struct{})
		go s.fileWaiting()
	}
}

// fileWaiting files the queued messages until none is left. While it writes a transaction, and
// during waitForMoreMessages, the messages for the next transaction collect.
func (s *Service) fileWaiting() {
	f := s.filer
	for {
		f.mu.Lock()
		if len(f.waiting) == 0 {
			f.running = false
			close(f.idle)
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		f.waitForMoreMessages()
		f.mu.Lock()
		batch := slices.Clone(f.waiting[:min(len(f.waiting), maxFiledTogether)])
		f.mu.Unlock()
		killpoint.At("filing.begin")
		filed, err := s.fileBatch(batch)
		killpoint.At("filing.done")
		if errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrClosed) { // the outcome is unknown: they may be on disk
			filed = len(batch)
			for _, it := range batch {
				s.endFiling(it, err)
			}
		} else if err != nil { // one message failed, or the disk is full: file each in its own transaction
			filed = 0
			for _, it := range batch {
				s.endFiling(it, s.fileAlone(it))
				filed++
			}
		} else {
			for _, it := range batch[:filed] {
				s.endFiling(it, nil)
			}
		}
		f.mu.Lock()
		f.waiting = slices.Delete(f.waiting, 0, filed)
		f.ended += uint64(filed)
		close(f.progress)
		f.progress = make(chan struct{})
		f.mu.Unlock()
	}
}

// fileBatch files as many of the messages as fit in one transaction.
func (s *Service) fileBatch(batch []*acceptedMessage) (filed int, err error) {
	return filed, s.updateSafely(func(tx *store.Tx) error {
		filed = 0
		var logged []store.BlobRef
		for _, it := range batch {
			if filed > 0 && tx.IsLarge() {
				break
			}
			tx.For(it.cause)
			if err := s.fileAccepted(tx, it); err != nil {
				return err
			}
			if it.logged {
				logged = append(logged, it.stored.Blob)
			}
			filed++
		}
		if len(logged) == 0 {
			return nil
		}
		return tx.MarkFiled(logged...)
	})
}

// updateSafely calls Update, and returns a panic in fn as an error: one bad message must not stop
// the filer.
func (s *Service) updateSafely(fn func(*store.Tx) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("file accepted messages: panic: %v", v)
		}
	}()
	return s.Store.Update(fn)
}

// fileAlone files one acknowledged message in its own transaction. If the message cannot be filed,
// a job retries it. If the store cannot write now, fileAlone waits.
func (s *Service) fileAlone(it *acceptedMessage) error {
	for warned := false; ; warned = true {
		_, err := s.fileBatch([]*acceptedMessage{it})
		if err == nil || !it.logged || errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrClosed) {
			return err
		}
		if !errors.Is(err, store.ErrFull) {
			if !warned {
				s.Log.Error("an accepted message cannot be filed; a job tries again", "message_id", it.id, "error", err)
			}
			err = s.updateSafely(func(tx *store.Tx) error {
				tx.For(it.cause)
				return errors.Join(s.fileLater(tx, it.envelope.arrivalRecord(it.stored.Blob)), tx.MarkFiled(it.stored.Blob))
			})
			if err == nil {
				return nil
			}
		}
		if !warned {
			s.Log.Error("accepted messages cannot be filed now; they wait", "error", err)
		}
		select {
		case <-s.filer.closing:
			return err // the next start files it
		case <-time.After(fileRetryInterval):
		}
	}
}

// endFiling releases everything that a message holds while it waits to be filed.
func (s *Service) endFiling(it *acceptedMessage, err error) {
	if err != nil && it.logged {
		s.Log.Error("an accepted message was not filed; the next start files it", "message_id", it.id, "error", err)
	}
	if err == nil || !it.logged {
		s.rooms.Inbox.Release(it.stored) // no effect if the message was filed
	}
	s.unreserve(it)
	it.done <- err
	<-s.filer.unfiled
}

// fileAccepted delivers an accepted message to all of its destinations, or to as many as fit into
// one transaction; a job delivers to the others. A destination may have changed since the message
// was accepted. If a recipient can no longer take the message, that is reported to the sender.
func (s *Service) fileAccepted(tx *store.Tx, it *acceptedMessage) error {
	a := it.envelope.arrivalRecord(it.stored.Blob)
	// Size 0: the space was reserved, so a full mailbox must not refuse it.
	if err := s.fileNext(tx, a, it.stored, 0, outbound.RecipientsAtATime, false); err != nil {
		return err
	}
	if len(a.To)+len(a.Later)+len(a.Refused) > 0 {
		if err := s.fileLater(tx, a); err != nil {
			return err
		}
	}
	if it.envelope.Count == nil {
		return nil
	}
	return s.rooms.Reports.CountDMARC(tx, it.envelope.Count)
}

// fileLater queues a job that files a message for its remaining recipients.
func (s *Service) fileLater(tx *store.Tx, a *store.Arrival) error {
	a.ID = tx.NewID("arr")
	if err := store.ArrivalBlobs.Ref(tx, a.Blob, a.ID); err != nil {
		return err
	}
	if err := store.Arrivals.Put(tx, a); err != nil {
		return err
	}
	_, err := s.Queue.Add(tx, jobs.New{Kind: kindArrival, Lane: "arrival " + a.ID, Args: arrivalArgs{a.ID}})
	return err
}

// fileNext delivers a message to the next addresses of a.To, up to limit of them. An address that
// cannot take the message now is added to a.Later, or on the last try to a.Refused. One that
// refuses the message is added to a.Refused.
func (s *Service) fileNext(tx *store.Tx, a *store.Arrival, stored *inbox.StoredMessage, size int64, limit int, lastTry bool) error {
	decided := decodeDecisions(a.Decisions)
	for n := 0; len(a.To) > 0 && n < limit && !tx.IsLarge(); n++ {
		entry := a.To[0]
		err := s.deliverNext(tx, a, stored, decided, size)
		switch e := new(core.SMTPError); {
		case errors.As(err, &e) && e.Temporary() && !lastTry:
			a.Later = append(a.Later, entry)
		case errors.As(err, &e):
			a.Refused = append(a.Refused, store.RefusedRcpt{Address: recipients.EntryAddress(entry), Enhanced: e.Enhanced, Text: e.Error()})
		case err != nil:
			return err
		}
	}
	return nil
}

// FileUnfiled files the messages that the previous process acknowledged without filing them, and
// waits until they are filed, for at most maxStartWait. It must be called before anything is
// served.
func (s *Service) FileUnfiled() {
	left := s.Store.Unfiled()
	for _, u := range left {
		it, err := s.readAccepted(u)
		if err != nil {
			s.Log.Error("an accepted message cannot be read; it stays in its segment", "segment", u.Blob.Segment, "offset", u.Blob.Offset, "error", err)
			continue
		}
		s.filer.unfiled <- struct{}{}
		s.queueForFiling(it)
	}
	select {
	case <-s.filer.whenIdle():
	case <-time.After(maxStartWait): // the disk is full: start serving, so that somebody can free space
		s.Log.Error("messages that the previous process accepted cannot be filed yet; they wait", "messages", s.Store.UnfiledCount())
		return
	}
	if len(left) > 0 {
		s.Log.Info("messages that the previous process accepted are filed", "messages", len(left))
	}
}

// readAccepted reads an accepted message from its record.
func (s *Service) readAccepted(u store.AcceptedMessage) (*acceptedMessage, error) {
	it := &acceptedMessage{logged: true, done: make(chan error, 1)}
	if err := json.Unmarshal(u.Envelope, &it.envelope); err != nil {
		return nil, fmt.Errorf("decode envelope of accepted message: %w", err)
	}
	if it.envelope.Version != acceptedVersion {
		return nil, fmt.Errorf("read accepted message: this version of Mailstead does not know envelope version %d", it.envelope.Version)
	}
	var err error
	it.stored, err = s.rereadArrival(it.envelope.arrivalRecord(u.Blob))
	return it, err
}

// WaitFiled waits until all messages that were acknowledged before the call are filed, so that the
// caller sees them. If mailbox is not 0, it waits only for the messages to the mailbox with that
// number. It waits for at most maxReadWait, in case the disk is full.
func (s *Service) WaitFiled(ctx context.Context, mailbox uint32) {
	f := s.filer
	f.mu.Lock()
	defer f.mu.Unlock()
	var limit <-chan time.Time
	for taken := f.taken; f.ended < taken && (mailbox == 0 || f.reserved[uint64(mailbox)] > 0); {
		progress := f.progress
		f.mu.Unlock()
		f.fileNow()
		if limit == nil {
			limit = time.After(maxReadWait)
		}
		select {
		case <-progress:
		case <-limit:
			f.mu.Lock()
			return
		case <-ctx.Done():
			f.mu.Lock()
			return
		}
		f.mu.Lock()
	}
}
