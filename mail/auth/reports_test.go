package auth

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/dmarc"
)

func TestReportTargets(t *testing.T) {
	dns := &fakeDNS{t: t, servers: map[string]bool{"x.com._report._dmarc.down.org": true}, txt: map[string][]string{
		"_dmarc.x.com":                    {"v=DMARC1; p=none"},
		"x.com._report._dmarc.third.org":  {"v=DMARC1"},
		"x.com._report._dmarc.moved.org":  {"hello", "v=DMARC1; rua=mailto:other@moved.org!1k,mailto:you@victim.org"},
		"x.com._report._dmarc.other.org":  {"v=spf1 -all"},
		"y.com._report._dmarc.wrong.org":  {"v=DMARC1"},
		"x.com._report._dmarc.a.co.uk":    {"v=DMARC1;"},
		"*._report._dmarc.literally.org":  {"v=DMARC1"},
		"x.com._report._dmarc.anyone.org": {"v=DMARC1; p=none"},
	}}
	for _, tc := range []struct {
		rua        string
		want       string
		incomplete bool
	}{
		{"mailto:d@x.com", "d@x.com 0", false},
		{"mailto:d@reports.x.com!10m", "d@reports.x.com 10485760", false},
		{"mailto:d@x.com,mailto:e@x.com!5K", "d@x.com 0, e@x.com 5120", false},
		{"mailto:d@third.org", "d@third.org 0", false},
		{"mailto:d@moved.org", "other@moved.org 1024", false},
		{"mailto:d@other.org", "", false},
		{"mailto:d@wrong.org", "", false},
		{"mailto:d@literally.org", "", false},
		{"mailto:d@anyone.org", "d@anyone.org 0", false},
		{"mailto:d@A.co.UK", "d@a.co.uk 0", false},
		{"mailto:d@b.co.uk", "", false},
		{"mailto:d@down.org,mailto:d@x.com", "d@x.com 0", true},
		{"https://x.com/report, ftp://x.com", "", false},
		{"mailto:d%2Be@x.com", "d+e@x.com 0", false},
		{"mailto:d@x.com!10q", "", false},
		{"mailto:d@x.com!99999999t", "d@x.com 0", false},
		{"mailto:d@x.com%0d%0aBcc:evil@x.com, mailto:a%20b@x.com, mailto:%22@x.com, mailto:@x.com, mailto:x", "", false},
		{strings.Repeat("mailto:d@x.com,", 30), "d@x.com 0, d@x.com 0, d@x.com 0, d@x.com 0, d@x.com 0", false},
	} {
		rec, err := dmarc.Parse("v=DMARC1; p=none; rua=" + tc.rua)
		if err != nil {
			t.Fatal(err)
		}
		targets, incomplete := (&Verifier{Resolver: dns}).ReportTargets(t.Context(), "x.com", rec.Reports)
		var got []string
		for _, one := range targets {
			got = append(got, fmt.Sprint(one.Address, " ", one.Most))
		}
		if strings.Join(got, ", ") != tc.want || incomplete != tc.incomplete {
			t.Errorf("%s: %q, %v; want %q, %v", tc.rua, got, incomplete, tc.want, tc.incomplete)
		}
	}
}

func TestChainsThatVouch(t *testing.T) {
	for results, want := range map[string]bool{
		" i=1; list.org; dmarc=pass header.from=x.com":                                 true,
		" i=1; list.org 1; dmarc=pass (p=reject dis=none) header.from=x.com; spf=fail": true,
		" i=2; list.org;\r\n\tdkim=pass\r\n\theader.i=@m.x.com; dmarc=none":            true,
		" i=2; list.org; dkim=pass header.d=\"x.com\"":                                 true,
		" i=2; list.org; spf=pass smtp.mailfrom=bounce@x.com":                          true,
		" i=2; list.org; SPF=Pass SMTP.MailFrom=X.com":                                 true,
		" i=1; list.org; dmarc=fail header.from=x.com":                                 false,
		" i=1; list.org; dmarc=pass header.from=y.com":                                 false,
		" i=1; list.org; dmarc=pass":                                                   false,
		" i=1; list.org; dkim=pass header.d=list.org; dmarc=fail header.from=x.com":    false,
		" i=1; list.org; spf=pass smtp.helo=x.com":                                     false,
		" i=1; dmarc=pass header.from=x.com":                                           false,
		" i=1; list.org; dkim=fail reason=\"; dmarc=pass header.from=x.com\"":          false,
		" i=1; list.org; dkim=fail (; dmarc=pass header.from=x.com)":                   false,
		" i=1; list.org; dkim=fail (\\); dmarc=pass header.from=x.com)":                false,
		" i=1; list.org; dkim=fail (x; dmarc=pass header.from=x.com":                   false,
		" i=1; list.org; dkim=fail reason=\"a\\\"; dmarc=pass header.from=x.com; x=\"": false,
		"": false,
	} {
		if got := (Chain{Result: Pass, results: results}).AttestsDMARC("x.com"); got != want {
			t.Errorf("%q: %v", results, got)
		}
		if (Chain{Result: Fail, results: results}).AttestsDMARC("x.com") || (Chain{Result: Pass, results: results}).AttestsDMARC("") {
			t.Errorf("%q vouches when it may not", results)
		}
	}
	keys := newTestKeys(t)
	sealed := forward(t, keys, messages()["plain"])
	if v := verifyARC(t, keys, sealed); v.ARC.Result != Pass || slices.Contains([]string{"", " "}, v.ARC.results) {
		t.Errorf("the newest set says %q", v.ARC.results)
	}
}

// FuzzReportURI holds what strangers publish to what an address and a size may be.
func FuzzReportURI(f *testing.F) {
	for _, uri := range []string{"mailto:d@x.com!10m", "mailto:d%2Be@x.com", "mailto:a@b!1", "https://x.com/"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		target, ok := parseReportURI(uri)
		if ok && (strings.ContainsAny(target.Address, " \t\r\n<>,;\"") || strings.Count(target.Address, "@") != 1 || target.Most < 0) {
			t.Errorf("%q gives %+v", uri, target)
		}
	})
}

// FuzzAttestsDMARC has what others have sealed read.
func FuzzAttestsDMARC(f *testing.F) {
	f.Add(" i=1; list.org; dmarc=pass (p=reject) header.from=x.com; dkim=fail reason=\"x\"")
	f.Fuzz(func(t *testing.T, results string) {
		if isASCII(results) && (Chain{Result: Pass, results: results}).AttestsDMARC("x.com") && !strings.Contains(strings.ToLower(results), "x.com") {
			t.Errorf("%q vouches for x.com", results)
		}
	})
}
