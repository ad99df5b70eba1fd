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
	dnsblTime = 3 * time.Second
	maxZones  = 10
)

// A Listing is an entry of an address in a DNS-based list (RFC 5782).
type Listing struct {
	Zone   string // DNS zone of the list
	Reason string // the list's reason in printable ASCII, "" if it gives none
}

// CheckDNSBL looks an address up in all lists concurrently and returns the first in the order of
// zones that lists it. A list that does not answer within three seconds counts as not listing the
// address. So does an answer that is not an entry: outside of 127.0.0.0/8, as for a domain that is
// for sale, or in 127.255.255.0/24, where lists report errors.
func CheckDNSBL(ctx context.Context, r Resolver, zones []string, ip netip.Addr) (Listing, bool) {
	name := reversed(ip)
	if name == "" || len(zones) == 0 {
		return Listing{}, false
	}
	zones = zones[:min(len(zones), maxZones)]
	ctx, cancel := context.WithTimeout(ctx, dnsblTime)
	defer cancel()
	look := &lookups{ctx: ctx, resolver: r, each: dnsblTime}
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

// ErrListRefuses is returned if a list answers with an error instead of an entry. Large lists do so
// for queries through a public resolver.
var ErrListRefuses = errors.New("the list does not answer who asks through this resolver")

// InDNSBL looks an address up in one list. Unlike CheckDNSBL it returns an error if the list does
// not answer. An address that is not listed is not an error.
func InDNSBL(ctx context.Context, r Resolver, zone string, ip netip.Addr) (l Listing, listed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, dnsblTime)
	defer cancel()
	look := &lookups{ctx: ctx, resolver: r, each: dnsblTime}
	name := reversed(ip) + "." + zone
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

// reversed returns an address in the reversed form in which lists are queried (RFC 5782 sections
// 2.1 and 2.4).
func reversed(ip netip.Addr) string {
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
