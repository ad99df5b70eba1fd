package inbound

import (
	"time"

	"github.com/mailstead/mailstead/mail/milter"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// What tests outside of the package look at.

const (
	FiledAtOnce   = filedAtOnce // messages that one transaction files
	JunkUse       = junkUse
	KindArrival   = kindArrival
	KindAutoReply = kindAutoReply
	MostDelayed   = mostDelayed
)

var GreyKey = greyKey

func (s *Service) FileSome(id string, read *inbox.StoredMessage, last bool) (*store.Arrival, error) {
	return s.fileSome(id, read, last)
}

func (s *Service) Follow(f *ScreeningResult, v *milter.Verdict) error { return f.apply(v) }

func (s *Service) GreyWait(tx *store.Tx, id string) (time.Duration, error) { return s.greyWait(tx, id) }

func (s *Service) RereadArrival(a *store.Arrival) (*inbox.StoredMessage, error) {
	return s.rereadArrival(a)
}

func (s *Service) Screener() *screener { return s.screener }

// RecipientAt is a recipient that nobody has looked up.
func RecipientAt(address string) Recipient { return Recipient{address} }

// FilingFails has each transaction that files a message fail with what fn returns.
func (s *Service) FilingFails(fn func() error) { s.rooms.Reports = failingCounts{s.rooms.Reports, fn} }

// failingCounts fails to count any message.
type failingCounts struct {
	Reports
	fn func() error
}

func (failingCounts) DMARCCount(Incoming, *ScreeningResult) (*store.DMARCCount, error) {
	return &store.DMARCCount{ID: "x"}, nil
}

func (f failingCounts) CountDMARC(*store.Tx, *store.DMARCCount) error { return f.fn() }

// HoldFiling has the next message wait for an hour to be filed, as if a transaction had begun then,
// unless somebody waits for it.
func (s *Service) HoldFiling() {
	<-s.filer.wait()
	select {
	case <-s.filer.hurry:
	default:
	}
	s.filer.last = time.Now().Add(time.Hour)
}
