package feedback_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	room "github.com/mailstead/mailstead/service/feedback"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// notice is a Postmark webhook with the secret.
func notice(fields string) feedback.Request {
	return feedback.Request{Header: http.Header{"X-Webhook-Secret": {"s3cret"}}, Body: []byte("{" + fields + "}")}
}

// A script of notices in the format of one kind of relay.
type reader []feedback.Notice

func (r reader) Read(context.Context, feedback.Request) ([]feedback.Notice, error) { return r, nil }

func (c *correspondence) take(kind string, list ...feedback.Notice) error {
	c.Svc.Feedback.SetReader("r1", reader(list))
	return c.Svc.Feedback.TakeNotices(context.Background(), kind, "r1", feedback.Request{})
}

func relayOf(kind string) func(*servicetest.Host) core.Relay {
	return func(h *servicetest.Host) core.Relay { return h.Relay(kind) }
}

func TestNoticesFindTheirMessage(t *testing.T) {
	for name, tc := range map[string]struct {
		kind  string
		n     feedback.Notice
		found bool
	}{
		"SES by its id":             {"ses", feedback.Notice{ProviderID: "id-1"}, true},
		"SES by its id and sender":  {"ses", feedback.Notice{ProviderID: "id-1", Sender: "ann@example.test"}, true},
		"SES, another id":           {"ses", feedback.Notice{ProviderID: "id-2", MessageID: "<own@example.test>"}, false},
		"SES, another domain":       {"ses", feedback.Notice{ProviderID: "id-1", Sender: "bob@other.test"}, false},
		"SendGrid by Message-ID":    {"sendgrid", feedback.Notice{MessageID: "<own@example.test>"}, true},
		"Mailgun by Message-ID":     {"mailgun", feedback.Notice{MessageID: "<own@example.test>", Sender: "ann@example.test"}, true},
		"Mailgun, another id":       {"mailgun", feedback.Notice{MessageID: "<other@example.test>", Sender: "ann@example.test"}, false},
		"Postmark by what it knows": {"postmark", feedback.Notice{Sender: "ann@example.test", Subject: "hello"}, true},
		"Postmark, another subject": {"postmark", feedback.Notice{Sender: "ann@example.test", Subject: "other"}, false},
		"Postmark, a stranger":      {"postmark", feedback.Notice{Sender: "ann@nobody.test"}, false},
		"Postmark, a forged tag":    {"postmark", feedback.Notice{Tag: "01k9a2b3c4d5e6f7g8h9j0k1m2-aaaaaaaaaaaaaaaa"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := correspond(t, core.Config{}, relayOf(tc.kind))
			c.AddDomain(c.AddAccount("other@elsewhere.test"), "other.test", nil)
			tc.n.Kind, tc.n.Recipient, tc.n.Type, tc.n.Status = feedback.Bounced, "X@far.test", feedback.Hard, "5.1.1"
			elsewhere := tc.n
			elsewhere.Recipient = "y@far.test"
			for range 2 {
				if err := c.take(tc.kind, elsewhere, tc.n); err != nil {
					t.Fatal(err)
				}
			}
			if !tc.found {
				c.heard(store.OutgoingRelayed, 0, 0, "")
				return
			}
			c.heard(store.OutgoingBounced, 1, 0, "bounce")
			if e := c.Events(events.EventEmailBounced)[0]; e["provider"] != "r1" || e["bounce_type"] != "hard" || e["original_message_id"] != "<own@example.test>" {
				t.Errorf("event %v", e)
			}
			tc.n.Kind, tc.n.FeedbackType = feedback.Complained, "abuse"
			if err := c.take(tc.kind, tc.n, tc.n); err != nil {
				t.Fatal(err)
			}
			c.heard(store.OutgoingComplained, 1, 1, "bounce")
		})
	}
}

// TestPostmarkTellsOurTag: the tag in the header field that Postmark returns identifies the row.
func TestPostmarkTellsOurTag(t *testing.T) {
	c := correspond(t, core.Config{}, func(h *servicetest.Host) core.Relay { r := h.Relay("postmark"); r.WebhookSecret = "s3cret"; return r })
	_, tag, _ := strings.Cut(c.data, feedback.PostmarkTag+": ")
	tag, _, _ = strings.Cut(tag, "\r\n")
	if len(tag) > 80 || c.Svc.Feedback.ReadTag(tag) != c.row.ID {
		t.Fatalf("tag %q", tag)
	}
	ctx := context.Background()
	r := notice(fmt.Sprintf(`"RecordType":"Bounce","Type":"HardBounce","Email":"x@far.test","Details":"550 5.1.1 no","Metadata":{"mailstead-id":%q}`, tag))
	for name, code := range map[string]string{"r2": "not_found", "r1": ""} {
		if err := c.Svc.Feedback.TakeNotices(ctx, "postmark", name, r); code == "" != (err == nil) || err != nil && core.Explain(err).Code != code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Svc.Feedback.TakeNotices(ctx, "mailgun", "r1", r); core.Explain(err).Code != "not_found" {
		t.Errorf("of another kind: %v", err)
	}
	r.Header = http.Header{}
	if err := c.Svc.Feedback.TakeNotices(ctx, "postmark", "r1", r); core.Explain(err).Code != "forbidden" {
		t.Errorf("without the secret: %v", err)
	}
	if err := c.Svc.Feedback.TakeNotices(ctx, "postmark", "r1", notice(`"Email":5`)); core.Explain(err).Code != "validation_error" {
		t.Errorf("malformed: %v", err)
	}
	c.heard(store.OutgoingBounced, 1, 0, "bounce")
}

// TestNoticeBeforeTheAnswerIsNoted: a notice can arrive before our own commit.
func TestNoticeBeforeTheAnswerIsNoted(t *testing.T) {
	c := correspond(t, core.Config{}, relayOf("mailgun"))
	n := feedback.Notice{Kind: feedback.Bounced, MessageID: "<own@example.test>", Recipient: "x@far.test", Type: feedback.Soft}
	set := func(status, provider string, age time.Duration) {
		c.Update(func(tx *store.Tx) error {
			row, err := store.Outgoings.Get(tx, c.row.ID)
			if err != nil {
				return err
			}
			row.Status, row.Provider, row.UpdatedAt = status, provider, tx.Now().Add(-age)
			return store.Outgoings.Put(tx, row)
		})
	}
	set(store.OutgoingQueued, "", 0)
	if err := c.take("mailgun", n); core.Explain(err).Code != "not_ready" {
		t.Errorf("at once: %v", err)
	}
	set(store.OutgoingDeferred, "r1", time.Hour)
	if err := c.take("mailgun", n); err != nil {
		t.Errorf("about mail that was put off: %v", err)
	}
	set(store.OutgoingRelayed, "r1", 0)
	if err := c.take("mailgun", n); err != nil {
		t.Error(err)
	}
	c.heard(store.OutgoingBounced, 1, 0, "")
}

// TestMessageIDOfTwoAccountsSaysNothing: anybody can use another account's Message-ID.
func TestMessageIDOfTwoAccountsSaysNothing(t *testing.T) {
	c := correspond(t, core.Config{}, relayOf("sendgrid"))
	bob := c.AddMailbox(c.AddDomain(c.AddAccount("other@elsewhere.test"), "other.test", nil), "bob", nil)
	c.MustSubmit(bob, strings.ReplaceAll(servicetest.PlainMessage, "ann@example.test", "bob@other.test"), "x@far.test")
	deadline := time.Now().Add(10 * time.Second)
	for n := 0; n < 2 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		n = 0
		_ = c.St.View(func(tx *store.Tx) error {
			for row := range store.Outgoings.All(tx) {
				if row.Status == store.OutgoingRelayed {
					n++
				}
			}
			return nil
		})
	}
	if err := c.take("sendgrid", feedback.Notice{Kind: feedback.Complained, MessageID: "<own@example.test>", Recipient: "x@far.test"}); err != nil {
		t.Fatal(err)
	}
	if got := len(c.Events(events.EventEmailComplained)); got != 0 {
		t.Errorf("%d events", got)
	}
}

// TestNoticesDoNotHoldOthersUp: notices about mail of the relay's other users are looked up in all
// accounts, but not in a write transaction.
func TestNoticesDoNotHoldOthersUp(t *testing.T) {
	c := correspond(t, core.Config{}, relayOf("mailgun"))
	const accounts = 1000
	for n := 0; n < accounts; n += 100 {
		c.Update(func(tx *store.Tx) error {
			for k := range 100 {
				a := &store.Account{ID: tx.NewID("acc"), Num: uint32(1000 + n + k), Name: "one of many", Status: store.AccountActive, CreatedAt: tx.Now()}
				if err := store.Accounts.Put(tx, a); err != nil {
					return err
				}
			}
			return nil
		})
	}
	list := []feedback.Notice{{Kind: feedback.Bounced, MessageID: "<own@example.test>", Recipient: "x@far.test", Type: feedback.Hard, Status: "5.1.1"}}
	for n := range room.NoticesAtOnce - 1 {
		list = append(list, feedback.Notice{Kind: feedback.Bounced, MessageID: fmt.Sprintf("<%d@stranger.test>", n), Recipient: "x@far.test", Type: feedback.Hard})
	}
	began := time.Now()
	if err := c.take("mailgun", list...); err != nil { // like one that takes more than 20 000 steps
		t.Fatal(err)
	}
	t.Logf("%d notices took %v", len(list), time.Since(began))
	c.heard(store.OutgoingBounced, 1, 0, "bounce")
}

func TestReadersOfRelays(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	for name, tc := range map[string]struct {
		relay core.Relay
		reads bool
	}{
		"ses":            {core.Relay{Kind: "ses", TopicARN: "arn:aws:sns:us-east-1:123456789012:x"}, true},
		"ses, no topic":  {core.Relay{Kind: "ses", WebhookSecret: "s"}, false},
		"ses, bad topic": {core.Relay{Kind: "ses", TopicARN: "x"}, false},
		"mailgun":        {core.Relay{Kind: "mailgun", WebhookSecret: "s"}, true},
		"postmark":       {core.Relay{Kind: "postmark", WebhookSecret: "s"}, true},
		"no secret":      {core.Relay{Kind: "postmark"}, false},
		"sendgrid, bad":  {core.Relay{Kind: "sendgrid", WebhookSecret: "s"}, false},
		"custom":         {core.Relay{Kind: "custom", WebhookSecret: "s"}, false},
	} {
		if r, err := i.Svc.Feedback.NewReader(&outbound.Relay{Relay: tc.relay}); (r != nil && err == nil) != tc.reads {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

// A relay reports a thousand recipients of one message at once.
func TestManyNoticesWithinTheBounds(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{{Name: "r1", Kind: "sendgrid", Host: "smtp.far.test", Port: 587}}}})
	s, who := i.Svc, servicetest.Actor(i.Account)
	servicetest.PutWebhooks(t, s, who)
	servicetest.PutDomainRow(t, s, who, "big.test", store.DomainComplete)
	const n = 1000
	long := strings.Repeat("x", 60)
	var list reader
	servicetest.PutMany(t, s, store.Outgoings, n, func(i int) *store.Outgoing {
		return &store.Outgoing{
			ID: s.Core.Store.NewID("msg"), AccountID: who.AccountID, MessageID: "<1@big.test>", Sender: "ann@big.test", Domain: "big.test",
			Recipient: fmt.Sprintf("%s%d@far.test", long, i), Status: store.OutgoingRelayed, Transport: core.ViaRelay, Provider: "r1", QueuedAt: s.Core.Now(),
		}
	})
	for i := range n {
		list = append(list, feedback.Notice{
			Kind: feedback.Bounced, Type: feedback.Hard, Status: "5.1.1", MessageID: "<1@big.test>", Sender: "ann@big.test",
			Recipient: fmt.Sprintf("%s%d@far.test", long, i), Diagnostic: strings.Repeat("d", 1000),
		})
	}
	s.Feedback.SetReader("r1", list)
	if err := s.Feedback.TakeNotices(t.Context(), "sendgrid", "r1", feedback.Request{}); err != nil {
		t.Fatal(err)
	}
	if events, tells := servicetest.ToldOf(t, s, events.EventEmailBounced); events != n || tells != n*core.WebhookLimit {
		t.Errorf("%d events are told %d times", events, tells)
	}
}
