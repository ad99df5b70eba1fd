// Package dmarcreport writes and reads the aggregate reports of DMARC that mail operators send each
// other about a domain (RFC 7489 appendix C). It does not know whose domains are hosted, what is
// counted or how a report travels.
package dmarcreport

import (
	"time"

	"github.com/mailstead/mailstead/mail/reportfile"
)

// Bounds on a report from elsewhere.
const (
	MaxUnpacked = 20 << 20 // bytes once inflated, of XML, which is read piece by piece
	MaxRecords  = 500      // that are kept; the others are in the totals alone

	maxResults = 20       // DKIM and SPF results of one record, each
	maxDepth   = 16       // elements within each other
	maxRecords = 50_000   // of a report that is read at all
	maxToken   = 64 << 10 // bytes of one tag or text
)

// A Report is an aggregate report. It is stored as JSON under the names of its fields.
type Report struct {
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
	t.Messages = min(t.Messages+r.Count, reportfile.MaxCount)
	if r.Passed() {
		t.Passed = min(t.Passed+r.Count, reportfile.MaxCount)
	} else {
		t.Failed = min(t.Failed+r.Count, reportfile.MaxCount)
	}
}
