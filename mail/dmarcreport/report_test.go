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

	"github.com/mailstead/mailstead/mail/reportfile"
)

func sample() *Report {
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	return &Report{
		Org: "Here & There <GmbH>", Email: "postmaster@here.example", Contact: "https://here.example/", ID: "20261120.7@here.example",
		Begin: day, End: day.Add(24*time.Hour - time.Second),
		Policy: Policy{"x.com", "reject", "quarantine", "none", "r", "s", "1:d", true, "treewalk", 100},
		Records: []Record{
			{
				SourceIP: "192.0.2.1", Count: 12, Disposition: "none", DKIM: "pass", SPF: "fail", HeaderFrom: "x.com", EnvelopeFrom: "bounce.x.com",
				DKIMResults: []AuthResult{{Domain: "x.com", Selector: "s1", Result: "pass"}, {Domain: "esp.net", Result: "fail"}},
				SPFResults:  []AuthResult{{Domain: "bounce.x.com", Scope: "mfrom", Result: "softfail"}},
			},
			{
				SourceIP: "2001:db8::1", Count: 3, Disposition: "quarantine", DKIM: "fail", SPF: "fail", HeaderFrom: "m.x.com",
				Reasons: []Reason{{"policy_test_mode", "t=y"}}, SPFResults: []AuthResult{{Domain: "evil.org", Scope: "mfrom", Result: "none"}},
			},
		},
		Totals: Totals{15, 12, 3},
	}
}

func TestReportSurvivesItsWay(t *testing.T) {
	d := sample()
	packed, err := d.Gzip()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Read(packed)
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

// What we write is of the form of RFC 9990: its namespace, the order of its schema, no pct.
func TestReportIsOfTheForm(t *testing.T) {
	packed, err := sample().Gzip()
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	rest := string(text)
	for _, want := range []string{
		`<feedback xmlns="urn:ietf:params:xml:ns:dmarc-2.0">`, "<version>1.0</version>", "<report_metadata>", "<policy_published>", "<domain>x.com</domain>",
		"<discovery_method>treewalk</discovery_method>", "<p>reject</p>", "<sp>quarantine</sp>", "<np>none</np>", "<fo>1:d</fo>", "<testing>y</testing>",
		"<record>", "<row>", "<policy_evaluated>", "<disposition>", "<identifiers>", "<header_from>", "<auth_results>", "<selector>", "<scope>mfrom</scope>",
		"<type>policy_test_mode</type>",
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("no %s after what comes before it in\n%s", want, text)
		}
		rest = after
	}
	if strings.Contains(string(text), "pct") {
		t.Errorf("pct in\n%s", text)
	}
}

// Reports of both forms are read: what only one of them says is absent in the other.
func TestReportsOfBothForms(t *testing.T) {
	for name, c := range map[string]struct {
		published string
		want      Policy
	}{
		"RFC 7489": {"<p>reject</p><sp>none</sp><pct>40</pct><fo>1</fo>", Policy{Domain: "x.com", P: "reject", SP: "none", ADKIM: "r", ASPF: "r", Failures: "1", Pct: 40}},
		"RFC 9990": {"<discovery_method>treewalk</discovery_method><p>reject</p><sp>none</sp><np>quarantine</np><adkim>s</adkim><testing>y</testing>",
			Policy{Domain: "x.com", P: "reject", SP: "none", NP: "quarantine", ADKIM: "s", ASPF: "r", Testing: true, Discovery: "treewalk", Pct: 100}},
	} {
		text := strings.NewReplacer("<p>reject</p>", c.published, "<disposition>none<", "<disposition>pass<").Replace(minimal)
		d, err := Read([]byte(text))
		if err != nil || d.Policy != c.want || d.Records[0].Disposition != "none" {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
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
		d, err := Read([]byte(packed))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d.Policy != (Policy{Domain: "x.com", P: "reject", SP: "reject", ADKIM: "r", ASPF: "r", Pct: 100}) || d.Totals != (Totals{2, 2, 0}) || d.Records[0].HeaderFrom != "x.com" {
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
		"too much":         strings.Repeat(" ", reportfile.MaxPacked+1),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		d, err := Read([]byte(packed))
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		if name == "entities" { // they are left alone
			if err == nil && len(d.Org) > 20 {
				t.Errorf("%s: %q", name, d.Org)
			}
			continue
		}
		if !errors.Is(err, reportfile.ErrReport) {
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
		d.Records = append(d.Records, Record{SourceIP: fmt.Sprintf("192.0.2.%d", i%256), Count: reportfile.MaxCount / 2, DKIM: "fail", SPF: "pass"})
	}
	packed, err := d.Gzip()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Read(packed)
	if err != nil || len(again.Records) != MaxRecords || again.More != 2*MaxRecords+2 || again.Totals != (Totals{reportfile.MaxCount, reportfile.MaxCount, 3}) {
		t.Errorf("%d records and %d more, %+v, %v", len(again.Records), again.More, again.Totals, err)
	}
}

// FuzzRead holds reports of strangers to their bounds; what is read can be written and read
// again.
func FuzzRead(f *testing.F) {
	for _, text := range []string{minimal, gzipped(minimal), zipped("r.xml", minimal), "<feedback><record>"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		d, err := Read(packed)
		if err != nil {
			if !errors.Is(err, reportfile.ErrReport) {
				t.Error(err)
			}
			return
		}
		if len(d.Records) > MaxRecords || len(d.Org) > reportfile.MaxText || d.Totals.Messages < 0 || d.Policy.Domain == "" {
			t.Errorf("%+v", d)
		}
		again, err := d.Gzip()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Read(again); err != nil {
			t.Errorf("%v: %+v", err, d)
		}
	})
}
