package dnsprov

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/spf"
)

// Kinds of DNS service for a domain.
const (
	Builtin    = "builtin"    // our own authoritative server; only for it does Wanted return NS records
	Cloudflare = "cloudflare" // the edge provider, through an API token of the owner
	Manual     = "manual"     // the owner enters the records at their DNS service
	External   = "external"   // DNS and mail are handled elsewhere; we change nothing
)

// ReportsLocal is the local part of the address, in each domain, that collects DMARC reports.
const ReportsLocal = "dmarc-reports"

// ManagedTTL is the TTL, in seconds, of every record except custom records and challenges.
const ManagedTTL = 3600

const mxPriority = 10

// Spec describes a hosted domain; its records are derived from it. Names are as in Record.Name.
type Spec struct {
	Domain       string
	MailHost     string   // receives the domain's mail
	Nameservers  []string // ours, in display order
	IPv4, IPv6   []netip.Addr
	SendFrom     []netip.Addr            // further addresses that mail is sent from
	Elsewhere    map[string][]netip.Addr // addresses of those Nameservers that are not this host, by name
	DKIM         []DKIMKey
	DMARC        string // the policy; empty for dmarc.Default
	DMARCReports bool   // the default policy asks for reports
	Redirect     bool   // visitors of the domain are sent to this host
	RedirectWWW  bool   // visitors of www below the domain too
	HTTPS        bool   // this host serves HTTPS, and so MTA-STS policies and settings for mail clients
	HTTPSPort    uint16 // the port of HTTPS; 0: 443
	Submission   uint16 // ports for mail clients: Submission and IMAP by STARTTLS, the others by implicit TLS; 0: none
	Submissions  uint16
	IMAP         uint16
	IMAPS        uint16
	CAA          string   // the issuer domain of the authority that certifies the hosts below the domain (RFC 8659); empty: any authority may
	MailKeys     []string // SHA-256, in hex, of the public keys that MailHost presents to other servers, now and next
	Challenges   []Record // challenges of certificate authorities, while they are pending
	Custom       []Record // the owner's own records; Wanted sets their Purpose
}

// DKIMKey is one published DKIM key.
type DKIMKey struct {
	Selector string
	Record   string // the TXT value, such as "v=DKIM1; k=rsa; p=…" (RFC 6376 section 3.6.1)
}

// Wanted lists every record that a domain has at a provider, in display order. Only this function
// decides that. Records that are not critical give way to the owner's own records.
func Wanted(s Spec, provider string) []Record {
	var out []Record
	if provider == Builtin {
		for _, ns := range s.Nameservers {
			out = append(out, newManaged(s.Domain, "NS", hostName(ns), PurposeNS))
		}
	}
	if provider != Cloudflare { // at Cloudflare the domain itself may be the owner's website
		out = append(out, s.addresses(s.Domain, PurposeA)...)
	}
	if provider == Builtin {
		for _, host := range s.ownHosts() {
			out = append(out, s.addresses(host, PurposeA)...)
		}
	}
	out = append(out, s.mail()...)
	for _, group := range s.optional(provider) {
		if !s.occupied(group) {
			out = appendMissing(out, group)
		}
	}
	if provider == Builtin || provider == Cloudflare {
		out = append(out, s.challenges()...)
	}
	for _, r := range s.Custom {
		r.Purpose, r.Critical = PurposeCustom, false
		out = append(out, r)
	}
	return out
}

// mail returns the records that bring mail here, and that make other servers trust mail sent from
// here.
func (s Spec) mail() []Record {
	mx := newManaged(s.Domain, "MX", hostName(s.MailHost), PurposeMX)
	mx.Priority = mxPriority
	out := []Record{mx, newManaged(s.Domain, "TXT", s.spf(), PurposeSPF)}
	for _, k := range s.DKIM {
		out = append(out, newManaged(k.Selector+"._domainkey."+s.Domain, "TXT", k.Record, PurposeDKIM))
	}
	policy := newManaged("_dmarc."+s.Domain, "TXT", s.DMARC, PurposeDMARC)
	if policy.Value == "" {
		policy.Value = dmarc.Default
		if s.DMARCReports {
			policy.Value += "; rua=mailto:" + ReportsLocal + "@" + s.Domain
		}
	}
	policy.Critical = false
	return append(out, policy)
}

// appendMissing appends the records that are not present yet: a host of ours may have a name such
// as www below the domain.
func appendMissing(records, more []Record) []Record {
	for _, r := range more {
		if !slices.ContainsFunc(records, r.Same) {
			records = append(records, r)
		}
	}
	return records
}

func newManaged(name, typ, value, purpose string) Record {
	return Record{Name: name, Type: typ, Value: value, TTL: ManagedTTL, Purpose: purpose, Critical: true}
}

func (s Spec) addresses(host, purpose string) []Record {
	if ips, ok := s.Elsewhere[host]; ok {
		s.IPv4, s.IPv6 = splitFamilies(ips)
	}
	var out []Record
	for _, ip := range s.IPv4 {
		out = append(out, newManaged(host, "A", ip.String(), purpose))
	}
	for _, ip := range s.IPv6 {
		out = append(out, newManaged(host, "AAAA", ip.String(), purpose))
	}
	return out
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

// ownHosts lists the names of this installation and its secondaries that are inside the domain, so
// that its zone must contain their addresses: no other zone can.
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

// spf returns the SPF record. It names the host twice: by address, so that a check needs no
// lookups, and as mx, so that the record stays correct when the host moves. It ends in ~all,
// because with -all some receivers refuse before they check DKIM, which alone survives a forward;
// the policy is up to DMARC.
func (s Spec) spf() string {
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
	return spf.Record{Terms: append(terms, spf.Term{Qualifier: '~', Name: "all"})}.String()
}

// Managed reports whether a custom record would collide with a managed one in wanted: the same name
// and type, a CNAME at a managed name, an address of either family beside an optional one, anything
// at _dmarc, or a second SPF record at the apex. Other texts at the apex are allowed, and so are
// texts at the name of a challenge.
func Managed(wanted []Record, name, typ, value string) bool {
	name = hostName(name)
	for _, w := range wanted {
		if w.Purpose == PurposeCustom || w.Name != name || w.Purpose == PurposeACME && typ == "TXT" {
			continue
		}
		switch {
		case w.Purpose == PurposeDMARC, typ == "CNAME":
			return true
		case w.Purpose == PurposeSPF:
			if typ == "TXT" && spf.IsRecord(unquote(value)) {
				return true
			}
		case w.Type == typ, !w.Critical && isAddress(w.Type) && isAddress(typ):
			return true
		}
	}
	return false
}
