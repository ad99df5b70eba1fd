package inbox_test

import (
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/submit"
)

// The DMARC results of RFC 9989 and RFC 7489 are shown side by side, so that owners see the
// difference.
func TestBothEditionsOfDMARCAreShown(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	r.Run()
	r.DNS.Txt["_dmarc.tested.test"] = "v=DMARC1; p=quarantine; t=y; pct=10"
	row := func(subject string) *inbox.InboxMessage {
		t.Helper()
		r.words(r.ann, "INBOX", subject)
		page, err := r.Svc.Inbox.ListInbox(t.Context(), r.who, inbox.ListInboxIn{InboxFilter: inbox.InboxFilter{Domain: "example.test"}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Data {
			if page.Data[i].Subject == subject {
				return &page.Data[i]
			}
		}
		t.Fatalf("no %q", subject)
		return nil
	}
	text := func(s *string) string {
		if s == nil {
			return "null"
		}
		return *s
	}
	for subject, c := range map[string]struct{ from, want string }{
		"that fails":  {"x@tested.test", "fail none fail quarantine"},
		"that passes": {"x@far.test", "pass null pass null"},
	} {
		if err := r.Receive("x@far.test", letterAbout(c.from, "ann@example.test", subject), "ann@example.test"); err != nil {
			t.Fatal(err)
		}
		a := row(subject).Auth
		if a.Former == nil {
			t.Fatalf("%s: %+v", subject, a)
		}
		if got := a.DMARC + " " + text(a.Policy) + " " + a.Former.Result + " " + text(a.Former.Policy); got != c.want {
			t.Errorf("%s: %s, want %s", subject, got, c.want)
		}
	}
	r.MustSend(r.bob, submit.SendEmailIn{To: submit.Texts{"ann@example.test"}, Subject: "from here", Text: "x"})
	if a := row("from here").Auth; a.Former != nil || a.Policy != nil {
		t.Errorf("%+v", a)
	}
}
