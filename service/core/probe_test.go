package core_test

import (
	"context"
	"net"
	"testing"

	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/miekg/dns"
)

// rootDNS answers queries for the root with an error.
type rootDNS struct {
	*servicetest.FakeDNS
	err error
}

func (r rootDNS) LookupNS(context.Context, string) ([]*net.NS, error) { return nil, r.err }

// TestProbe: any answer shows that a resolver works, also one without a root.
func TestProbe(t *testing.T) {
	for _, tc := range []struct {
		err   error
		alive bool
	}{
		{nil, true},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, true},
		{&net.DNSError{Err: "server misbehaving", IsTemporary: true}, true},
		{&net.DNSError{Err: "i/o timeout", IsTimeout: true, IsTemporary: true}, false},
		{&net.DNSError{Err: "read udp: connection refused", IsTemporary: true}, false},
		{context.DeadlineExceeded, false},
	} {
		if err := core.Probe(t.Context(), rootDNS{servicetest.NewFakeDNS(), tc.err}); (err == nil) != tc.alive {
			t.Errorf("%v: %v", tc.err, err)
		}
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, rcode := range []int{dns.RcodeServerFailure, dns.RcodeRefused, dns.RcodeNameError, dns.RcodeSuccess} {
		srv := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			_ = w.WriteMsg(new(dns.Msg).SetRcode(q, rcode))
		})}
		started := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(started) }
		ended := make(chan error, 1)
		go func() { ended <- srv.ActivateAndServe() }()
		<-started
		if err := core.Probe(t.Context(), lookup.New(lookup.Options{Servers: []string{conn.LocalAddr().String()}})); err != nil {
			t.Errorf("%s: %v", dns.RcodeToString[rcode], err)
		}
		_ = srv.Shutdown()
		<-ended
		conn, err = net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
	}
	conn.Close()
	if err := core.Probe(t.Context(), lookup.New(lookup.Options{Servers: []string{conn.LocalAddr().String()}})); err == nil {
		t.Error("nobody is there, and lives")
	}
}
