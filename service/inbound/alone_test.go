package inbound_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/spam"
	"github.com/mailstead/mailstead/store"
)

// The service alone: these fakes are its collaborators. They return what a test sets, and record
// their calls.
type alone struct {
	*inbound.Service
	t  *testing.T
	st *store.Store

	// The answers of the collaborators.
	places map[string]*recipients.Destination // by address
	done   bool                               // feedback handles the message completely
	full   bool                               // mailboxes refuse everything at filing

	mu  sync.Mutex
	did []string
}

func newAlone(t *testing.T, dns *servicetest.FakeDNS) *alone {
	st, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := core.OpenKeys(st)
	if err != nil {
		t.Fatal(err)
	}
	a := &alone{t: t, st: st, places: map[string]*recipients.Destination{}}
	q := jobs.NewQueue(st)
	a.Service = inbound.New(core.New(st, q, keys, core.Config{Hostname: "mail.test", Resolver: dns, Log: slog.New(slog.DiscardHandler)}), inbound.Rooms{
		Inbox: a, Classifier: a, Correspondents: a, Recipients: a, Feedback: a, Outbound: a, Sender: a, Reports: a,
	})
	for _, k := range a.Kinds() {
		q.Handle(k)
	}
	t.Cleanup(func() {
		a.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func (a *alone) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.did = append(a.did, fmt.Sprintf(format, args...))
}

// noteWith records an action once its transaction is committed.
func (a *alone) noteWith(tx *store.Tx, format string, args ...any) {
	tx.After(func() { a.note(format, args...) })
}

func (a *alone) Receiver(_ *store.Tx, address string) (*recipients.Destination, error) {
	if to := a.places[address]; to != nil {
		return to, nil
	}
	return nil, core.SMTPErrorf(550, "5.1.1", "User unknown")
}

func (a *alone) Resolve(tx *store.Tx, _, address string, _ int64) (*recipients.Destination, error) {
	return a.Receiver(tx, address)
}

func (a *alone) ResolveArrivalEntry(tx *store.Tx, _, entry string, _ int64) (*recipients.Destination, error) {
	if a.full {
		return nil, core.SMTPErrorf(550, "5.2.1", "Mailbox disabled")
	}
	return a.Receiver(tx, entry)
}

func (a *alone) Find(tx *store.Tx, address string) (*recipients.Destination, error) {
	return a.Receiver(tx, address)
}

func (a *alone) Prepare(body store.Body, env inbox.Envelope) (*inbox.StoredMessage, error) {
	return inbox.ReadMessage(body, body.Size(), env.From)
}

func (a *alone) File(tx *store.Tx, mb *store.Mailbox, d *inbox.StoredMessage, _ inbox.Filing) (*store.Message, error) {
	a.noteWith(tx, "file %q for %s", d.Summary.Subject, mb.Email)
	return &store.Message{}, nil
}

func (a *alone) FileWarmup(*store.Tx, *store.Mailbox, *inbox.StoredMessage, inbox.Filing) (bool, error) {
	return false, nil
}

func (a *alone) IsFiledAsWarmup(*store.Tx, *store.Mailbox, *inbox.StoredMessage, int64) (bool, error) {
	return false, nil
}

func (a *alone) Release(d *inbox.StoredMessage) { a.st.Release(d.Blob) }

func (a *alone) EmitRuleMatched(*store.Tx, *store.Mailbox, *inbox.StoredMessage, *store.Message, string, inbox.RuleMatchedData) error {
	return nil
}

func (a *alone) RepliesToSent(*store.Tx, string, *msg.Summary) (bool, error) { return false, nil }

func (a *alone) PeopleAnswered(*store.Mailbox, string, []string) ([]string, bool, error) {
	return nil, false, nil
}

func (a *alone) On() bool { return false }

func (a *alone) Classify(string, io.ReaderAt, *msg.Part, *store.Facts, bool) (*spam.Verdict, error) {
	return nil, nil
}

func (a *alone) RecordAuthor(tx *store.Tx, _, email string) error {
	a.noteWith(tx, "%s has written", email)
	return nil
}

func (a *alone) ReadReport(*inbox.StoredMessage, io.ReaderAt, string, []string) error { return nil }

func (a *alone) Apply(*store.Tx, *recipients.Destination, *inbox.StoredMessage, string) (bool, error) {
	return a.done, nil
}

func (a *alone) WriteReport(m outbound.ReportedMessage, about ...msg.DSNRecipient) (*inbox.StoredMessage, error) {
	a.note("report %s of %s to %s", about[0].Status, about[0].Final, m.To)
	return nil, nil
}

func (a *alone) QueueReport(*store.Tx, string, string, string, *inbox.StoredMessage) error {
	return nil
}

func (a *alone) PlanForward(*store.Tx, *store.Submission, outbound.ForwardArgs, time.Time) error {
	return nil
}

func (a *alone) CollectFacts(*store.Tx, *store.Mailbox, string, bool, []string) (*agents.Message, error) {
	return nil, nil
}

func (a *alone) SendAutoMessage(tx *store.Tx, _ *store.Mailbox, m outbound.AutoMessage) error {
	a.noteWith(tx, "send on to %s, reports to %q", m.To.Address, m.Sub.ReportTo)
	return nil
}

func (a *alone) KeepForReading(*store.Tx, string, *inbox.StoredMessage, string, bool) error {
	return nil
}

func (a *alone) DMARCCount(inbound.Incoming, *inbound.ScreeningResult) (*store.DMARCCount, error) {
	return nil, nil
}

func (a *alone) CountDMARC(*store.Tx, *store.DMARCCount) error { return nil }

// receive receives a message, and returns the recorded actions once they are complete.
func (a *alone) receive(from string, to ...string) []string {
	a.t.Helper()
	in := inbound.Incoming{Client: inbound.Client{IP: netip.MustParseAddr("192.0.2.1"), Helo: "mx.far.test", Extended: true}, From: from}
	for _, address := range to {
		r, err := a.Accepts(a.t.Context(), inbound.RecipientQuery{From: from, To: address, RemoteIP: in.Client.IP})
		if err != nil {
			a.note("%s", err)
			continue
		}
		in.Recipients = append(in.Recipients, r)
	}
	body, err := a.Spool(strings.NewReader("From: P <p@far.test>\r\nTo: " + strings.Join(to, ", ") + "\r\nSubject: hello\r\n\r\nhello\r\n"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer body.Close()
	in.Body = body
	if len(in.Recipients) > 0 {
		if _, err := a.Receive(a.t.Context(), in); err != nil {
			a.note("%s", err)
		}
		a.WaitFiled(a.t.Context(), 0)
		ctx := a.t.Context()
		for j := range a.jobs("arrival") {
			for _, kind := range a.Kinds() {
				if kind.Name == j.Kind {
					if _, err := kind.Work(ctx, j); err != nil {
						a.note("%s", err)
					}
				}
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	did := a.did
	a.did = nil
	return did
}

func (a *alone) jobs(kind string) func(yield func(*store.Job) bool) {
	var found []*store.Job
	if err := a.st.View(func(tx *store.Tx) error {
		for j := range store.Jobs.All(tx) {
			if j.Kind == kind {
				found = append(found, j)
			}
		}
		return nil
	}); err != nil {
		a.t.Fatal(err)
	}
	return slices.Values(found)
}

// TestTheRoomAlone: the decisions about a message between its arrival and the services that file
// and send.
func TestTheRoomAlone(t *testing.T) {
	dns := servicetest.NewFakeDNS()
	dns.Txt["far.test"] = "v=spf1 ip4:192.0.2.1 -all"
	dns.Txt["_dmarc.far.test"] = "v=DMARC1; p=none"
	a := newAlone(t, dns)
	d := &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "here.test"}
	ann := &store.Mailbox{ID: "eu_1", Num: 1, AccountID: "acc_1", DomainID: "dom_1", Email: "ann@here.test", Status: store.MailboxActive}
	a.places["ann@here.test"] = &recipients.Destination{Domain: d, Mailbox: ann}
	a.places["both@here.test"] = &recipients.Destination{Domain: d, Mailbox: ann, Forward: "on@else.test"}
	a.places["only@here.test"] = &recipients.Destination{Domain: d, Mailbox: ann, Forward: "on@else.test", Only: true}

	filed, wrote, sentOn := `file "hello" for ann@here.test`, "p@far.test has written", `send on to on@else.test, reports to "p@far.test"`
	for _, tc := range []struct {
		name string
		set  func()
		from string
		to   []string
		did  []string
	}{
		{name: "into the mailbox", from: "p@far.test", to: []string{"ann@here.test"}, did: []string{filed, wrote}},
		{name: "once, by two addresses that lead there", from: "p@far.test", to: []string{"ann@here.test", "ann@here.test"}, did: []string{filed, wrote}},
		{name: "into the mailbox and on", from: "p@far.test", to: []string{"both@here.test"}, did: []string{filed, wrote, sentOn}},
		{name: "on alone", from: "p@far.test", to: []string{"only@here.test"}, did: []string{wrote, sentOn}},
		{name: "of a report nobody is told", from: "", to: []string{"only@here.test"}, did: []string{`send on to on@else.test, reports to ""`}},
		{name: "nobody of that name", from: "p@far.test", to: []string{"bob@here.test"}, did: []string{"550 5.1.1 User unknown"}},
		{name: "feedback has done it all", set: func() { a.done = true }, from: "p@far.test", to: []string{"both@here.test"}, did: []string{wrote}},
		{name: "it cannot be filed any more", set: func() { a.done, a.full = false, true }, from: "p@far.test", to: []string{"ann@here.test"},
			did: []string{"report 5.2.1 of ann@here.test to p@far.test"}},
		{name: "nor a report", from: "", to: []string{"ann@here.test"}},
	} {
		if tc.set != nil {
			tc.set()
		}
		if did := a.receive(tc.from, tc.to...); !slices.Equal(did, tc.did) {
			t.Errorf("%s: %q, not %q", tc.name, did, tc.did)
		}
	}
}
