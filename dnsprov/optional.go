package dnsprov

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/spf"
)

const (
	stsMaxAge        = 604800 // how long senders cache an MTA-STS policy, in seconds (RFC 8461 section 3.2)
	stsIDLen         = 32     // length of a policy id in characters, which is the maximum
	httpsPort        = 443
	fallbackPriority = 10 // priority of SRV records for STARTTLS; those for implicit TLS have 0
	challengeTTL     = 60 // seconds
)

// Labels of the hosts below a domain at which this server serves MTA-STS policies and settings for
// mail clients.
const (
	STSLabel          = "mta-sts"
	AutoconfigLabel   = "autoconfig"
	AutodiscoverLabel = "autodiscover"
)

// STSPolicy returns the MTA-STS policy of a domain with the mail host mailHost (RFC 8461 section
// 3.2).
func STSPolicy(mailHost string) string {
	return fmt.Sprintf("version: STSv1\r\nmode: enforce\r\nmx: %s\r\nmax_age: %d\r\n", hostName(mailHost), stsMaxAge)
}

// stsID returns the id of an MTA-STS policy. It changes with the policy, so that senders fetch the
// policy again (RFC 8461 section 3.1).
func stsID(policy string) string {
	sum := sha256.Sum256([]byte(policy))
	return hex.EncodeToString(sum[:])[:stsIDLen]
}

// optionalRecords returns the records that mail does not depend on. Each group of them is useful
// only as a whole.
func (s Spec) optionalRecords(provider string) [][]Record {
	var out [][]Record
	if byAPI(provider) && !s.Apex.Elsewhere {
		out = append(out, s.addressRecords(s.Domain, PurposeA))
	}
	if s.RedirectWWW {
		out = append(out, s.addressRecords("www."+s.Domain, PurposeA))
	}
	if s.HTTPS && !s.MXElsewhere { // a policy would forbid the servers that take the mail now
		sts := []Record{newManagedRecord("_mta-sts."+s.Domain, "TXT", "v=STSv1; id="+stsID(STSPolicy(s.MailHost)), PurposeMTASTS)}
		out = append(out,
			append(sts, s.httpsHostRecords(STSLabel, PurposeMTASTS, provider)...),
			[]Record{newManagedRecord("_smtp._tls."+s.Domain, "TXT", "v=TLSRPTv1; rua=mailto:postmaster@"+s.Domain, PurposeTLSRPT)},
			s.httpsHostRecords(AutoconfigLabel, PurposeAutoconfig, provider),
			s.httpsHostRecords(AutodiscoverLabel, PurposeAutoconfig, provider),
		)
	}
	if (provider == Builtin || byAPI(provider)) && !s.MXElsewhere {
		out = append(out, s.srvRecords(provider)...)
	}
	if provider == Builtin {
		out = append(out, s.hostSPFRecords(), s.tlsaRecords())
	}
	for _, group := range out {
		for i := range group {
			group[i].Critical = false
		}
	}
	return out
}

// httpsHostRecords returns the records of a name below the domain at which this server serves
// HTTPS. Only the built-in nameserver gets a CAA record.
func (s Spec) httpsHostRecords(label, purpose, provider string) []Record {
	name := label + "." + s.Domain
	out := s.addressRecords(name, purpose)
	if provider == Builtin && s.CAA != "" {
		out = append(out, newManagedRecord(name, "CAA", fmt.Sprintf("0 issue %q", s.CAA), purpose))
	}
	return out
}

// srvRecords returns the SRV records with which mail clients find the host and ports. Implicit TLS
// has priority over STARTTLS (RFC 6186, RFC 8314 section 5.1).
func (s Spec) srvRecords(provider string) [][]Record {
	var out [][]Record
	for _, srv := range []struct {
		name        string
		port, other uint16
		priority    uint16
	}{
		{"_submissions._tcp", s.Submissions, s.Submission, 0}, {"_submission._tcp", s.Submission, s.Submissions, fallbackPriority},
		{"_imaps._tcp", s.IMAPS, s.IMAP, 0}, {"_imap._tcp", s.IMAP, s.IMAPS, fallbackPriority},
	} {
		switch {
		case srv.port != 0:
			out = append(out, []Record{s.srvRecord(srv.name, srv.port, srv.priority)})
		case srv.other != 0 && provider == Builtin:
			// The target "." means that the service is not available (RFC 6186 section 3.4). Not
			// every provider accepts such a record.
			out = append(out, []Record{newManagedRecord(srv.name+"."+s.Domain, "SRV", ".", PurposeAutoconfig)})
		}
	}
	if s.HTTPS {
		port := s.HTTPSPort
		if port == 0 {
			port = httpsPort
		}
		out = append(out, []Record{s.srvRecord("_autodiscover._tcp", port, 0)})
	}
	return out
}

// hostSPFRecords returns the SPF record for the name of the mail host, or nil if that name is not
// below the domain.
func (s Spec) hostSPFRecords() []Record {
	host := hostName(s.MailHost)
	if !strings.HasSuffix(host, "."+s.Domain) {
		return nil
	}
	r := newManagedRecord(host, "TXT", spf.ForHost(s.SendFrom), PurposeSPF)
	r.Critical = false
	return []Record{r}
}

// tlsaRecords returns the TLSA records with which senders verify the public keys of the mail host
// (DANE, RFC 7672 section 3.1.1). It returns nil if the name of the mail host is not in this zone.
func (s Spec) tlsaRecords() []Record {
	host := hostName(s.MailHost)
	if !IsWithin(host, s.Domain) {
		return nil
	}
	var out []Record
	for _, key := range s.MailKeys {
		out = append(out, newManagedRecord("_25._tcp."+host, "TLSA", "3 1 1 "+key, PurposeDANE))
	}
	return out
}

func (s Spec) srvRecord(name string, port, priority uint16) Record {
	r := newManagedRecord(name+"."+s.Domain, "SRV", hostName(s.MailHost), PurposeAutoconfig)
	r.Port, r.Priority, r.Weight = port, priority, 1
	return r
}

// ownRecords has the custom records of a domain, by name.
type ownRecords struct {
	domain string
	byName map[string][]Record
}

func (s Spec) ownRecords() ownRecords {
	own := ownRecords{s.Domain, make(map[string][]Record, len(s.Custom))}
	for _, c := range s.Custom {
		name := hostName(c.Name)
		own.byName[name] = append(own.byName[name], c)
	}
	return own
}

// occupy reports whether a custom record of the owner replaces a record of the group. An address of
// either family replaces addresses of both: otherwise visitors would reach the owner's host over
// one family and ours over the other.
func (own ownRecords) occupy(group []Record) bool {
	return slices.ContainsFunc(group, func(r Record) bool {
		replaces := func(c Record) bool {
			if r.Purpose == PurposeSPF && c.Type == "TXT" && !c.IsSPF() {
				return false // other TXT records may have the same name
			}
			return c.Type == "CNAME" || c.Type == r.Type || isAddress(c.Type) && isAddress(r.Type)
		}
		return slices.ContainsFunc(own.byName[r.Name], replaces) || own.delegate(r.Name)
	})
}

// delegate reports whether NS records of the owner delegate a name to other servers.
func (own ownRecords) delegate(name string) bool {
	isNS := func(c Record) bool { return c.Type == "NS" }
	for below := true; below && name != own.domain; _, name, below = strings.Cut(name, ".") {
		if slices.ContainsFunc(own.byName[name], isNS) {
			return true
		}
	}
	return false
}

// challengeRecords returns the TXT records for pending ACME challenges. It leaves out names at
// which the owner has a CNAME, and names that the owner has delegated.
func (s Spec) challengeRecords(own ownRecords) []Record {
	isAlias := func(c Record) bool { return c.Type == "CNAME" }
	var out []Record
	for _, c := range s.Challenges {
		name := hostName(c.Name)
		if !slices.ContainsFunc(own.byName[name], isAlias) && !own.delegate(name) {
			out = append(out, Record{Name: name, Type: "TXT", Value: c.Value, TTL: challengeTTL, Purpose: PurposeACME})
		}
	}
	return out
}

func isAddress(typ string) bool { return typ == "A" || typ == "AAAA" }
