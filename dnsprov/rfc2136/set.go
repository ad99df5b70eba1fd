package rfc2136

import (
	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
)

// A setKey names a set of records.
type setKey struct {
	name string // canonical, with the last dot
	typ  uint16
}

func keyOf(rr dns.RR) setKey {
	return setKey{dns.CanonicalName(rr.Header().Name), rr.Header().Rrtype}
}

// keyOfSet returns the key of a set whose type exists.
func keyOfSet(s dnsprov.Set) setKey {
	typ, _ := dnsprov.TypeNumber(s.Type)
	return setKey{dns.CanonicalName(s.Name), typ}
}

func (k setKey) String() string { return k.name + " " + dns.Type(k.typ).String() + " " }

// empty returns a record of the set without data, as prerequisites have it (RFC 2136 section 2.4).
func (k setKey) empty(class uint16) dns.RR {
	return &dns.ANY{Hdr: dns.RR_Header{Name: k.name, Rrtype: k.typ, Class: class}}
}
