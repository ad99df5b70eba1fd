package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// dnsServer is the DNS server that Mailstead uses while it is measured. It has the records of the
// domain senderDomain, with SPF, DKIM and DMARC, and of the domains to which mail is sent. It
// queries no other server.
type dnsServer struct {
	addr string
	key  *rsa.PrivateKey // DKIM key of senderDomain
	udp  *dns.Server
	tcp  *dns.Server

	mu      sync.Mutex
	records map[string][]dns.RR // by name
}

// senderDomain is the domain from which mail comes in.
const senderDomain = "elsewhere.test"

// recipientDomains is the number of domains, far0.test and so on, to which mail is sent. Each has
// its own MX host.
const recipientDomains = 40

// startDNS starts the DNS server.
func startDNS() (*dnsServer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	n := &dnsServer{key: key, records: map[string][]dns.RR{}}
	text := "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(public)
	n.addRecords(senderDomain+" 300 IN TXT \"v=spf1 ip4:127.0.0.0/8 -all\"",
		senderDomain+" 300 IN MX 10 mx."+senderDomain+".", "mx."+senderDomain+" 300 IN A 127.0.0.1",
		"_dmarc."+senderDomain+" 300 IN TXT \"v=DMARC1; p=none\"",
		"s1._domainkey."+senderDomain+" 300 IN TXT \""+text[:200]+"\" \""+text[200:]+"\"",
		"1.0.0.127.in-addr.arpa 300 IN PTR mx."+senderDomain+".")
	for h := range recipientDomains {
		n.addRecords(fmt.Sprintf("far%d.test 300 IN MX 10 mx.far%d.test.", h, h), fmt.Sprintf("mx.far%d.test 300 IN A 127.0.0.%d", h, h+2))
	}
	var packets net.PacketConn
	var stream net.Listener
	for range 10 { // the port may be taken for TCP
		packets, err = net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		n.addr = packets.LocalAddr().String()
		stream, err = net.Listen("tcp", n.addr)
		if err == nil {
			break
		}
		packets.Close()
	}
	if err != nil {
		return nil, err
	}
	n.udp, n.tcp = &dns.Server{PacketConn: packets, Handler: n}, &dns.Server{Listener: stream, Handler: n}
	go func() { _ = n.udp.ActivateAndServe() }()
	go func() { _ = n.tcp.ActivateAndServe() }()
	return n, nil
}

// addRecords adds records in the notation of zone files.
func (n *dnsServer) addRecords(lines ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			panic(err) // the lines are constants
		}
		name := strings.ToLower(rr.Header().Name)
		n.records[name] = append(n.records[name], rr)
	}
}

func (n *dnsServer) close() {
	_ = n.udp.Shutdown()
	_ = n.tcp.Shutdown()
}

// ServeDNS answers a query from the records. It answers NXDOMAIN for unknown names.
func (n *dnsServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	answer := new(dns.Msg).SetReply(q)
	answer.RecursionAvailable = true
	n.mu.Lock()
	list, known := n.records[strings.ToLower(q.Question[0].Name)]
	n.mu.Unlock()
	for _, rr := range list {
		if rr.Header().Rrtype == q.Question[0].Qtype {
			answer.Answer = append(answer.Answer, rr)
		}
	}
	if len(answer.Answer) == 0 {
		if !known {
			answer.Rcode = dns.RcodeNameError
		}
		answer.Ns = []dns.RR{&dns.SOA{
			Hdr: dns.RR_Header{Name: "test.", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 300},
			Ns:  "ns.test.", Mbox: "root.test.", Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: 300,
		}}
	}
	_ = w.WriteMsg(answer)
}
