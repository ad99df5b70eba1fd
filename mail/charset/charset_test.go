package charset

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestCharsetsAgainstAnotherDecoder has a text in each of 200 charsets by one of its names, as
// encoded by another implementation.
func TestCharsetsAgainstAnotherDecoder(t *testing.T) {
	raw, err := os.ReadFile("testdata/charsets-encoded.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Label, Text string
		Body        []byte
	}
	if err := json.Unmarshal(raw, &rows); err != nil || len(rows) < 150 {
		t.Fatal(len(rows), err)
	}
	for _, row := range rows {
		if got := Decode(row.Body, row.Label); got != row.Text {
			t.Errorf("%s: %q, want %q", row.Label, got, row.Text)
		}
	}
}

// FuzzDecode decodes any bytes under any name and wants UTF-8, of a length that they bound.
func FuzzDecode(f *testing.F) {
	for _, row := range charsetNames() {
		name, _, _ := strings.Cut(row.names, " ")
		f.Add([]byte("a\x1b$BF|\x1b(B +AGE- ~{::~} \xe4\xb8\xad\x00"), name)
	}
	f.Fuzz(func(t *testing.T, b []byte, label string) {
		for _, s := range []string{Decode(b, label), DecodeRaw(b, label), Body(b, label, true)} {
			if !utf8.ValidString(s) || len(s) > 6*len(b) {
				t.Fatalf("%q in %q is %q", b, label, s)
			}
		}
		Convert(b, label, 100, 10)
	})
}
