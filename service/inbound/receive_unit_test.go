package inbound

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// TestStoreErrorsOverSMTP: if the disk is full or failing, the client is told to retry, and never
// sees the error's details.
func TestStoreErrorsOverSMTP(t *testing.T) {
	for _, tc := range []struct {
		err      error
		code     int
		enhanced string
	}{
		{store.ErrFull, 452, "4.3.1"},
		{store.ErrFailed, 421, "4.3.2"},
		{store.ErrClosed, 421, "4.3.2"},
		{context.Canceled, 421, "4.3.2"},
		{store.ErrTooLarge, 552, "5.3.4"},
		{errors.New("secret path"), 451, "4.3.0"},
		{core.SMTPErrorf(550, "5.1.1", "no"), 550, "5.1.1"},
	} {
		got := core.AsSMTPError(fmt.Errorf("append: %w", tc.err))
		if got.Code != tc.code || got.Enhanced != tc.enhanced || strings.Contains(got.Message, "secret") {
			t.Errorf("%v: %v", tc.err, got)
		}
		if !errors.Is(got, tc.err) && tc.code != 550 {
			t.Errorf("%v: the log does not learn of it", tc.err)
		}
	}
}

func TestTraceWords(t *testing.T) {
	for helo, want := range map[string]string{
		"client.test": "client.test", "": "unknown", "a\r\nb: c": "ab:c", "[127.0.0.1]": "[127.0.0.1]", "(x) <y>;": "xy", "bücher.test": "bücher.test",
		strings.Repeat("ü", 200): strings.Repeat("ü", 127), "\xff\xfe": "unknown",
	} {
		if got := cleanHELO(helo); got != want {
			t.Errorf("helo %q: %q", helo, got)
		}
	}
	for ip, want := range map[string]string{"192.0.2.1": "[192.0.2.1]", "2001:db8::1": "[IPv6:2001:db8::1]"} {
		if got := addressLiteral(netip.MustParseAddr(ip)); got != want {
			t.Errorf("%s: %s", ip, got)
		}
	}
	if got := addressLiteral(netip.Addr{}); got != "unknown" {
		t.Error(got)
	}
	for want, c := range map[string]Client{
		"SMTP": {TLS: "x"}, "ESMTP": {Extended: true}, "ESMTPS": {Extended: true, TLS: "x"}, "ESMTPA": {Extended: true, Authenticated: true},
		"UTF8SMTPSA": {Extended: true, UTF8: true, TLS: "x", Authenticated: true},
	} {
		if got := protocolName(c); got != want {
			t.Errorf("%+v: %s, want %s", c, got, want)
		}
	}
}

// FuzzHead: reading a header never fails, and counts no more hops than lines.
func FuzzHead(f *testing.F) {
	f.Add("Received: a\r\n\tb\r\nReceived : c\r\nDelivered-To: Ana@Example.Test\r\nFrom: a@b, c@d\r\n\r\nReceived: body\r\n")
	f.Add("no header")
	f.Add("\r\n")
	f.Add(strings.Repeat("Received: x\r\n", 2000))
	s, err := store.Open(f.TempDir(), store.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	f.Fuzz(func(t *testing.T, text string) {
		body := s.NewSpool(1 << 20)
		defer body.Close()
		if _, err := body.Write([]byte(text)); err != nil {
			return
		}
		h, err := readHead(body)
		if err != nil {
			t.Fatal(err)
		}
		if h.hops > strings.Count(text, "\n")+1 {
			t.Errorf("%d hops", h.hops)
		}
		for email := range h.delivered {
			if one, err := msg.NormalizeEmail(email); err != nil || one != email {
				t.Errorf("delivered to %q", email)
			}
		}
	})
}
