package service

import (
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

func TestForwardKeepsTheSignatureAndRewritesThePath(t *testing.T) {
	h := (&host{}).start(t)
	i := install(t, Config{Relays: []Relay{h.relay("custom")}})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	other := i.addAccount("other@elsewhere.test")
	d := i.addDomain(other, "other.test", nil)
	bob := i.addMailbox(d, "bob", func(m *store.Mailbox) { m.ForwardTo = "bob@far.test" })
	i.run()
	i.mustSubmit(ann, plainMessage, "bob@other.test")
	o := i.becomes("bob@far.test", store.OutgoingRelayed)
	if o.AccountID != other.AccountID || o.Domain != "other.test" || o.Sender != "ann@example.test" {
		t.Errorf("row %+v", o)
	}
	if got := i.folder(bob, "INBOX"); len(got) != 1 || !strings.HasPrefix(string(got[0].raw), "Return-Path: <ann@example.test>\r\nDelivered-To: bob@other.test\r\nReceived: ") {
		t.Errorf("the mailbox keeps %d copies:\n%s", len(got), got[0].raw)
	}
	m := h.mails()[0]
	if strings.Contains(m.data, "Return-Path") {
		t.Errorf("the return path goes out in the header:\n%s", m.data)
	}
	if v := i.verify([]byte(m.data)); v.DKIM != auth.Pass || v.Signatures[0].Domain != "example.test" || len(v.Signatures) != 2 {
		t.Errorf("DKIM is %s: %+v", v.DKIM, v.Signatures)
	}
	local, domain, _ := msg.SplitEmail(m.from)
	if domain != "other.test" {
		t.Fatalf("the return path is %s", m.from)
	}
	if back, ok := i.svc.srsReverse(strings.ToLower(local), domain); !ok || back != "ann@example.test" {
		t.Errorf("%s leads back to %q", m.from, back)
	}
}

func TestFailedForwardIsToldToItsSender(t *testing.T) {
	h := (&host{rcpt: func(string) string { return "550 5.7.1 no" }}).start(t)
	i := install(t, Config{Relays: []Relay{h.relay("custom")}})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	other := i.addAccount("other@elsewhere.test")
	i.addDomain(other, "other.test", func(d *store.Domain) { d.Forward = "all@far.test" })
	i.run()
	i.mustSubmit(ann, plainMessage, "any@other.test")
	i.becomes("all@far.test", store.OutgoingBounced)
	i.becomes("ann@example.test", store.OutgoingDelivered)
	got := i.folder(ann, "INBOX")
	if len(got) != 1 {
		t.Fatalf("inbox: %+v", got)
	}
	if r := i.report(got[0].raw); r.OriginalMessageID != "<own@example.test>" || r.Recipients[0].Final != "all@far.test" {
		t.Errorf("report: %+v", r)
	}
}

func TestForwardsInACircleEnd(t *testing.T) {
	i := install(t, Config{Outbound: "capture"})
	d := i.addDomain(i.account, "example.test", nil)
	ann := i.addMailbox(d, "ann", nil)
	e := i.addDomain(i.account, "round.test", func(d *store.Domain) { d.CatchAll = "x@circle.test" })
	i.addDomain(i.account, "circle.test", func(d *store.Domain) { d.CatchAll = "x@" + e.Name })
	i.run()
	i.mustSubmit(ann, plainMessage, "x@round.test")
	end := time.Now().Add(20 * time.Second)
	for len(i.events(EventEmailBounced)) == 0 && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
	if got := i.events(EventEmailBounced); len(got) != 1 || got[0]["status"] != "5.4.6" {
		t.Fatalf("bounces: %v", got)
	}
}

func TestDestinations(t *testing.T) {
	i := install(t, Config{})
	other := i.addAccount("other@elsewhere.test")
	plain := i.addDomain(i.account, "plain.test", nil)
	i.addMailbox(plain, "ann", func(m *store.Mailbox) { m.ForwardTo = "ann@far.test" })
	i.addMailbox(plain, "sue", func(m *store.Mailbox) { m.Status = "suspended" })
	i.addMailbox(plain, "gone", func(m *store.Mailbox) { m.Status = "deleting" })
	caught := i.addDomain(i.account, "caught.test", func(d *store.Domain) { d.CatchAll, d.Forward = "all@caught.test", "no@far.test" })
	i.addMailbox(caught, "all", nil)
	i.addDomain(i.account, "sent.test", func(d *store.Domain) { d.Forward = "boss@far.test" })
	i.addDomain(i.account, "half.test", func(d *store.Domain) { d.Status = "in_progress" })
	i.addDomain(i.account, "ext.test", func(d *store.Domain) { d.DNSProvider = "external" })
	stranger := i.addDomain(other, "stranger.test", nil)
	i.addMailbox(stranger, "eve", nil)
	i.addDomain(i.account, "cross.test", func(d *store.Domain) { d.CatchAll = "eve@stranger.test" })
	for address, want := range map[string]string{
		"ann@plain.test":                         "ann@plain.test + ann@far.test",
		"ann+tag@plain.test":                     "ann@plain.test + ann@far.test",
		"nobody@plain.test":                      "550 5.1.1",
		"+tag@plain.test":                        "550 5.1.1",
		"gone@plain.test":                        "550 5.1.1",
		"sue@plain.test":                         "550 5.2.1",
		"postmaster@plain.test":                  " + owner@elsewhere.test",
		"abuse@plain.test":                       " + owner@elsewhere.test",
		"nobody@caught.test":                     "all@caught.test + ",
		"abuse@caught.test":                      "all@caught.test + ",
		"nobody@sent.test":                       " + boss@far.test",
		"postmaster@sent.test":                   " + owner@elsewhere.test",
		"x@half.test":                            "elsewhere",
		"x@ext.test":                             "elsewhere",
		"x@far.test":                             "elsewhere",
		"x@cross.test":                           " + eve@stranger.test",
		"srs0=aaaaaaaa=aa=far.test=x@plain.test": "550 5.1.1",
	} {
		if got := where(i, address); got != want {
			t.Errorf("%s goes to %q, want %q", address, got, want)
		}
	}
}

// where is a destination in words.
func where(i *installation, address string) (text string) {
	i.t.Helper()
	err := i.st.View(func(tx *store.Tx) error {
		to, err := i.svc.findDestination(tx, address)
		switch {
		case err == errNotHosted:
			text = "elsewhere"
		case err != nil:
			text = err.Error()[:9]
		default:
			if to.mailbox != nil {
				text = to.mailbox.Email
			}
			text += " + " + to.forward
		}
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}

func TestSRSTakesBackOnlyWhatItMade(t *testing.T) {
	i := install(t, Config{})
	s := i.svc
	path := s.srsForward("Some.One+x=y@far.test", "example.test")
	local, domain, _ := msg.SplitEmail(path)
	if domain != "example.test" || len(local) > maxLocal {
		t.Fatalf("rewritten to %s", path)
	}
	for _, form := range []string{local, strings.ToLower(local), strings.ToUpper(local)} {
		if back, ok := s.srsReverse(form, domain); !ok || back != "some.one+x=y@far.test" {
			t.Errorf("%s leads back to %q", form, back)
		}
	}
	forged := []string{strings.Replace(local, "far.test", "bar.test", 1), local + "x", "SRS0=" + local[14:], "SRS0=", "", "ann"}
	for _, f := range forged {
		if back, ok := s.srsReverse(f, domain); ok {
			t.Errorf("%s leads back to %q", f, back)
		}
	}
	if _, ok := s.srsReverse(local, "other.test"); ok {
		t.Error("it is good for another domain")
	}
	for _, same := range []string{"", "ann@example.test", strings.Repeat("a", 60) + "@far.test"} {
		if got := s.srsForward(same, "example.test"); got != same {
			t.Errorf("%q became %q", same, got)
		}
	}
	if day := srsDay(s.now().AddDate(0, 0, -srsValid-1)); s.srsFresh(day) || !s.srsFresh(srsDay(s.now().AddDate(0, 0, -srsValid))) {
		t.Error("it does not end after three weeks")
	}
}

// TestSendersCannotSpeakForUs: what a message claims that this server has found out goes when its
// own user sends it too.
func TestSendersCannotSpeakForUs(t *testing.T) {
	i := install(t, Config{})
	d := i.addDomain(i.account, "example.test", nil)
	ann, bob := i.addMailbox(d, "ann", nil), i.addMailbox(d, "bob", nil)
	i.run()
	i.mustSubmit(ann, "Authentication-Results: mail.mailstead.test; arc=pass; spf=pass\r\n"+plainMessage, "bob@example.test")
	i.becomes("bob@example.test", store.OutgoingDelivered)
	if got := i.folder(bob, "INBOX"); len(got) != 1 || strings.Contains(string(got[0].raw), "Authentication-Results") {
		t.Errorf("bob got %d messages: %s", len(got), got[0].raw)
	}
}

// TestSRSOfAnotherForwarder: a path that another forwarder has rewritten, once or twice, leads back
// to that forwarder in the form SRS0, and does not grow for ever.
func TestSRSOfAnotherForwarder(t *testing.T) {
	i := install(t, Config{})
	s := i.svc
	first := s.srsForward("ann@far.test", "a.test")
	path := first
	for _, domain := range []string{"b.test", "c.test", "d.test"} {
		path = s.srsForward(path, domain)
		local, at, _ := msg.SplitEmail(path)
		if at != domain || !strings.HasPrefix(local, "SRS1=") || !strings.Contains(local, "=a.test==") {
			t.Fatalf("rewritten to %s", path)
		}
		if back, ok := s.srsReverse(strings.ToLower(local), domain); !ok || back != strings.ToLower(first) {
			t.Errorf("%s leads back to %q, not to %s", path, back, first)
		}
		if back, ok := s.srsReverse(local, "other.test"); ok {
			t.Errorf("%s at another domain leads to %s", local, back)
		}
		if back, ok := s.srsReverse(strings.Replace(local, "=a.test=", "=e.test=", 1), domain); ok {
			t.Errorf("a forged forwarder is taken: %s", back)
		}
	}
	for _, odd := range []string{"SRS1=", "SRS1=x", "SRS1=x=y", "SRS1=x=y=", "SRS1=x=y=z", "srs1+x=y==z", "SRS0+", "SRS0"} {
		path := s.srsForward(odd+"@far.test", "a.test")
		local, _, _ := msg.SplitEmail(path)
		if _, ok := s.srsReverse(local, "a.test"); !ok && path != odd+"@far.test" {
			t.Errorf("%s became %s, which leads nowhere", odd, path)
		}
		s.srsReverse(odd, "a.test")
	}
}

func FuzzSRSReverse(f *testing.F) {
	keys, err := newKeys(make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	i := install(f, Config{})
	i.svc.keys = keys
	f.Add("SRS0=abcdefgh=aa=far.test=x")
	f.Add("srs0====")
	f.Add("SRS1=abcdefgh=a.test==abcdefgh=aa=far.test=x")
	f.Fuzz(func(t *testing.T, local string) {
		if back, ok := i.svc.srsReverse(local, "example.test"); ok {
			t.Errorf("%q was forged: %q", local, back)
		}
	})
}
