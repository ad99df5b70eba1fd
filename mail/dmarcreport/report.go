// Package dmarcreport writes and reads the reports that mail operators send each other about a
// domain: DMARC aggregate reports (RFC 7489 appendix C), and TLS reports (RFC 8460), which it only
// reads. It does not know whose domains are hosted, what is counted or how a report travels.
package dmarcreport

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds on a report from elsewhere.
const (
	MaxPacked   = 5 << 20  // bytes as attached
	MaxUnpacked = 20 << 20 // bytes once inflated, of XML, which is read piece by piece
	MaxJSON     = 2 << 20  // bytes of a TLS report once inflated
	MaxRecords  = 500      // that are kept; the others are in the totals alone
	MaxPolicies = 100      // of a TLS report
	MaxFailures = 200      // of a policy

	maxText    = 256      // bytes of one text
	maxAuth    = 20       // DKIM and SPF results of one record, each
	maxDepth   = 16       // elements within each other
	maxRecords = 50_000   // of a report that is read at all
	maxToken   = 64 << 10 // bytes of one tag or text
	maxCount   = 1_000_000_000_000
)

// ErrReport is wrapped by every error about a report that cannot be read: it is no report, damaged,
// or beyond the bounds.
var ErrReport = errors.New("not a report that can be read")

// DMARC is an aggregate report.
type DMARC struct {
	Org, Email, Contact string // who sent it
	ID                  string
	Begin, End          time.Time // UTC
	Policy              Policy
	Records             []Record
	More                int // records beyond MaxRecords
	Totals              Totals
}

// A Policy is the record that the sender of the report found.
type Policy struct {
	Domain      string
	P, SP       string // none quarantine reject
	ADKIM, ASPF string // r s
	Pct         int
}

// A Record counts messages that are alike.
type Record struct {
	SourceIP     string
	Count        int64
	Disposition  string // none quarantine reject
	DKIM, SPF    string // pass fail, for DMARC
	Reasons      []Reason
	HeaderFrom   string
	EnvelopeFrom string
	EnvelopeTo   string
	DKIMResults  []AuthResult
	SPFResults   []AuthResult
}

// A Reason is why the disposition is not what the policy asks for.
type Reason struct{ Type, Comment string }

// An AuthResult is what DKIM or SPF said by itself. Selector is of DKIM, Scope of SPF: helo or
// mfrom.
type AuthResult struct{ Domain, Selector, Scope, Result string }

// Totals sum a report's records up, those that are not kept included.
type Totals struct{ Messages, Passed, Failed int64 }

// Passed tells whether DMARC passed for the record's messages.
func (r *Record) Passed() bool { return r.DKIM == "pass" || r.SPF == "pass" }

func (t *Totals) add(r *Record) {
	t.Messages = min(t.Messages+r.Count, maxCount)
	if r.Passed() {
		t.Passed = min(t.Passed+r.Count, maxCount)
	} else {
		t.Failed = min(t.Failed+r.Count, maxCount)
	}
}

// plain is a text without control characters and cut to its bound.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, strings.TrimSpace(s))
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "")
}

// word is a lower-case keyword: one of those allowed, or the first.
func word(s string, allowed ...string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	for _, a := range allowed {
		if s == a {
			return a
		}
	}
	return allowed[0]
}

// name is a domain in the one form in which they are compared.
func name(s string) string { return strings.ToLower(strings.TrimSuffix(plain(s), ".")) }
