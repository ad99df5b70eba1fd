package rfc2136

import (
	"strconv"
	"strings"

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
	typ, _ := rrType(s.Type)
	return setKey{dns.CanonicalName(s.Name), typ}
}

func (k setKey) String() string { return k.name + " " + dns.Type(k.typ).String() + " " }

// empty returns a record of the set without data, as prerequisites have it (RFC 2136 section 2.4).
func (k setKey) empty(class uint16) dns.RR {
	return &dns.ANY{Hdr: dns.RR_Header{Name: k.name, Rrtype: k.typ, Class: class}}
}

// rrType returns the number of a type.
func rrType(name string) (uint16, bool) {
	if typ, ok := dns.StringToType[name]; ok {
		return typ, true
	}
	number, isNumber := strings.CutPrefix(name, "TYPE")
	typ, err := strconv.ParseUint(number, 10, 16)
	return uint16(typ), isNumber && err == nil
}
