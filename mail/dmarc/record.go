// Package dmarc reads and checks DMARC records (RFC 9989 section 4.7). It does not ask DNS, and
// does not judge messages.
package dmarc

import (
	"errors"
	"net/url"
	"strings"

	"github.com/mailstead/mailstead/mail/taglist"
)

// The policies that a record can ask for.
const (
	PolicyNone       = "none"
	PolicyQuarantine = "quarantine"
	PolicyReject     = "reject"
)

// Default is the record of a domain without one of its own.
const Default = "v=DMARC1; p=reject"

const maxReportURIs = 5 // of one record

// ErrRecord says that a record cannot be applied.
var ErrRecord = errors.New("malformed DMARC record")

// A Record is a record with its defaults filled in, without what only failure reports need, and
// without pct=, rf= and ri=, which have no effect any more.
type Record struct {
	Policy, SubPolicy     string   // p= and sp=, which is p= where it is absent
	NoPolicy              string   // np=, for subdomains that do not exist; sp= where it is absent
	Testing               bool     // t=y: the next milder policy is to be applied
	PSD                   byte     // psd=: 'y', 'n' or 'u'
	StrictDKIM, StrictSPF bool     // adkim= and aspf=
	Failures              string   // fo=, as it is written
	Reports               []string // rua=: the first URIs, as they are written
}

// IsRecord tells a record from other texts at its name by the version, which must come first.
func IsRecord(text string) bool {
	first, _, _ := strings.Cut(text, ";")
	name, value, _ := strings.Cut(first, "=")
	return strings.TrimSpace(name) == "v" && strings.TrimSpace(value) == "DMARC1"
}

// Parse reads a text that IsRecord takes for a record, as receivers do. Only p=, sp= and np= can
// spoil one, with ErrRecord, and not even they when there is someone to report to (RFC 9989 section
// 4.10.1): then all of them are none. Anything else that is malformed has its default. What psd=
// says is given with ErrRecord, too, since a record that asks for nothing still has its place.
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

// Milder is the policy one step below another.
func Milder(policy string) string {
	if policy == PolicyReject {
		return PolicyQuarantine
	}
	return PolicyNone
}

// Obsolete gives the tags of a record that receivers no longer look at (RFC 9989 appendix C.5), in
// a fixed order.
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

// ReportURIs gives the first URIs of the rua= tag of a text, as they are written. That is all that
// counts of a record that only says who may report to whom (RFC 9990 section 4).
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
