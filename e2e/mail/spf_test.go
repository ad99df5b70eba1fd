package mail

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/mail/auth"
)

// A policy by sender asks for a name that has the local part in it, whatever characters that has.
func TestSPFAsksForNamesThatNoHostHas(t *testing.T) {
	world := rig.NewFakeResolver(t)
	world.Set(t, "example.test", "TXT", `"v=spf1 exists:%{l}._u.%{o} a:odd/name.example.test mx:mail/name.example.test -all"`)
	world.Set(t, "bob+a\\ b=c._u.example.test", "A", "127.0.0.2")
	world.Set(t, "odd/name.example.test", "AAAA", "2001:db8::1")
	world.Set(t, "mail/name.example.test", "MX", "10 mx/1.example.test.")
	world.Set(t, "mx/1.example.test", "A", "192.0.2.7")
	v := auth.Verifier{Resolver: lookup.New(lookup.Options{Servers: []string{world.Addr}})}
	message := "From: bob@example.test\r\n\r\n"
	for _, c := range []struct{ ip, from, want string }{
		{"192.0.2.1", "bob+a b=c@example.test", "pass"}, {"192.0.2.1", "bob+b@example.test", "fail"}, {"192.0.2.1", "-bob-@example.test", "fail"},
		{"2001:db8::1", "eve@example.test", "pass"}, {"192.0.2.7", "eve@example.test", "pass"},
	} {
		got, err := v.Verify(t.Context(), auth.Request{IP: netip.MustParseAddr(c.ip), Helo: "mx.test", MailFrom: c.from, AuthservID: "us.test", Message: strings.NewReader(message), Size: int64(len(message))})
		if err != nil || string(got.SPF) != c.want {
			t.Errorf("%s from %s: %+v, %v; want %s", c.from, c.ip, got, err, c.want)
		}
	}
	world.SetSilent(true)
	r := lookup.New(lookup.Options{Servers: []string{world.Addr}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var e *net.DNSError
	if _, err := r.LookupIPAddr(ctx, "odd/name.example.test."); !errors.As(err, &e) || !e.IsTemporary || e.IsNotFound {
		t.Errorf("a dead resolver: %v", err)
	}
}
