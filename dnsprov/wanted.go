package dnsprov

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/spf"
)

// Who serves a domain's DNS.
const (
	Builtin    = "builtin"    // our own authoritative server; only there does Wanted hold NS records
	Cloudflare = "cloudflare" // the edge provider, by an API token of the owner's
	Manual     = "manual"     // the owner enters the records wherever the domain is
	External   = "external"   // DNS and mail are elsewhere; we do nothing there
)

// ReportsLocal is the local part of the address, in each domain, at which reports on DMARC are
// collected.
const ReportsLocal = "dmarc-reports"

// ManagedTTL is the TTL of every record that is not custom, but for challenges, in seconds.
const ManagedTTL = 3600

const mxPriority = 10

// Spec is what a hosted domain's records are made from. Names are as in Record.Name.
type Spec struct {
	Domain       string
	MailHost     string   // receives the domain's mail
	Nameservers  []string // ours, in the order in which they are shown
	IPv4, IPv6   []netip.Addr
	SendFrom     []netip.Addr            // addresses that mail is sent from beside those
	Elsewhere    map[string][]netip.Addr // of Nameservers that are not this host: their addresses, by name
	DKIM         []DKIMKey
	DMARC        string // the policy; empty for dmarc.Default
	DMARCReports bool   // reports on the default policy are collected
	Redirect     bool   // visitors of the domain come to this host
	RedirectWWW  bool   // and so do those of its www
	HTTPS        bool   // this host serves HTTPS, and so policies and settings for mail clients
	HTTPSPort    uint16 // where; 0: 443
	Submission   uint16 // ports that mail clients are told, with TLS from the start or by STARTTLS; 0: none
	Submissions  uint16
	IMAP         uint16
	IMAPS        uint16
	CAA          string   // the issuer domain of the authority that certifies the hosts below the domain (RFC 8659); empty: any may
	MailKeys     []string // SHA-256 of the public keys that MailHost shows to other servers, now and next, in hex
	Challenges   []Record // of certificate authorities, for as long as they take
	Custom       []Record // the owner's own records; their Purpose is set here
}

// DKIMKey is one published DKIM key.
type DKIMKey struct {
	Selector string
	Record   string // the TXT value, as "v=DKIM1; k=rsa; p=…" (RFC 6376 section 3.6.1)
}

// Wanted lists every record that a domain has at a provider, in the order in which they are shown.
// It is the one place that decides this. What is not critical gives way to records of the owner's
// own.
func Wanted(s Spec, provider string) []Record {
	var out []Record
	if provider == Builtin {
		for _, ns := range s.Nameservers {
			out = append(out, managed(s.Domain, "NS", hostName(ns), PurposeNS))
		}
	}
	if provider != Cloudflare { // there the domain itself may be the owner's website
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
			out = addNew(out, group)
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

// mail is what makes mail come here, and others trust what is sent from here.
func (s Spec) mail() []Record {
	mx := managed(s.Domain, "MX", hostName(s.MailHost), PurposeMX)
	mx.Priority = mxPriority
	out := []Record{mx, managed(s.Domain, "TXT", s.spf(), PurposeSPF)}
	for _, k := range s.DKIM {
		out = append(out, managed(k.Selector+"._domainkey."+s.Domain, "TXT", k.Record, PurposeDKIM))
	}
	policy := managed("_dmarc."+s.Domain, "TXT", s.DMARC, PurposeDMARC)
	if policy.Value == "" {
		policy.Value = dmarc.Default
		if s.DMARCReports {
			policy.Value += "; rua=mailto:" + ReportsLocal + "@" + s.Domain
		}
	}
	policy.Critical = false
	return append(out, policy)
}

// addNew adds what is not there yet: a host of ours may have a name such as www below the domain.
func addNew(records, more []Record) []Record {
	for _, r := range more {
		if !slices.ContainsFunc(records, r.Same) {
			records = append(records, r)
		}
	}
	return records
}

func managed(name, typ, value, purpose string) Record {
	return Record{Name: name, Type: typ, Value: value, TTL: ManagedTTL, Purpose: purpose, Critical: true}
}

func (s Spec) addresses(host, purpose string) []Record {
	if ips, ok := s.Elsewhere[host]; ok {
		s.IPv4, s.IPv6 = families(ips)
	}
	var out []Record
	for _, ip := range s.IPv4 {
		out = append(out, managed(host, "A", ip.String(), purpose))
	}
	for _, ip := range s.IPv6 {
		out = append(out, managed(host, "AAAA", ip.String(), purpose))
	}
	return out
}

func families(ips []netip.Addr) (four, six []netip.Addr) {
	for _, ip := range ips {
		if ip.Unmap().Is4() {
			four = append(four, ip.Unmap())
		} else {
			six = append(six, ip)
		}
	}
	return four, six
}

// ownHosts lists the names of this installation and its secondaries that lie inside the domain, so
// that its zone has to give their addresses: nobody else can.
func (s Spec) ownHosts() []string {
	var out []string
	seen := map[string]bool{s.Domain: true} // the apex has its addresses already
	for _, host := range append([]string{s.MailHost}, s.Nameservers...) {
		host = hostName(host)
		if strings.HasSuffix(host, "."+s.Domain) && !seen[host] {
			seen[host] = true
			out = append(out, host)
		}
	}
	return out
}

// spf names the host twice: by address, so that a check costs no look-ups, and as mx, so that the
// record stays true when the host moves. It ends in ~all because with -all some receivers refuse
// before they have looked at DKIM, which alone survives a forward; the policy is DMARC's to set.
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

// Managed reports whether a custom record would collide with one that wanted manages: the same name
// and type, a CNAME at a managed name, an address of either family beside an optional one, anything
// at _dmarc, or a second SPF record at the apex. Other texts at the apex are free, and so is the
// place of challenges.
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
