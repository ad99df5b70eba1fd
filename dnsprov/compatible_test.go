package dnsprov

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// conflicts returns the foreign records in an error of Compatible.
func conflicts(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("not joined: %v", err)
	}
	var out []string
	for _, e := range joined.Unwrap() {
		var c *Conflict
		if !errors.As(e, &c) {
			t.Fatalf("not a conflict: %v", e)
		}
		out = append(out, c.Have.Type+" "+c.Have.Value)
	}
	return out
}

// fitWants holds records of every kind, under their names in the tests.
type fitWants struct {
	mx, spf, dkim, dmarc, apex, apex6, www, sts, stsHost, auto, srv, custom, text Record
}

func newFitWants() fitWants {
	const domain = "a.test"
	rec := func(name, typ, value, purpose string) Record {
		critical := purpose == PurposeMX || purpose == PurposeSPF || purpose == PurposeDKIM
		return Record{Name: name, Type: typ, Value: value, Purpose: purpose, TTL: 300, Critical: critical}
	}
	w := fitWants{
		mx:      rec(domain, "MX", "mail.host.test", PurposeMX),
		spf:     rec(domain, "TXT", "v=spf1 mx ip4:192.0.2.1 ~all", PurposeSPF),
		dkim:    rec("s._domainkey.a.test", "TXT", "v=DKIM1; k=rsa; p=AAAA", PurposeDKIM),
		dmarc:   rec("_dmarc.a.test", "TXT", "v=DMARC1; p=reject", PurposeDMARC),
		apex:    rec(domain, "A", "192.0.2.1", PurposeA),
		apex6:   rec(domain, "AAAA", "2001:db8::1", PurposeA),
		www:     rec("www.a.test", "A", "192.0.2.1", PurposeA),
		sts:     rec("_mta-sts.a.test", "TXT", "v=STSv1; id=1", PurposeMTASTS),
		stsHost: rec("mta-sts.a.test", "A", "192.0.2.1", PurposeMTASTS),
		auto:    rec("autoconfig.a.test", "A", "192.0.2.1", PurposeAutoconfig),
		srv:     rec("_imaps._tcp.a.test", "SRV", "mail.host.test", PurposeAutoconfig),
		custom:  rec("shop.a.test", "CNAME", "shop.test", PurposeCustom),
		text:    rec(domain, "TXT", "owner=1", PurposeCustom),
	}
	w.mx.Priority = 10
	return w
}

func (w fitWants) all() []Record {
	return []Record{w.mx, w.spf, w.dkim, w.dmarc, w.apex, w.apex6, w.www, w.sts, w.stsHost, w.auto, w.srv, w.custom, w.text}
}

// fitCase is a zone, with the wanted records that cannot be added to it.
type fitCase struct {
	name string
	have []Record
	out  []Record // left out
	bad  []string // strangers in the place of others
}

// fitCases returns the cases for the domain a.test.
func fitCases(w fitWants) []fitCase {
	const domain = "a.test"
	theirs := func(name, typ, value string) Record { return Record{Name: name, Type: typ, Value: value, TTL: 60} }
	identical, old, here := w.mx, w.mx, w.custom
	identical.Purpose, old.Value, here.Type, here.Value = "", "old.test", "A", "192.0.2.9"
	return []fitCase{
		{"an empty zone", nil, nil, nil},
		{"ours are in nobody's way", []Record{old, here}, nil, nil},
		{"an identical record", []Record{identical}, nil, nil},
		{"other texts at the apex", []Record{theirs(domain, "TXT", "google-site-verification=1"), theirs("_dmarc.a.test", "TXT", "note")}, nil, nil},
		{"MX of other names", []Record{theirs("sub.a.test", "MX", "other.test"), theirs("test", "MX", "other.test")}, nil, nil},
		{"each MX is named", []Record{theirs(domain, "MX", "mx1.test"), theirs(domain, "MX", "mx2.test")}, nil, []string{"MX mx1.test", "MX mx2.test"}},
		{"our host with another priority", []Record{theirs(domain, "MX", "mail.host.test")}, nil, []string{"MX mail.host.test"}},
		{"another SPF", []Record{theirs(domain, "TXT", `"v=spf1 include:other.test -all"`)}, nil, []string{`TXT "v=spf1 include:other.test -all"`}},
		{"a merged SPF", []Record{theirs(domain, "TXT", `"v=spf1 mx include:other.test -all"`)}, []Record{w.spf}, nil},
		{"two SPF", []Record{theirs(domain, "TXT", "v=spf1 mx -all"), theirs(domain, "TXT", "v=spf1 mx ?all")}, nil, []string{"TXT v=spf1 mx -all", "TXT v=spf1 mx ?all"}},
		{"another policy", []Record{theirs("_dmarc.a.test", "TXT", "v=DMARC1; p=none")}, []Record{w.dmarc}, nil},
		{"two policies", []Record{theirs("_dmarc.a.test", "TXT", "v=DMARC1; p=none"), theirs("_dmarc.a.test", "TXT", "v=DMARC1; p=reject; sp=none")}, []Record{w.dmarc}, nil},
		{"a policy behind an alias", []Record{theirs("_dmarc.a.test", "CNAME", "a.test._d.dmarc.test")}, []Record{w.dmarc}, nil},
		{"our policy with reports", []Record{theirs("_dmarc.a.test", "TXT", "v=DMARC1; p=reject; rua=mailto:a@b.test")}, []Record{w.dmarc}, nil},
		{"another key", []Record{theirs("s._domainkey.a.test", "TXT", "v=DKIM1; p=BBBB")}, nil, []string{"TXT v=DKIM1; p=BBBB"}},
		{"an alias in the place of a key", []Record{theirs("s._domainkey.a.test", "CNAME", "s.other.test")}, nil, []string{"CNAME s.other.test"}},
		{"an alias at the apex is named once", []Record{theirs(domain, "CNAME", "site.test")}, nil, []string{"CNAME site.test"}},
		{"a website at the apex", []Record{theirs(domain, "A", "198.51.100.1")}, nil, []string{"A 198.51.100.1"}},
		{"a website at www", []Record{theirs("www.a.test", "CNAME", "site.test")}, []Record{w.www}, nil},
		{"the policy host is theirs", []Record{theirs("mta-sts.a.test", "AAAA", "2001:db8::9")}, []Record{w.sts, w.stsHost}, nil},
		{"settings elsewhere", []Record{theirs("AUTOCONFIG.a.test.", "CNAME", "ac.test"), theirs("_imaps._tcp.a.test", "SRV", "imap.test")}, []Record{w.auto, w.srv}, nil},
		{"an owner's alias where something is", []Record{theirs("shop.a.test", "TXT", "x")}, nil, []string{"TXT x"}},
		{"an owner's text beside others", []Record{theirs(domain, "TXT", "owner=2")}, nil, nil},
	}
}

func TestFit(t *testing.T) {
	w := newFitWants()
	all := w.all()
	for _, tc := range fitCases(w) {
		fits, err := Compatible(tc.have, all)
		if got := conflicts(t, err); !slices.Equal(got, tc.bad) {
			t.Errorf("%s: conflicts %q, want %q", tc.name, got, tc.bad)
		}
		var want []Record
		for _, r := range all {
			if !slices.Contains(tc.out, r) {
				want = append(want, r)
			}
		}
		if !slices.Equal(fits, want) {
			t.Errorf("%s: fits %v, want %v", tc.name, fits, want)
		}
		for _, c := range Plan(tc.have, fits) {
			if c.Have != nil && c.Have.Purpose == "" {
				t.Errorf("%s: the plan touches %v", tc.name, *c.Have)
			}
		}
	}
}

// TestFitWithoutVisitors: if no address of the domain is wanted, its website is left alone.
func TestFitWithoutVisitors(t *testing.T) {
	mx := Record{Name: "a.test", Type: "MX", Value: "mail.test", Purpose: PurposeMX, Critical: true}
	fits, err := Compatible([]Record{{Name: "a.test", Type: "A", Value: "198.51.100.1"}}, []Record{mx})
	if err != nil || !slices.Equal(fits, []Record{mx}) {
		t.Errorf("%v, %v", fits, err)
	}
}

func TestConflictNamesTheRecord(t *testing.T) {
	_, err := Compatible([]Record{{Name: "a.test", Type: "MX", Value: "theirs.test"}}, []Record{{Name: "a.test", Type: "MX", Value: "mail.test", Purpose: PurposeMX, Critical: true}})
	var c *Conflict
	if !errors.As(err, &c) || c.Want.Value != "mail.test" || !strings.Contains(err.Error(), `a.test MX "theirs.test"`) {
		t.Errorf("%v", err)
	}
}

// A flattened CNAME only excludes addresses.
func TestFitBesideAFlattenedAlias(t *testing.T) {
	s := testSpec()
	s.Apex.Elsewhere = true
	site := Record{Name: s.Domain, Type: Flattened, Value: "site.test"}
	want := Wanted(s, atProvider)
	if fits, err := Compatible([]Record{site}, want); err != nil || !slices.Equal(fits, want) {
		t.Errorf("fits %v, %v", fits, err)
	}
	s.Apex.Elsewhere, s.RedirectWWW = false, true
	var c *Conflict
	if _, err := Compatible([]Record{site}, Wanted(s, atProvider)); !errors.As(err, &c) || c.Have != site || c.Want.Purpose != PurposeA {
		t.Errorf("an address beside it: %v", err)
	}
}
