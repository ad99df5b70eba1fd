package zonefile

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
)

func TestWrite(t *testing.T) {
	var file strings.Builder
	err := Write(&file, "example.com", SOA{TTL: 3600, Serial: 7, Minimum: 300}, []dnsprov.Record{
		{Name: "www.example.com", Type: "A", Value: "192.0.2.1", TTL: 300},
		{Name: "a.b.example.com", Type: "A", Value: "192.0.2.1", TTL: 300},
		{Name: "example.com", Type: "MX", Value: "mail.example.com", Priority: 10, TTL: 300},
		{Name: "WWW.example.com", Type: "A", Value: "192.0.2.2", TTL: 60},
		{Name: "www.example.com", Type: "A", Value: "192.0.2.1", TTL: 300},
		{Name: "example.com", Type: "SOA", Value: "x. y. 1 2 3 4 5", TTL: 300},
		{Name: "example.com", Type: "TXT", Value: strings.Repeat("x", 256) + `"é`, TTL: 300},
		{Name: "example.com", Type: "NS", Value: "ns1.example.com", TTL: 300},
		{Name: "b.example.com", Type: "SRV", Value: ".", TTL: 300},
	})
	want := `example.com.	3600	IN	SOA	ns1.example.com. hostmaster.example.com. 7 3600 600 604800 300
example.com.	300	IN	NS	ns1.example.com.
example.com.	300	IN	MX	10 mail.example.com.
example.com.	300	IN	TXT	"` + strings.Repeat("x", 255) + `" "x\"\195\169"
b.example.com.	300	IN	SRV	0 0 0 .
a.b.example.com.	300	IN	A	192.0.2.1
www.example.com.	60	IN	A	192.0.2.1
www.example.com.	60	IN	A	192.0.2.2
`
	if err != nil || file.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, &file, want)
	}
	for _, r := range []dnsprov.Record{
		{Name: "example.com", Type: dnsprov.Flattened, Value: "a.test"},
		{Name: "example.com", Type: "A", Value: "192.0.2.1\n@ A 192.0.2.2"},
		{Name: "a b\nc.example.com", Type: "A", Value: "192.0.2.1"},
		{Name: "a..example.com", Type: "A", Value: "192.0.2.1"},
	} {
		var file strings.Builder
		if err := Write(&file, "example.com", SOA{}, []dnsprov.Record{r}); err == nil && strings.Count(file.String(), "\n") != 2 {
			t.Errorf("%+v was written as %q", r, &file)
		}
	}
}

// customRecords has sets of every type that owners may add, with values at the edges of what is
// allowed.
func customRecords(t *testing.T) []dnsprov.Record {
	t.Helper()
	digest := strings.Repeat("0123456789abcdef", 4)
	out := []dnsprov.Record{
		{Name: "example.com", Type: "NS", Value: "ns1.elsewhere.test", TTL: 3600},
		{Name: "example.com", Type: "NS", Value: "ns2.elsewhere.test", TTL: 3600},
	}
	for _, set := range []struct {
		name, typ string
		values    []string
	}{
		{"@", "A", []string{"192.0.2.1", "192.0.2.2"}},
		{"@", "AAAA", []string{"2001:db8::1", "::"}},
		{"www", "CNAME", []string{"@"}},
		{"*.wild", "CNAME", []string{"www.example.com"}},
		{"text", "TXT", []string{"plain", `"quoted \"x\" ; y"`, `back\slash`, "é ✓ 漢字", strings.Repeat("x", 4096), strings.Repeat("é", 2000), "$TTL 5", "@", "(", `" both "`}},
		{"mail", "MX", []string{"0 a.elsewhere.test", "65535 @"}},
		{"nomail", "MX", []string{"0 ."}},
		{"_imaps._tcp", "SRV", []string{"0 1 993 a.elsewhere.test", "65535 65535 65535 b.elsewhere.test"}},
		{"_pop3._tcp", "SRV", []string{"0 0 0 ."}},
		{"@", "CAA", []string{`0 issue "letsencrypt.org; accounturi=https://ca.test/1"`, `128 issuewild ";"`, `0 iodef "mailto:a@example.com"`, `0 issue ""`}},
		{"_443._tcp", "TLSA", []string{"3 1 1 " + digest, "2 0 0 00", "3 1 2 " + digest + digest}},
		{"ssh", "SSHFP", []string{"4 2 " + digest, "1 1 " + digest[:40], "6 0 00"}},
		{"@", "HTTPS", []string{`1 . alpn="h2,h3" no-default-alpn port="8443" ipv4hint="192.0.2.1,192.0.2.2" ipv6hint="2001:db8::1" ech="AAAA"`, "2 a.elsewhere.test"}},
		{"shop", "HTTPS", []string{"0 shop.elsewhere.test"}},
		{"_dns", "SVCB", []string{`1 dns.elsewhere.test alpn="dot,doq" mandatory="alpn,port" port="853" key65400="x y;(z)"`, `2 dns.elsewhere.test alpn="h2"`}},
		{"sub", "NS", []string{"ns1.sub.example.com", "ns.elsewhere.test"}},
		{"sub", "DS", []string{"12345 13 2 " + digest, "12345 13 1 " + digest[:40], "0 8 4 " + digest + digest[:32]}},
		{"ns1.sub", "A", []string{"192.0.2.3"}},
		{"_under_score.deep.x", "A", []string{"192.0.2.4"}},
	} {
		name, err := dnsprov.CustomName(set.name, "example.com")
		if err != nil {
			t.Fatal(err)
		}
		records, err := dnsprov.CustomSet("example.com", name, set.typ, 300, set.values)
		if err != nil {
			t.Fatalf("%s %s: %v", set.name, set.typ, err)
		}
		if len(records) != len(set.values) {
			t.Errorf("%s %s: %d records", set.name, set.typ, len(records))
		}
		for _, r := range records {
			r.Purpose = ""
			out = append(out, r)
		}
	}
	return out
}

func TestWhatIsWrittenIsReadAgain(t *testing.T) { checkRoundTrip(t, customRecords(t)) }

// checkzone runs BIND's named-checkzone on a file, and returns the zone as it has read it.
func checkzone(t *testing.T, file string) []byte {
	t.Helper()
	program, err := exec.LookPath("named-checkzone")
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatal("named-checkzone is missing; make peers installs it")
	case err != nil:
		t.Skip("named-checkzone is not installed")
	}
	dump := filepath.Join(t.TempDir(), "dump")
	out, err := exec.Command(program, "-i", "local", "-k", "ignore", "-o", dump, "-D", "example.com", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", file, err, out)
	}
	text, err := os.ReadFile(dump)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// flat returns the records of sets, with the TTLs of their sets, in a fixed order.
func flat(all []Set) []string {
	var out []string
	for _, s := range all {
		s.Line = 0
		for _, r := range s.Records {
			out = append(out, strings.Join(sets([]Set{{Name: s.Name, Type: s.Type, TTL: s.TTL, Records: []dnsprov.Record{r}}}), ""))
		}
	}
	slices.Sort(out)
	return out
}

// TestNamedTakesWhatIsWritten: BIND reads what Write writes, and finds the same records.
func TestNamedTakesWhatIsWritten(t *testing.T) {
	records := customRecords(t)
	file := filepath.Join(t.TempDir(), "zone")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(out, "example.com", SOA{TTL: 300, Minimum: 300}, records); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	checkSame(t, file)
}

// TestReadReadsAsNamed: BIND reads the same from files of several services as Read.
func TestReadReadsAsNamed(t *testing.T) {
	files, err := filepath.Glob("testdata/good/*.zone")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		checkSame(t, file)
	}
}

// checkSame reads a file, and then what BIND has read from it.
func checkSame(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := Read(text, "example.com")
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	theirs, err := Read(checkzone(t, file), "example.com")
	if err != nil {
		t.Fatalf("the dump of %s: %v", file, err)
	}
	if got, want := flat(ours), flat(theirs); !slices.Equal(got, want) || len(got) == 0 {
		t.Errorf("%s:\n%s\nBIND reads\n%s", file, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
