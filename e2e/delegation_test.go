package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// A rootServer is the root of a small DNS, which delegates one domain to the nameservers of a
// sandbox.
type rootServer struct{ domain, at string }

func (r rootServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	name := strings.ToLower(q.Question[0].Name)
	glue := &dns.A{Hdr: dns.RR_Header{Name: "ns1.mailstead.test.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(r.at)}
	switch {
	case dns.IsSubDomain(r.domain, name):
		m.Ns = []dns.RR{&dns.NS{Hdr: dns.RR_Header{Name: r.domain, Rrtype: dns.TypeNS, Class: dns.ClassINET, Ttl: 60}, Ns: glue.Hdr.Name}}
		m.Extra = []dns.RR{glue}
	case name == glue.Hdr.Name && q.Question[0].Qtype == dns.TypeA:
		m.Authoritative, m.Answer = true, []dns.RR{glue}
	case name == "." && q.Question[0].Qtype == dns.TypeNS:
		m.Authoritative = true
		m.Answer = []dns.RR{&dns.NS{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeNS, Class: dns.ClassINET, Ttl: 60}, Ns: "root.mailstead.test."}}
	default: // a part of a name that goes on
		m.Authoritative = true
	}
	_ = w.WriteMsg(m)
}

// TestUnboundFollowsTheDelegation: a resolver that knows nothing but a root finds the domain by its
// delegation and glue. Name servers are asked at port 53, so that the test needs the right to
// listen there.
func TestUnboundFollowsTheDelegation(t *testing.T) {
	const root, ours = "127.53.9.1", "127.53.9.2"
	program(t, "unbound", "/usr/sbin/unbound")
	pc, err := net.ListenPacket("udp", root+":53")
	if err != nil {
		t.Skip(err)
	}
	served := &dns.Server{PacketConn: pc, Handler: rootServer{"signed.test.", ours}}
	go func() { _ = served.ActivateAndServe() }()
	t.Cleanup(func() { _ = served.Shutdown() })
	i := newInstance(t, "", "--dns", ours+":53")
	i.addSigned("signed.test")
	hints := filepath.Join(t.TempDir(), "hints")
	if err := os.WriteFile(hints, []byte(". 3600 NS root.mailstead.test.\nroot.mailstead.test. 3600 A "+root+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := runUnbound(t, func(port string) string {
		conf := fmt.Sprintf(unboundConf, port, root, root)
		conf, _, _ = strings.Cut(conf, "stub-zone:")
		return strings.Replace(conf, "server:\n", "server:\n\troot-hints: \""+hints+"\"\n", 1)
	})
	c := dns.Client{Timeout: 2 * time.Second}
	var m *dns.Msg
	i.until("the domain is found", func() bool {
		m, _, err = c.Exchange(new(dns.Msg).SetQuestion("signed.test.", dns.TypeMX), addr)
		return err == nil && m.Rcode == dns.RcodeSuccess && len(m.Answer) == 1
	})
	if mx := m.Answer[0].(*dns.MX); mx.Mx != "mail.mailstead.test." {
		t.Errorf("found %v", m)
	}
	if m, _, err = c.Exchange(new(dns.Msg).SetQuestion("nothing.signed.test.", dns.TypeA), addr); err != nil || m.Rcode != dns.RcodeNameError {
		t.Errorf("what is not there: %v, %v", m, err)
	}
}
