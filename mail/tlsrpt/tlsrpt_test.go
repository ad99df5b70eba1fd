package tlsrpt

import (
	"bytes"
	"compress/gzip"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseRecord(t *testing.T) {
	for _, tc := range []struct {
		texts []string
		want  []string
	}{
		{[]string{"v=TLSRPTv1; rua=mailto:reports@example.com"}, []string{"mailto:reports@example.com"}},
		{[]string{"x", "v=TLSRPTv1;rua=mailto:a@b.c , https://r.example/v1 ;"}, []string{"mailto:a@b.c", "https://r.example/v1"}},
		{[]string{"v=TLSRPTv1; rua=http://r.example/, ftp://x, mailto:nobody, https://u:p@r.example/"}, nil},
		{[]string{"v=TLSRPTv1; rua=mailto:a@b.c", "v=TLSRPTv1; rua=mailto:a@b.c"}, nil},
		{[]string{"v=TLSRPTv2; rua=mailto:a@b.c"}, nil},
		{[]string{"v=TLSRPTv1;"}, nil},
		{[]string{"v=TLSRPTv1; rua=" + strings.Repeat("mailto:a@b.c,", 20)}, slices.Repeat([]string{"mailto:a@b.c"}, maxTargets)},
	} {
		if got := ParseRecord(tc.texts); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, want %q", tc.texts, got, tc.want)
		}
	}
	for target, want := range map[string]string{"mailto:a%2Bb@c.d?subject=x": "a+b@c.d", "https://x/": "", "mailto:%zz@b": ""} {
		if got := Mailbox(target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}

func TestReportSurvivesItsWay(t *testing.T) {
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	r := &Report{
		Org: "us", Begin: day, End: day.Add(24*time.Hour - time.Second), Contact: "postmaster@us.example", ID: "1@us.example",
		Policies: []Policy{{
			PolicySTS, "them.example", []string{"version: STSv1"}, []string{"mx.them.example"}, 5, 2,
			[]Failure{{Result: NotTrusted, MXHost: "mx.them.example", ReceivingIP: "192.0.2.1", Sessions: 2, Reason: "why"}},
		}},
	}
	packed, err := r.Gzip()
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
	if again, err := Read(packed); err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("%+v, %v", again, err)
	}
	want := `{"organization-name":"us","date-range":{"start-datetime":"2026-11-20T00:00:00Z","end-datetime":"2026-11-20T23:59:59Z"},` +
		`"contact-info":"postmaster@us.example","report-id":"1@us.example","policies":[{"policy":{"policy-type":"sts",` +
		`"policy-string":["version: STSv1"],"policy-domain":"them.example","mx-host":["mx.them.example"]},` +
		`"summary":{"total-successful-session-count":5,"total-failure-session-count":2},"failure-details":[{"result-type":` +
		`"certificate-not-trusted","receiving-mx-hostname":"mx.them.example","receiving-ip":"192.0.2.1","failed-session-count":2,` +
		`"failure-reason-code":"why"}]}]}` + "\n"
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add("v=TLSRPTv1; rua=mailto:a@b.c,https://x/")
	f.Fuzz(func(t *testing.T, text string) {
		for _, target := range ParseRecord([]string{text}) {
			if !strings.HasPrefix(strings.ToLower(target), "mailto:") && !strings.HasPrefix(strings.ToLower(target), "https:") {
				t.Errorf("%q", target)
			}
			Mailbox(target)
		}
	})
}
