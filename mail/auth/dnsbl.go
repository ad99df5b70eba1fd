package auth

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	dnsblTimeout = 3 * time.Second // for all look-ups of one address
	maxZones     = 10              // DNS zones that are asked
)

// A Listing says that a DNS-based list has an entry for an address (RFC 5782).
type Listing struct {
	Zone   string // DNS zone of the list
	Reason string // printable ASCII; "" if the list gives no reason
}

// CheckDNSBL looks an address up in all lists concurrently. If several lists have an entry, it
// returns that of the first in the order of zones. A list that does not answer within three seconds
// counts as having no entry. An answer is no entry if it is outside of 127.0.0.0/8, as for a domain
// that is for sale, or in 127.255.255.0/24, by which lists report errors.
func CheckDNSBL(ctx context.Context, r Resolver, zones []string, ip netip.Addr) (l Listing, listed bool) {
	name := reversedForDNS(ip)
	if name == "" || len(zones) == 0 {
		return Listing{}, false
	}
	zones = zones[:min(len(zones), maxZones)]
	ctx, cancel := context.WithTimeout(ctx, dnsblTimeout)
	defer cancel()
	look := &lookups{ctx: ctx, resolver: r, lookupTimeout: dnsblTimeout}
	found := make([]bool, len(zones))
	var wg sync.WaitGroup
	for i, zone := range zones {
		wg.Go(func() {
			answers, err := look.LookupIPAddr(ctx, name+"."+zone)
			for _, a := range answers {
				entry, ok := netip.AddrFromSlice(a.IP)
				found[i] = found[i] || err == nil && ok && isEntry(entry.Unmap())
			}
		})
	}
	wg.Wait()
	for i, zone := range zones {
		if found[i] {
			return Listing{zone, listingReason(look, name+"."+zone)}, true
		}
	}
	return Listing{}, false
}

// ErrListRefuses is returned by InDNSBL if a list answers with an error instead of an entry. Large
// lists do so if the query comes through a public resolver.
var ErrListRefuses = errors.New("the list does not answer who asks through this resolver")

// InDNSBL looks an address up in one list. Unlike CheckDNSBL it returns an error if the list does
// not answer. listed is false if the list has no entry for the address.
func InDNSBL(ctx context.Context, r Resolver, zone string, ip netip.Addr) (l Listing, listed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, dnsblTimeout)
	defer cancel()
	look := &lookups{ctx: ctx, resolver: r, lookupTimeout: dnsblTimeout}
	name := reversedForDNS(ip) + "." + zone
	answers, err := look.LookupIPAddr(ctx, name)
	if missing := new(net.DNSError); errors.As(err, &missing) && missing.IsNotFound {
		return Listing{}, false, nil
	}
	for _, a := range answers {
		if entry, ok := netip.AddrFromSlice(a.IP); ok && isEntry(entry.Unmap()) {
			return Listing{zone, listingReason(look, name)}, true, nil
		}
	}
	if err == nil {
		err = ErrListRefuses
	}
	return Listing{}, false, err
}

// isEntry reports whether an answer of a list means that the address is listed.
func isEntry(ip netip.Addr) bool {
	if !ip.Is4() {
		return false
	}
	b := ip.As4()
	return b[0] == 127 && (b[1] != 255 || b[2] != 255)
}

func listingReason(look *lookups, name string) string {
	txts, err := look.LookupTXT(look.ctx, name)
	if err != nil || len(txts) == 0 {
		return ""
	}
	return printable(txts[0])
}

// reversedForDNS returns an address in the reversed form by which lists are queried (RFC 5782
// sections 2.1 and 2.4), "" if ip is invalid.
func reversedForDNS(ip netip.Addr) string {
	ip = ip.Unmap()
	var parts []string
	switch {
	case ip.Is4():
		b := ip.As4()
		for i := 3; i >= 0; i-- {
			parts = append(parts, strconv.Itoa(int(b[i])))
		}
	case ip.Is6():
		b := ip.As16()
		for i := 15; i >= 0; i-- {
			parts = append(parts, strconv.FormatUint(uint64(b[i]&15), 16), strconv.FormatUint(uint64(b[i]>>4), 16))
		}
	}
	return strings.Join(parts, ".")
}
