package recipients_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/recipients"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestWhoGetsIt tests the order of the contract: the mailbox, also with a tag; otherwise the
// catch-all; otherwise the address that the domain forwards to; otherwise nobody. It also tests
// postmaster and abuse.
func TestWhoGetsIt(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	plain := i.AddDomain(i.Account, "plain.test", nil)
	i.AddDomain(i.Account, "catch.test", func(d *store.Domain) { d.CatchAll, d.Forward = "ann@plain.test", "far@away.test" })
	i.AddDomain(i.Account, "forward.test", func(d *store.Domain) { d.Forward = "far@away.test" })
	i.AddDomain(i.Account, "out.test", func(d *store.Domain) { d.CatchAll = "all@elsewhere.test" })
	i.AddDomain(i.AddAccount("other@elsewhere.test"), "other.test", func(d *store.Domain) { d.CatchAll = "ann@plain.test" })
	i.AddMailbox(plain, "ann", func(m *store.Mailbox) { m.ForwardTo = "ann@away.test" })
	i.AddMailbox(plain, "ann+news", nil)
	i.AddMailbox(plain, "sue", func(m *store.Mailbox) { m.Status = "suspended" })
	i.AddMailbox(plain, "new", func(m *store.Mailbox) { m.Status = "pending" })
	i.AddMailbox(plain, "gone", func(m *store.Mailbox) { m.Status = "deleting" })
	for address, want := range map[string]string{
		"ann@plain.test":                           "ann@plain.test, ann@away.test",
		"ann+tag@plain.test":                       "ann@plain.test, ann@away.test",
		"ann+tag+more@plain.test":                  "ann@plain.test, ann@away.test",
		"ann+news@plain.test":                      "ann+news@plain.test, ",
		"+ann@plain.test":                          "550 5.1.1",
		"annn@plain.test":                          "550 5.1.1",
		"gone@plain.test":                          "550 5.1.1",
		"sue@plain.test":                           "550 5.2.1",
		"sue+tag@plain.test":                       "550 5.2.1",
		"new@plain.test":                           "450 4.2.1",
		"postmaster@plain.test":                    "-, owner@elsewhere.test",
		"abuse@plain.test":                         "-, owner@elsewhere.test",
		"abuse+x@plain.test":                       "550 5.1.1",
		"any@catch.test":                           "ann@plain.test, ann@away.test",
		"any+tag@catch.test":                       "ann@plain.test, ann@away.test",
		"postmaster@catch.test":                    "ann@plain.test, ann@away.test",
		"any@forward.test":                         "-, far@away.test",
		"abuse@forward.test":                       "-, owner@elsewhere.test",
		"any@out.test":                             "-, all@elsewhere.test",
		"any@other.test":                           "-, ann@plain.test", // another account's mailbox is elsewhere
		"postmaster@" + i.Svc.Core.Config.Hostname: "-, owner@elsewhere.test",
		"any@" + i.Svc.Core.Config.Hostname:        "550 5.7.1",
		"ann@unknown.test":                         "550 5.7.1",
	} {
		got := ""
		err := i.St.View(func(tx *store.Tx) error {
			to, err := i.Svc.Recipients.Receiver(tx, address)
			if e := new(core.SMTPError); errors.As(err, &e) {
				got = fmt.Sprint(e.Code, " ", e.Enhanced)
				return nil
			}
			if err != nil {
				return err
			}
			got = "-, " + to.Forward
			if to.Mailbox != nil {
				got = to.Mailbox.Email + ", " + to.Forward
			}
			return nil
		})
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", address, got, err, want)
		}
	}
}

func TestForwardKeepsTheSignatureAndRewritesThePath(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	other := i.AddAccount("other@elsewhere.test")
	d := i.AddDomain(other, "other.test", nil)
	bob := i.AddMailbox(d, "bob", func(m *store.Mailbox) { m.ForwardTo = "bob@far.test" })
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "bob@other.test")
	o := i.Becomes("bob@far.test", store.OutgoingRelayed)
	if o.AccountID != other.AccountID || o.Domain != "other.test" || o.Sender != "ann@example.test" {
		t.Errorf("row %+v", o)
	}
	if got := i.Folder(bob, "INBOX"); len(got) != 1 || !strings.HasPrefix(string(got[0].Raw), "Return-Path: <ann@example.test>\r\nDelivered-To: bob@other.test\r\nReceived: ") {
		t.Errorf("the mailbox keeps %d copies:\n%s", len(got), got[0].Raw)
	}
	m := h.Mails()[0]
	if strings.Contains(m.Data, "Return-Path") {
		t.Errorf("the return path goes out in the header:\n%s", m.Data)
	}
	if v := i.Verify([]byte(m.Data)); v.DKIM != auth.Pass || v.Signatures[0].Domain != "example.test" || len(v.Signatures) != 2 {
		t.Errorf("DKIM is %s: %+v", v.DKIM, v.Signatures)
	}
	local, domain, _ := msg.SplitEmail(m.From)
	if domain != "other.test" {
		t.Fatalf("the return path is %s", m.From)
	}
	if back, ok := i.Svc.Recipients.SRSReverse(strings.ToLower(local), domain); !ok || back != "ann@example.test" {
		t.Errorf("%s leads back to %q", m.From, back)
	}
}

func TestFailedForwardIsToldToItsSender(t *testing.T) {
	h := (&servicetest.Host{Rcpt: func(string) string { return "550 5.7.1 no" }}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	other := i.AddAccount("other@elsewhere.test")
	i.AddDomain(other, "other.test", func(d *store.Domain) { d.Forward = "all@far.test" })
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "any@other.test")
	i.Becomes("all@far.test", store.OutgoingBounced)
	i.Becomes("ann@example.test", store.OutgoingDelivered)
	got := i.Folder(ann, "INBOX")
	if len(got) != 1 {
		t.Fatalf("inbox: %+v", got)
	}
	if r := i.Report(got[0].Raw); r.OriginalMessageID != "<own@example.test>" || r.Recipients[0].Final != "all@far.test" {
		t.Errorf("report: %+v", r)
	}
}

func TestForwardsInACircleEnd(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	e := i.AddDomain(i.Account, "round.test", func(d *store.Domain) { d.CatchAll = "x@circle.test" })
	i.AddDomain(i.Account, "circle.test", func(d *store.Domain) { d.CatchAll = "x@" + e.Name })
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@round.test")
	end := time.Now().Add(20 * time.Second)
	for len(i.Events(events.EventEmailBounced)) == 0 && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
	if got := i.Events(events.EventEmailBounced); len(got) != 1 || got[0]["status"] != "5.4.6" {
		t.Fatalf("bounces: %v", got)
	}
}

func TestDestinations(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	other := i.AddAccount("other@elsewhere.test")
	plain := i.AddDomain(i.Account, "plain.test", nil)
	i.AddMailbox(plain, "ann", func(m *store.Mailbox) { m.ForwardTo = "ann@far.test" })
	i.AddMailbox(plain, "sue", func(m *store.Mailbox) { m.Status = "suspended" })
	i.AddMailbox(plain, "gone", func(m *store.Mailbox) { m.Status = "deleting" })
	caught := i.AddDomain(i.Account, "caught.test", func(d *store.Domain) { d.CatchAll, d.Forward = "all@caught.test", "no@far.test" })
	i.AddMailbox(caught, "all", nil)
	i.AddDomain(i.Account, "sent.test", func(d *store.Domain) { d.Forward = "boss@far.test" })
	i.AddDomain(i.Account, "half.test", func(d *store.Domain) { d.Status = "in_progress" })
	i.AddDomain(i.Account, "ext.test", func(d *store.Domain) { d.DNSProvider = "external" })
	stranger := i.AddDomain(other, "stranger.test", nil)
	i.AddMailbox(stranger, "eve", nil)
	i.AddDomain(i.Account, "cross.test", func(d *store.Domain) { d.CatchAll = "eve@stranger.test" })
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

// where describes a destination in words.
func where(i *servicetest.Installation, address string) (text string) {
	i.T.Helper()
	err := i.St.View(func(tx *store.Tx) error {
		to, err := i.Svc.Recipients.Find(tx, address)
		switch {
		case err == recipients.ErrNotHosted:
			text = "elsewhere"
		case err != nil:
			text = err.Error()[:9]
		default:
			if to.Mailbox != nil {
				text = to.Mailbox.Email
			}
			text += " + " + to.Forward
		}
		return nil
	})
	if err != nil {
		i.T.Fatal(err)
	}
	return text
}

func TestSRSTakesBackOnlyWhatItMade(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	s := i.Svc
	path := s.Recipients.SRSForward("Some.One+x=y@far.test", "example.test")
	local, domain, _ := msg.SplitEmail(path)
	if domain != "example.test" || len(local) > recipients.MaxLocal {
		t.Fatalf("rewritten to %s", path)
	}
	for _, form := range []string{local, strings.ToLower(local), strings.ToUpper(local)} {
		if back, ok := s.Recipients.SRSReverse(form, domain); !ok || back != "some.one+x=y@far.test" {
			t.Errorf("%s leads back to %q", form, back)
		}
	}
	forged := []string{strings.Replace(local, "far.test", "bar.test", 1), local + "x", "SRS0=" + local[14:], "SRS0=", "", "ann"}
	for _, f := range forged {
		if back, ok := s.Recipients.SRSReverse(f, domain); ok {
			t.Errorf("%s leads back to %q", f, back)
		}
	}
	if _, ok := s.Recipients.SRSReverse(local, "other.test"); ok {
		t.Error("it is good for another domain")
	}
	for _, same := range []string{"", "ann@example.test", strings.Repeat("a", 60) + "@far.test"} {
		if got := s.Recipients.SRSForward(same, "example.test"); got != same {
			t.Errorf("%q became %q", same, got)
		}
	}
	if day := recipients.SRSDay(s.Core.Now().AddDate(0, 0, -recipients.SRSValid-1)); s.Recipients.SRSFresh(day) || !s.Recipients.SRSFresh(recipients.SRSDay(s.Core.Now().AddDate(0, 0, -recipients.SRSValid))) {
		t.Error("it does not end after three weeks")
	}
}

// TestSendersCannotSpeakForUs: an Authentication-Results field that claims to be from this server
// is removed, also if a user of this server sends it.
func TestSendersCannotSpeakForUs(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	i.Run()
	i.MustSubmit(ann, "Authentication-Results: mail.mailstead.test; arc=pass; spf=pass\r\n"+servicetest.PlainMessage, "bob@example.test")
	i.Becomes("bob@example.test", store.OutgoingDelivered)
	if got := i.Folder(bob, "INBOX"); len(got) != 1 || strings.Contains(string(got[0].Raw), "Authentication-Results") {
		t.Errorf("bob got %d messages: %s", len(got), got[0].Raw)
	}
}

// TestSRSOfAnotherForwarder: a path that another forwarder has rewritten, once or twice, leads back
// to that forwarder in the form SRS0, and does not keep growing.
func TestSRSOfAnotherForwarder(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	s := i.Svc
	first := s.Recipients.SRSForward("ann@far.test", "a.test")
	path := first
	for _, domain := range []string{"b.test", "c.test", "d.test"} {
		path = s.Recipients.SRSForward(path, domain)
		local, at, _ := msg.SplitEmail(path)
		if at != domain || !strings.HasPrefix(local, "SRS1=") || !strings.Contains(local, "=a.test==") {
			t.Fatalf("rewritten to %s", path)
		}
		if back, ok := s.Recipients.SRSReverse(strings.ToLower(local), domain); !ok || back != strings.ToLower(first) {
			t.Errorf("%s leads back to %q, not to %s", path, back, first)
		}
		if back, ok := s.Recipients.SRSReverse(local, "other.test"); ok {
			t.Errorf("%s at another domain leads to %s", local, back)
		}
		if back, ok := s.Recipients.SRSReverse(strings.Replace(local, "=a.test=", "=e.test=", 1), domain); ok {
			t.Errorf("a forged forwarder is taken: %s", back)
		}
	}
	for _, odd := range []string{"SRS1=", "SRS1=x", "SRS1=x=y", "SRS1=x=y=", "SRS1=x=y=z", "srs1+x=y==z", "SRS0+", "SRS0"} {
		path := s.Recipients.SRSForward(odd+"@far.test", "a.test")
		local, _, _ := msg.SplitEmail(path)
		if _, ok := s.Recipients.SRSReverse(local, "a.test"); !ok && path != odd+"@far.test" {
			t.Errorf("%s became %s, which leads nowhere", odd, path)
		}
		s.Recipients.SRSReverse(odd, "a.test")
	}
}

func FuzzSRSReverse(f *testing.F) {
	keys, err := core.NewKeys(make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	i := servicetest.Install(f, core.Config{})
	i.Svc.Core.Keys = keys
	f.Add("SRS0=abcdefgh=aa=far.test=x")
	f.Add("srs0====")
	f.Add("SRS1=abcdefgh=a.test==abcdefgh=aa=far.test=x")
	f.Fuzz(func(t *testing.T, local string) {
		if back, ok := i.Svc.Recipients.SRSReverse(local, "example.test"); ok {
			t.Errorf("%q was forged: %q", local, back)
		}
	})
}
