// Package scan reads the present zone of a domain from the nameservers of others that serve it: by
// a transfer, by a walk along its NSEC records, or by questions for usual names. It does not know
// whose domain it is, nor what becomes of the records.
package scan

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
)

// Errors of a Client. Their texts, and those of all other errors, are ours; no text of a server is
// part of them.
var (
	ErrLookup   = errors.New("the DNS lookup of the nameservers failed")
	ErrNoServer = errors.New("none of the domain's nameservers answers for it")
)

// A Resolver tells nameservers and their addresses. *lookup.Client and *net.Resolver implement it.
type Resolver interface {
	LookupNS(ctx context.Context, name string) ([]*net.NS, error)
	// LookupNetIP returns the addresses of host. network is "ip".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// A Client asks nameservers of others. It is safe for concurrent use.
type Client struct {
	Resolver Resolver
	// Dial connects to an IP address, which it must refuse if this server may not connect to it;
	// netguard.Guard.DialIP does. network is "udp" or "tcp".
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// LookupDS looks up the DS records of a domain if the servers of its parent zone do not tell;
	// nil: then there are none.
	LookupDS func(ctx context.Context, domain string) ([]dnsprov.DS, error)
	Pace     *Pace  // shared by all clients of the program
	Port     uint16 // of all nameservers; 0: 53
}

// Servers are the authoritative servers of a domain.
type Servers struct {
	Names []string         // in the form of dnsprov.Record.Name, sorted; empty if nobody serves the domain
	Addrs []netip.AddrPort // in the order in which they are asked; empty if no name has an address
	DS    []dnsprov.DS     // that the parent zone has for the domain
	NSTTL time.Duration    // of the NS records in the parent zone; 0 if it is not known
	DSTTL time.Duration    // of the DS records; 0 if there are none, or if it is not known
}

// A Parent is what the parent zone has for a domain.
type Parent struct {
	Names []string      // nameservers in the form of dnsprov.Record.Name, sorted; empty if the domain is not delegated
	TTL   time.Duration // of the NS records; 0 if it is not known
	DS    *[]dnsprov.DS // nil if they are not known
}

// A Method is how a zone was read.
type Method string

// Methods, the best first.
const (
	MethodAXFR      Method = "axfr"      // a transfer (RFC 5936)
	MethodNSEC      Method = "nsec"      // a walk along the NSEC records of a signed zone (RFC 4034 section 4)
	MethodQuestions Method = "questions" // questions for usual names
	MethodNone      Method = "none"      // nobody serves the domain
)

// A Result is what the nameservers have of a domain.
type Result struct {
	Nameservers []string // those of Servers
	Method      Method
	Complete    bool // whether no record can be missing
	Wildcard    bool // whether there is a wildcard right below the domain (RFC 4592)
	// Records at and below the domain, sorted by name and type, each one once. A wildcard's name
	// begins with "*". At a name that is delegated there are its NS and DS records, and below it
	// only addresses of its nameservers. The SOA, and what a server makes to sign its zone, are
	// left out.
	Records []dnsprov.Record
	DS      []dnsprov.DS
	// NSTTL is how long resolvers may go on to ask these nameservers: the longer one of the TTLs
	// that the parent zone and the zone have for the NS records; 0 if neither is known.
	NSTTL time.Duration
	DSTTL time.Duration // that of Servers
	// Partial: the servers fell silent, left questions without an answer, or the time or a bound
	// was reached, so that less was asked than usual.
	Partial bool
}
