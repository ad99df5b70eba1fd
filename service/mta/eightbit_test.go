package mta_test

import (
	"bytes"
	"io"
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

const (
	germanText   = "From: Ann <ann@example.test>\r\nTo: x@far.test\r\nSubject: hello\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\nGrüße an alle, die das lesen.\r\n"
	germanSigned = "From: Ann <ann@example.test>\r\nTo: x@far.test\r\nSubject: hello\r\nMIME-Version: 1.0\r\nContent-Type: multipart/signed; boundary=b; protocol=\"application/pgp-signature\"\r\n\r\n" +
		"--b\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nGrüße\r\n--b\r\nContent-Type: application/pgp-signature\r\n\r\nsig\r\n--b--\r\n"
)

func bodyOf(t *testing.T, data string) string {
	t.Helper()
	r := strings.NewReader(data)
	root, err := msg.Scan(r)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := io.Copy(&b, msg.Open(r, root)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestWhatWeSignIsASCII: so that it arrives whole by way of a host without 8BITMIME too.
func TestWhatWeSignIsASCII(t *testing.T) {
	h := (&servicetest.Host{No8Bit: true}).Start(t)
	i := servicetest.Install(t, core.Config{Relays: []core.Relay{h.Relay("custom")}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.Run()
	i.MustSubmit(ann, germanText, "x@far.test")
	i.Becomes("x@far.test", store.OutgoingRelayed)
	i.MustSubmit(ann, strings.Replace(germanText, "Grüße", strings.Repeat("a", 2000), 1), "y@far.test")
	i.Becomes("y@far.test", store.OutgoingRelayed)
	for n, want := range []string{"Grüße an", strings.Repeat("a", 2000) + " an"} {
		data := h.Mails()[n].Data
		high, err := mta.HasHighBytes(strings.NewReader(data))
		if high || err != nil || !strings.HasPrefix(bodyOf(t, data), want) {
			t.Errorf("it goes out as\n%s", data)
		}
		for line := range strings.SplitSeq(data, "\r\n") {
			if len(line) > 998 {
				t.Errorf("a line of %d bytes", len(line))
			}
		}
		if v := i.Verify([]byte(data)); v.DKIM != auth.Pass {
			t.Errorf("DKIM is %s", v.DKIM)
		}
	}
}

// TestWhatOthersSignedStaysOrBounces: to a host without 8BITMIME a message that must not be changed
// does not go (RFC 6152 section 3).
func TestWhatOthersSignedStaysOrBounces(t *testing.T) {
	for _, no8Bit := range []bool{false, true} {
		h := (&servicetest.Host{No8Bit: no8Bit}).Start(t)
		i := servicetest.Install(t, core.Config{Relays: []core.Relay{h.Relay("custom")}})
		d := i.AddDomain(i.Account, "example.test", nil)
		ann := i.AddMailbox(d, "ann", nil)
		i.AddMailbox(d, "fwd", func(mb *store.Mailbox) { mb.ForwardTo = "away@far.test" })
		i.AddMailbox(d, "plain", func(mb *store.Mailbox) { mb.ForwardTo = "ascii@far.test" })
		i.Run()
		status := map[bool]string{false: store.OutgoingRelayed, true: store.OutgoingBounced}[no8Bit]
		i.MustSubmit(ann, germanSigned, "x@far.test")
		i.MustArrive("pat@sender.test", "fwd@example.test", strings.ReplaceAll(germanText, "ann@example.test", "pat@sender.test"))
		i.MustArrive("pat@sender.test", "plain@example.test", servicetest.LetterFrom("pat@sender.test"))
		i.Becomes("ascii@far.test", store.OutgoingRelayed)
		for _, to := range []string{"x@far.test", "away@far.test"} {
			row := i.Becomes(to, status)
			if no8Bit && (!strings.Contains(row.LastResponse, "8BITMIME") || row.Log[0].Enhanced != "5.6.3") {
				t.Errorf("%s: %+v", to, row)
			}
		}
		if e := i.Events(events.EventEmailBounced); no8Bit && (len(e) != 2 || e[0]["status"] != "5.6.3" || e[0]["suppressed"] != false) {
			t.Errorf("events %v", e)
		}
		for _, m := range h.Mails() {
			if strings.Contains(m.Data, "multipart/signed") && !strings.HasSuffix(m.Data, germanSigned[strings.Index(germanSigned, "--b\r\n"):]) {
				t.Errorf("it was changed:\n%s", m.Data)
			}
		}
	}
}
