package dnsprov

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// wideSpec has everything that a host can offer.
func wideSpec() Spec {
	s := testSpec()
	s.IPv6, s.DKIM = nil, nil
	s.RedirectWWW, s.HTTPS, s.CAA = true, true, "ca.test"
	s.Submission, s.Submissions, s.IMAPS = 587, 465, 993
	return s
}

// names writes records as "type name value", without those that every domain has.
func names(records []Record) []string {
	var out []string
	for _, r := range records {
		if !r.Critical && r.Purpose != PurposeDMARC && r.Purpose != PurposeCustom {
			out = append(out, strings.TrimSuffix(r.Type+" "+strings.TrimSuffix(r.Name, ".example.test")+" "+r.Text(), " 192.0.2.1"))
		}
	}
	return out
}

func TestWantedOptionalRecords(t *testing.T) {
	id := stsID("version: STSv1\r\nmode: enforce\r\nmx: mail.host.test\r\nmax_age: 604800\r\n")
	www := []string{"A www"}
	hosts := []string{
		"TXT _mta-sts v=STSv1; id=" + id, "A mta-sts", "TXT _smtp._tls v=TLSRPTv1; rua=mailto:postmaster@example.test", "A autoconfig", "A autodiscover",
	}
	services := []string{
		"SRV _submissions._tcp 0 1 465 mail.host.test", "SRV _submission._tcp 10 1 587 mail.host.test", "SRV _imaps._tcp 0 1 993 mail.host.test",
		"SRV _imap._tcp 0 0 0 .", "SRV _autodiscover._tcp 0 1 443 mail.host.test",
	}
	certified := []string{hosts[0], hosts[1], `CAA mta-sts 0 issue "ca.test"`, hosts[2], hosts[3], `CAA autoconfig 0 issue "ca.test"`, hosts[4], `CAA autodiscover 0 issue "ca.test"`}
	for provider, want := range map[string][]string{
		Builtin:    slices.Concat(www, certified, services),
		atProvider: slices.Concat([]string{"A example.test"}, www, hosts, services[:3], services[4:]),
		Manual:     slices.Concat(www, hosts),
	} {
		if got := names(Wanted(wideSpec(), provider)); !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", provider, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestWhatIsOffIsNotWanted(t *testing.T) {
	s := testSpec()
	s.Apex.Elsewhere = true
	if got := names(Wanted(s, Builtin)); got != nil {
		t.Errorf("without HTTPS, redirect and ports there is %q", got)
	}
	for _, r := range Wanted(s, atProvider) {
		if r.Type == "A" || r.Type == "AAAA" {
			t.Errorf("the edge has, for a website elsewhere, %+v", r)
		}
	}
	s.HTTPS, s.HTTPSPort = true, 8443
	if got := names(Wanted(s, Builtin)); got[len(got)-1] != "SRV _autodiscover._tcp 0 1 8443 mail.host.test" {
		t.Errorf("%q", got)
	}
}

// The id changes exactly when the policy does.
func TestPolicyIDFollowsThePolicy(t *testing.T) {
	one, other := stsID(STSPolicy("mail.a.test")), stsID(STSPolicy("mail.b.test"))
	if one == other || len(one) != 32 || stsID(STSPolicy("Mail.A.test.")) != one {
		t.Errorf("%s, %s", one, other)
	}
}

// The owner's own records displace optional records, with their whole groups.
func TestCustomRecordsWinOverOptionalOnes(t *testing.T) {
	for _, tc := range []struct {
		name, typ string
		gone      []string // prefixes of what is not wanted any more
	}{
		{"www", "CNAME", []string{"A www"}},
		{"www", "AAAA", []string{"A www"}},
		{"www", "TXT", nil},
		{"autoconfig", "CNAME", []string{"A autoconfig", "CAA autoconfig"}},
		{"mta-sts", "A", []string{"TXT _mta-sts", "A mta-sts", "CAA mta-sts"}},
		{"_mta-sts", "TXT", []string{"TXT _mta-sts", "A mta-sts", "CAA mta-sts"}},
		{"_smtp._tls", "TXT", []string{"TXT _smtp._tls"}},
		{"_imaps._tcp", "CNAME", []string{"SRV _imaps"}},
		{"_imaps._tcp", "SRV", []string{"SRV _imaps"}},
		{"_tcp", "NS", []string{"SRV _"}},
		{"autoconfig", "NS", []string{"A autoconfig", "CAA autoconfig"}},
		{"autoconfig", "MX", nil},
	} {
		s := wideSpec()
		all := names(Wanted(s, Builtin))
		s.Custom = []Record{{Name: tc.name + ".example.test", Type: tc.typ, Value: "x"}}
		wanted := Wanted(s, Builtin)
		want := slices.DeleteFunc(all, func(line string) bool {
			return slices.ContainsFunc(tc.gone, func(p string) bool { return strings.HasPrefix(line, p) })
		})
		if got := names(wanted); !slices.Equal(got, want) {
			t.Errorf("%s %s: got\n%s\nwant\n%s", tc.name, tc.typ, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if CollidesWithManaged(wanted, tc.name+".example.test", tc.typ, "x") {
			t.Errorf("%s %s: the owner cannot change it any more", tc.name, tc.typ)
		}
		settings := tc.name == "autoconfig" || strings.HasSuffix(tc.name, "_tcp")
		refused := tc.gone != nil && !settings || tc.typ == "NS"
		if got := CollidesWithManaged(Wanted(wideSpec(), Builtin), tc.name+".example.test", tc.typ, "x"); got != refused {
			t.Errorf("%s %s: a new one is refused: %v", tc.name, tc.typ, got)
		}
	}
}

func TestHostBelowTheDomainIsNotWantedTwice(t *testing.T) {
	s := wideSpec()
	s.MailHost = "www.example.test"
	n := 0
	for _, r := range Wanted(s, Builtin) {
		if r.Name == s.MailHost && isAddress(r.Type) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d records of %s", n, s.MailHost)
	}
}

// TestMailHostHasSPFInItsZone: mail that the host sends in its own name, without a sender, passes
// SPF. A record of the owner replaces ours, and other texts can be at the same name.
func TestMailHostHasSPFInItsZone(t *testing.T) {
	host := func(typ, value string) Record {
		return Record{Name: "mail.example.test", Type: typ, Value: value}
	}
	for _, tc := range []struct {
		about    string
		change   func(*Spec)
		provider string
		want     string
	}{
		{"below the domain", func(*Spec) {}, Builtin, "v=spf1 a -all"},
		{"sending from elsewhere", func(s *Spec) { s.SendFrom = []netip.Addr{netip.MustParseAddr("192.0.2.7")} }, Builtin, "v=spf1 a ip4:192.0.2.7 -all"},
		{"another text", func(s *Spec) { s.Custom = []Record{host("TXT", "hello")} }, Builtin, "v=spf1 a -all"},
		{"the owner's own", func(s *Spec) { s.Custom = []Record{host("TXT", "v=spf1 mx -all")} }, Builtin, ""},
		{"another's", func(s *Spec) { s.MailHost = "mail.anexample.test" }, Builtin, ""},
		{"by hand", func(*Spec) {}, Manual, ""},
	} {
		s := testSpec()
		s.MailHost, s.SendFrom = "mail.example.test", nil
		tc.change(&s)
		got := ""
		for _, r := range Wanted(s, tc.provider) {
			if r.Type == "TXT" && r.Name == "mail.example.test" && r.Purpose == PurposeSPF {
				got += r.Value
			}
		}
		if got != tc.want {
			t.Errorf("%s: have %q, want %q", tc.about, got, tc.want)
		}
	}
}

// TestKeysOfTheMailHostAreInItsZoneOnly: only our own zone can publish a key before it is used.
func TestKeysOfTheMailHostAreInItsZoneOnly(t *testing.T) {
	keys := func(change func(*Spec), provider string) []string {
		s := testSpec()
		s.MailHost, s.MailKeys = "mail.example.test", []string{"aa", "bb"}
		change(&s)
		var out []string
		for _, r := range Wanted(s, provider) {
			if r.Type == "TLSA" {
				out = append(out, r.Name+" "+r.Value)
			}
		}
		return out
	}
	alias := Record{Name: "_25._tcp.mail.example.test", Type: "CNAME", Value: "x.test"}
	for _, tc := range []struct {
		about    string
		change   func(*Spec)
		provider string
		want     []string
	}{
		{"below the domain", func(*Spec) {}, Builtin, []string{"_25._tcp.mail.example.test 3 1 1 aa", "_25._tcp.mail.example.test 3 1 1 bb"}},
		{"the domain itself", func(s *Spec) { s.MailHost = "Example.test." }, Builtin, []string{"_25._tcp.example.test 3 1 1 aa", "_25._tcp.example.test 3 1 1 bb"}},
		{"another's", func(s *Spec) { s.MailHost = "mail.anexample.test" }, Builtin, nil},
		{"the edge", func(*Spec) {}, atProvider, nil},
		{"by hand", func(*Spec) {}, Manual, nil},
		{"an alias of the owner's", func(s *Spec) { s.Custom = []Record{alias} }, Builtin, nil},
	} {
		if got := keys(tc.change, tc.provider); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q", tc.about, got)
		}
	}
}

func TestChallengesAreInOurZoneOnly(t *testing.T) {
	s := testSpec()
	s.Challenges = []Record{{Name: "_acme-challenge.example.test", Type: "TXT", Value: "token"}}
	count := func(provider string) (n int) {
		for _, r := range Wanted(s, provider) {
			if r.Purpose == PurposeACME {
				n++
			}
		}
		return n
	}
	if count(Builtin) != 1 || count(Manual) != 0 {
		t.Errorf("builtin %d, manual %d", count(Builtin), count(Manual))
	}
	if CollidesWithManaged(Wanted(s, Builtin), "_acme-challenge.example.test", "TXT", "x") {
		t.Error("the owner's own challenge is refused")
	}
	s.Custom = []Record{{Name: "_acme-challenge.example.test", Type: "CNAME", Value: "x.test"}}
	if count(Builtin) != 0 {
		t.Error("a challenge beside an alias")
	}
}

func TestVerifyOptionalRecords(t *testing.T) {
	s := wideSpec()
	s.Domain = "a.test"
	find := func(purpose, typ string) Record {
		i := slices.IndexFunc(Wanted(s, Builtin), func(r Record) bool { return r.Purpose == purpose && r.Type == typ && !strings.HasSuffix(r.Value, ".") })
		return Wanted(s, Builtin)[i]
	}
	sts, rpt, srv, host := find(PurposeMTASTS, "TXT"), find(PurposeTLSRPT, "TXT"), find(PurposeAutoconfig, "SRV"), find(PurposeMTASTS, "A")
	off := Record{Name: "_imap._tcp.a.test", Type: "SRV", Value: ".", Purpose: PurposeAutoconfig}
	for _, tc := range []struct {
		name   string
		want   Record
		there  zoneFile
		err    string
		actual string
	}{
		{"STS", sts, zoneFile{"TXT _mta-sts.a.test.": {"note", sts.Value + ";"}}, "", sts.Value + ";"},
		{"old STS", sts, zoneFile{"TXT _mta-sts.a.test.": {"v=STSv1; id=1"}}, Mismatch, "v=STSv1; id=1"},
		{"STS twice", sts, zoneFile{"TXT _mta-sts.a.test.": {sts.Value, sts.Value}}, Mismatch, sts.Value + ", " + sts.Value},
		{"no STS", sts, zoneFile{"TXT _mta-sts.a.test.": {"v=spf1"}}, Missing, ""},
		{"STS host", host, zoneFile{"ip4 mta-sts.a.test.": {"192.0.2.1"}}, "", "192.0.2.1"},
		{"STS host elsewhere", host, zoneFile{"ip4 mta-sts.a.test.": {"192.0.2.2"}}, Mismatch, "192.0.2.2"},
		{"reports to others", rpt, zoneFile{"TXT _smtp._tls.a.test.": {"v=TLSRPTv1;rua=https://x.test/r"}}, "", "v=TLSRPTv1;rua=https://x.test/r"},
		{"reports to nobody", rpt, zoneFile{"TXT _smtp._tls.a.test.": {"v=TLSRPTv1; rua="}}, Mismatch, "v=TLSRPTv1; rua="},
		{"SRV", srv, zoneFile{"SRV _submissions._tcp.a.test.": {"7 0 465 Mail.Host.test."}}, "", "7 0 465 mail.host.test"},
		{"SRV to another port", srv, zoneFile{"SRV _submissions._tcp.a.test.": {"0 1 466 mail.host.test."}}, Mismatch, "0 1 466 mail.host.test"},
		{"no SRV", srv, zoneFile{}, Missing, ""},
		{"SRV servfail", srv, zoneFile{"SRV _submissions._tcp.a.test.": {"SERVFAIL"}}, LookupFailed, ""},
		{"SRV of what is off", off, zoneFile{"SRV _imap._tcp.a.test.": {"0 0 0 ."}}, "", "0 0 0 ."},
	} {
		got := Verify(t.Context(), tc.there, []Record{tc.want})[0]
		if got.Error != tc.err || got.Actual != tc.actual || got.Verified != (tc.err == "") {
			t.Errorf("%s: verified=%v error=%q actual=%q", tc.name, got.Verified, got.Error, got.Actual)
		}
	}
}
