package lookup_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/lookup"
)

func TestSplitAsksOwnServerAboutHostedNames(t *testing.T) {
	r := &lookup.SplitClient{Own: lookup.New(lookup.Options{Servers: []string{answering(t, `hosted.test. 60 IN TXT "ours"`)}}), Client: lookup.New(lookup.Options{}), Hosts: func(name string) bool { return name == "hosted.test" }}
	if got, err := r.LookupTXT(context.Background(), "Hosted.test."); err != nil || len(got) != 1 || got[0] != "ours" {
		t.Errorf("hosted: %v, %v", got, err)
	}
	var e *net.DNSError
	if _, err := r.LookupTXT(context.Background(), "far.test"); !errors.As(err, &e) || !e.IsNotFound {
		t.Errorf("a reserved name: %v, want not found at once", err)
	}
}

// answering starts a DNS server with one record, and returns its address. Other queries get
// NXDOMAIN.
func answering(t *testing.T, record string) (addr string) {
	t.Helper()
	rr, err := dns.NewRR(record)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == rr.Header().Rrtype && dns.CanonicalName(q.Question[0].Name) == rr.Header().Name {
			m.Answer = []dns.RR{rr}
		} else {
			m.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown() })
	return conn.LocalAddr().String()
}
