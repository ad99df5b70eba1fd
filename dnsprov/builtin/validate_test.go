package builtin

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

// A validator checks answers like a resolver that trusts one key (RFC 4035 section 5). It shares no
// code with the signing side.
type validator struct {
	key  *dns.DNSKEY
	apex string
	at   time.Time
}

type setID struct {
	name string
	typ  uint16
}

// group sorts records into sets, each with the signatures over it.
func group(rrs []dns.RR) (sets map[setID][]dns.RR, sigs map[setID][]*dns.RRSIG) {
	sets, sigs = map[setID][]dns.RR{}, map[setID][]*dns.RRSIG{}
	for _, rr := range rrs {
		name := dns.CanonicalName(rr.Header().Name)
		if sig, ok := rr.(*dns.RRSIG); ok {
			id := setID{name, sig.TypeCovered}
			sigs[id] = append(sigs[id], sig)
			continue
		}
		id := setID{name, rr.Header().Rrtype}
		sets[id] = append(sets[id], rr)
	}
	return sets, sigs
}

func (v validator) verify(id setID, set []dns.RR, sigs []*dns.RRSIG) error {
	if len(sigs) != 1 {
		return fmt.Errorf("%s %s has %d signatures", id.name, dns.TypeToString[id.typ], len(sigs))
	}
	sig := sigs[0]
	switch {
	case !sig.ValidityPeriod(v.at):
		return fmt.Errorf("%s %s: the signature is not valid at %v", id.name, dns.TypeToString[id.typ], v.at)
	case sig.Hdr.Ttl != set[0].Header().Ttl || sig.Hdr.Ttl > sig.OrigTtl:
		return fmt.Errorf("%s %s: TTL %d, of the signature %d, original %d", id.name, dns.TypeToString[id.typ], set[0].Header().Ttl, sig.Hdr.Ttl, sig.OrigTtl)
	}
	if err := sig.Verify(v.key, set); err != nil {
		return fmt.Errorf("%s %s: %w", id.name, dns.TypeToString[id.typ], err)
	}
	return nil
}

// validate checks an authoritative answer: the signature of every set, and the proofs that its
// status requires.
func (v validator) validate(m *dns.Msg) error {
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		sets, sigs := group(section)
		for id, set := range sets {
			if id.typ == dns.TypeOPT {
				continue
			}
			if err := v.verify(id, set, sigs[id]); err != nil {
				return err
			}
		}
	}
	name, answered := v.end(m)
	switch {
	case m.Rcode == dns.RcodeNameError && answered:
		return fmt.Errorf("%s has an answer and does not exist", name)
	case m.Rcode == dns.RcodeNameError:
		return v.absent(m, name)
	case m.Rcode == dns.RcodeSuccess && !answered && dns.IsSubDomain(v.apex, name):
		return v.empty(m, name, m.Question[0].Qtype)
	}
	return nil
}

// end follows the aliases of an answer to the last name, and reports whether there is an answer for
// that name.
func (v validator) end(m *dns.Msg) (name string, answered bool) {
	name = dns.CanonicalName(m.Question[0].Name)
	sets, sigs := group(m.Answer)
	for range m.Answer {
		switch qtype := m.Question[0].Qtype; {
		case len(sets[setID{name, qtype}]) > 0, qtype == dns.TypeANY && len(sets) > 0, qtype == dns.TypeRRSIG && len(sigs) > 0:
			return name, true
		}
		alias := sets[setID{name, dns.TypeCNAME}]
		if len(alias) == 0 {
			break
		}
		name = dns.CanonicalName(alias[0].(*dns.CNAME).Target)
	}
	return name, false
}

func nsecs(m *dns.Msg) []*dns.NSEC {
	var out []*dns.NSEC
	for _, rr := range m.Ns {
		if nsec, ok := rr.(*dns.NSEC); ok {
			out = append(out, nsec)
		}
	}
	return out
}

// labels returns the labels of a name from the right, as bytes.
func labels(name string) [][]byte {
	wire := make([]byte, 256)
	end, err := dns.PackDomainName(dns.CanonicalName(name), wire, 0, nil, false)
	if err != nil {
		panic(err) // a test gave what is no name
	}
	var out [][]byte
	for at := 0; at < end-1; at += int(wire[at]) + 1 {
		out = append(out, wire[at+1:at+1+int(wire[at])])
	}
	slices.Reverse(out)
	return out
}

func compareNames(a, b string) int { return slices.CompareFunc(labels(a), labels(b), bytes.Compare) }

func (v validator) covers(nsec *dns.NSEC, name string) bool {
	return compareNames(nsec.Hdr.Name, name) < 0 && (compareNames(name, nsec.NextDomain) < 0 || dns.CanonicalName(nsec.NextDomain) == v.apex)
}

// absent checks the proof that a name does not exist and that no wildcard answers for it (RFC 4035
// section 5.4).
func (v validator) absent(m *dns.Msg, name string) error {
	proofs := nsecs(m)
	at := slices.IndexFunc(proofs, func(n *dns.NSEC) bool { return v.covers(n, name) })
	if at < 0 {
		return fmt.Errorf("nothing shows that %s does not exist", name)
	}
	if dns.IsSubDomain(name, proofs[at].NextDomain) {
		return fmt.Errorf("%s exists, since %s does", name, proofs[at].NextDomain)
	}
	closest := v.apex
	for _, other := range []string{proofs[at].Hdr.Name, proofs[at].NextDomain} {
		if shared := sharedTail(name, other); dns.CountLabel(shared) > dns.CountLabel(closest) {
			closest = shared
		}
	}
	if !slices.ContainsFunc(proofs, func(n *dns.NSEC) bool { return v.covers(n, "*."+closest) || name == "*."+closest }) {
		return fmt.Errorf("nothing shows that *.%s does not exist", closest)
	}
	if len(proofs) > 2 {
		return fmt.Errorf("%d proofs", len(proofs))
	}
	return nil
}

func sharedTail(a, b string) string {
	n := dns.CompareDomainName(a, b)
	starts := dns.Split(a)
	return a[starts[len(starts)-n]:]
}

// empty checks the proof that a name has no records of a type.
func (v validator) empty(m *dns.Msg, name string, typ uint16) error {
	proofs := nsecs(m)
	if len(proofs) != 1 {
		return fmt.Errorf("%d proofs", len(proofs))
	}
	nsec := proofs[0]
	if dns.CanonicalName(nsec.Hdr.Name) != name {
		if v.covers(nsec, name) && dns.IsSubDomain(name, nsec.NextDomain) {
			return nil
		}
		return fmt.Errorf("%v shows nothing about %s", nsec, name)
	}
	if slices.Contains(nsec.TypeBitMap, typ) || slices.Contains(nsec.TypeBitMap, dns.TypeCNAME) {
		return fmt.Errorf("%v shows that there is an answer", nsec)
	}
	return nil
}

// Make sure that the validator refuses wrong answers.
func TestTheValidatorRefuses(t *testing.T) {
	key := testKey(t)
	z := signedZone(t, Options{Key: key})
	v := validator{key: key.public.record(z.apex), apex: z.apex, at: time.Now()}
	for _, tc := range []struct {
		what   string
		q      *dns.Msg
		change func(m *dns.Msg)
	}{
		{"another value", question("example.test.", dns.TypeA), func(m *dns.Msg) { m.Answer[0].(*dns.A).A[3]++ }},
		{"a record less", question("example.test.", dns.TypeTXT), func(m *dns.Msg) { m.Answer = m.Answer[1:] }},
		{"no signature", question("example.test.", dns.TypeA), func(m *dns.Msg) { m.Answer = m.Answer[:1] }},
		{"a longer TTL", question("example.test.", dns.TypeA), func(m *dns.Msg) {
			m.Answer[0].Header().Ttl++
			m.Answer[1].Header().Ttl++
		}},
		{"no wildcard proof", question("no.example.test.", dns.TypeA), func(m *dns.Msg) { m.Ns = slices.Concat(m.Ns[:2], m.Ns[2:4]) }},
		{"no proof", question("no.example.test.", dns.TypeA), func(m *dns.Msg) { m.Ns = m.Ns[:2] }},
		{"no proof of NODATA", question("mail.example.test.", dns.TypeTXT), func(m *dns.Msg) { m.Ns = m.Ns[:2] }},
		{"another name", question("mail.example.test.", dns.TypeTXT), func(m *dns.Msg) { m.Question[0].Name = "ns1.example.test." }},
		{"NXDOMAIN of what exists", question("_domainkey.example.test.", dns.TypeTXT), func(m *dns.Msg) { m.Rcode = dns.RcodeNameError }},
		{"a type that is there", question("mail.example.test.", dns.TypeTXT), func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeA }},
	} {
		wire, err := z.Answer(tc.q).Pack()
		if err != nil {
			t.Fatal(err)
		}
		m := new(dns.Msg)
		if err := m.Unpack(wire); err != nil {
			t.Fatal(err)
		}
		if err := v.validate(m); err != nil {
			t.Fatalf("%s: before: %v", tc.what, err)
		}
		if tc.change(m); v.validate(m) == nil {
			t.Errorf("%s was taken:\n%v", tc.what, m)
		}
	}
}

// names makes names from an alphabet that makes mistakes in canonical order likely.
func names(data string) []string {
	alphabet := []string{"a", "b", "aa", "ab", "a-b", "z", "_x", `\000`, `\001`, `\001\001`, `\000a`, `a\000`, `\.`, `\255`, "*x", "!", "0", "ns1", `\\`, "a\\.b"}
	var out []string
	for part := range strings.SplitSeq(data, "\xff") {
		name := "example.test"
		for i, c := range []byte(part) {
			if i == 6 {
				break
			}
			name = alphabet[int(c)%len(alphabet)] + "." + name
		}
		out = append(out, name)
	}
	return out
}

// FuzzDenial makes a zone of some names and queries others: it proves that each name outside does
// not exist.
func FuzzDenial(f *testing.F) {
	f.Add("\x00\xff\x01\x00\xff\x02\x03\x04", "\x00\xff\x05\xff\x00\x00\x00")
	f.Add("\x07\xff\x08\xff\x09\xff\x0a\xff\x0b\xff\x07\x08", "\x08\x07\xff\x0c\xff\x0d\xff\x0b\x0b")
	f.Add("", "\x13\xff\x12\xff\x0e")
	key := testKey(f)
	f.Fuzz(func(t *testing.T, have, asked string) {
		var records []dnsprov.Record
		for i, name := range names(have) {
			if i == 20 {
				break
			}
			records = append(records, rec(name, "TXT", "x"))
		}
		z, err := NewZone("example.test", records, Options{Nameservers: []string{"ns1.example.test"}, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range append(names(asked), names(have)...) {
			if i == 30 {
				break
			}
			m := prove(t, z, key.public, time.Now(), name+".", dns.TypeTXT)
			exists := slices.ContainsFunc(records, func(r dnsprov.Record) bool {
				return dns.IsSubDomain(dns.CanonicalName(name), dns.CanonicalName(r.Name))
			})
			if exists != (m.Rcode == dns.RcodeSuccess) {
				t.Fatalf("%s exists: %v, but %v", name, exists, m)
			}
		}
	})
}
