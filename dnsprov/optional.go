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
	stsMaxAge    = 604800 // seconds that senders keep the policy; a week is the least that protects (RFC 8461 section 3.2)
	stsIDLen     = 32     // characters, the most that an id has
	httpsPort    = 443
	second       = 10 // priority of an SRV that is taken only by clients that cannot do better
	challengeTTL = 60
)

// Labels below a domain under which this host serves what other servers and mail clients look for.
const (
	STSLabel          = "mta-sts"
	AutoconfigLabel   = "autoconfig"
	AutodiscoverLabel = "autodiscover"
)

// STSPolicy is the MTA-STS policy of a domain whose mail comes to mailHost (RFC 8461 section 3.2).
func STSPolicy(mailHost string) string {
	return fmt.Sprintf("version: STSv1\r\nmode: enforce\r\nmx: %s\r\nmax_age: %d\r\n", hostName(mailHost), stsMaxAge)
}

// stsID is an id that changes with the policy, so that senders fetch it again (RFC 8461 section
// 3.1).
func stsID(policy string) string {
	sum := sha256.Sum256([]byte(policy))
	return hex.EncodeToString(sum[:])[:stsIDLen]
}

// optional lists the records without which mail works too, in groups that are of use only whole.
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
		sts := []Record{managed("_mta-sts."+s.Domain, "TXT", "v=STSv1; id="+stsID(STSPolicy(s.MailHost)), PurposeMTASTS)}
		out = append(out,
			append(sts, s.host(STSLabel, PurposeMTASTS, provider)...),
			[]Record{managed("_smtp._tls."+s.Domain, "TXT", "v=TLSRPTv1; rua=mailto:postmaster@"+s.Domain, PurposeTLSRPT)},
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

// host gives the records of a name that this host serves by HTTPS. Only our own server can say who
// may certify it.
func (s Spec) host(label, purpose, provider string) []Record {
	name := label + "." + s.Domain
	out := s.addresses(name, purpose)
	if provider == Builtin && s.CAA != "" {
		out = append(out, managed(name, "CAA", fmt.Sprintf("0 issue %q", s.CAA), purpose))
	}
	return out
}

// services tell mail clients the ports, TLS from the start before STARTTLS (RFC 6186, RFC 8314
// section 5.1).
func (s Spec) services(provider string) [][]Record {
	var out [][]Record
	for _, srv := range []struct {
		name        string
		port, other uint16
		priority    uint16
	}{
		{"_submissions._tcp", s.Submissions, s.Submission, 0}, {"_submission._tcp", s.Submission, s.Submissions, second},
		{"_imaps._tcp", s.IMAPS, s.IMAP, 0}, {"_imap._tcp", s.IMAP, s.IMAPS, second},
	} {
		switch {
		case srv.port != 0:
			out = append(out, []Record{s.service(srv.name, srv.port, srv.priority)})
		case srv.other != 0 && provider == Builtin:
			// It says that there is no use in trying (RFC 6186 section 3.4). Not every edge
			// provider takes it.
			out = append(out, []Record{managed(srv.name+"."+s.Domain, "SRV", ".", PurposeAutoconfig)})
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

// hostSPF says from where the mail host sends in its own name, if that is below the domain. The
// domain itself has a record of its own.
func (s Spec) hostSPF() []Record {
	host := hostName(s.MailHost)
	if !strings.HasSuffix(host, "."+s.Domain) {
		return nil
	}
	r := managed(host, "TXT", spf.ForHost(s.SendFrom), PurposeSPF)
	r.Critical = false
	return []Record{r}
}

// mailKeys let senders know the mail host by its keys, whoever certifies them (RFC 7672 section
// 3.1.1), if its name is in this zone.
func (s Spec) mailKeys() []Record {
	host := hostName(s.MailHost)
	if host != s.Domain && !strings.HasSuffix(host, "."+s.Domain) {
		return nil
	}
	var out []Record
	for _, key := range s.MailKeys {
		out = append(out, managed("_25._tcp."+host, "TLSA", "3 1 1 "+key, PurposeDANE))
	}
	return out
}

func (s Spec) service(name string, port, priority uint16) Record {
	r := managed(name+"."+s.Domain, "SRV", hostName(s.MailHost), PurposeAutoconfig)
	r.Port, r.Priority, r.Weight = port, priority, 1
	return r
}

// occupied reports whether a record of the owner's own is in the place of one of the group. An
// address of either family is: visitors must not come to the owner's host by one and to ours by the
// other.
func (s Spec) occupied(group []Record) bool {
	return slices.ContainsFunc(group, func(r Record) bool {
		return slices.ContainsFunc(s.Custom, func(c Record) bool {
			if r.Purpose == PurposeSPF && c.Type == "TXT" && !spf.IsRecord(unquote(c.Value)) {
				return false // other texts have room beside it
			}
			return hostName(c.Name) == r.Name && (c.Type == "CNAME" || c.Type == r.Type || isAddress(c.Type) && isAddress(r.Type))
		})
	})
}

// challenges are the texts for certificate authorities, but where an alias of the owner's sends
// those elsewhere.
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
