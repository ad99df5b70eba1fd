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
	stsMaxAge        = 604800 // seconds that senders cache the policy; a week is the least that protects (RFC 8461 section 3.2)
	stsIDLen         = 32     // characters; the maximum for an id
	httpsPort        = 443
	fallbackPriority = 10 // priority of an SRV that clients use only if they support no better service
	challengeTTL     = 60
)

// Labels below a domain under which this host serves what other servers and mail clients look up.
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

// stsID returns an id that changes with the policy, so that senders fetch the policy again (RFC
// 8461 section 3.1).
func stsID(policy string) string {
	sum := sha256.Sum256([]byte(policy))
	return hex.EncodeToString(sum[:])[:stsIDLen]
}

// optional lists the records that mail does not depend on, in groups that are only useful as a
// whole.
func (s Spec) optional(provider string) [][]Record {
	var out [][]Record
	if s.Redirect {
		if provider == Cloudflare {
			out = append(out, s.addresses(s.Domain, PurposeA))
		}
	}
	if s.RedirectWWW {
		out = append(out, s.addresses("www."+s.Domain, PurposeA))
	}
	if s.HTTPS {
		sts := []Record{newManaged("_mta-sts."+s.Domain, "TXT", "v=STSv1; id="+stsID(STSPolicy(s.MailHost)), PurposeMTASTS)}
		out = append(out,
			append(sts, s.host(STSLabel, PurposeMTASTS, provider)...),
			[]Record{newManaged("_smtp._tls."+s.Domain, "TXT", "v=TLSRPTv1; rua=mailto:postmaster@"+s.Domain, PurposeTLSRPT)},
			s.host(AutoconfigLabel, PurposeAutoconfig, provider),
			s.host(AutodiscoverLabel, PurposeAutoconfig, provider),
		)
	}
	if provider == Builtin || provider == Cloudflare {
		out = append(out, s.services(provider)...)
	}
	if provider == Builtin {
		out = append(out, s.hostSPF(), s.mailKeys())
	}
	for _, group := range out {
		for i := range group {
			group[i].Critical = false
		}
	}
	return out
}

// host returns the records of a name that this host serves by HTTPS. The CAA record is only added
// at our own name server.
func (s Spec) host(label, purpose, provider string) []Record {
	name := label + "." + s.Domain
	out := s.addresses(name, purpose)
	if provider == Builtin && s.CAA != "" {
		out = append(out, newManaged(name, "CAA", fmt.Sprintf("0 issue %q", s.CAA), purpose))
	}
	return out
}

// services returns the SRV records that tell mail clients the ports. Implicit TLS has priority over
// STARTTLS (RFC 6186, RFC 8314 section 5.1).
func (s Spec) services(provider string) [][]Record {
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
			out = append(out, []Record{s.service(srv.name, srv.port, srv.priority)})
		case srv.other != 0 && provider == Builtin:
			// It says that the service is not available (RFC 6186 section 3.4). Not every external
			// provider accepts such a record.
			out = append(out, []Record{newManaged(srv.name+"."+s.Domain, "SRV", ".", PurposeAutoconfig)})
		}
	}
	if s.HTTPS {
		port := s.HTTPSPort
		if port == 0 {
			port = httpsPort
		}
		out = append(out, []Record{s.service("_autodiscover._tcp", port, 0)})
	}
	return out
}

// hostSPF returns the SPF record for the mail host's own name, if that is below the domain. The
// domain itself has another record.
func (s Spec) hostSPF() []Record {
	host := hostName(s.MailHost)
	if !strings.HasSuffix(host, "."+s.Domain) {
		return nil
	}
	r := newManaged(host, "TXT", spf.ForHost(s.SendFrom), PurposeSPF)
	r.Critical = false
	return []Record{r}
}

// mailKeys returns the TLSA records with which senders verify the mail host by its keys, whatever
// authority certified them (RFC 7672 section 3.1.1), if its name is in this zone.
func (s Spec) mailKeys() []Record {
	host := hostName(s.MailHost)
	if host != s.Domain && !strings.HasSuffix(host, "."+s.Domain) {
		return nil
	}
	var out []Record
	for _, key := range s.MailKeys {
		out = append(out, newManaged("_25._tcp."+host, "TLSA", "3 1 1 "+key, PurposeDANE))
	}
	return out
}

func (s Spec) service(name string, port, priority uint16) Record {
	r := newManaged(name+"."+s.Domain, "SRV", hostName(s.MailHost), PurposeAutoconfig)
	r.Port, r.Priority, r.Weight = port, priority, 1
	return r
}

// occupied reports whether a record of the owner takes the place of one of the group. An address of
// either family does: visitors must not reach the owner's host by one family and ours by the other.
func (s Spec) occupied(group []Record) bool {
	return slices.ContainsFunc(group, func(r Record) bool {
		return slices.ContainsFunc(s.Custom, func(c Record) bool {
			if r.Purpose == PurposeSPF && c.Type == "TXT" && !spf.IsRecord(unquote(c.Value)) {
				return false // other texts can be at the same name
			}
			return hostName(c.Name) == r.Name && (c.Type == "CNAME" || c.Type == r.Type || isAddress(c.Type) && isAddress(r.Type))
		})
	})
}

// challenges returns the challenge texts for certificate authorities, except where a CNAME of the
// owner redirects them.
func (s Spec) challenges() []Record {
	var out []Record
	for _, c := range s.Challenges {
		alias := func(o Record) bool { return o.Type == "CNAME" && hostName(o.Name) == hostName(c.Name) }
		if !slices.ContainsFunc(s.Custom, alias) {
			out = append(out, Record{Name: hostName(c.Name), Type: "TXT", Value: c.Value, TTL: challengeTTL, Purpose: PurposeACME})
		}
	}
	return out
}

func isAddress(typ string) bool { return typ == "A" || typ == "AAAA" }
