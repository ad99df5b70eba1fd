package inbound

import (
	"time"

	"github.com/mailstead/mailstead/mail/milter"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// Internals that external tests use.

const (
	FiledAtOnce   = maxFiledTogether // messages that one transaction files
	JunkUse       = junkUse
	KindArrival   = kindArrival
	KindAutoReply = kindAutoReply
	MostDelayed   = maxDelayed
)

var GreyKey = greyKey

func (s *Service) FileSome(id string, read *inbox.StoredMessage, last bool) (*store.Arrival, error) {
	return s.fileNextBatch(id, read, last)
}

func (s *Service) Follow(f *ScreeningResult, v *milter.Verdict) error { return f.applyVerdict(v) }

func (s *Service) GreyWait(tx *store.Tx, id string) (time.Duration, error) {
	return s.greylistWait(tx, id)
}

func (s *Service) RereadArrival(a *store.Arrival) (*inbox.StoredMessage, error) {
	return s.rereadArrival(a)
}

func (s *Service) Screener() *screener { return s.screener }

// RecipientAt returns a recipient without any check.
func RecipientAt(address string) Recipient { return Recipient{address} }

// FilingFails makes each transaction that files a message fail with the error of fn.
func (s *Service) FilingFails(fn func() error) { s.rooms.Reports = failingCounts{s.rooms.Reports, fn} }

// failingCounts returns an error whenever a message is counted.
type failingCounts struct {
	Reports
	fn func() error
}

func (failingCounts) DMARCCount(Incoming, *ScreeningResult) (*store.DMARCCount, error) {
	return &store.DMARCCount{ID: "x"}, nil
}

func (f failingCounts) CountDMARC(*store.Tx, *store.DMARCCount) error { return f.fn() }

// HoldFiling delays the filing of the next message for an hour, as if a transaction had just begun,
// unless somebody waits for it.
func (s *Service) HoldFiling() {
	<-s.filer.whenIdle()
	select {
	case <-s.filer.urgent:
	default:
	}
	s.filer.last = time.Now().Add(time.Hour)
}
