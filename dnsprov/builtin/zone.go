// Package builtin has the zones of Mailstead's own authoritative nameserver in memory, and answers
// queries from them (RFC 1034 section 4.3.2). It does not know where zones are stored, or how
// queries arrive.
//
// Where things are:
//   - zone.go: a zone. build.go: making it from records. cut.go: delegations. rr.go: conversion of
//     records. zones.go: the served zones.
//   - questions.go: how many questions each zone answers.
//   - answer.go: answers to queries. denial.go, minimal.go: proofs that names do not exist.
//   - sign.go: DNSSEC signatures. key.go: the key of a zone.
//   - transfer.go, tsig.go: zone transfers. notify.go, notify_sender.go: NOTIFY to servers that
//     copy zones. catalog.go: the catalog of zones.
package builtin

import (
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	soaTTL      = 3600 // TTL of the SOA and of NS records from Options, in seconds
	negativeTTL = 300  // TTL of negative answers in seconds (RFC 2308)
	// delegationTTL is the TTL of DS records in seconds. After a key change, validating resolvers
	// may fail to resolve the delegated zone for this time.
	delegationTTL = 300
	soaRefresh    = 3600   // SOA refresh in seconds: how often secondaries check for changes
	soaRetry      = 600    // SOA retry in seconds: when secondaries check again after an error
	soaExpire     = 604800 // SOA expire in seconds: when secondaries drop a zone without contact
)

// Options are the properties of a zone except its records.
type Options struct {
	Nameservers []string // host names; the first is the primary in the SOA
	Hostmaster  string   // an email address; "" means hostmaster@ORIGIN
	Serial      uint32   // serial of the SOA; must rise with each change (RFC 1982)
	Delegations []Delegation
	Key         *Key             // nil if the zone is not signed
	Now         func() time.Time // nil means time.Now
	// Owner is whose zone it is, in any form. Its questions are counted from the first zone on that
	// has this origin and owner; "": they are not counted.
	Owner string
}

// A Delegation is a subdomain of a zone that this server serves as a zone of its own. The zone
// above leaves out records at and below its name.
type Delegation struct {
	Name        string // in the form of Record.Name
	Nameservers []string
	Key         PublicKey // nil if the subdomain is not signed
}

// Zone is a zone that can answer queries. Its records never change. It makes signatures when they
// are first needed. It is safe for concurrent use.
type Zone struct {
	Origin         string           // the domain, lower-case, without the trailing dot
	apex           string           // Origin with a trailing dot
	nodes          map[string]*node // by name, in canonical form with a trailing dot
	chain          nsecChain
	hasDelegations bool
	glue           []*rrset // addresses below delegations, in order of names; never signed
	soa            *rrset
	negative       []dns.RR // the SOA with the TTL of a negative answer
	signing        *signer  // nil if the zone is not signed
	denials        denialCache
	questions      *questions // nil: they are not counted
}

// node has the record sets of a name. A name that only has names below it, such as _domainkey, has
// no sets.
type node struct {
	sets      []*rrset
	nsec      *rrset // the NSEC for transfers; nil if the zone is not signed or there are no sets
	delegated bool   // whether the name is that of a delegated zone

	own        atomic.Pointer[rrset] // the NSEC of the name for answers; nil until it is needed
	noWildcard atomic.Pointer[rrset] // the NSEC of noWildcardNSEC; nil until it is needed
}

// name returns the name of a node, which must have sets.
func (n *node) name() string { return n.sets[0].rrs[0].Header().Name }

// rrset is a record set: the records of one name and type.
type rrset struct {
	typ       uint16
	rrs       []dns.RR
	hosts     []*rrset // address sets, in this zone, of the hosts that rrs name
	glue      []dns.RR // all records of hosts
	unsigned  bool     // whether the set must not be signed, as NS of a delegation (RFC 4035 section 2.2)
	signature atomic.Pointer[signature]
}

// set returns the record set of a type, or nil if there is none.
func (n *node) set(typ uint16) *rrset {
	for _, set := range n.sets {
		if set.typ == typ {
			return set
		}
	}
	return nil
}
