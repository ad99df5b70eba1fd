// Package dmarc reads and checks DMARC records (RFC 7489 section 6.3). It does not ask DNS, and
// does not judge messages.
package dmarc

import (
	"errors"
	"net/url"
	"strconv"
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

const maxReportURIs = 5 // of one record; RFC 7489 section 6.2 asks for two

// ErrRecord says that a record cannot be applied.
var ErrRecord = errors.New("malformed DMARC record")

// A Record is a record with its defaults filled in, without what only failure reports need.
type Record struct {
	Policy, SubPolicy     string   // p= and sp=
	StrictDKIM, StrictSPF bool     // adkim= and aspf=
	Percent               int      // pct=
	Reports               []string // rua=: the first URIs, as they are written
}

// IsRecord tells a record from other texts at its name by the version, which must come first.
func IsRecord(text string) bool {
	first, _, _ := strings.Cut(text, ";")
	name, value, _ := strings.Cut(first, "=")
	return strings.TrimSpace(name) == "v" && strings.TrimSpace(value) == "DMARC1"
}

// Parse reads a text that IsRecord takes for a record, as receivers do. Only p= and sp= can spoil
// one, with ErrRecord, and not even they when there is someone to report to (RFC 7489 section
// 6.6.3, step 6); anything else that is malformed has its default.
func Parse(text string) (Record, error) {
	tags, _ := taglist.Parse(text)
	r := Record{
		Policy:     strings.ToLower(tags["p"]),
		SubPolicy:  strings.ToLower(tags["sp"]),
		StrictDKIM: strings.EqualFold(tags["adkim"], "s"),
		StrictSPF:  strings.EqualFold(tags["aspf"], "s"),
		Percent:    100,
		Reports:    reportURIs(tags["rua"]),
	}
	if pct, err := strconv.ParseUint(tags["pct"], 10, 7); err == nil && pct <= 100 {
		r.Percent = int(pct)
	}
	_, hasSub := tags["sp"]
	if !IsPolicy(r.Policy) || hasSub && !IsPolicy(r.SubPolicy) {
		if len(r.Reports) == 0 {
			return Record{}, ErrRecord
		}
		r.Policy, r.SubPolicy = PolicyNone, PolicyNone
	}
	if r.SubPolicy == "" {
		r.SubPolicy = r.Policy
	}
	return r, nil
}

// IsPolicy tells whether a lower-case text is one of the policies.
func IsPolicy(s string) bool {
	return s == PolicyNone || s == PolicyQuarantine || s == PolicyReject
}

// ReportURIs gives the first URIs of the rua= tag of a text, as they are written. That is all that
// counts of a record that only says who may report to whom (RFC 7489 section 7.1).
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
