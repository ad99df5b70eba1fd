package tlsrpt

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/reportfile"
)

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

const tlsSample = `{"organization-name":"Company-X","date-range":{"start-datetime":"2026-11-20T00:00:00Z","end-datetime":"2026-11-20T23:59:59Z"},
"contact-info":"sts@x.com","report-id":"5065427c","policies":[{"policy":{"policy-type":"sts","policy-string":["version: STSv1","mode: testing"],
"policy-domain":"y.com","mx-host":["*.mail.y.com"]},"summary":{"total-successful-session-count":5326,"total-failure-session-count":"303"},
"failure-details":[{"result-type":"certificate-expired","sending-mta-ip":"2001:db8:abcd:12::1","receiving-mx-hostname":"mx1.mail.y.com",
"failed-session-count":100},{"result-type":"starttls-not-supported","receiving-ip":"203.0.113.56","failed-session-count":203,"failure-reason-code":"X"}]}]}`

func TestForeignReports(t *testing.T) {
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	want := &Report{
		Org: "Company-X", Contact: "sts@x.com", ID: "5065427c", Begin: day, End: day.Add(24*time.Hour - time.Second),
		Policies: []Policy{{
			Type: "sts", Domain: "y.com", Strings: []string{"version: STSv1", "mode: testing"}, MXHosts: []string{"*.mail.y.com"},
			Successful: 5326, Failed: 303, Failures: []Failure{
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
		got, err := Read([]byte(packed))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, packed := range map[string]string{
		"empty": "", "no object": "[]", "no policies": `{"report-id":"1"}`, "no id": strings.Replace(tlsSample, `"report-id":"5065427c",`, "", 1),
		"no time":   strings.Replace(tlsSample, "2026-11-20T23:59:59Z", "tomorrow", 1),
		"deep":      strings.Repeat("[", 100_000),
		"bomb":      gzipped(`{"policies":[` + strings.Repeat("{},", MaxUnpacked)),
		"many":      gzipped(`{"report-id":"1","policies":[` + strings.Repeat("{},", 600_000) + `{}]}`),
		"no domain": strings.Replace(tlsSample, `"policy-domain":"y.com",`, "", 1),
	} {
		if got, err := Read([]byte(packed)); !errors.Is(err, reportfile.ErrReport) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// FuzzRead holds reports of strangers to their bounds.
func FuzzRead(f *testing.F) {
	f.Add([]byte(tlsSample))
	f.Add([]byte(gzipped(tlsSample)))
	f.Fuzz(func(t *testing.T, packed []byte) {
		r, err := Read(packed)
		if err != nil {
			if !errors.Is(err, reportfile.ErrReport) {
				t.Error(err)
			}
			return
		}
		if len(r.Policies) > MaxPolicies || len(r.Org) > reportfile.MaxText || r.ID == "" {
			t.Errorf("%+v", r)
		}
	})
}
