package handlers

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/handlers/dnsd"
	"github.com/mailstead/mailstead/service"
)

type serviceZones struct{ *service.Service }

func (z serviceZones) Zone(name string) (dnsd.Answerer, bool) {
	zone, ok := z.Service.Zone(name)
	return zone, ok
}

// serveZones serves the sandbox's zones on the loopback until the test ends.
func (b *sandbox) serveZones() (addr string) {
	b.t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(tcp.Addr().String())))
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- (&dnsd.Server{Zones: serviceZones{b.Service}}).Run(ctx, udp, tcp) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("dnsd: %v", err)
		}
	})
	return tcp.Addr().String()
}

// A domain is in the DNS from the moment that it is connected until it is deleted.
func TestOurServerAnswersForDomains(t *testing.T) {
	b, _ := newWorld(t, nil)
	addr := b.serveZones()
	answer := func(typ uint16, name string) string {
		t.Helper()
		m, _, err := (&dns.Client{}).Exchange(new(dns.Msg).SetQuestion(dns.Fqdn(name), typ), addr)
		if err != nil {
			t.Fatal(err)
		}
		out := dns.RcodeToString[m.Rcode]
		for _, rr := range m.Answer {
			out += " | " + strings.TrimPrefix(rr.String(), rr.Header().String())
		}
		return out
	}
	want := func(typ uint16, name, want string) {
		t.Helper()
		if got := answer(typ, name); !strings.HasPrefix(got, want) {
			t.Errorf("%s %s: %q, want %q", name, dns.TypeToString[typ], got, want)
		}
	}
	want(dns.TypeNS, "served.test", "REFUSED")
	want(dns.TypeA, "mail.example.test", "NOERROR | 127.0.0.1")
	want(dns.TypeA, "ns1.example.test", "NOERROR | 127.0.0.1")
	id := b.connect("served.test")
	want(dns.TypeNS, "served.test", "NOERROR | ns1.example.test. | ns2.example.test.")
	want(dns.TypeMX, "Served.TEST", "NOERROR | 10 mail.example.test.")
	want(dns.TypeTXT, "ms1._domainkey.served.test", "NXDOMAIN")
	first := answer(dns.TypeSOA, "served.test")
	b.post("/v1/domains/check-ns", `{"domains":["served.test"]}`).is(200)
	b.until("/v1/domains/"+id, "status", "complete")
	want(dns.TypeTXT, "ms1._domainkey.served.test", `NOERROR | "v=DKIM1; k=rsa; p=`)
	want(dns.TypeTXT, "ms1e._domainkey.served.test", `NOERROR | "v=DKIM1; k=ed25519; p=`)
	want(dns.TypeTXT, "served.test", `NOERROR | "v=spf1 mx ip4:127.0.0.1 ~all"`)
	want(dns.TypeTXT, "_dmarc.served.test", `NOERROR | "v=DMARC1; p=reject"`)
	if now := answer(dns.TypeSOA, "served.test"); now == first {
		t.Errorf("the serial stayed while records came: %s", now)
	}
	job := b.remove("/v1/domains/" + id).is(202).text("job_id")
	b.get("/v1/jobs/"+job+"?wait=10").has("status", "completed")
	want(dns.TypeNS, "served.test", "REFUSED")
}
