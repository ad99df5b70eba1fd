package auth

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

const ourID = "mx.here.example"

func strip(t testing.TB, message string) string {
	t.Helper()
	var out bytes.Buffer
	if err := StripResults(&out, strings.NewReader(message), ourID); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// farTooLong is more than is read of a field.
var farTooLong = strings.Repeat("x", 3*maxResultsField)

var stripCases = []struct {
	name, field string
	stays       bool
}{
	{"plain", "Authentication-Results: mx.here.example; spf=pass\r\n", false},
	{"case", "AUTHENTICATION-results: MX.Here.Example; spf=pass\r\n", false},
	{"no space", "Authentication-Results:mx.here.example;spf=pass\r\n", false},
	{"space before the colon", "Authentication-Results \t: mx.here.example; spf=pass\r\n", false},
	{"folded before the colon", "Authentication-Results\r\n : mx.here.example; spf=pass\r\n", false},
	{"folded", "Authentication-Results:\r\n\t \r\n mx.here.example;\r\n\tspf=pass;\r\n\tdkim=pass\r\n", false},
	{"version", "Authentication-Results: mx.here.example 1; spf=pass\r\n", false},
	{"folded version", "Authentication-Results: mx.here.example\r\n 1\r\n ; spf=pass\r\n", false},
	{"comment first", "Authentication-Results: (a (nested) \\) one) mx.here.example; spf=pass\r\n", false},
	{"comments everywhere", "Authentication-Results: (a) mx.here.example (b) 1 (c); spf=pass\r\n", false},
	{"comment at the name", "Authentication-Results: mx.here.example(b); spf=pass\r\n", false},
	{"comment inside the name", "Authentication-Results: mx.(b)here.example; spf=pass\r\n", false},
	{"comment that does not end", "Authentication-Results: (x mx.here.example; spf=pass\r\n", false},
	{"quoted", "Authentication-Results: \"mx.here.example\"; spf=pass\r\n", false},
	{"quoted pairs", "Authentication-Results: \"mx.h\\ere.example\"; spf=pass\r\n", false},
	{"quoted in part", "Authentication-Results: mx.\"here\".example; spf=pass\r\n", false},
	{"quote that does not end", "Authentication-Results: \"mx.here.example; spf=pass\r\n", false},
	{"final dot", "Authentication-Results: mx.here.example.; spf=pass\r\n", false},
	{"wide letters", "Authentication-Results: ｍx.here.example; spf=pass\r\n", false},
	{"no results", "Authentication-Results: mx.here.example\r\n", false},
	{"no semicolon", "Authentication-Results: mx.here.example spf=pass\r\n", false},
	{"bare line ends", "Authentication-Results: mx.here.example;\n\tspf=pass\n", false},
	{"long", "Authentication-Results: mx.here.example; spf=pass (" + farTooLong + ")\r\n\tx\r\n", false},
	{"long white space first", "Authentication-Results: " + strings.Repeat(" \r\n ", maxResultsField) + "mx.here.example; spf=pass\r\n", false},
	{"white space up to the bound", "Authentication-Results:" + strings.Repeat(" ", maxResultsField-len("Authentication-Results:")-4) + "mx.here.example; spf=pass\r\n", false},
	{"long comment first", "Authentication-Results: (" + farTooLong + ") mx.here.example; spf=pass\r\n", false},
	{"another server", "Authentication-Results: mx.there.example; spf=pass\r\n", true},
	{"another server with ours as prefix", "Authentication-Results: mx.here.example.org 1; spf=pass\r\n", true},
	{"another server with ours as suffix", "Authentication-Results: smtp.mx.here.example; spf=pass\r\n", true},
	{"ours only in a comment", "Authentication-Results: (mx.here.example) mx.there.example; spf=pass\r\n", true},
	{"ours only in a result", "Authentication-Results: mx.there.example; spf=pass smtp.helo=mx.here.example\r\n", true},
	{"no authserv-id at all", "Authentication-Results: spf=pass (sender IP is 192.0.2.1)\r\n smtp.mailfrom=x.com; dkim=none\r\n", true},
	{"another server, long", "Authentication-Results: mx.there.example; spf=pass (" + farTooLong + ")\r\n\tx\r\n", true},
	{"no field", "Authentication-Results mx.here.example\r\n", true},
	{"spaces up to the colon", "Authentication-Results" + strings.Repeat(" ", 2*maxResultsField) + ": mx.here.example; spf=pass\r\n", false},
	{"ARC", "ARC-Authentication-Results: i=1; mx.here.example; spf=pass\r\n", true},
	{"longer name", "Authentication-Results-Old: mx.here.example; spf=pass\r\n", true},
	{"long line", "X-Long: " + farTooLong + farTooLong + "\r\n", true},
}

func TestForgedResultsAreStripped(t *testing.T) {
	for _, tc := range stripCases {
		t.Run(tc.name, func(t *testing.T) {
			const before, after = "Received: a\r\n b\r\n", "From: x\r\n\r\nAuthentication-Results: mx.here.example; spf=pass\r\n\r\nbody\n"
			want := before + after
			if tc.stays {
				want = before + tc.field + after
			}
			if got := strip(t, before+tc.field+after); got != want {
				t.Errorf("got %.300q, want %.300q", got, want)
			}
			if got := strip(t, tc.field); (got == tc.field) != tc.stays || !tc.stays && got != "" {
				t.Errorf("alone: got %.300q, stays=%v", got, tc.stays)
			}
			if got := strip(t, before+strings.TrimRight(tc.field, "\r\n")); (got != before) != tc.stays {
				t.Errorf("last and torn: got %.300q, stays=%v", got, tc.stays)
			}
		})
	}
}

func TestStripLeavesOurOwnFieldOutToo(t *testing.T) {
	field := resultsField(ourID, &Verdict{SPF: Pass, SPFDomain: "x.com", DKIM: None, DMARC: Pass, FromDomain: "x.com"})
	if got := strip(t, field+field+testMessage); got != testMessage {
		t.Errorf("got %q", got)
	}
}

func TestStripReportsErrors(t *testing.T) {
	broken := errors.New("input/output error")
	for name, r := range map[string]io.Reader{
		"header": io.MultiReader(strings.NewReader("From: x"), iotest.ErrReader(broken)),
		"body":   io.MultiReader(strings.NewReader(testMessage), iotest.ErrReader(broken)),
	} {
		if err := StripResults(io.Discard, r, ourID); !errors.Is(err, broken) {
			t.Errorf("%s: %v, want %v", name, err, broken)
		}
	}
	for _, msg := range []string{testMessage, "X: " + strings.Repeat("x", 100_000), "From: x\r\n\r\n" + strings.Repeat("x", 100_000)} {
		if err := StripResults(failingWriter{broken}, strings.NewReader(msg), ourID); !errors.Is(err, broken) {
			t.Errorf("writer: %v, want %v", err, broken)
		}
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }
