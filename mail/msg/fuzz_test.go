package msg

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/visible"
)

func addCorpus(f *testing.F) {
	f.Helper()
	addFiles(f, "testdata/*.eml")
}

func addFiles(f *testing.F, pattern string) {
	f.Helper()
	for _, raw := range readFiles(f, pattern) {
		f.Add(raw)
	}
}

// readFiles gives the contents of the files that match a pattern.
func readFiles(t testing.TB, pattern string) (contents [][]byte) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		contents = append(contents, raw)
	}
	return contents
}

// FuzzScan reads any bytes as a message, in every way there is.
func FuzzScan(f *testing.F) {
	addCorpus(f)
	addFiles(f, "testdata/reading/*.eml")
	for _, c := range sloppy {
		f.Add([]byte(c.raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		root := scanBytes(t, raw)
		r := bytes.NewReader(raw)
		s, err := Summarize(r, root)
		if err != nil {
			t.Fatal(err)
		}
		if n := utf8.RuneCountInString(s.Preview); n > previewRunes || strings.ContainsAny(s.Preview+s.Subject, "\r\n\x00") {
			t.Fatalf("preview %q of %q", s.Preview, s.Subject)
		}
		for _, a := range s.Attachments {
			if a.Filename == "" || strings.ContainsAny(a.Filename, "/\\\r\n\x00") {
				t.Fatalf("filename %q", a.Filename)
			}
			if _, err := io.Copy(io.Discard, Open(r, a.Part)); err != nil {
				t.Fatal(err)
			}
		}
		body, err := ReadRawBody(r, root, 4096)
		if err != nil {
			t.Fatal(err)
		}
		if len(body.Text) > 4096 || !utf8.ValidString(body.Text) || strings.Contains(strings.ToLower(visible.SanitizeHTML(body.HTML)), "<script") {
			t.Fatalf("body %+v", body)
		}
		headers, err := Headers(r, root)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range headers {
			if !utf8.ValidString(h.Value) || strings.ContainsAny(h.Value, "\r\n\x00") {
				t.Fatalf("header %q", h)
			}
		}
		if _, err := HeaderFields(r, root, []string{"subject"}, true); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzParseDate wants no date that cannot be stored.
func FuzzParseDate(f *testing.F) {
	for _, s := range []string{"Fri, 20 Nov 2026 21:00:00 +0100", "2026-11-20T21:00:00.5+01:00", "11/20/2026 9:00PM", "Fri Nov 20 2026 21:00:00 GMT+0100 (CET)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at := parseDate(s)
		if _, east := at.Zone(); east < -24*3600 || east > 24*3600 || !at.IsZero() && (at.Year() < 1899 || at.Year() > 10000) {
			t.Fatalf("%q is %s", s, at)
		}
	})
}

// FuzzParseParams wants parameters within their bounds.
func FuzzParseParams(f *testing.F) {
	for _, s := range []string{`text/plain; charset=utf-8`, `multipart/mixed boundary="b" x`, `attachment; filename*0*=koi8-r''%F0; filename*1="a`, `a / b; name=x y size=3`} {
		f.Add([]byte(s), "koi8-r")
	}
	f.Fuzz(func(t *testing.T, value []byte, charset string) {
		_, params := parseParams(value, charset)
		if len(params) > MaxParams {
			t.Fatalf("%d parameters", len(params))
		}
		for name, v := range params {
			if len(v) > MaxParamValue || !utf8.ValidString(v) || strings.ContainsAny(v, "\r\n\x00") && name != "boundary" {
				t.Fatalf("%q of %q", v, name)
			}
		}
	})
}

// FuzzDecodePart wants an error or a tree that holds together.
func FuzzDecodePart(f *testing.F) {
	for _, raw := range readFiles(f, "testdata/*.eml") {
		f.Add(scanBytes(f, raw).AppendBinary(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkView(t, b)
		p, err := DecodePart(b)
		if err != nil {
			return
		}
		checkDecoded(t, p)
		again, err := DecodePart(p.AppendBinary(nil))
		if err != nil {
			t.Fatalf("decoded tree does not decode again: %v", err)
		}
		checkDecoded(t, again)
		Attachments(p)
	})
}

func checkDecoded(t *testing.T, p *Part) {
	t.Helper()
	if p.HeaderOffset < 0 || p.HeaderOffset > p.BodyOffset || p.BodyOffset > p.End || !p.hasValidShape() {
		t.Fatalf("part %+v", p)
	}
	for _, c := range p.Children {
		if c.HeaderOffset < p.HeaderOffset || c.End > p.End {
			t.Fatalf("child %+v outside %+v", c, p)
		}
		checkDecoded(t, c)
	}
}

// FuzzParseReport reads any bytes as a delivery report.
func FuzzParseReport(f *testing.F) {
	addCorpus(f)
	addFiles(f, "testdata/bounces/*.eml")
	f.Add([]byte("X-Failed-Recipients: a@b.example\r\n\r\na@b.example\n x\n\n------\nMessage-ID: <x>\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		report, ok := ParseReport(bytes.NewReader(raw), scanBytes(t, raw))
		if !ok {
			return
		}
		if n := len(report.Recipients); n == 0 || n > maxReportRecipients {
			t.Fatalf("%d recipients", n)
		}
		for _, r := range report.Recipients {
			if strings.ContainsAny(r.Final+r.Original+r.Status+r.Diagnostic, "\r\n\x00") {
				t.Fatalf("recipient %+v", r)
			}
		}
	})
}

// FuzzParseReturned reads any bytes as a report on a message of ours.
func FuzzParseReturned(f *testing.F) {
	addFiles(f, "testdata/bounces/*.eml")
	addFiles(f, "../../service/mta/testdata/cases/37-bounce-*.eml")
	f.Add([]byte("From: mailer-daemon@far.test\n\nx@far.test (expanded from\n<y@far.test>): 5.1.0 - x 550-'5.2.2 <x@far.test> Full'\n\nReceived: x\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		report, ok := ParseReturned(bytes.NewReader(raw), scanBytes(t, raw), "x@far.test")
		if !ok {
			return
		}
		if n := len(report.Recipients); n == 0 || n > maxReportRecipients {
			t.Fatalf("%d recipients", n)
		}
		for _, r := range report.Recipients {
			if strings.ContainsAny(r.Final+r.Original+r.Status+r.Diagnostic, "\r\n\x00") || r.Status != "" && statusCode(r.Status) != r.Status {
				t.Fatalf("recipient %+v", r)
			}
		}
		if report.ForRecipient("x@far.test") == nil {
			t.Fatal("it is about nobody")
		}
		RefusalSubjectOf(string(raw))
	})
}

// FuzzParseAddressList wants what is accepted to be written and read back as the same.
func FuzzParseAddressList(f *testing.F) {
	for _, s := range []string{"a@b.example", `"x, y" <a@b.example>, c@d.example`, "team: a@b.example;", `"a b"@c.example (x)`, "ä <ö@ü.example>", "a@[127.0.0.1]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parseAddresses(s, MaxAddresses)
		list, err := ParseAddressList(s)
		if err != nil {
			return
		}
		for _, a := range list {
			b, err := ParseAddress(a.Email())
			if err != nil || b.Mailbox != a.Mailbox || b.Host != a.Host {
				t.Fatalf("%q: %q is read as %q, %v", s, a, b, err)
			}
			d := &Composer{From: a, To: list, MessageID: "<1@x>", Date: draftDate}
			var out bytes.Buffer
			if _, err := d.WriteTo(&out); err != nil {
				continue
			}
			checkWire(t, out.Bytes())
			env := scanBytes(t, out.Bytes()).Envelope
			if len(env.From) != 1 || env.From[0].Email() != a.Email() || len(env.To) != len(list) {
				t.Fatalf("%q written and read: %q, %q", s, env.From, env.To)
			}
		}
	})
}

// FuzzNormalizeLines cuts the input at any place and wants clean lines all the same.
func FuzzNormalizeLines(f *testing.F) {
	f.Add([]byte("a\r\nb\nc\rd\x00\r\n"), 3)
	f.Add([]byte("\r\r\n\n\r\x00\n"), 1)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		at = max(0, min(at, len(b)))
		var out bytes.Buffer
		w := NormalizeLines(&out)
		for _, piece := range [][]byte{b[:at], b[at:]} {
			if n, err := w.Write(piece); err != nil || n != len(piece) {
				t.Fatal(n, err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(string(b), "\x00", "")
		want = strings.ReplaceAll(want, "\r\n", "\n")
		want = strings.ReplaceAll(want, "\r", "\n")
		want = strings.ReplaceAll(want, "\n", "\r\n")
		if out.String() != want {
			t.Fatalf("%q became %q, want %q", b, out.Bytes(), want)
		}
	})
}

func TestDecodePartErrors(t *testing.T) {
	raw, err := os.ReadFile("testdata/nested.eml")
	if err != nil {
		t.Fatal(err)
	}
	good := scanBytes(t, raw).AppendBinary(nil)
	for i := range good {
		if _, err := DecodePart(good[:i]); err != ErrTree {
			t.Errorf("cut at %d: %v", i, err)
		}
		checkView(t, good[:i])
	}
	if _, err := DecodePart(append(good, 0)); err != ErrTree {
		t.Errorf("a byte too many: %v", err)
	}
	good[0]++
	if _, err := DecodePart(good); err != ErrTree {
		t.Errorf("another version: %v", err)
	}
}

func BenchmarkDecodePart(b *testing.B) {
	for _, name := range []string{"plain", "nested"} {
		raw, err := os.ReadFile("testdata/" + name + ".eml")
		if err != nil {
			b.Fatal(err)
		}
		tree := scanBytes(b, raw).AppendBinary(nil)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(tree)))
			for b.Loop() {
				if _, err := DecodePart(tree); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNormalizeLines(b *testing.B) {
	raw := bytes.Repeat([]byte(strings.Repeat("x", 70)+"\r\n"), 1000)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		w := NormalizeLines(io.Discard)
		if _, err := w.Write(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSummarize(b *testing.B) {
	raw, err := os.ReadFile("testdata/nested.eml")
	if err != nil {
		b.Fatal(err)
	}
	root := scanBytes(b, raw)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Summarize(bytes.NewReader(raw), root); err != nil {
			b.Fatal(err)
		}
	}
}
