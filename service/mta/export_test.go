package mta

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/mail/milter"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// What tests outside of the package look at.

const (
	BounceAddress = bounceAddress
	BouncesFor    = bouncesFor
	DirectLanes   = directLanes
	ForwardMost   = forwardMost
	GiveUpAfter   = giveUpAfter
	JunkUse       = junkUse
	KeptAttempts  = keptAttempts
	KindArrival   = kindArrival
	KindAutoReply = kindAutoReply
	KindForward   = kindForward
	LongGap       = longGap
	MaxContent    = core.MaxContent
	MaxLocal      = maxLocal
	MostDelayed   = mostDelayed
	NoticesAtOnce = noticesAtOnce
	PlacesAtATime = placesAtATime
	PolicyAsked   = policyAsked
	PolicyFresh   = policyFresh
	RowIDLen      = rowIDLen
	SRSValid      = srsValid
)

type (
	Failure = failure
	Pace    = pace
	Relay   = relay
)

var (
	AddSession   = addSession
	CountTLS     = countTLS
	ErrNotHosted = errNotHosted
	GreyKey      = greyKey
	HasHighBytes = hasHighBytes
	Probe        = probe
	RetryWait    = retryWait
	SRSDay       = srsDay
	Suppress     = suppress
)

func (s *Service) BouncedRow(address string) string { return s.bouncedRow(address) }

func (s *Service) DeliveryFailed(tx *store.Tx, j *store.Job, cause error) error {
	return s.deliveryFailed(tx, j, cause)
}

func (s *Service) Direct() *deliver.Client { return s.direct }

func (s *Service) FileSome(id string, read *inbox.StoredMessage, last bool) (*store.Arrival, error) {
	return s.fileSome(id, read, last)
}

func (s *Service) FindDestination(tx *store.Tx, address string) (*destination, error) {
	return s.findDestination(tx, address)
}

func (s *Service) Follow(f *ScreeningResult, v *milter.Verdict) error { return f.apply(v) }

func (s *Service) Forwards() *forwards { return s.forwards }

func (s *Service) GreyWait(tx *store.Tx, id string) (time.Duration, error) { return s.greyWait(tx, id) }

func (s *Service) AttemptDelivery(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	return s.attemptDelivery(ctx, j)
}

func (s *Service) NewReader(r *relay) (feedback.Reader, error) { return s.newReader(r) }

func (s *Service) Paces() *paces { return s.paces }

func (s *Service) Policies() *policies { return s.policies }

func (s *Service) ReadTag(tag string) string { return s.readTag(tag) }

func (s *Service) Receiver(tx *store.Tx, address string) (*destination, error) {
	return s.receiver(tx, address)
}

func (s *Service) RefreshPolicies(ctx context.Context, p1 *store.Job) (jobs.Writes, error) {
	return s.refreshPolicies(ctx, p1)
}

func (s *Service) Relayed() *deliver.Client { return s.relayed }

func (s *Service) Relays() relays { return s.relays }

func (s *Service) RereadArrival(a *store.Arrival) (*inbox.StoredMessage, error) {
	return s.rereadArrival(a)
}

func (s *Service) RowAddress(kind string, row *store.Outgoing) string { return s.rowAddress(kind, row) }

func (s *Service) SRSForward(sender string, domain string) string {
	return s.srsForward(sender, domain)
}

func (s *Service) SRSFresh(day string) bool { return s.srsFresh(day) }

func (s *Service) SRSReverse(local string, domain string) (string, bool) {
	return s.srsReverse(local, domain)
}

func (s *Service) Screener() *screener { return s.screener }

func (s *Service) EmitBounce(tx *store.Tx, row *store.Outgoing, f failure) error {
	return s.emitBounce(tx, row, f)
}

// AddRelay has the service know a relay whose notices are read by a reader.
func (s *Service) AddRelay(r core.Relay, notices feedback.Reader) {
	s.relays = append(s.relays, &relay{Relay: r, Notices: notices})
}

// RecipientAt is a recipient that nobody has looked up.
func RecipientAt(address string) Recipient { return Recipient{address} }

// FilingFails has each transaction that files a message fail with what fn returns.
func (s *Service) FilingFails(fn func() error) {
	s.Hooks.DMARCCount = func(Incoming, *ScreeningResult) (*store.DMARCCount, error) { return &store.DMARCCount{ID: "x"}, nil }
	s.Hooks.CountDMARC = func(*store.Tx, *store.DMARCCount) error { return fn() }
}

// FiledAtOnce is how many messages one transaction files.
const FiledAtOnce = filedAtOnce

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

// SubmitHeld takes a message as Submit does, and holds it for approval.
func (s *Service) SubmitHeld(u core.MailboxUser, in Submission, h WhyHeld) (rows []*store.Outgoing, a *store.Approval, err error) {
	as, err := s.sendersOf(u)
	if err != nil {
		return nil, nil, err
	}
	l, err := s.ready(as, sentByLogin(u), in)
	if err != nil {
		return nil, nil, err
	}
	defer l.close()
	stored, err := s.inbox.Prepare(l.body, inbox.Envelope{From: l.from, To: l.addresses(), Received: s.Now(), Outgoing: true})
	if err != nil {
		return nil, nil, err
	}
	defer s.inbox.Release(stored)
	h.Content, err = s.makeHeld(context.Background(), inbox.Envelope{From: l.from}, l.to, l.body, rewriting{})
	if err != nil {
		return nil, nil, err
	}
	defer s.Store.Release(h.Content.blob)
	return rows, a, s.Store.Update(func(tx *store.Tx) error {
		mb, d, err := senderOf(tx, u)
		if err != nil {
			return err
		}
		sub := &store.Submission{
			AccountID: u.AccountID, MailboxID: u.MailboxID, DomainID: d.ID, MessageID: l.messageID, Sender: l.from, Subject: l.subject, Blob: stored.Blob,
			EightBit: l.eightBit, EnvelopeID: l.envelopeID, Ret: l.ret, SendAt: l.sendAt, Checked: true, Program: mb == nil,
		}
		if mb == nil {
			sub.ReportTo = l.from
		}
		rows, a, err = s.holdForApproval(tx, sub, d, l.to, h)
		return err
	})
}

// StartRoom starts this room alone.
func (s *Service) StartRoom() error { return s.Start() }

// FileLater has a message filed that was taken before.
func (s *Service) FileLater(tx *store.Tx, a *store.Arrival) error { return s.fileLater(tx, a) }
