package dnsprov

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// atProvider is one of the providers at which records are written by an API.
const atProvider = "cloudflare"

func testSpec() Spec {
	return Spec{
		Domain: "example.test", MailHost: "mail.host.test", Nameservers: []string{"ns1.host.test", "ns2.host.test"},
		IPv4: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, IPv6: []netip.Addr{netip.MustParseAddr("2001:db8::1")},
		DKIM: []DKIMKey{{"r1", "v=DKIM1; k=rsa; p=AAAA"}, {"e1", "v=DKIM1; k=ed25519; p=BBBB"}},
	}
}

// lines writes one record per line, for comparison.
func lines(records []Record) []string {
	var out []string
	for _, r := range records {
		out = append(out, fmt.Sprintf("%s %s %d %s [%s critical=%v]", r.Name, r.Type, r.Priority, r.Value, r.Purpose, r.Critical))
	}
	return out
}

func TestWantedRecordsOfABuiltinDomain(t *testing.T) {
	s := testSpec()
	s.Custom = []Record{{Name: "www.example.test", Type: "CNAME", Value: "example.test", TTL: 300, Critical: true}}
	want := []string{
		"example.test NS 0 ns1.host.test [NS critical=true]",
		"example.test NS 0 ns2.host.test [NS critical=true]",
		"example.test A 0 192.0.2.1 [A critical=true]",
		"example.test AAAA 0 2001:db8::1 [A critical=true]",
		"example.test MX 10 mail.host.test [MX critical=true]",
		"example.test TXT 0 v=spf1 mx ip4:192.0.2.1 ip6:2001:db8::1 ~all [SPF critical=true]",
		"r1._domainkey.example.test TXT 0 v=DKIM1; k=rsa; p=AAAA [DKIM critical=true]",
		"e1._domainkey.example.test TXT 0 v=DKIM1; k=ed25519; p=BBBB [DKIM critical=true]",
		"_dmarc.example.test TXT 0 v=DMARC1; p=reject [DMARC critical=false]",
		"www.example.test CNAME 0 example.test [CUSTOM critical=false]",
	}
	if got := lines(Wanted(s, Builtin)); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := lines(Wanted(s, "manual")); !slices.Equal(got, want[2:]) {
		t.Errorf("manual: got\n%s\nwant the same without NS", strings.Join(got, "\n"))
	}
}

func TestWantedKeepsTheDMARCOverride(t *testing.T) {
	s := testSpec()
	s.DMARC = "v=DMARC1; p=none"
	got := lines(Wanted(s, "manual"))
	if !slices.Contains(got, "_dmarc.example.test TXT 0 v=DMARC1; p=none [DMARC critical=false]") {
		t.Errorf("no override in %q", got)
	}
}

// Only our own zone can contain the addresses of our own hosts that are inside it.
func TestWantedGivesAddressesOfOwnHostsInsideTheZone(t *testing.T) {
	s := testSpec()
	s.Domain, s.IPv6 = "host.test", nil
	var hosts []string
	for _, r := range Wanted(s, Builtin) {
		if r.Type == "A" {
			hosts = append(hosts, r.Name)
		}
	}
	want := []string{"host.test", "mail.host.test", "ns1.host.test", "ns2.host.test"}
	if !slices.Equal(hosts, want) {
		t.Errorf("addresses for %v, want %v", hosts, want)
	}
	s.Domain = "ost.test" // a suffix of the letters, not of the labels
	for _, r := range Wanted(s, Builtin) {
		if r.Type == "A" && r.Name != "ost.test" {
			t.Errorf("address of %s in the zone of ost.test", r.Name)
		}
	}
}

func TestManagedRecordsCannotBeOverridden(t *testing.T) {
	s := testSpec()
	s.Custom = []Record{{Name: "www.example.test", Type: "A", Value: "192.0.2.9"}}
	wanted := Wanted(s, Builtin)
	for _, tc := range []struct {
		name, typ, value string
		want             bool
	}{
		{"example.test", "MX", "other.test", true},
		{"example.test", "A", "192.0.2.7", true},
		{"Example.Test.", "A", "192.0.2.7", true},
		{"example.test", "TXT", "v=spf1 -all", true},
		{"example.test", "TXT", `"v=SPF1 -all"`, true},
		{"example.test", "TXT", "v=spf1", true},
		{"example.test", "TXT", "v=spf10 is another thing", false},
		{"example.test", "TXT", "google-site-verification=1", false},
		{"_dmarc.example.test", "TXT", "anything", true},
		{"_dmarc.example.test", "CNAME", "other.test", true},
		{"_dmarc.example.test", "A", "192.0.2.7", true},
		{"r1._domainkey.example.test", "TXT", "x", true},
		{"r1._domainkey.example.test", "CNAME", "other.test", true},
		{"r2._domainkey.example.test", "TXT", "x", false},
		{"www.example.test", "A", "192.0.2.7", false},
		{"sub.example.test", "TXT", "v=spf1 -all", false},
		{"example.test", "NS", "ns.other.test", true},
		{"_domainkey.example.test", "NS", "ns.other.test", true},
		{"_dmarc.example.test", "NS", "ns.other.test", true},
		{"dmarc.example.test", "NS", "ns.other.test", false},
	} {
		if got := CollidesWithManaged(wanted, tc.name, tc.typ, tc.value); got != tc.want {
			t.Errorf("Managed(%s %s %q) = %v, want %v", tc.name, tc.typ, tc.value, got, tc.want)
		}
	}
}

func TestTextsCompareUnquoted(t *testing.T) {
	for in, want := range map[string]string{
		`plain`:                `plain`,
		`"one" "two"`:          `onetwo`,
		`"a\"b\\c"`:            `a"b\c`,
		`"\195\164"`:           `ä`,
		`"\999"`:               `999`,
		`"open`:                `"open`,
		`"one" rest`:           `"one" rest`,
		`say "hello"`:          `say "hello"`,
		`""`:                   ``,
		`"`:                    `"`,
		`"ends in escape\`:     `"ends in escape\`,
		`"tab"` + "\t" + `"s"`: `tabs`,
	} {
		if got := unquote(in); got != want {
			t.Errorf("unquote(%s) = %q, want %q", in, got, want)
		}
	}
}
