// Package dmarc parses and checks DMARC records (RFC 9989 section 4.7). It does not query DNS and
// does not evaluate messages.
package dmarc

import (
	"errors"
	"net/url"
	"strings"

	"github.com/mailstead/mailstead/mail/taglist"
)

// Policies that a record can request.
const (
	PolicyNone       = "none"
	PolicyQuarantine = "quarantine"
	PolicyReject     = "reject"
)

// Default is the record for a domain that has no record of its own.
const Default = "v=DMARC1; p=reject"

const maxReportURIs = 5 // URIs of one record that are used

// ErrRecord is returned by Parse for a record that cannot be applied.
var ErrRecord = errors.New("malformed DMARC record")

// A Record is a parsed DMARC record, with defaults for missing tags. It has no tags that only
// concern failure reports, and not the obsolete tags pct=, rf= and ri=.
type Record struct {
	Policy, SubPolicy     string   // p= and sp=; without sp= the value of p=
	NoPolicy              string   // np=, for subdomains that do not exist; without it the value of sp=
	Testing               bool     // t=y: the policy that is one step milder applies
	PSD                   byte     // psd=: 'y', 'n' or 'u'
	StrictDKIM, StrictSPF bool     // adkim=s and aspf=s
	Failures              string   // fo=, as written
	Reports               []string // the first URIs in rua=, as written
}

// IsRecord reports whether a text is a DMARC record. That is so if it begins with the version.
func IsRecord(text string) bool {
	first, _, _ := strings.Cut(text, ";")
	name, value, _ := strings.Cut(first, "=")
	return strings.TrimSpace(name) == "v" && strings.TrimSpace(value) == "DMARC1"
}

// Parse parses a text for which IsRecord is true, as receivers do. It returns ErrRecord only if p=,
// sp= or np= is invalid and there are no report URIs. With report URIs, all three policies become
// none instead (RFC 9989 section 4.10.1). Other invalid tags get their defaults. PSD is set even if
// Parse returns ErrRecord, since the tree walk needs it.
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

// Milder returns the policy that is one step milder.
func Milder(policy string) string {
	if policy == PolicyReject {
		return PolicyQuarantine
	}
	return PolicyNone
}

// Obsolete returns those tags of a record that receivers do not use any more (RFC 9989 appendix
// C.5), in a fixed order.
func Obsolete(text string) (tags []string) {
	have, _ := taglist.Parse(text)
	for _, tag := range []string{"pct", "rf", "ri"} {
		if _, ok := have[tag]; ok {
			tags = append(tags, tag)
		}
	}
	return tags
}

// IsPolicy reports whether s is one of the policies. s must be in lower case.
func IsPolicy(s string) bool {
	return s == PolicyNone || s == PolicyQuarantine || s == PolicyReject
}

// ReportURIs returns the first URIs of rua=, as written. It is for records that only permit reports
// about another domain, which need no other tags (RFC 9990 section 4).
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
