package mta_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// leaving sends a message to x@far.test from a domain that asks for List-Unsubscribe, and gives
// that field of what went out.
func leaving(t *testing.T, base, message, to string) (i *servicetest.Installation, field, data string) {
	t.Helper()
	h := (&servicetest.Host{}).Start(t)
	i = servicetest.Install(t, core.Config{BaseURL: base, Relays: []core.Relay{h.Relay("custom")}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.ListUnsub = true }), "ann", nil)
	i.Run()
	i.MustSubmit(ann, message, to)
	i.Becomes(to, store.OutgoingRelayed)
	data = h.Mails()[0].Data
	if fields := msg.FieldValues([]byte(data), "List-Unsubscribe"); len(fields) > 0 {
		field = fields[0]
	}
	return i, field, data
}

func suppressed(i *servicetest.Installation) []string {
	i.T.Helper()
	page, err := i.Svc.ListSuppressions(context.Background(), servicetest.Actor(i.Account), mta.ListSuppressionsIn{})
	if err != nil {
		i.T.Fatal(err)
	}
	var out []string
	for _, s := range page.Data {
		out = append(out, s.Email+" "+s.Reason)
	}
	return out
}

func TestOneClickUnsubscribe(t *testing.T) {
	i, field, data := leaving(t, "https://mail.mailstead.test", servicetest.PlainMessage, "x@far.test")
	link, way, _ := strings.Cut(strings.Trim(field, "<>"), ">, <")
	token, ok := strings.CutPrefix(link, "https://mail.mailstead.test/unsubscribe/")
	if !ok || !strings.HasPrefix(way, "mailto:u-") || !strings.Contains(data, "\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n") {
		t.Fatalf("fields: %s\n%s", field, data)
	}
	if v := i.Verify([]byte(data)); v.DKIM != auth.Pass {
		t.Errorf("DKIM is %s", v.DKIM)
	}
	for name, changed := range map[string]string{
		"link": strings.Replace(data, "/unsubscribe/", "/unsubscribe/x", 1), "post": strings.Replace(data, "=One-Click", "=Two-Clicks", 1),
	} {
		if v := i.Verify([]byte(changed)); v.DKIM == auth.Pass {
			t.Errorf("the %s is not signed", name)
		}
	}
	ctx := context.Background()
	if u, err := i.Svc.CheckUnsubscribe(ctx, token); err != nil || u.Email != "x@far.test" || u.Domain != "example.test" || len(suppressed(i)) != 0 {
		t.Errorf("look: %+v, %v, %v", u, err, suppressed(i))
	}
	text, mac, _ := strings.Cut(token, ".")
	for _, bad := range []string{"", ".", text, text + ".", text + "." + mac[1:], "x" + token, token + "x", strings.Repeat("a", 5000) + token} {
		if _, err := i.Svc.Unsubscribe(ctx, bad); !servicetest.HasCode(err, "not_found") {
			t.Errorf("%.80q: %v", bad, err)
		}
	}
	for range 2 {
		if u, err := i.Svc.Unsubscribe(ctx, token); err != nil || u.Email != "x@far.test" {
			t.Fatalf("%+v, %v", u, err)
		}
	}
	if got := suppressed(i); len(got) != 1 || got[0] != "x@far.test manual" {
		t.Errorf("suppressed: %v", got)
	}
}

func TestUnsubscribeByMail(t *testing.T) {
	i, field, data := leaving(t, "http://localhost", servicetest.PlainMessage, "x@far.test")
	address, ok := strings.CutPrefix(strings.TrimSuffix(field, "?subject=unsubscribe>"), "<mailto:")
	if !ok || strings.Contains(data, "List-Unsubscribe-Post") {
		t.Fatalf("field %q\n%s", field, data)
	}
	i.MustArrive("", address, "From: mailer-daemon@far.test\r\nSubject: failed\r\n\r\n")
	if got := suppressed(i); len(got) != 0 {
		t.Errorf("a machine's answer suppressed %v", got)
	}
	i.MustArrive("somebody@far.test", address, "From: somebody@far.test\r\nSubject: unsubscribe\r\n\r\n")
	if got := suppressed(i); len(got) != 1 || got[0] != "x@far.test manual" {
		t.Errorf("suppressed: %v", got)
	}
	if got := i.Events(events.EventEmailReceived); len(got) != 0 {
		t.Errorf("filed: %v", got)
	}
}

func TestWhatOffersNoWayOut(t *testing.T) {
	for name, message := range map[string]string{
		"an answer":          "In-Reply-To: <x@far.test>\r\n" + servicetest.PlainMessage,
		"a thread":           "References: <x@far.test>\r\n" + servicetest.PlainMessage,
		"a machine's answer": "Auto-Submitted: auto-replied\r\n" + servicetest.PlainMessage,
		"one of its own":     "List-Unsubscribe: <mailto:leave@example.test>\r\n" + servicetest.PlainMessage,
	} {
		t.Run(name, func(t *testing.T) {
			if _, field, _ := leaving(t, "https://mail.mailstead.test", message, "x@far.test"); field != "" && name != "one of its own" || strings.Contains(field, "/unsubscribe/") {
				t.Errorf("field %q", field)
			}
		})
	}
}

func TestEachRecipientHasALinkOfItsOwn(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{BaseURL: "https://mail.mailstead.test", Relays: []core.Relay{h.Relay("custom")}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.ListUnsub = true }), "ann", nil)
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test", "y@far.test")
	i.Becomes("x@far.test", store.OutgoingRelayed)
	i.Becomes("y@far.test", store.OutgoingRelayed)
	for _, m := range h.Mails() {
		link, _, _ := strings.Cut(msg.FieldValues([]byte(m.Data), "List-Unsubscribe")[0], ">")
		u, err := i.Svc.CheckUnsubscribe(context.Background(), strings.TrimPrefix(link, "<https://mail.mailstead.test/unsubscribe/"))
		if err != nil || u.Email != m.To || i.Verify([]byte(m.Data)).DKIM != auth.Pass {
			t.Errorf("%s: %+v, %v", m.To, u, err)
		}
	}
}
