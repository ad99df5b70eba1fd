// Package spftest evaluates SPF records by two implementations: ours, and one of somebody else. It
// does not know where the records come from.
package spftest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/mail/auth"
)

// Domain is the domain whose records are evaluated.
const Domain = "example.com"

// MXHosts are where its mail went before it came here.
var MXHosts = []string{"mx1.old.test", "MX2.old.test."}

// Addresses has those that some record of Cases permits, their neighbours, and strangers.
var Addresses = []string{
	"192.0.2.10", "2001:db8::10", "192.0.2.11", "198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.9", "198.51.100.100", "2001:db8:1::1", "2001:db8:1::2", "2001:db8:1::3",
	"203.0.113.1", "203.0.113.5", "203.0.113.17", "203.0.113.33", "203.0.113.49", "203.0.113.65", "203.0.113.66", "203.0.113.80", "203.0.113.99", "203.0.113.100",
	"203.0.113.129", "203.0.113.145", "203.0.113.150", "203.0.113.160", "203.0.113.200", "203.0.113.201", "203.0.113.202", "2001:db8:5::1", "2001:db8:6::1",
}

// A World is the DNS of a test: records by name and type.
type World map[string]map[uint16][]dns.RR

// NewWorld has what records refer to, the MX hosts of the domain, and its TXT records.
func NewWorld(t testing.TB, mx []string, texts ...string) World {
	t.Helper()
	w := World{}
	for line := range strings.Lines(`
example.com. A 192.0.2.10
example.com. AAAA 2001:db8::10
mx1.old.test. A 198.51.100.1
mx1.old.test. AAAA 2001:db8:1::1
mx2.old.test. A 198.51.100.2
mx2.old.test. AAAA 2001:db8:1::2
mail.ours.test. A 192.0.2.2
mail.ours.test. AAAA 2001:db8::2
other.test. MX 10 mx.other.test.
mx.other.test. A 198.51.100.100
mx.other.test. AAAA 2001:db8:1::3
_spf.large.test. TXT "v=spf1 include:_n1.large.test include:_n2.large.test include:_n3.large.test ~all"
_n1.large.test. TXT "v=spf1 ip4:203.0.113.0/28 ~all"
_n2.large.test. TXT "v=spf1 ip4:203.0.113.16/28 ip6:2001:db8:6::/48 ~all"
_n3.large.test. TXT "v=spf1 ip4:203.0.113.32/28 ~all"
spf.offices.test. TXT "v=spf1 ip4:203.0.113.64/28 -all"
out.sender.test. A 203.0.113.80
out.sender.test. AAAA 2001:db8:6::1
_spf.hoster.test. TXT "v=spf1 ip4:203.0.113.128/28 a:relay.hoster.test -all"
relay.hoster.test. A 203.0.113.145
relay.hoster.test. AAAA 2001:db8:1::3
203.0.113.99._spf.macro.test. A 127.0.0.2
example.com._spf.macro.test. TXT "v=spf1 ip4:203.0.113.160 include:%{i}._in.macro.test -all"
203.0.113.100._in.macro.test. TXT "v=spf1 +all"
200.113.0.203.in-addr.arpa. PTR mail.ptr.test.
mail.ptr.test. A 203.0.113.200
201.113.0.203.in-addr.arpa. PTR host.example.com.
host.example.com. A 203.0.113.201
loop.test. TXT "v=spf1 include:loop.test -all"
round.test. TXT "v=spf1 include:about.test -all"
about.test. TXT "v=spf1 redirect=round.test"
none.test. TXT "no policy"
two.test. TXT "v=spf1 -all"
two.test. TXT "v=spf1 +all"
`) {
		if line != "\n" {
			w.Add(t, strings.Replace(strings.TrimSpace(line), " ", " 60 IN ", 1))
		}
	}
	for _, host := range mx {
		w.Add(t, Domain+". 60 IN MX 10 "+dns.Fqdn(host))
	}
	for _, text := range texts {
		w.Add(t, Domain+`. 60 IN TXT "`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)+`"`)
	}
	return w
}

func (w World) Add(t testing.TB, text string) {
	t.Helper()
	rr, err := dns.NewRR(text)
	if err != nil {
		t.Fatal(err)
	}
	name := dns.CanonicalName(rr.Header().Name)
	if w[name] == nil {
		w[name] = map[uint16][]dns.RR{}
	}
	w[name][rr.Header().Rrtype] = append(w[name][rr.Header().Rrtype], rr)
}

func find[T dns.RR](w World, name string, typ uint16) ([]T, error) {
	var out []T
	for _, rr := range w[dns.CanonicalName(name)][typ] {
		out = append(out, rr.(T))
	}
	if out == nil {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return out, nil
}

func (w World) LookupTXT(_ context.Context, name string) ([]string, error) {
	found, err := find[*dns.TXT](w, name, dns.TypeTXT)
	var out []string
	for _, rr := range found {
		out = append(out, strings.Join(rr.Txt, ""))
	}
	return out, err
}

func (w World) LookupMX(_ context.Context, name string) ([]*net.MX, error) {
	found, err := find[*dns.MX](w, name, dns.TypeMX)
	var out []*net.MX
	for _, rr := range found {
		out = append(out, &net.MX{Host: rr.Mx, Pref: rr.Preference})
	}
	return out, err
}

func (w World) LookupIPAddr(_ context.Context, name string) ([]net.IPAddr, error) {
	var out []net.IPAddr
	four, err := find[*dns.A](w, name, dns.TypeA)
	for _, rr := range four {
		out = append(out, net.IPAddr{IP: rr.A})
	}
	six, err6 := find[*dns.AAAA](w, name, dns.TypeAAAA)
	for _, rr := range six {
		out = append(out, net.IPAddr{IP: rr.AAAA})
	}
	if err6 == nil {
		err = nil
	}
	return out, err
}

func (w World) LookupAddr(_ context.Context, address string) ([]string, error) {
	reverse, err := dns.ReverseAddr(address)
	if err != nil {
		return nil, err
	}
	found, err := find[*dns.PTR](w, reverse, dns.TypePTR)
	var out []string
	for _, rr := range found {
		out = append(out, rr.Ptr)
	}
	return out, err
}

// Evaluate returns the SPF result of a message from an address, by our own evaluation.
func (w World) Evaluate(t *testing.T, address string) string {
	t.Helper()
	const message = "From: <a@example.com>\r\n\r\nx\r\n"
	verdict, err := (&auth.Verifier{Resolver: w}).Verify(t.Context(), auth.Request{
		IP: netip.MustParseAddr(address), Helo: "client.test", MailFrom: "a@" + Domain, AuthservID: "mx.test",
		Message: strings.NewReader(message), Size: int64(len(message)), HeaderFrom: []string{"a@" + Domain},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(verdict.SPF)
}

// judge evaluates messages with pyspf. It reads {"zone": {name: {type: [data]}}, "addresses": []}
// from each line, and writes the results as a list.
const judge = `
import json, sys, spf
zone = {}
def look(name, qtype, *more):
    name = name.rstrip(".").lower()
    return [((name, qtype), tuple(d) if isinstance(d, list) else d) for d in zone.get(name, {}).get(qtype, [])]
spf.DNSLookup = look
for line in sys.stdin:
    q = json.loads(line)
    zone = q["zone"]
    print(json.dumps([spf.check2(i=a, s="a@example.com", h="client.test")[0] for a in q["addresses"]]), flush=True)
`

// A Pyspf evaluates messages with Debian's python3-spf, which is not our code.
type Pyspf struct {
	in  *json.Encoder
	out *json.Decoder
}

// StartPyspf runs it until the test ends.
func StartPyspf(t *testing.T) Pyspf {
	t.Helper()
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import spf").Run(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("python3-spf is missing; make peers installs it")
		}
		t.Skip("python3-spf is not installed")
	}
	cmd := exec.Command(python, "-c", judge)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("pyspf: %v", err)
		}
	})
	return Pyspf{json.NewEncoder(in), json.NewDecoder(out)}
}

// Evaluate returns the SPF results of messages from addresses.
func (p Pyspf) Evaluate(t *testing.T, w World, addresses []string) (results []string) {
	t.Helper()
	zone := map[string]map[string][]any{}
	for name, types := range w {
		out := map[string][]any{}
		for typ, rrs := range types {
			for _, rr := range rrs {
				var data any
				switch rr := rr.(type) {
				case *dns.A:
					data = rr.A.String()
				case *dns.AAAA:
					data = rr.AAAA.String()
				case *dns.MX:
					data = []any{rr.Preference, strings.TrimSuffix(rr.Mx, ".")}
				case *dns.PTR:
					data = strings.TrimSuffix(rr.Ptr, ".")
				case *dns.TXT:
					data = rr.Txt
				}
				out[dns.TypeToString[typ]] = append(out[dns.TypeToString[typ]], data)
			}
		}
		zone[strings.TrimSuffix(name, ".")] = out
	}
	if err := errors.Join(p.in.Encode(map[string]any{"zone": zone, "addresses": addresses}), p.out.Decode(&results)); err != nil {
		t.Fatal(err)
	}
	return results
}
