package dmarcreport

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

func sample() *DMARC {
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	return &DMARC{
		Org: "Here & There <GmbH>", Email: "postmaster@here.example", Contact: "https://here.example/", ID: "20261120.7@here.example",
		Begin: day, End: day.Add(24*time.Hour - time.Second),
		Policy: Policy{"x.com", "reject", "quarantine", "r", "s", 50},
		Records: []Record{
			{
				SourceIP: "192.0.2.1", Count: 12, Disposition: "none", DKIM: "pass", SPF: "fail", HeaderFrom: "x.com", EnvelopeFrom: "bounce.x.com",
				DKIMResults: []AuthResult{{Domain: "x.com", Selector: "s1", Result: "pass"}, {Domain: "esp.net", Result: "fail"}},
				SPFResults:  []AuthResult{{Domain: "bounce.x.com", Scope: "mfrom", Result: "softfail"}},
			},
			{
				SourceIP: "2001:db8::1", Count: 3, Disposition: "quarantine", DKIM: "fail", SPF: "fail", HeaderFrom: "m.x.com",
				Reasons: []Reason{{"sampled_out", "pct=50"}}, SPFResults: []AuthResult{{Domain: "evil.org", Scope: "helo", Result: "none"}},
			},
		},
		Totals: Totals{15, 12, 3},
	}
}

func TestDMARCSurvivesItsWay(t *testing.T) {
	d := sample()
	packed, err := d.Gzip()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ReadDMARC(packed)
	if err != nil || !reflect.DeepEqual(again, d) {
		t.Errorf("%+v\n%+v, %v", d, again, err)
	}
	if got := d.Filename("here.example"); got != "here.example!x.com!1795132800!1795219199.xml.gz" {
		t.Error(got)
	}
	if got := d.Subject("here.example"); got != "Report Domain: x.com Submitter: here.example Report-ID: <20261120.7@here.example>" {
		t.Error(got)
	}
	wellFormed(t, packed)
}

// wellFormed asks xmllint.
func wellFormed(t *testing.T, packed []byte) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("xmllint", "--noout", "-")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
			return
		}
		t.Errorf("xmllint: %v\n%s\n%s", err, out, text)
	}
}

const minimal = `<feedback><report_metadata><org_name>o</org_name><email>e@o.net</email><report_id>1</report_id><date_range><begin>1795132800</begin>` +
	`<end>1795219199</end></date_range></report_metadata><policy_published><domain>x.com</domain><p>reject</p></policy_published>` +
	`<record><row><source_ip>192.0.2.9</source_ip><count>2</count><policy_evaluated><disposition>none</disposition><dkim>pass</dkim><spf>pass</spf>` +
	`</policy_evaluated></row><identifiers><header_from>X.com.</header_from></identifiers></record></feedback>`

func zipped(files ...string) string {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for i := 0; i < len(files); i += 2 {
		w, _ := z.Create(files[i])
		io.WriteString(w, files[i+1])
	}
	z.Close()
	return out.String()
}

func gzipped(text string) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	io.WriteString(z, text)
	z.Close()
	return out.String()
}

// TestForeignReports reads the shapes that others send reports in.
func TestForeignReports(t *testing.T) {
	for name, packed := range map[string]string{
		"bare":            minimal,
		"declaration":     `<?xml version="1.0" encoding="UTF-8" ?>` + "\r\n" + minimal,
		"single quotes":   "<?xml version='1.0' encoding='us-ascii'?>\n<!-- a comment -->\n" + minimal,
		"latin":           `<?xml version="1.0" encoding="iso-8859-1"?>` + strings.Replace(minimal, "<org_name>o<", "<org_name>B\xfccher<", 1),
		"byte order mark": "\xef\xbb\xbf" + minimal,
		"namespace":       strings.Replace(minimal, "<feedback>", `<feedback xmlns="urn:ietf:params:xml:ns:dmarc-2.0"><version>1.0</version>`, 1),
		"prefixes":        strings.NewReplacer("</", "</d:", "<", "<d:").Replace(strings.ReplaceAll(minimal, "</", "\x00")),
		"spaces":          strings.NewReplacer(">", ">\n  ", "<", "\n <").Replace(minimal),
		"unknown":         strings.Replace(minimal, "<record>", "<made_up a='b'><deep/></made_up><record><more>x</more>", 1),
		"doctype":         `<!DOCTYPE feedback SYSTEM "http://127.0.0.1:1/x.dtd">` + minimal,
		"gzip":            gzipped(minimal),
		"zip":             zipped("o!x.com!1!2.xml", minimal),
		"zip, directory":  zipped("dir/", "", "readme.txt", "hi", "dir/r.XML", minimal),
		"text behind":     minimal + "\n\n",
	} {
		if name == "prefixes" {
			packed = strings.ReplaceAll(packed, "\x00", "</d:")
			packed = strings.Replace(packed, "<d:feedback>", `<d:feedback xmlns:d="urn:x">`, 1)
		}
		d, err := ReadDMARC([]byte(packed))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d.Policy != (Policy{"x.com", "reject", "reject", "r", "r", 100}) || d.Totals != (Totals{2, 2, 0}) || d.Records[0].HeaderFrom != "x.com" {
			t.Errorf("%s: %+v", name, d)
		}
		if name == "latin" && d.Org != "Bücher" {
			t.Errorf("%s: %q", name, d.Org)
		}
	}
}

// TestPoisonedReports are refused in little time and memory.
func TestPoisonedReports(t *testing.T) {
	with := func(old, new string) string { return strings.Replace(minimal, old, new, 1) }
	bomb := func(head string, piece string, n int) string {
		var out bytes.Buffer
		z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
		io.WriteString(z, head)
		block := strings.Repeat(piece, 1<<16/len(piece))
		for range n {
			io.WriteString(z, block)
		}
		z.Close()
		return out.String()
	}
	laughs := `<!DOCTYPE feedback [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>`
	for name, packed := range map[string]string{
		"empty":            "",
		"text":             "hello",
		"html":             "<html><body>report</body></html>",
		"no domain":        with("<domain>x.com</domain>", ""),
		"no id":            with("<report_id>1</report_id>", ""),
		"no time":          with("<begin>1795132800</begin>", ""),
		"backwards":        with("1795219199", "1795132000"),
		"for ever":         with("1795219199", "1895219199"),
		"time of the moon": with("1795219199", "99999999999999999999"),
		"cut":              minimal[:len(minimal)-20],
		"gzip, cut":        gzipped(minimal)[:100],
		"zip, cut":         zipped("r.xml", minimal)[:300],
		"zip of nothing":   zipped(),
		"zip of a zip":     zipped("r.zip", zipped("r.xml", minimal)),
		"bomb of zeros":    bomb("", "\x00", 400),
		"bomb of spaces":   bomb(minimal[:len(minimal)-11], " ", 400),
		"bomb of elements": bomb("<feedback>", "<a>", 400),
		"bomb of empty":    bomb("<feedback>", "<a/>", 400),
		"bomb of records":  bomb(minimal[:len(minimal)-11], "<record><row><count>1</count></row></record>", 400),
		"bomb of a tag":    bomb("<feedback ", "a='b' ", 400),
		"bomb of comments": bomb("<feedback><!--", "x", 400),
		"crossed":          with("</org_name>", "</email>"),
		"entities":         laughs + with("<org_name>o<", "<org_name>&c;&c;&c;<") + "x",
		"too much":         strings.Repeat(" ", MaxPacked+1),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		d, err := ReadDMARC([]byte(packed))
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		if name == "entities" { // they are left alone
			if err == nil && len(d.Org) > 20 {
				t.Errorf("%s: %q", name, d.Org)
			}
			continue
		}
		if !errors.Is(err, ErrReport) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		if took > 10*time.Second {
			t.Errorf("%s took %v", name, took)
		}
		t.Logf("%s: %v, %v, %d KiB allocated", name, err, took, (after.TotalAlloc-before.TotalAlloc)>>10)
	}
}

// TestReportOfMany keeps some records and counts all.
func TestReportOfMany(t *testing.T) {
	d := sample()
	for i := range 3 * MaxRecords {
		d.Records = append(d.Records, Record{SourceIP: fmt.Sprintf("192.0.2.%d", i%256), Count: maxCount / 2, DKIM: "fail", SPF: "pass"})
	}
	packed, err := d.Gzip()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ReadDMARC(packed)
	if err != nil || len(again.Records) != MaxRecords || again.More != 2*MaxRecords+2 || again.Totals != (Totals{maxCount, maxCount, 3}) {
		t.Errorf("%d records and %d more, %+v, %v", len(again.Records), again.More, again.Totals, err)
	}
}

const tlsSample = `{"organization-name":"Company-X","date-range":{"start-datetime":"2026-11-20T00:00:00Z","end-datetime":"2026-11-20T23:59:59Z"},
"contact-info":"sts@x.com","report-id":"5065427c","policies":[{"policy":{"policy-type":"sts","policy-string":["version: STSv1","mode: testing"],
"policy-domain":"y.com","mx-host":["*.mail.y.com"]},"summary":{"total-successful-session-count":5326,"total-failure-session-count":"303"},
"failure-details":[{"result-type":"certificate-expired","sending-mta-ip":"2001:db8:abcd:12::1","receiving-mx-hostname":"mx1.mail.y.com",
"failed-session-count":100},{"result-type":"starttls-not-supported","receiving-ip":"203.0.113.56","failed-session-count":203,"failure-reason-code":"X"}]}]}`

func TestTLSReports(t *testing.T) {
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	want := &TLS{
		Org: "Company-X", Contact: "sts@x.com", ID: "5065427c", Begin: day, End: day.Add(24*time.Hour - time.Second),
		Policies: []TLSPolicy{{
			Type: "sts", Domain: "y.com", Strings: []string{"version: STSv1", "mode: testing"}, MXHosts: []string{"*.mail.y.com"},
			Successful: 5326, Failed: 303, Failures: []TLSFailure{
				{Result: "certificate-expired", SendingIP: "2001:db8:abcd:12::1", MXHost: "mx1.mail.y.com", Sessions: 100},
				{Result: "starttls-not-supported", ReceivingIP: "203.0.113.56", Sessions: 203, Reason: "X"},
			},
		}},
	}
	for name, packed := range map[string]string{
		"bare": tlsSample, "gzip": gzipped(tlsSample), "zip": zipped("r.json", tlsSample),
		"host alone": strings.Replace(tlsSample, `["*.mail.y.com"]`, `"*.mail.y.com"`, 1),
		"odd types":  strings.Replace(tlsSample, `"report-id"`, `"x":{"y":[1,null]},"report-id"`, 1),
	} {
		got, err := ReadTLS([]byte(packed))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, packed := range map[string]string{
		"empty": "", "no object": "[]", "no policies": `{"report-id":"1"}`, "no id": strings.Replace(tlsSample, `"report-id":"5065427c",`, "", 1),
		"no time":   strings.Replace(tlsSample, "2026-11-20T23:59:59Z", "tomorrow", 1),
		"deep":      strings.Repeat("[", 100_000),
		"bomb":      gzipped(`{"policies":[` + strings.Repeat("{},", MaxJSON)),
		"many":      gzipped(`{"report-id":"1","policies":[` + strings.Repeat("{},", 600_000) + `{}]}`),
		"no domain": strings.Replace(tlsSample, `"policy-domain":"y.com",`, "", 1),
	} {
		if got, err := ReadTLS([]byte(packed)); !errors.Is(err, ErrReport) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// FuzzReadDMARC holds reports of strangers to their bounds; what is read can be written and read
// again.
func FuzzReadDMARC(f *testing.F) {
	for _, text := range []string{minimal, gzipped(minimal), zipped("r.xml", minimal), "<feedback><record>"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		d, err := ReadDMARC(packed)
		if err != nil {
			if !errors.Is(err, ErrReport) {
				t.Error(err)
			}
			return
		}
		if len(d.Records) > MaxRecords || len(d.Org) > maxText || d.Totals.Messages < 0 || d.Policy.Domain == "" {
			t.Errorf("%+v", d)
		}
		again, err := d.Gzip()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadDMARC(again); err != nil {
			t.Errorf("%v: %+v", err, d)
		}
	})
}

// FuzzReadTLS does the same with TLS reports.
func FuzzReadTLS(f *testing.F) {
	f.Add([]byte(tlsSample))
	f.Add([]byte(gzipped(tlsSample)))
	f.Fuzz(func(t *testing.T, packed []byte) {
		r, err := ReadTLS(packed)
		if err != nil {
			if !errors.Is(err, ErrReport) {
				t.Error(err)
			}
			return
		}
		if len(r.Policies) > MaxPolicies || len(r.Org) > maxText || r.ID == "" {
			t.Errorf("%+v", r)
		}
	})
}
