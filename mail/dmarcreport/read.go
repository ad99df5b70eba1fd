package dmarcreport

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/reportfile"
)

// Read parses an aggregate report. packed is the attachment: XML, which may be in a gzip or zip
// file. An element is recognized by its path, whatever its order and namespace; unknown elements
// are skipped. Errors wrap reportfile.ErrReport.
func Read(packed []byte) (*Report, error) {
	r, err := reportfile.Unpack(packed, ".xml", MaxUnpacked)
	if err != nil {
		return nil, err
	}
	p := &parser{report: &Report{Policy: Policy{P: "none", Pct: 100}}}
	if err := p.read(&tokenReader{r: bufio.NewReaderSize(r, 32<<10)}); errors.Is(err, reportfile.ErrReport) {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", reportfile.ErrReport, err)
	}
	d := p.report
	switch {
	case d.Policy.Domain == "" || d.ID == "":
		return nil, fmt.Errorf("%w: the domain or the report id is missing", reportfile.ErrReport)
	case !d.Begin.Before(d.End) || d.End.Sub(d.Begin) > 60*24*time.Hour:
		return nil, fmt.Errorf("%w: the date range is missing, reversed or longer than 60 days", reportfile.ErrReport)
	}
	if d.Policy.SP == "" {
		d.Policy.SP = d.Policy.P
	}
	d.Policy.ADKIM, d.Policy.ASPF = reportfile.Keyword(d.Policy.ADKIM, "r", "s"), reportfile.Keyword(d.Policy.ASPF, "r", "s")
	return d, nil
}

// tokenReader is a reader that limits the length of each XML token.
type tokenReader struct {
	r    io.ByteReader
	left int
}

var errToken = errors.New("a tag or text of the XML is too long")

// ReadByte implements io.ByteReader, by which the XML decoder reads.
func (t *tokenReader) ReadByte() (byte, error) {
	if t.left--; t.left < 0 {
		return 0, errToken
	}
	return t.r.ReadByte()
}

// Read makes t an io.Reader, which the XML decoder requires. It is never called, since the decoder
// uses ReadByte.
func (t *tokenReader) Read(p []byte) (int, error) { return readOne(t, p) }

// readOne implements Read by ReadByte.
func readOne(r io.ByteReader, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b, err := r.ReadByte()
	if err != nil {
		return 0, err
	}
	p[0] = b
	return 1, nil
}

// parser builds a report from XML tokens. It uses raw tokens and keeps its own stack of open
// elements, which is limited. Only the predefined entities of XML are resolved.
type parser struct {
	report *Report
	record *Record
	reason *Reason
	auth   *AuthResult
	names  []string // names of the open elements
	paths  []string // for each open element its path below the root, with slashes
	text   strings.Builder
	count  int // number of records so far
	done   bool
}

func (p *parser) read(in *tokenReader) error {
	d := xml.NewDecoder(in)
	d.Strict = false
	d.CharsetReader = func(label string, input io.Reader) (io.Reader, error) { return utf8Reader(label, in), nil }
	for !p.done {
		in.left = maxToken
		t, err := d.RawToken()
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if err := p.readToken(t); err != nil {
			return err
		}
	}
	return nil
}

// readToken processes one XML token.
func (p *parser) readToken(t xml.Token) error {
	switch t := t.(type) {
	case xml.StartElement:
		if err := p.startElement(t.Name.Local); err != nil {
			return err
		}
	case xml.CharData:
		if room := 4*reportfile.MaxText - p.text.Len(); room > 0 {
			p.text.Write(t[:min(len(t), room)])
		}
	case xml.EndElement:
		last := len(p.names) - 1
		if last < 0 || p.names[last] != t.Name.Local {
			return errors.New("start and end tags of the XML do not match")
		}
		p.endElement(p.paths[last], p.text.String())
		p.names, p.paths = p.names[:last], p.paths[:last]
		p.text.Reset()
		p.done = last == 0
	}
	return nil
}

// startElement processes a start tag.
func (p *parser) startElement(name string) error {
	path := name
	switch depth := len(p.names); {
	case depth == maxDepth:
		return errors.New("XML elements are nested too deeply")
	case depth == 0 && name != "feedback":
		return errors.New("the root element of the XML is not feedback")
	case depth == 0:
		path = ""
	case depth > 1:
		path = p.paths[depth-1] + "/" + name
	}
	p.names, p.paths = append(p.names, name), append(p.paths, path)
	p.text.Reset()
	switch path {
	case "record":
		if p.count++; p.count > maxRecords {
			return errors.New("the report has too many records")
		}
		p.record = &Record{}
	case "record/row/policy_evaluated/reason":
		p.reason = &Reason{}
	case "record/auth_results/dkim", "record/auth_results/spf":
		p.auth = &AuthResult{}
	}
	return nil
}

// endElement stores the text of an element. path is the path of the element below the root.
func (p *parser) endElement(path, text string) {
	r := p.report
	switch path {
	case "report_metadata/org_name":
		r.Org = reportfile.Text(text)
	case "report_metadata/email":
		r.Email = reportfile.Text(text)
	case "report_metadata/extra_contact_info":
		r.Contact = reportfile.Text(text)
	case "report_metadata/report_id":
		r.ID = reportfile.Text(text)
	case "report_metadata/date_range/begin":
		r.Begin = parseUnixTime(text)
	case "report_metadata/date_range/end":
		r.End = parseUnixTime(text)
	case "policy_published/domain":
		r.Policy.Domain = reportfile.DomainName(text)
	case "policy_published/adkim":
		r.Policy.ADKIM = text
	case "policy_published/aspf":
		r.Policy.ASPF = text
	case "policy_published/p":
		r.Policy.P = reportfile.Keyword(text, "none", "quarantine", "reject")
	case "policy_published/sp":
		r.Policy.SP = reportfile.Keyword(text, "none", "quarantine", "reject")
	case "policy_published/np":
		r.Policy.NP = reportfile.Keyword(text, "none", "quarantine", "reject")
	case "policy_published/fo":
		r.Policy.Failures = reportfile.Text(text)
	case "policy_published/testing":
		r.Policy.Testing = strings.EqualFold(strings.TrimSpace(text), "y")
	case "policy_published/discovery_method":
		r.Policy.Discovery = strings.ToLower(reportfile.Text(text))
	case "policy_published/pct":
		if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && n >= 0 && n <= 100 {
			r.Policy.Pct = n
		}
	default:
		if rest, ok := strings.CutPrefix(path, "record"); ok && p.record != nil {
			p.storeRecordText(strings.TrimPrefix(rest, "/"), text)
		}
	}
}

// storeRecordText stores the text of an element within a record. path is relative to the record.
func (p *parser) storeRecordText(path, text string) {
	r := p.record
	switch path {
	case "":
		p.report.Totals.add(r)
		if len(p.report.Records) < MaxRecords {
			p.report.Records = append(p.report.Records, *r)
		} else {
			p.report.More++
		}
		p.record = nil
	case "row/source_ip":
		r.SourceIP = reportfile.Text(text)
	case "row/count":
		r.Count = parseCount(text)
	case "row/policy_evaluated/disposition":
		// RFC 9990 also has "pass", for a message that passed and was left alone. It is read as
		// none.
		r.Disposition = reportfile.Keyword(text, "none", "quarantine", "reject")
	case "row/policy_evaluated/dkim":
		r.DKIM = reportfile.Keyword(text, "fail", "pass")
	case "row/policy_evaluated/spf":
		r.SPF = reportfile.Keyword(text, "fail", "pass")
	case "row/policy_evaluated/reason":
		if p.reason != nil && len(r.Reasons) < maxResults {
			r.Reasons = append(r.Reasons, *p.reason)
		}
		p.reason = nil
	case "identifiers/header_from":
		r.HeaderFrom = reportfile.DomainName(text)
	case "identifiers/envelope_from":
		r.EnvelopeFrom = reportfile.DomainName(text)
	case "identifiers/envelope_to":
		r.EnvelopeTo = reportfile.DomainName(text)
	default:
		p.storeDetailText(path, text)
	}
}

// storeDetailText stores the text of an element within a reason or an authentication result.
func (p *parser) storeDetailText(path, text string) {
	r := p.record
	switch {
	case p.reason != nil && path == "row/policy_evaluated/reason/type":
		p.reason.Type = reportfile.Text(text)
	case p.reason != nil && path == "row/policy_evaluated/reason/comment":
		p.reason.Comment = reportfile.Text(text)
	case p.auth == nil:
	case path == "auth_results/dkim":
		if len(r.DKIMResults) < maxResults {
			r.DKIMResults = append(r.DKIMResults, *p.auth)
		}
		p.auth = nil
	case path == "auth_results/spf":
		if len(r.SPFResults) < maxResults {
			r.SPFResults = append(r.SPFResults, *p.auth)
		}
		p.auth = nil
	case strings.HasSuffix(path, "/domain"):
		p.auth.Domain = reportfile.DomainName(text)
	case strings.HasSuffix(path, "/selector"):
		p.auth.Selector = reportfile.Text(text)
	case strings.HasSuffix(path, "/scope"):
		p.auth.Scope = reportfile.Text(text)
	case strings.HasSuffix(path, "/result"):
		p.auth.Result = strings.ToLower(reportfile.Text(text))
	}
}

// parseCount parses a number of messages. It returns 0 if the text is invalid.
func parseCount(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return min(n, reportfile.MaxCount)
}

// parseUnixTime parses a time in seconds since 1970. It returns the zero time if the text is
// invalid, or if the time is after this century.
func parseUnixTime(text string) time.Time {
	whole, _, _ := strings.Cut(strings.TrimSpace(text), ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n <= 0 || n > 4_102_444_800 {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// utf8Reader returns a reader that converts a report to UTF-8. label is the encoding in the XML
// declaration. Encodings other than UTF-8 and ASCII are read as ISO 8859-1, so that at worst
// letters are wrong.
func utf8Reader(label string, in *tokenReader) io.Reader {
	switch strings.ToLower(label) {
	case "utf-8", "utf8", "us-ascii", "ascii":
		return in
	}
	return &latin1Reader{in: in}
}

// latin1Reader is a reader that converts ISO 8859-1 to UTF-8.
type latin1Reader struct {
	in   *tokenReader
	next byte // the second byte of the current character; 0 if none
}

// ReadByte implements io.ByteReader, by which the XML decoder reads.
func (l *latin1Reader) ReadByte() (byte, error) {
	if b := l.next; b != 0 {
		l.next = 0
		return b, nil
	}
	b, err := l.in.ReadByte()
	if err != nil || b < 0x80 {
		return b, err
	}
	l.next = b&0x3f | 0x80
	return 0xc0 | b>>6, nil
}

// Read is never called; see tokenReader.Read.
func (l *latin1Reader) Read(p []byte) (int, error) { return readOne(l, p) }
