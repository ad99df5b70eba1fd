package route53

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"github.com/mailstead/mailstead/dnsprov"
)

// always answers each request with the same body.
type always struct {
	status int
	body   string
}

func (a always) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "byname") {
		a = always{http.StatusOK, `<ListHostedZonesByNameResponse><HostedZones><HostedZone><Id>/hostedzone/Z1</Id><Name>a.test.</Name></HostedZone></HostedZones><MaxItems>100</MaxItems></ListHostedZonesByNameResponse>`}
	}
	return &http.Response{StatusCode: a.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

// FuzzAnswer reads any bytes as an answer with sets: nothing of it is ours, and errors have one
// line.
func FuzzAnswer(f *testing.F) {
	f.Add(200, `<R><ResourceRecordSets><ResourceRecordSet><Name>\052.A.test.</Name><Type>TXT</Type><TTL>60</TTL><ResourceRecords><ResourceRecord><Value>"\303\251"</Value></ResourceRecord></ResourceRecords></ResourceRecordSet></ResourceRecordSets><MaxItems>1</MaxItems><IsTruncated>true</IsTruncated><NextRecordName>a.test.</NextRecordName></R>`)
	f.Add(200, `<R><ResourceRecordSets><ResourceRecordSet><Name>a.test.</Name><Type>A</Type><AliasTarget><DNSName>X.test.</DNSName></AliasTarget></ResourceRecordSet></ResourceRecordSets><MaxItems>1</MaxItems></R>`)
	f.Add(400, "<ErrorResponse><Error><Code>InvalidInput</Code><Message>a\nb</Message></Error></ErrorResponse>")
	f.Add(400, `<InvalidChangeBatch><Messages><Message>x</Message></Messages></InvalidChangeBatch>`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		c := New(Config{AccessKeyID: "key", SecretAccessKey: "secret", HTTP: &http.Client{Transport: always{status, body}}, Pause: 1})
		have, err := c.Records(t.Context(), dnsprov.ZoneRef{Domain: "a.test"})
		want := dnsprov.Record{Name: "a.test", Type: "TXT", Value: "x", TTL: 60, Purpose: dnsprov.PurposeCustom}
		_, applied := c.Apply(t.Context(), dnsprov.ZoneRef{Domain: "a.test"}, []dnsprov.Change{{Op: dnsprov.Create, Want: &want}})
		for _, err := range []error{err, applied} {
			if err != nil && (len(err.Error()) > 3000 || strings.ContainsFunc(err.Error(), unicode.IsControl)) {
				t.Fatalf("%q", err)
			}
		}
		for _, h := range have {
			if h.Purpose != "" || h.Name != "a.test" && !strings.HasSuffix(h.Name, ".a.test") || h.ID != "" && h.ID != h.Key() {
				t.Fatalf("%+v", h)
			}
		}
	})
}

// FuzzText: what is converted for the API is read back.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"", `"quoted" \ `, "é", "\x00\xff", `\195`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		zone := `"` + dnsprov.EscapeText(text) + `"`
		api := octal(zone)
		if decimal(api) != zone || dnsprov.UnquoteText(decimal(api)) != text {
			t.Fatalf("%q became %q, and %q again", zone, api, decimal(api))
		}
	})
}
