// Package rrset plans changes of single values in sets of records, for DNS services that cannot
// mark the records that we made. It does not know any service.
package rrset

import (
	"strings"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
)

const fixedSize = 10 // bytes of type, class, TTL and length of a record (RFC 1035 section 3.2.1)

// A Value is one record of a set.
type Value struct {
	RR   dns.RR // nil if the value cannot be read
	Text string // the data in the notation of zone files, as the DNS service wrote it
	TTL  uint32 // seconds
	data string // equal for two values of a set if and only if they are the same
}

// Of returns the value that is a record of the wire.
func Of(rr dns.RR) Value {
	return Value{RR: rr, Text: strings.TrimPrefix(rr.String(), rr.Header().String()), TTL: rr.Header().Ttl, data: Data(rr)}
}

// Opaque returns a value that cannot be read.
func Opaque(text string, ttl uint32) Value {
	return Value{Text: text, TTL: ttl, data: "opaque " + text}
}

// Read parses the data of a record in the notation of zone files (RFC 1035 section 5.1). Names
// without a last dot are below origin. If the text cannot be read, the RR of the value is nil.
func Read(set dnsprov.Set, ttl uint32, text, origin string) Value {
	rr, err := dnsprov.ParseRR(set.Name, set.Type, text, dns.Fqdn(origin), ttl)
	if err != nil {
		return Opaque(text, ttl)
	}
	return Value{RR: rr, Text: text, TTL: ttl, data: Data(rr)}
}

// Same reports whether two values of one set are the same. The letter case of names and the way of
// writing do not matter.
func (v Value) Same(o Value) bool { return v.data == o.data }

// Record returns a foreign record. It has its Key as ID, unless it is in another form than we would
// write it, such as a text that is split elsewhere.
func (v Value) Record(set dnsprov.Set) dnsprov.Record {
	if v.RR == nil {
		return dnsprov.Record{Name: set.Name, Type: set.Type, Value: v.Text, TTL: v.TTL, SetTTL: true}
	}
	out := dnsprov.RecordOf(v.RR)
	out.Name, out.SetTTL = set.Name, true
	own, err := out.RR()
	if err == nil && Data(own) == v.data {
		out.ID = out.Key()
	}
	return out
}

// Data returns the data of a record on the wire, with names in lower case where servers ignore the
// letter case of them.
func Data(rr dns.RR) string {
	switch rr.(type) {
	case *dns.NS, *dns.CNAME, *dns.DNAME, *dns.PTR, *dns.MX, *dns.SRV:
		if lower, err := dnsprov.RecordOf(rr).RR(); err == nil {
			rr = lower
		}
	}
	rr = dns.Copy(rr)
	rr.Header().Name = "."
	wire := make([]byte, dns.Len(rr)+1)
	end, err := dns.PackRR(rr, wire, 0, nil, false)
	if err != nil {
		return rr.String()
	}
	return string(wire[1+fixedSize : end])
}

// Sets has the sets of a zone.
type Sets map[dnsprov.Set][]Value

// Records returns the records at and below a domain, all of them as foreign. Records of one set
// with the same Key are one.
func (s Sets) Records(domain string, leastTTL uint32) []dnsprov.Record {
	out := []dnsprov.Record{}
	for set, values := range s {
		seen := map[string]bool{}
		for _, v := range values {
			r := v.Record(set)
			r.LeastTTL = leastTTL
			if dnsprov.IsWithin(r.Name, domain) && (r.ID == "" || !seen[r.ID]) {
				seen[r.ID] = true
				out = append(out, r)
			}
		}
	}
	return out
}
