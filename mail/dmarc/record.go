// Package dmarc parses and checks DMARC records (RFC 9989 section 4.7). It does not query DNS, and
// does not evaluate messages.
package dmarc

import (
	"errors"
	"net/url"
	"strings"

	"github.com/mailstead/mailstead/mail/taglist"
)

// The policies that a record can request.
const (
	PolicyNone       = "none"
	PolicyQuarantine = "quarantine"
	PolicyReject     = "reject"
)

// Default is the record that is used for a domain without its own record.
const Default = "v=DMARC1; p=reject"

const maxReportURIs = 5 // of one record

// ErrRecord is returned for a record that cannot be applied.
var ErrRecord = errors.New("malformed DMARC record")

// A Record is a parsed record with defaults filled in. It omits tags that only failure reports
// need, and pct=, rf= and ri=, which are obsolete.
type Record struct {
	Policy, SubPolicy     string   // p= and sp=; sp= defaults to p=
	NoPolicy              string   // np=, for subdomains that do not exist; defaults to sp=
	Testing               bool     // t=y: the next milder policy applies
	PSD                   byte     // psd=: 'y', 'n' or 'u'
	StrictDKIM, StrictSPF bool     // adkim=s and aspf=s
	Failures              string   // fo=, as written
	Reports               []string // rua=: the first URIs, as written
}

// IsRecord reports whether a text is a DMARC record, by the version, which must come first.
func IsRecord(text string) bool {
	first, _, _ := strings.Cut(text, ";")
	name, value, _ := strings.Cut(first, "=")
	return strings.TrimSpace(name) == "v" && strings.TrimSpace(value) == "DMARC1"
}

// Parse parses a text for which IsRecord is true, as receivers do. Only an invalid p=, sp= or np=
// causes ErrRecord. If there are report URIs, even these are no error, and all three policies
// become none (RFC 9989 section 4.10.1). Other invalid tags get their defaults. PSD is also set
// together with ErrRecord, since the tree walk needs it.
func Parse(text string) (Record, error) {
	tags, _ := taglist.Parse(text)
	r := Record{
		Policy:     strings.ToLower(tags["p"]),
		SubPolicy:  strings.ToLower(tags["sp"]),
		NoPolicy:   strings.ToLower(tags["np"]),
		Testing:    strings.EqualFold(tags["t"], "y"),
		PSD:        'u',
		StrictDKIM: strings.EqualFold(tags["adkim"], "s"),
		StrictSPF:  strings.EqualFold(tags["aspf"], "s"),
		Failures:   tags["fo"],
		Reports:    reportURIs(tags["rua"]),
	}
	if psd := strings.ToLower(tags["psd"]); psd == "y" || psd == "n" {
		r.PSD = psd[0]
	}
	_, hasSub := tags["sp"]
	_, hasNo := tags["np"]
	if !IsPolicy(r.Policy) || hasSub && !IsPolicy(r.SubPolicy) || hasNo && !IsPolicy(r.NoPolicy) {
		if len(r.Reports) == 0 {
			return Record{PSD: r.PSD}, ErrRecord
		}
		r.Policy, r.SubPolicy, r.NoPolicy = PolicyNone, PolicyNone, PolicyNone
	}
	if r.SubPolicy == "" {
		r.SubPolicy = r.Policy
	}
	if r.NoPolicy == "" {
		r.NoPolicy = r.SubPolicy
	}
	return r, nil
}

// Milder returns the next milder policy.
func Milder(policy string) string {
	if policy == PolicyReject {
		return PolicyQuarantine
	}
	return PolicyNone
}

// Obsolete returns the tags of a record that receivers no longer use (RFC 9989 appendix C.5), in a
// fixed order.
func Obsolete(text string) (tags []string) {
	have, _ := taglist.Parse(text)
	for _, tag := range []string{"pct", "rf", "ri"} {
		if _, ok := have[tag]; ok {
			tags = append(tags, tag)
		}
	}
	return tags
}

// IsPolicy reports whether a lower-case text is one of the policies.
func IsPolicy(s string) bool {
	return s == PolicyNone || s == PolicyQuarantine || s == PolicyReject
}

// ReportURIs returns the first URIs of the rua= tag, as written. It is for records that only
// authorize reports to another domain, which need no other tags (RFC 9990 section 4).
func ReportURIs(text string) []string {
	tags, _ := taglist.Parse(text)
	return reportURIs(tags["rua"])
}

func reportURIs(list string) (out []string) {
	for uri := range strings.SplitSeq(list, ",") {
		uri = strings.TrimSpace(uri)
		u, err := url.Parse(uri)
		if err == nil && u.Scheme != "" && (u.Opaque != "" || u.Host != "") && len(out) < maxReportURIs {
			out = append(out, uri)
		}
	}
	return out
}
