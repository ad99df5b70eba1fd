package cloudflare

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"github.com/mailstead/mailstead/dnsprov"
)

// FuzzAnswer decodes any bytes as an answer with records: plans can be made from the result, and
// errors have one line.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"success":true,"errors":[],"result":[{"id":"a","type":"MX","name":"A.test","content":"M.test.","priority":10,"ttl":1,"comment":"mailstead:m:MX"}],"result_info":{"total_pages":1}}`,
		`{"success":true,"result":[{"id":"a","type":"SRV","name":"a","data":{"port":1,"target":"x"}},{"type":"CAA","data":{"tag":"issue","value":"\""}},{"type":"TXT","content":"\"\\300\""}]}`,
		`{"success":false,"errors":[{"code":6003,"message":"a\nb","error_chain":[{"code":1}]}]}`, `[]`, `null`, ``, `{"success":true,"result":null}`,
	} {
		f.Add(200, seed)
		f.Add(400, seed)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		var found []record
		_, err := decode(status, http.Header{"Retry-After": {body}}, []byte(body), &found)
		if err != nil {
			if text := err.Error(); len(text) > 1400 || strings.ContainsFunc(text, unicode.IsControl) {
				t.Fatalf("%q", text)
			}
			return
		}
		var have []dnsprov.Record
		for _, r := range found {
			have = append(have, r.toCommon("m"))
		}
		for _, c := range dnsprov.Plan(have, nil) {
			if c.Have.Purpose == "" {
				t.Fatalf("%+v is to be deleted", c.Have)
			}
		}
	})
}

// FuzzText: a text is read back as it was sent, in strings of the permitted length.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "v=spf1 -all", `"quoted" \ `, `"quoted"`, strings.Repeat("é", 300), "\x00\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value := text
		if strings.HasPrefix(text, `"`) { // as dnsprov.RecordOf writes it
			value = dnsprov.QuoteText(text)
		}
		sent, err := toAPI(dnsprov.Record{Name: "a.test", Type: "TXT", Value: value, Purpose: "P"}, "m")
		if err != nil {
			t.Fatal(err)
		}
		wire, err := json.Marshal(sent)
		if err != nil {
			t.Fatal(err)
		}
		var back record
		if err := json.Unmarshal(wire, &back); err != nil {
			t.Fatal(err)
		}
		if sent.Content != quoted(text) {
			t.Fatalf("%q is sent as %s", text, sent.Content)
		}
		if got := back.toCommon("m"); got.Value != value || got.Purpose != "P" {
			t.Fatalf("%q came back as %+v", value, got)
		}
	})
}
