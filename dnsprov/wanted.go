package dnsprov

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/spf"
)

// Kinds of DNS service for a domain. Any other name is that of a provider at which the records are
// written by its API.
const (
	Builtin  = "builtin"  // the authoritative server of this program
	Manual   = "manual"   // the owner enters the records at another DNS service
	External = "external" // DNS and mail are elsewhere, so no records are wanted
)

// byAPI reports whether records are written at a provider by its API.
func byAPI(provider string) bool {
	return provider != Builtin && provider != Manual && provider != External
}

// ReportsLocal is the local part of the address of each domain that receives DMARC reports.
const ReportsLocal = "dmarc-reports"

// ManagedTTL is the TTL in seconds of every wanted record except custom records and challenges.
const ManagedTTL = 3600

const mxPriority = 10

// Spec describes a hosted domain. Wanted derives the domain's records from it. Names are in the
// form of Record.Name.
type Spec struct {
	Domain       string
	MailHost     string                  // the host that receives the domain's mail
	Nameservers  []string                // our nameservers, in display order
	IPv4, IPv6   []netip.Addr            // public addresses of this host
	SendFrom     []netip.Addr            // further addresses that send mail
	Elsewhere    map[string][]netip.Addr // addresses of the Nameservers that are other hosts, by name
	DKIM         []DKIMKey
	DMARC        string   // the policy; "" means dmarc.Default
	DMARCReports bool     // whether the default policy asks for reports
	SPFExtra     []string // the owner's terms of the SPF record, which come after ours
	SPFAll       string   // qualifier of the term "all" of the SPF record; "" means "~"
	Apex         Apex     // where the addresses of the domain itself lead
	MXElsewhere  bool     // whether other servers still take the mail of the domain
	MX           []Record // their MX records
	RedirectWWW  bool     // whether this host redirects web visitors of www.DOMAIN
	HTTPS        bool     // whether this host serves MTA-STS policies and mail client settings
	HTTPSPort    uint16   // 0 means 443
	Submission   uint16   // port for submission with STARTTLS; 0 if not served
	Submissions  uint16   // port for submission with implicit TLS; 0 if not served
	IMAP         uint16   // port for IMAP with STARTTLS; 0 if not served
	IMAPS        uint16   // port for IMAP with implicit TLS; 0 if not served
	CAA          string   // issuer domain for CAA records (RFC 8659); "" if any authority may issue
	MailKeys     []string // SHA-256, in hex, of the present and the next public key of MailHost
	Challenges   []Record // pending ACME challenges; their names and values count
	Custom       []Record // the owner's own records; Wanted sets their Purpose
}

// An Apex says where the addresses of a domain itself lead. The zero value is to this host.
type Apex struct {
	Elsewhere bool         // they belong to the owner's website
	Addresses []netip.Addr // its addresses, apart from custom records
	Alias     string       // the host that has its addresses, where the owner enters the records; "" if Addresses are known
	Critical  bool         // the domain needs an address before it is complete
	Accepts   string       // as Record.Accepts, where the owner enters the records
}

// DKIMKey is a DKIM key to publish.
type DKIMKey struct {
	Selector string
	Record   string // the TXT value, such as "v=DKIM1; k=rsa; p=…" (RFC 6376 section 3.6.1)
}

// Wanted returns every record that a domain should have at a provider, in display order. It leaves
// out optional records that conflict with custom records.
func Wanted(s Spec, provider string) []Record {
	var out []Record
	if provider == Builtin {
		for _, ns := range s.Nameservers {
			out = append(out, newManagedRecord(s.Domain, "NS", hostName(ns), PurposeNS))
		}
	}
	switch {
	case s.Apex.Elsewhere:
		out = append(out, s.siteRecords(provider)...)
	case !byAPI(provider):
		out = append(out, s.addressRecords(s.Domain, PurposeA)...)
	}
	if provider == Builtin {
		for _, host := range s.ownHosts() {
			out = append(out, s.addressRecords(host, PurposeA)...)
		}
	}
	out = append(out, s.mailRecords(provider)...)
	own := s.ownRecords()
	for _, group := range s.optionalRecords(provider) {
		if !own.occupy(group) {
			out = appendMissing(out, group)
		}
	}
	if provider == Builtin || byAPI(provider) {
		out = append(out, s.challengeRecords(own)...)
	}
	for _, r := range s.Custom {
		r.Purpose, r.Critical = PurposeCustom, false
		out = append(out, r)
	}
	return out
}

// AnyOrNone is the Value of the address record of a domain whose owner need not enter one.
const AnyOrNone = "any or none"

// siteRecords returns the address records of the owner's website at the domain itself. Where the
// owner enters the records, any other public address does as well.
func (s Spec) siteRecords(provider string) []Record {
	var out []Record
	for _, ip := range s.Apex.Addresses {
		out = append(out, addressRecord(s.Domain, ip, PurposeA))
	}
	if provider == Manual && s.Apex.Alias != "" {
		out = []Record{newManagedRecord(s.Domain, "CNAME", hostName(s.Apex.Alias), PurposeA)}
	}
	if provider == Manual && len(out) == 0 {
		out = []Record{newManagedRecord(s.Domain, "A", AnyOrNone, PurposeA)}
	}
	for i := range out {
		out[i].Critical = s.Apex.Critical
		if provider == Manual {
			out[i].Accepts = s.Apex.Accepts
		}
	}
	return out
}

// mailRecords returns the MX, SPF, DKIM and DMARC records. While other servers take the mail, only
// the built-in nameserver needs their MX records; elsewhere they are there already.
func (s Spec) mailRecords(provider string) []Record {
	var out []Record
	switch {
	case !s.MXElsewhere:
		mx := newManagedRecord(s.Domain, "MX", hostName(s.MailHost), PurposeMX)
		mx.Priority = mxPriority
		out = append(out, mx)
	case provider == Builtin:
		for _, mx := range s.MX {
			mx.Purpose, mx.Critical = PurposeMX, false
			out = append(out, mx)
		}
	}
	out = append(out, newManagedRecord(s.Domain, "TXT", s.spfRecord(), PurposeSPF))
	for _, k := range s.DKIM {
		out = append(out, newManagedRecord(k.Selector+"._domainkey."+s.Domain, "TXT", k.Record, PurposeDKIM))
	}
	policy := newManagedRecord("_dmarc."+s.Domain, "TXT", s.DMARC, PurposeDMARC)
	if policy.Value == "" {
		policy.Value = dmarc.Default
		if s.DMARCReports {
			policy.Value += "; rua=mailto:" + ReportsLocal + "@" + s.Domain
		}
		if provider == Manual {
			policy.Accepts = AcceptsPolicy
		}
	}
	policy.Critical = false
	return append(out, policy)
}

// appendMissing appends those records of more that records does not have yet. A host of ours may
// have the same name as an optional record, such as www.
func appendMissing(records, more []Record) []Record {
	for _, r := range more {
		if !slices.ContainsFunc(records, r.Same) {
			records = append(records, r)
		}
	}
	return records
}

func newManagedRecord(name, typ, value, purpose string) Record {
	return Record{Name: name, Type: typ, Value: value, TTL: ManagedTTL, Purpose: purpose, Critical: true}
}

// addressRecords returns the A and AAAA records of one of our hosts.
func (s Spec) addressRecords(host, purpose string) []Record {
	if ips, ok := s.Elsewhere[host]; ok {
		s.IPv4, s.IPv6 = splitFamilies(ips)
	}
	var out []Record
	for _, ip := range slices.Concat(s.IPv4, s.IPv6) {
		out = append(out, addressRecord(host, ip, purpose))
	}
	return out
}

// addressRecord returns the A or AAAA record of an address.
func addressRecord(host string, ip netip.Addr, purpose string) Record {
	if ip.Unmap().Is4() {
		return newManagedRecord(host, "A", ip.Unmap().String(), purpose)
	}
	return newManagedRecord(host, "AAAA", ip.String(), purpose)
}

func splitFamilies(ips []netip.Addr) (four, six []netip.Addr) {
	for _, ip := range ips {
		if ip.Unmap().Is4() {
			four = append(four, ip.Unmap())
		} else {
			six = append(six, ip)
		}
	}
	return four, six
}

// ownHosts returns the names of our mail host and nameservers that are below the domain. Only the
// zone of the domain can have their addresses.
func (s Spec) ownHosts() []string {
	var out []string
	seen := map[string]bool{s.Domain: true} // the apex already has addresses
	for _, host := range append([]string{s.MailHost}, s.Nameservers...) {
		host = hostName(host)
		if strings.HasSuffix(host, "."+s.Domain) && !seen[host] {
			seen[host] = true
			out = append(out, host)
		}
	}
	return out
}

// spfRecord returns the SPF record of the domain. It permits our host by mx, which stays correct
// when the address changes, and also by address.
func (s Spec) spfRecord() string {
	terms := []spf.Term{{Qualifier: '+', Name: "mx"}}
	for _, ip := range s.IPv4 {
		terms = append(terms, spf.Term{Qualifier: '+', Name: "ip4", Value: ip.String()})
	}
	for _, ip := range s.IPv6 {
		terms = append(terms, spf.Term{Qualifier: '+', Name: "ip6", Value: ip.String()})
	}
	for _, ip := range s.SendFrom {
		term := spf.Term{Qualifier: '+', Name: "ip4", Value: ip.String()}
		if ip.Is6() {
			term.Name = "ip6"
		}
		if !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	var ours []string
	for _, t := range terms {
		ours = append(ours, t.String())
	}
	return SPFText(ours, s.SPFExtra, s.SPFAll)
}

// CollidesWithManaged reports whether a custom record would collide with a managed record in
// wanted. Collisions are: the same name and type, a CNAME at the name of a managed record, an
// address at the name of an optional address, an NS at or above the name of a managed record, any
// record at _dmarc, and a second SPF record. Other TXT records may have the name of an SPF record
// or a challenge. Custom records may take the place of records that tell mail clients their
// settings.
func CollidesWithManaged(wanted []Record, name, typ, value string) bool {
	name = hostName(name)
	for _, w := range wanted {
		if w.Purpose == PurposeCustom {
			continue
		}
		if typ == "NS" && IsWithin(w.Name, name) {
			return true
		}
		if w.Name != name || w.Purpose == PurposeACME && typ == "TXT" || w.Purpose == PurposeAutoconfig {
			continue
		}
		switch {
		case w.Purpose == PurposeDMARC, typ == "CNAME":
			return true
		case w.Purpose == PurposeSPF:
			if (Record{Type: typ, Value: value}).IsSPF() {
				return true
			}
		case w.Type == typ, !w.Critical && isAddress(w.Type) && isAddress(typ):
			return true
		}
	}
	return false
}
