package zonefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
)

// sets writes sets as "line: name ttl type values".
func sets(all []Set) []string {
	var out []string
	for _, s := range all {
		var values []string
		for _, r := range s.Records {
			values = append(values, r.Text())
		}
		out = append(out, fmt.Sprintf("%d: %s %d %s %s", s.Line, s.Name, s.TTL, s.Type, strings.Join(values, " | ")))
	}
	return out
}

func TestRead(t *testing.T) {
	for _, tc := range []struct {
		about, text string
		want        []string
	}{
		{"nothing", "", nil},
		{"comments and blank lines", "; a\n\n  \n\t; b\n", nil},
		{"no line end", "@ 60 IN A 192.0.2.1", []string{"1: example.com 60 A 192.0.2.1"}},
		{"TTL and class in any order", "a 60 IN A 192.0.2.1\nb IN 60 A 192.0.2.1\nc IN A 192.0.2.1\nd A 192.0.2.1\ne 90 a 192.0.2.1\n", []string{
			"1: a.example.com 60 A 192.0.2.1", "2: b.example.com 60 A 192.0.2.1", "3: c.example.com 60 A 192.0.2.1", "4: d.example.com 60 A 192.0.2.1", "5: e.example.com 90 A 192.0.2.1"}},
		{"no TTL at all", "a A 192.0.2.1\n", []string{"1: a.example.com 300 A 192.0.2.1"}},
		{"the last TTL is kept", "a 60 A 192.0.2.1\nb A 192.0.2.1\n", []string{"1: a.example.com 60 A 192.0.2.1", "2: b.example.com 60 A 192.0.2.1"}},
		{"$TTL is kept", "$TTL 1h30m\na 60 A 192.0.2.1\nb A 192.0.2.1\n$TTL 2W\nc A 192.0.2.1\n", []string{
			"2: a.example.com 60 A 192.0.2.1", "3: b.example.com 5400 A 192.0.2.1", "5: c.example.com 1209600 A 192.0.2.1"}},
		{"the SOA's minimum", "@ SOA ns hostmaster 1 2 3 4 77\na A 192.0.2.1\n", []string{
			"1: example.com 77 SOA ns.example.com. hostmaster.example.com. 1 2 3 4 77", "2: a.example.com 77 A 192.0.2.1"}},
		{"indented lines", "a 60 A 192.0.2.1\n  AAAA 2001:db8::1\n\tTXT x\n", []string{
			"1: a.example.com 60 A 192.0.2.1", "2: a.example.com 60 AAAA 2001:db8::1", "3: a.example.com 60 TXT x"}},
		{"names", "A.B 1 NS ns\n@ 1 NS @\nc.test. 1 NS d.test.\n3600 1 CNAME a\n", []string{
			"1: a.b.example.com 1 NS ns.example.com", "2: example.com 1 NS example.com", "3: c.test 1 NS d.test", "4: 3600.example.com 1 CNAME a.example.com"}},
		{"$ORIGIN", "$ORIGIN sub\na 1 A 192.0.2.1\n$origin x.test.\n@ 1 MX 5 m\n$ORIGIN .\nz 1 CNAME y\n", []string{
			"2: a.sub.example.com 1 A 192.0.2.1", "4: x.test 1 MX 5 m.x.test", "6: z 1 CNAME y"}},
		{"parentheses", "a ( 60 ; one\n IN ) TXT ( \"x\"\n\n\"y\" ; two )\nz ) ; three\nb 1 A 192.0.2.1\n", []string{
			"1: a.example.com 60 TXT xyz", "6: b.example.com 1 A 192.0.2.1"}},
		{"texts", `a 1 TXT "a;b (c) \"d\" \\ \065" e\;f ""` + "\n" + `b 1 TXT "tab` + "\t" + `é"` + "\n", []string{
			`1: a.example.com 1 TXT a;b (c) "d" \ Ae;f`, "2: b.example.com 1 TXT tab\té"}},
		{"a text in quotation marks", `a 1 TXT "\"x\""`, []string{`1: a.example.com 1 TXT "\"x\""`}},
		{"an empty text", `a 1 TXT ""`, []string{`1: a.example.com 1 TXT `}},
		{"a long text in one string", `a 1 TXT "` + strings.Repeat("x", 600) + `"`, []string{"1: a.example.com 1 TXT " + strings.Repeat("x", 600)}},
		{"one set in several places", "a 60 A 192.0.2.1\nb 60 A 192.0.2.1\nA 30 A 192.0.2.2\na 90 A 192.0.2.1\n", []string{
			"1: a.example.com 30 A 192.0.2.1 | 192.0.2.2", "2: b.example.com 60 A 192.0.2.1"}},
		{"ALIAS and ANAME", "@ 60 ALIAS Host.Elsewhere.test.\nb 60 IN aname c\n", []string{"1: example.com 60 ALIAS host.elsewhere.test", "2: b.example.com 60 ANAME c.example.com"}},
		{"numbers of types", "a 60 TYPE1 \\# 4 c0000201\nb 60 CLASS1 TYPE65280 \\# 1 ff\n", []string{"1: a.example.com 60 A 192.0.2.1", `2: b.example.com 60 TYPE65280 \# 1 ff`}},
		{"parameters in quotation marks", `a 60 HTTPS 1 . alpn="h2,h3" port=443` + "\n", []string{`1: a.example.com 60 HTTPS 1 . alpn="h2,h3" port="443"`}},
		{"line ends of all systems", "a 1 A 192.0.2.1\r\nb 1 A 192.0.2.1\rc 1 A 192.0.2.1\n", []string{"1: a.example.com 1 A 192.0.2.1", "2: b.example.com 1 A 192.0.2.1", "3: c.example.com 1 A 192.0.2.1"}},
		{"a byte order mark", "\ufeffa 1 A 192.0.2.1\n", []string{"1: a.example.com 1 A 192.0.2.1"}},
		{"bytes in names", "b\xc3\xbc 1 A 192.0.2.1\n", []string{`1: b\195\188.example.com 1 A 192.0.2.1`}},
	} {
		got, err := Read([]byte(tc.text), "example.com")
		if err != nil || !slices.Equal(sets(got), tc.want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", tc.about, err, strings.Join(sets(got), "\n"), strings.Join(tc.want, "\n"))
		}
	}
}

// TestReadRefuses reads files that are broken. Their first line has the line of the fault, and a
// part of what is said about it.
func TestReadRefuses(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.zone")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(text), "\n")
		place, part, _ := strings.Cut(strings.TrimPrefix(head, "; "), ": ")
		checkRefused(t, file, text, place, part)
	}
	checkRefused(t, "UTF-16", []byte("\xff\xfea\x00 \x00A\x00"), "line 1", "control character")
	checkRefused(t, "too many bytes", make([]byte, MaxBytes+1), "line 1", "bytes")
	checkRefused(t, "too many records", []byte("a 1 A 192.0.2.1\n"+strings.Repeat(" A 192.0.2.1\n", MaxRecords)), fmt.Sprintf("line %d", MaxRecords+1), "records")
}

func checkRefused(t *testing.T, about string, text []byte, place, part string) {
	t.Helper()
	got, err := Read(text, "example.com")
	var fault *Error
	if !errors.As(err, &fault) || got != nil {
		t.Errorf("%s: %v, %q", about, err, sets(got))
		return
	}
	if fmt.Sprintf("line %d", fault.Line) != place || !strings.Contains(fault.Reason, part) {
		t.Errorf("%s: %v, want %s with %q", about, err, place, part)
	}
	if strings.ContainsFunc(fault.Reason, func(c rune) bool { return c < ' ' }) || len(fault.Reason) > 300 {
		t.Errorf("%s: %q", about, fault.Reason)
	}
}

// FuzzRead: what is read can be written, and is then read as the same.
func FuzzRead(f *testing.F) {
	for _, pattern := range []string{"testdata/broken/*.zone", "testdata/good/*.zone"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		read, err := Read(text, "example.com")
		if err != nil {
			var fault *Error
			if !errors.As(err, &fault) || fault.Line < 1 || fault.Line > len(text)+1 {
				t.Fatalf("%v", err)
			}
			return
		}
		var records []dnsprov.Record
		for _, s := range read {
			for _, r := range s.Records {
				if slices.Contains(dnsprov.CustomTypes, r.Type) && canBeWritten(r) {
					records = append(records, r)
				}
			}
		}
		checkRoundTrip(t, records)
	})
}

// canBeWritten reports whether a record of the file, such as an HTTPS with unusual parameters, can
// be written in our form.
func canBeWritten(r dnsprov.Record) bool {
	rr, err := r.RR()
	return err == nil && dnsprov.RecordOf(rr) == r
}

// checkRoundTrip writes records, and reads them again.
func checkRoundTrip(t *testing.T, records []dnsprov.Record) {
	t.Helper()
	var file strings.Builder
	if err := Write(&file, "example.com", SOA{}, records); err != nil {
		t.Fatal(err)
	}
	read, err := Read([]byte(file.String()), "elsewhere.test")
	if err != nil {
		t.Fatalf("%v\n%s", err, &file)
	}
	got := map[dnsprov.Record]bool{}
	for _, s := range read {
		for _, r := range s.Records {
			if r.Type != "SOA" {
				got[r] = true
			}
		}
	}
	want := map[dnsprov.Record]bool{}
	for _, r := range records {
		want[r] = true
		if !got[r] {
			t.Errorf("%+v is lost in\n%s", r, &file)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d records became %d:\n%s", len(want), len(got), &file)
	}
}

func BenchmarkRead(b *testing.B) {
	var file strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&file, "host%d.example.com. 300 IN A 192.0.2.%d\n", i, i%250)
	}
	text := []byte(file.String())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(text, "example.com"); err != nil {
			b.Fatal(err)
		}
	}
}
