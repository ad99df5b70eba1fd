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
	unfiledMost     = 1000                  // messages that are acknowledged and not filed; whoever brings more waits
	filedAtOnce     = 128                   // messages that one transaction files at most
	fileEvery       = 20 * time.Millisecond // at least from one transaction that files to the next, unless somebody waits for it
	fileAgain       = time.Second
	readWait        = 500 * time.Millisecond // of who reads, for what was acknowledged before
	unfiledWait     = 30 * time.Second       // for what was left to be filed, at the start
	acceptedVersion = 1
)

// An acceptedEnvelope is what is kept in the record of an accepted message beside its bytes: all
// that its rows need. It is JSON; later versions may add fields.
type acceptedEnvelope struct {
	inbox.Envelope
	store.Facts
	Version    int               `json:"version"`
	Places     []string          `json:"places"`           // an address of To for each place
	Author     string            `json:"author,omitempty"` // domain
	Count      *store.DMARCCount `json:"count,omitempty"`  // for the report to the author's domain
	RequireTLS bool              `json:"require_tls,omitempty"`
	Decisions  decisions         `json:"decisions,omitempty"`
}

// arrival is what has to be filed.
func (e *acceptedEnvelope) arrival(blob store.BlobRef) *store.Arrival {
	return &store.Arrival{
		Facts: e.Facts, Blob: blob, Sender: e.From, From: e.Author, To: slices.Clone(e.Places), Placed: map[string]bool{}, ReceivedAt: e.Received,
		RequireTLS: e.RequireTLS, Decisions: e.Decisions.text(),
	}
}

// An accepted message is one that is to be filed.
type accepted struct {
	id       string          // in its Received field; "": it was accepted before the last end
	cause    context.Context // of what brought it, for traces; nil: the same
	envelope acceptedEnvelope
	stored   *inbox.StoredMessage
	logged   bool             // its record is an accepted one: it is filed, whatever happens
	reserved map[uint32]int64 // bytes, by mailbox
	done     chan error       // gets one value
}

// A filer makes rows of accepted messages, in the order in which they came. It works while there
// are any.
type filer struct {
	places chan struct{} // one for each message that is acknowledged and not filed

	mu       sync.Mutex
	waiting  []*accepted
	working  bool
	idle     chan struct{}    // closed when it does not work
	taken    uint64           // messages that were ever to be filed
	ended    uint64           // those that are filed, or have met an error
	progress chan struct{}    // closed when that rises
	reserved map[uint32]int64 // by mailbox: bytes of messages that are not filed
	hurry    chan struct{}    // has one where somebody waits for what is not filed
	last     time.Time        // when the last transaction began
	closing  chan struct{}
	closed   bool
}

func newFiler() *filer {
	idle := make(chan struct{})
	close(idle)
	return &filer{
		places: make(chan struct{}, unfiledMost), idle: idle, progress: make(chan struct{}), reserved: map[uint32]int64{},
		hurry: make(chan struct{}, 1), closing: make(chan struct{}),
	}
}

// Close has the filer end as soon as what waits is filed, or has met an error.
func (f *filer) close() {
	f.mu.Lock()
	if !f.closed {
		f.closed = true
		close(f.closing)
	}
	f.mu.Unlock()
	<-f.wait()
}

// hasten has what waits filed at once.
func (f *filer) hasten() {
	select {
	case f.hurry <- struct{}{}:
	default:
	}
}

// gather waits for more messages when some were filed a moment ago: a transaction for twenty costs
// little more than one for each of them, and none of their senders waits for it.
func (f *filer) gather() {
	select {
	case <-f.hurry:
	default:
		if rest := time.Until(f.last.Add(fileEvery)); rest > 0 {
			pause := time.NewTimer(rest)
			defer pause.Stop()
			select {
			case <-pause.C:
			case <-f.hurry:
			case <-f.closing:
			}
		}
	}
	f.last = time.Now()
}

// wait gives a channel that is closed when nothing waits to be filed.
func (f *filer) wait() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.idle
}

// accept appends a message and has it filed. When it returns nil the message is on disk, and will
// be filed even if the process ends.
func (s *Service) accept(ctx context.Context, id string, in Incoming, h *head, stored *inbox.StoredMessage, env acceptedEnvelope) error {
	select {
	case s.filer.places <- struct{}{}:
	case <-ctx.Done():
		return core.SMTPErrorf(451, "4.3.2", "Server busy, try again later")
	}
	it := &accepted{id: id, cause: ctx, envelope: env, stored: stored, logged: true, done: make(chan error, 1)}
	queued := false
	defer func() {
		if !queued {
			s.unreserve(it)
			<-s.filer.places
		}
	}()
	var err error
	var places []*recipients.Destination
	it.reserved, it.envelope.Places, places, err = s.reserve(in, h, stored)
	if err != nil {
		return err
	}
	judged, err := s.judge(places, stored, in.Body, func(string) bool { return false })
	if err != nil {
		return err
	}
	it.envelope.Decisions = judged
	automatic, err := s.automationsOf(in.From, it.envelope.Places, places, judged, env.Junk)
	if err != nil {
		return err
	}
	if len(automatic) > 0 {
		it.envelope.Decisions, err = s.decide(ctx, automatic, stored, in.Body, in.Body.Size(), in.From, judged)
		if err != nil {
			return err
		}
		if refused := it.envelope.Decisions.refusal(len(it.envelope.Places) == 1, automatic); refused != nil {
			return refused
		}
	}
	stored.Root = nil // it may be large, and a thousand messages may wait to be filed
	text, err := json.Marshal(it.envelope)
	if err != nil {
		return fmt.Errorf("write envelope: %w", err)
	}
	killpoint.At("accept.reserved")
	stored.Blob, err = s.Store.AppendAccepted(text, in.Body)
	if errors.Is(err, store.ErrEnvelope) {
		// So many recipients fit in no record: their message is acknowledged once it is filed.
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
	s.file(it)
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

// reserve finds one address for each place that the recipients lead to. What one of them does not
// take refuses the message. It reserves room in the mailboxes until the message is filed.
func (s *Service) reserve(in Incoming, h *head, stored *inbox.StoredMessage) (reserved map[uint32]int64, to []string, where []*recipients.Destination, err error) {
	size := in.Body.Size()
	// A message whose reservation was given up before this began is in the rows that this sees.
	s.filer.mu.Lock()
	defer s.filer.mu.Unlock()
	err = s.Store.View(func(tx *store.Tx) error {
		places := map[string]bool{}
		reserved, to, where = map[uint32]int64{}, nil, nil
		for _, r := range in.Recipients {
			dest, err := s.rooms.Recipients.For(tx, in.From, r.address, size)
			if err == nil && dest.Mailbox != nil {
				err = dest.Takes(tx, size+s.filer.reserved[dest.Mailbox.Num])
			}
			if err == nil {
				err = feedback.Takes(tx, dest, stored)
			}
			if err == nil {
				err = h.checkLoop(dest, r.address)
			}
			if err != nil {
				return err
			}
			if place := dest.Place(); !places[place] {
				places[place] = true
				to, where = append(to, r.address), append(where, dest)
				if dest.Mailbox != nil {
					reserved[dest.Mailbox.Num] = size
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	for mailbox, n := range reserved {
		s.filer.reserved[mailbox] += n
	}
	return reserved, to, where, nil
}

// unreserve gives up what was reserved for a message.
func (s *Service) unreserve(it *accepted) {
	s.filer.mu.Lock()
	defer s.filer.mu.Unlock()
	for mailbox, n := range it.reserved {
		s.filer.reserved[mailbox] -= n
		if s.filer.reserved[mailbox] == 0 {
			delete(s.filer.reserved, mailbox)
		}
	}
	it.reserved = nil
}

// file has a message filed behind those that wait.
func (s *Service) file(it *accepted) {
	f := s.filer
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, it)
	f.taken++
	if !it.logged || s.Config.WaitForRows || len(f.waiting) >= filedAtOnce {
		f.hasten()
	}
	if !f.working {
		f.working, f.idle = true, make(chan struct{})
		go s.fileWaiting()
	}
}

// fileWaiting files what waits, until nothing does. While one transaction goes to disk, and for
// some time after it, the next ones' messages gather.
func (s *Service) fileWaiting() {
	f := s.filer
	for {
		f.mu.Lock()
		if len(f.waiting) == 0 {
			f.working = false
			close(f.idle)
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		f.gather()
		f.mu.Lock()
		batch := slices.Clone(f.waiting[:min(len(f.waiting), filedAtOnce)])
		f.mu.Unlock()
		killpoint.At("filing.begin")
		filed, err := s.fileBatch(batch)
		killpoint.At("filing.done")
		if errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrClosed) { // they may be on disk
			filed = len(batch)
			for _, it := range batch {
				s.endFiling(it, err)
			}
		} else if err != nil { // one of them, or a full disk: each by itself
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

// fileBatch files as many messages as one transaction can.
func (s *Service) fileBatch(batch []*accepted) (filed int, err error) {
	return filed, s.updateSafely(func(tx *store.Tx) error {
		filed = 0
		var logged []store.BlobRef
		for _, it := range batch {
			if filed > 0 && tx.Large() {
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
		return tx.Filed(logged...)
	})
}

// updateSafely is Update with an error in the place of a panic: nobody stands behind the filer who
// would stop it for one message alone.
func (s *Service) updateSafely(fn func(*store.Tx) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic while filing: %v", v)
		}
	}()
	return s.Store.Update(fn)
}

// fileAlone files one message. It was acknowledged: if it cannot be filed a job tries again, and if
// the store takes nothing now it waits.
func (s *Service) fileAlone(it *accepted) error {
	for warned := false; ; warned = true {
		_, err := s.fileBatch([]*accepted{it})
		if err == nil || !it.logged || errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrClosed) {
			return err
		}
		if !errors.Is(err, store.ErrFull) {
			if !warned {
				s.Log.Error("an accepted message cannot be filed; a job tries again", "message_id", it.id, "error", err)
			}
			err = s.updateSafely(func(tx *store.Tx) error {
				tx.For(it.cause)
				return errors.Join(s.fileLater(tx, it.envelope.arrival(it.stored.Blob)), tx.Filed(it.stored.Blob))
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
		case <-time.After(fileAgain):
		}
	}
}

// endFiling ends what a message holds while it waits.
func (s *Service) endFiling(it *accepted, err error) {
	if err != nil && it.logged {
		s.Log.Error("an accepted message is not filed; the next start does it", "message_id", it.id, "error", err)
	}
	if err == nil || !it.logged {
		s.rooms.Inbox.Release(it.stored) // does nothing where it is referred to
	}
	s.unreserve(it)
	it.done <- err
	<-s.filer.places
}

// fileAccepted delivers an accepted message: to all of its places if one transaction can, else a
// job goes on with the others. What they take may have changed since it was accepted; who cannot be
// served any more is reported to the sender.
func (s *Service) fileAccepted(tx *store.Tx, it *accepted) error {
	a := it.envelope.arrival(it.stored.Blob)
	// Room was reserved: its size is no reason to refuse it.
	if err := s.fileNext(tx, a, it.stored, 0, outbound.PlacesAtATime, false); err != nil {
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

// fileLater has a job file a message for those who have not had it.
func (s *Service) fileLater(tx *store.Tx, a *store.Arrival) error {
	a.ID = tx.NewID("arr")
	if err := tx.RefArrival(a.Blob, a.ID); err != nil {
		return err
	}
	if err := store.Arrivals.Put(tx, a); err != nil {
		return err
	}
	_, err := s.Queue.Add(tx, jobs.New{Kind: kindArrival, Lane: "arrival " + a.ID, Args: arrivalArgs{a.ID}})
	return err
}

// fileNext delivers a message to the next addresses, up to so many. Those that cannot take it are
// noted: for later, or, for good or where this was the last time, as refused.
func (s *Service) fileNext(tx *store.Tx, a *store.Arrival, stored *inbox.StoredMessage, size int64, most int, last bool) error {
	decided := decisionsOf(a.Decisions)
	for n := 0; len(a.To) > 0 && n < most && !tx.Large(); n++ {
		entry := a.To[0]
		err := s.deliverNext(tx, a, stored, decided, size)
		switch e := new(core.SMTPError); {
		case errors.As(err, &e) && e.Temporary() && !last:
			a.Later = append(a.Later, entry)
		case errors.As(err, &e):
			a.Refused = append(a.Refused, store.RefusedRcpt{Address: recipients.EntryAddress(entry), Enhanced: e.Enhanced, Text: e.Error()})
		case err != nil:
			return err
		}
	}
	return nil
}

// FileUnfiled files the messages that were acknowledged before the process ended the last time, and
// waits until that is done. It is to be called before anything is served.
func (s *Service) FileUnfiled() {
	left := s.Store.Unfiled()
	for _, u := range left {
		it, err := s.readAccepted(u)
		if err != nil {
			s.Log.Error("a message that was accepted cannot be filed; it stays where it is", "segment", u.Blob.Segment, "offset", u.Blob.Offset, "error", err)
			continue
		}
		s.filer.places <- struct{}{}
		s.file(it)
	}
	select {
	case <-s.filer.wait():
	case <-time.After(unfiledWait): // the disk is full: to free it, somebody must be served
		s.Log.Error("messages that were accepted before the last end cannot be filed yet; they wait", "messages", s.Store.UnfiledCount())
		return
	}
	if len(left) > 0 {
		s.Log.Info("messages that were accepted before the last end are filed", "messages", len(left))
	}
}

// readAccepted reads a message again that was accepted.
func (s *Service) readAccepted(u store.Accepted) (*accepted, error) {
	it := &accepted{logged: true, done: make(chan error, 1)}
	if err := json.Unmarshal(u.Envelope, &it.envelope); err != nil {
		return nil, fmt.Errorf("read envelope: %w", err)
	}
	if it.envelope.Version != acceptedVersion {
		return nil, fmt.Errorf("its envelope is of version %d, which this version of Mailstead does not know", it.envelope.Version)
	}
	var err error
	it.stored, err = s.rereadArrival(it.envelope.arrival(u.Blob))
	return it, err
}

// WaitFiled waits until everything is filed that was acknowledged before, so that whoever has
// handed us a message sees it: all of it, or, with the number of a mailbox, what goes there. It
// does not wait long: where the disk is full, others go on.
func (s *Service) WaitFiled(ctx context.Context, mailbox uint32) {
	f := s.filer
	f.mu.Lock()
	defer f.mu.Unlock()
	var limit <-chan time.Time
	for taken := f.taken; f.ended < taken && (mailbox == 0 || f.reserved[mailbox] > 0); {
		progress := f.progress
		f.mu.Unlock()
		f.hasten()
		if limit == nil {
			limit = time.After(readWait)
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
