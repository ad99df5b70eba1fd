package zonefile

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

// SOA is the data of the SOA record of a zone (RFC 1035 section 3.3.13). Names are in the form of
// Record.Name, times in seconds.
type SOA struct {
	Primary    string // a nameserver; "" means that of the zone's first NS record, or else the zone itself
	Hostmaster string // an email address with a dot in place of the @; "" means hostmaster.ORIGIN
	TTL        uint32
	Serial     uint32 // 0 means 1
	Refresh    uint32 // 0 means 3600
	Retry      uint32 // 0 means 600
	Expire     uint32 // 0 means 604800
	Minimum    uint32
}

// Write writes the records of a zone as a master file (RFC 1035 section 5): the SOA, the NS records
// of the origin, and the other records in the canonical order of names. origin is in the form of
// Record.Name. All records of a set get its shortest TTL. Write leaves out SOA records, and a
// record that is there twice. It returns an error for a record that no zone can have.
func Write(w io.Writer, origin string, soa SOA, records []dnsprov.Record) error {
	type line struct {
		dnsprov.Record
		labels []string // of the name, from the right
		rr     dns.RR
	}
	lines := make([]line, 0, len(records))
	shortest := map[dnsprov.Set]uint32{}
	for _, r := range records {
		if r.Type == "SOA" {
			continue
		}
		rr, err := r.RR()
		if err != nil {
			return fmt.Errorf("record %s %s: %w", r.Name, r.Type, err)
		}
		labels := dns.SplitDomainName(rr.Header().Name)
		slices.Reverse(labels)
		lines = append(lines, line{r, labels, rr})
		set := dnsprov.Set{Name: rr.Header().Name, Type: r.Type}
		ttl, seen := shortest[set]
		if !seen || r.TTL < ttl {
			shortest[set] = r.TTL
		}
	}
	apex := dns.CanonicalName(origin)
	place := func(l line) int { // the NS records of the origin come first
		if l.Type == "NS" && l.rr.Header().Name == apex {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Or(place(a)-place(b), slices.Compare(a.labels, b.labels), strings.Compare(a.Type, b.Type))
	})
	if soa.Primary == "" {
		soa.Primary = origin
		if len(lines) > 0 && place(lines[0]) == 0 {
			soa.Primary = lines[0].Value
		}
	}
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, soa.rr(apex))
	written := map[string]bool{}
	for _, l := range lines {
		h := l.rr.Header()
		h.Ttl = shortest[dnsprov.Set{Name: h.Name, Type: l.Type}]
		text := l.rr.String()
		if text[0] == '$' { // or the line would be read as a directive
			text = `\` + text
		}
		if !written[text] {
			written[text] = true
			fmt.Fprintln(out, text)
		}
	}
	return out.Flush()
}

// rr returns the SOA record of the zone apex.
func (s SOA) rr(apex string) dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: apex, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: s.TTL},
		Ns:  dns.Fqdn(s.Primary), Mbox: dns.Fqdn(cmp.Or(s.Hostmaster, "hostmaster."+apex)),
		Serial: cmp.Or(s.Serial, 1), Refresh: cmp.Or(s.Refresh, 3600), Retry: cmp.Or(s.Retry, 600), Expire: cmp.Or(s.Expire, 604800), Minttl: s.Minimum,
	}
}
