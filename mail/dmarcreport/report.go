// Package dmarcreport writes and reads DMARC aggregate reports, which mail operators send to the
// owners of domains. It writes the format of RFC 9990, and also reads that of RFC 7489. It does not
// know which domains are hosted, what is counted, or how a report is sent.
package dmarcreport

import (
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/mail/reportfile"
)

// Limits on a report that others sent.
const (
	MaxUnpacked = 20 << 20 // bytes of XML after decompression; it is read as a stream
	MaxRecords  = 500      // records that are stored; the others count only in the totals

	maxResults = 20       // DKIM results of one record, and as many SPF results
	maxDepth   = 16       // nesting of XML elements
	maxRecords = 50_000   // records of one report; a report with more is refused
	maxToken   = 64 << 10 // bytes of one XML tag or text
)

// A Report is an aggregate report. It is stored as JSON, so the names of its fields must not
// change.
type Report struct {
	Org, Email, Contact string // who sent the report
	ID                  string
	Begin, End          time.Time // UTC
	Policy              Policy
	Records             []Record
	More                int // number of records beyond MaxRecords, which are not in Records
	Totals              Totals
}

// A Policy is the DMARC record that the sender of the report found for the domain.
type Policy struct {
	Domain      string
	P, SP       string // none, quarantine or reject
	NP          string // like P; "" if the report does not have it
	ADKIM, ASPF string // r or s
	Failures    string // fo=; "" if the report does not have it
	Testing     bool   // t=y
	Discovery   string // psl or treewalk; "" if the report does not have it
	Pct         int    // 100 if the report does not have it
}

// A Record counts messages that have the same properties.
type Record struct {
	SourceIP     string
	Count        int64
	Disposition  string // none, pass, quarantine or reject
	DKIM, SPF    string // DMARC results: pass or fail
	Reasons      []Reason
	HeaderFrom   string
	EnvelopeFrom string
	EnvelopeTo   string
	DKIMResults  []AuthResult
	SPFResults   []AuthResult
}

// A Reason says why the disposition is not the one of the policy.
type Reason struct{ Type, Comment string }

// An AuthResult is a result of DKIM or SPF, whether or not the domain is aligned. Selector is set
// for DKIM. Scope is set for SPF: helo or mfrom.
type AuthResult struct{ Domain, Selector, Scope, Result string }

// Totals are the sums over all records, including those that are not stored.
type Totals struct{ Messages, Passed, Failed int64 }

// Passed reports whether DMARC passed for the messages of the record.
func (r *Record) Passed() bool { return r.DKIM == "pass" || r.SPF == "pass" }

func (t *Totals) add(r *Record) {
	t.Messages = min(t.Messages+r.Count, reportfile.MaxCount)
	if r.Passed() {
		t.Passed = min(t.Passed+r.Count, reportfile.MaxCount)
	} else {
		t.Failed = min(t.Failed+r.Count, reportfile.MaxCount)
	}
}

// MediaType is the media type of a report that Gzip returned.
const MediaType = "application/gzip"

// Filename returns the file name of the report (RFC 9990 section 3.5.2). receiver is the host that
// has received the mail and sends the report.
func (d *Report) Filename(receiver string) string {
	return fmt.Sprintf("%s!%s!%d!%d.xml.gz", receiver, d.Policy.Domain, d.Begin.Unix(), d.End.Unix())
}

// Subject returns the subject of the message that carries the report (RFC 9990 section 3.5.2).
// submitter is the host that sends the report.
func (d *Report) Subject(submitter string) string {
	return fmt.Sprintf("Report Domain: %s Submitter: %s Report-ID: <%s>", d.Policy.Domain, submitter, d.ID)
}

// Gzip returns the report as gzip-compressed XML, as it is sent.
func (d *Report) Gzip() ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	fmt.Fprint(z, xml.Header) // Close returns the errors
	e := xml.NewEncoder(z)
	e.Indent("", " ")
	if err := e.Encode(d.toXML()); err != nil {
		return nil, fmt.Errorf("write aggregate report: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress aggregate report: %w", err)
	}
	return out.Bytes(), nil
}

// The XML elements of a report, in the order that the schema requires.
type (
	feedback struct {
		XMLName  xml.Name     `xml:"urn:ietf:params:xml:ns:dmarc-2.0 feedback"`
		Version  string       `xml:"version"`
		Metadata metadata     `xml:"report_metadata"`
		Policy   published    `xml:"policy_published"`
		Records  []wireRecord `xml:"record"`
	}
	metadata struct {
		Org     string `xml:"org_name"`
		Email   string `xml:"email"`
		Contact string `xml:"extra_contact_info,omitempty"`
		ID      string `xml:"report_id"`
		Begin   int64  `xml:"date_range>begin"`
		End     int64  `xml:"date_range>end"`
	}
	published struct {
		Domain    string `xml:"domain"`
		Discovery string `xml:"discovery_method,omitempty"`
		P         string `xml:"p"`
		SP        string `xml:"sp"`
		NP        string `xml:"np,omitempty"`
		Failures  string `xml:"fo,omitempty"`
		ADKIM     string `xml:"adkim"`
		ASPF      string `xml:"aspf"`
		Testing   string `xml:"testing"`
	}
	wireRecord struct {
		SourceIP    string       `xml:"row>source_ip"`
		Count       int64        `xml:"row>count"`
		Disposition string       `xml:"row>policy_evaluated>disposition"`
		DKIM        string       `xml:"row>policy_evaluated>dkim"`
		SPF         string       `xml:"row>policy_evaluated>spf"`
		Reasons     []wireReason `xml:"row>policy_evaluated>reason"`
		HeaderFrom  string       `xml:"identifiers>header_from"`
		EnvelopeFm  string       `xml:"identifiers>envelope_from"`
		DKIMAuth    []wireAuth   `xml:"auth_results>dkim"`
		SPFAuth     []wireAuth   `xml:"auth_results>spf"`
	}
	wireReason struct {
		Type    string `xml:"type"`
		Comment string `xml:"comment,omitempty"`
	}
	wireAuth struct {
		Domain   string `xml:"domain"`
		Selector string `xml:"selector,omitempty"` // only for DKIM
		Scope    string `xml:"scope,omitempty"`
		Result   string `xml:"result"`
	}
)

func (d *Report) toXML() feedback {
	f := feedback{
		Version:  "1.0",
		Metadata: metadata{d.Org, d.Email, d.Contact, d.ID, d.Begin.Unix(), d.End.Unix()},
		Policy: published{
			Domain: d.Policy.Domain, Discovery: d.Policy.Discovery, P: d.Policy.P, SP: d.Policy.SP, NP: d.Policy.NP, Failures: d.Policy.Failures,
			ADKIM: d.Policy.ADKIM, ASPF: d.Policy.ASPF, Testing: "n",
		},
	}
	if d.Policy.Testing {
		f.Policy.Testing = "y"
	}
	for _, r := range d.Records {
		w := wireRecord{
			SourceIP: r.SourceIP, Count: r.Count, Disposition: r.Disposition, DKIM: r.DKIM, SPF: r.SPF,
			EnvelopeFm: r.EnvelopeFrom, HeaderFrom: r.HeaderFrom, DKIMAuth: wireAuths(r.DKIMResults), SPFAuth: wireAuths(r.SPFResults),
		}
		for _, reason := range r.Reasons {
			w.Reasons = append(w.Reasons, wireReason(reason))
		}
		f.Records = append(f.Records, w)
	}
	return f
}

func wireAuths(list []AuthResult) (out []wireAuth) {
	for _, a := range list {
		out = append(out, wireAuth(a))
	}
	return out
}
