package zones_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/spf"
	"github.com/mailstead/mailstead/mail/spf/spftest"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// take imports a file, and returns the result and the code of the error.
func (w *zoneWorld) take(in zones.ImportZoneIn) (*zones.ZoneImported, string) {
	w.t.Helper()
	in.DomainID = w.id
	out, err := w.Zones.ImportZone(w.t.Context(), w.who, in)
	return out, codeOf(w.t, err)
}

// reasons returns the codes of the reasons for which records were skipped, by name and type.
func reasons(out *zones.ZoneImported) map[string]string {
	found := map[string]string{}
	for _, s := range out.Skipped {
		found[s.Name+" "+s.Type], _, _ = strings.Cut(s.Reason, ":")
	}
	return found
}

// oldZone is what a domain has at its DNS service of before.
const oldZone = `$ORIGIN own.test.
$TTL 7200
@ IN SOA ns1.old.test. hostmaster.old.test. 1 3600 600 604800 300
@ IN NS ns1.old.test.
@ IN MX 10 mx.old.test.
@ IN A 192.0.2.1
@ IN TXT "v=spf1 mx include:_spf.old.test -all"
@ IN TXT "site-verification=x"
www IN A 192.0.2.2
    IN A 192.0.2.3
shop 30 IN CNAME shops.example.net.
cdn IN A 104.16.0.1
bounce IN MX 10 feedback.example.net.
ms1._domainkey IN TXT "v=DKIM1; p=old"
s1._domainkey IN TXT "v=DKIM1; p=theirs"
_dmarc IN TXT "v=DMARC1; p=quarantine"
_mta-sts IN TXT "v=STSv1; id=1"
mta-sts IN A 192.0.2.4
_smtp._tls IN TXT "v=TLSRPTv1; rua=mailto:a@own.test"
autoconfig IN CNAME autoconfig.old.test.
loc IN LOC 52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m
sub IN NS ns1.sub.own.test.
ns1.sub IN A 192.0.2.5
other.test. IN A 192.0.2.6
`

// TestImportZone: own records come, what Mailstead keeps itself is skipped, SPF and DMARC are
// merged.
func TestImportZone(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	w.dns.Txt["_spf.old.test"] = "v=spf1 ip4:192.0.2.0/24 ~all"
	w.set("www", "A", "192.0.2.9")
	want := []string{`@ TXT 3600 "site-verification=x"`, "shop CNAME 60 shops.example.net", "bounce MX 7200 10 feedback.example.net", `s1._domainkey TXT 7200 "v=DKIM1; p=theirs"`,
		"autoconfig CNAME 7200 autoconfig.old.test", "sub NS 7200 ns1.sub.own.test", "ns1.sub A 7200 192.0.2.5"}
	wantSkipped := map[string]string{
		"@ SOA": "nameservers", "@ NS": "nameservers", "@ MX": "mx", "@ A": "here", "www A": "exists", "cdn A": "proxied", "ms1._domainkey TXT": "managed", "_mta-sts TXT": "managed",
		"mta-sts A": "managed", "_smtp._tls TXT": "managed", "loc LOC": "unknown_type", "other.test A": "outside",
	}
	for _, dry := range []bool{true, false} {
		out, code := w.take(zones.ImportZoneIn{ZoneFile: oldZone, DryRun: dry})
		if code != "" {
			t.Fatal(code)
		}
		if got := reasons(out); fmt.Sprint(got) != fmt.Sprint(wantSkipped) {
			t.Errorf("skipped %v, want %v", got, wantSkipped)
		}
		merged := map[string]string{}
		for _, m := range out.Merged {
			merged[m.Name] = m.Value
		}
		if len(merged) != 2 || merged["_dmarc"] != "v=DMARC1; p=quarantine" || !strings.HasPrefix(merged["@"], "v=spf1 mx ip4:127.0.0.1 ") || !strings.HasSuffix(merged["@"], " include:_spf.old.test -all") ||
			!strings.Contains(merged["@"], " a:mx.old.test ") {
			t.Errorf("merged %v", merged)
		}
		if out.Imported != len(want) || out.DryRun != dry {
			t.Errorf("imported %d, dry run %v", out.Imported, out.DryRun)
		}
		if dry {
			w.wantCustom("www A 300 192.0.2.9")
		}
	}
	w.wantCustom(append(want, "www A 300 192.0.2.9")...)
	d := w.domain()
	if d.DMARC != "v=DMARC1; p=quarantine" || d.SPF == nil || d.SPF.All != "-" || !slices.Equal(d.SPF.Extra, []string{"a:mx.old.test", "include:_spf.old.test"}) {
		t.Errorf("DMARC %q, SPF %+v", d.DMARC, d.SPF)
	}
	if out, code := w.take(zones.ImportZoneIn{ZoneFile: oldZone}); code != "" || out.Imported != 0 || len(out.Merged) != 0 || fmt.Sprint(reasons(out)) != fmt.Sprint(wantSkipped) {
		t.Errorf("imported twice: %+v, %s", out, code)
	}
	changes := w.changes()
	if len(changes) != 2 || changes[0].Kind != "import" || changes[0].Added != len(want) {
		t.Errorf("changes %+v", changes)
	}
	if code := w.undo(changes[0]); code != "" {
		t.Fatal(code)
	}
	w.wantCustom("www A 300 192.0.2.9")
	if d := w.domain(); d.DMARC != "" || len(zones.SPFOf(d).Extra) != 0 {
		t.Errorf("after the undo: DMARC %q, SPF %+v", d.DMARC, d.SPF)
	}
}

func (w *zoneWorld) domain() (d *store.Domain) {
	w.t.Helper()
	err := w.Core.Store.View(func(tx *store.Tx) (err error) {
		d, err = store.Domains.Get(tx, w.id)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// TestImportAsAsked: exclude, accept and replace.
func TestImportAsAsked(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	w.set("www", "A", "192.0.2.9")
	w.set("shop", "A", "192.0.2.9")
	w.set("stays", "A", "192.0.2.9")
	file := "www 300 IN A 192.0.2.1\nshop 300 IN CNAME a.example.net.\ncdn 300 IN A 104.16.0.1\ncdn 300 IN A 192.0.2.1\nno 300 IN A 192.0.2.1\nno 300 IN TXT x\n@ 300 IN TXT \"v=spf1 -all\"\n_dmarc 300 IN TXT \"v=DMARC1; p=none\"\n"
	out, code := w.take(zones.ImportZoneIn{
		ZoneFile: file, Replace: true, Accept: []string{"104.16.0.1"},
		Exclude: []zones.ZoneExclude{{Name: "no", Type: "TXT"}, {Name: "@"}, {Name: "_dmarc.own.test"}},
	})
	if code != "" {
		t.Fatal(code)
	}
	w.wantCustom("www A 300 192.0.2.1", "shop CNAME 300 a.example.net", "cdn A 300 104.16.0.1", "cdn A 300 192.0.2.1", "no A 300 192.0.2.1", "stays A 300 192.0.2.9")
	if want := map[string]string{"no TXT": "excluded", "@ TXT": "excluded", "_dmarc TXT": "excluded"}; fmt.Sprint(reasons(out)) != fmt.Sprint(want) || len(out.Merged) != 0 || out.Imported != 5 {
		t.Errorf("%+v", out)
	}
	if code := w.undo(w.changes()[0]); code != "" {
		t.Fatal(code)
	}
	w.wantCustom("www A 300 192.0.2.9", "shop A 300 192.0.2.9", "stays A 300 192.0.2.9")
}

// TestExcludedNames: a name that no custom record can have can be left out as the answers show it,
// and nothing else that is no name or no type.
func TestExcludedNames(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	const file = `Office\032Printer._ipp._tcp 300 IN TXT x
a\.b 300 IN A 192.0.2.1
-c 300 IN A 192.0.2.1
www 300 IN A 192.0.2.1
`
	for _, x := range []zones.ZoneExclude{{Name: "not there"}, {Name: "www", Type: strings.Repeat("A", 5000)}, {Name: "www", Type: "TYPE65536"}} {
		if _, code := w.take(zones.ImportZoneIn{ZoneFile: file, Exclude: []zones.ZoneExclude{x}}); code != "validation_error" {
			t.Errorf("%.60v: %q", x, code)
		}
	}
	if _, code := w.take(zones.ImportZoneIn{ZoneFile: file}); code != "invalid_record" {
		t.Errorf("without exclude: %q", code)
	}
	out, code := w.take(zones.ImportZoneIn{ZoneFile: file, Exclude: []zones.ZoneExclude{{Name: `Office\ Printer._ipp._tcp`}, {Name: `a\.b.own.test.`, Type: "a"}, {Name: "-c", Type: "TYPE1"}, {Name: "-c"}}})
	if code != "" {
		t.Fatal(code)
	}
	w.wantCustom("www A 300 192.0.2.1")
	if want := map[string]string{`office\ printer._ipp._tcp TXT`: "excluded", `a\.b A`: "excluded", "-c A": "excluded"}; fmt.Sprint(reasons(out)) != fmt.Sprint(want) {
		t.Errorf("skipped %v", reasons(out))
	}
}

// TestImportOfPolicies: what is there stays, and what cannot be read is not taken.
func TestImportOfPolicies(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	w.dns.Txt["policy.example.net"] = "v=DMARC1; p=none"
	for _, c := range []struct {
		file          string
		reason, dmarc string
	}{
		{"_dmarc 300 IN TXT \"v=DMARC1; p=strange\"\n", "invalid_dmarc", ""},
		{"_dmarc 300 IN TXT x\n", "managed", ""},
		{"_dmarc 300 IN CNAME nowhere.example.net.\n", "managed", ""},
		{"_dmarc 300 IN TXT \"v=DMARC1; p=none\"\n_dmarc 300 IN TXT \"v=DMARC1; p=reject\"\n", "invalid_dmarc", ""},
		{"_dmarc 300 IN CNAME policy.example.net.\n", "", "v=DMARC1; p=none"},
		{"_dmarc 300 IN TXT \"v=DMARC1; p=reject\"\n", "exists", "v=DMARC1; p=none"},
		{"_dmarc 300 IN TXT \"v=DMARC1; p=none\"\n", "", "v=DMARC1; p=none"},
	} {
		out, code := w.take(zones.ImportZoneIn{ZoneFile: c.file})
		if code != "" {
			t.Errorf("%q: %s", c.file, code)
			continue
		}
		got := ""
		for _, reason := range reasons(out) {
			got = reason
		}
		if d := w.domain(); got != c.reason || d.DMARC != c.dmarc {
			t.Errorf("%q: skipped for %q, and the policy is %q", c.file, got, d.DMARC)
		}
	}
	spf := "@ 300 IN TXT \"v=spf1"
	for i := range 12 {
		spf += fmt.Sprintf(" a:h%d.example.net", i)
	}
	out, code := w.take(zones.ImportZoneIn{ZoneFile: spf + " -all\"\nwww 300 IN A 192.0.2.1\n"})
	if code != "" || reasons(out)["@ TXT"] != "spf_too_many_lookups" || out.Imported != 1 {
		t.Errorf("%+v, %s", out, code)
	}
	w.dns.Txt["a.example.net"] = "v=spf1 -all"
	if out, code := w.take(zones.ImportZoneIn{ZoneFile: "@ 300 IN TXT \"v=spf1 include:a.example.net redirect=a.example.net\"\n"}); code != "" || len(out.Merged) != 1 || !strings.HasSuffix(out.Merged[0].Value, " redirect=a.example.net") {
		t.Errorf("%+v, %s", out, code)
	}
	if out, code := w.take(zones.ImportZoneIn{ZoneFile: "@ 300 IN TXT \"v=spf1 ip4:192.0.2.1 -all\"\n"}); code != "" || reasons(out)["@ TXT"] != "exists" {
		t.Errorf("%+v, %s", out, code)
	}
}

// An spfDNS answers questions for texts from a world of SPF records.
type spfDNS struct {
	*servicetest.FakeDNS
	world spftest.World
}

func (d *spfDNS) LookupTXT(ctx context.Context, name string) ([]string, error) {
	return d.world.LookupTXT(ctx, name)
}

// TestImportedSPFByTwoImplementations imports each record of spftest.Cases. Two implementations
// evaluate the record that is served then: our addresses pass, and what other addresses had from
// the records of before, they have from that one. Only its ending is never milder than ~all.
func TestImportedSPFByTwoImplementations(t *testing.T) {
	other, imports := spftest.StartPyspf(t), 0
	w := newZoneWorld(t, store.Options{})
	w.Core.Resolver = &spfDNS{w.dns, spftest.NewWorld(t, spftest.MXHosts)}
	w.id = servicetest.PutDomainRow(t, w.Service, w.who, spftest.Domain, store.DomainComplete).ID
	var ours []string
	for _, ip := range servicetest.TestIPs {
		ours = append(ours, ip.String())
	}
	for _, tc := range spftest.Cases {
		if _, err := w.Zones.ResetSPF(t.Context(), w.who, zones.ResetSPFIn{DomainID: w.id}); err != nil {
			t.Fatal(err)
		}
		var file strings.Builder
		for _, host := range spftest.MXHosts {
			fmt.Fprintf(&file, "@ 300 MX 10 %s.\n", strings.TrimSuffix(host, "."))
		}
		var there []string
		for _, text := range tc.Old {
			fmt.Fprintf(&file, "@ 300 TXT %q\n", text)
			if spf.IsRecord(text) {
				there = append(there, text)
			}
		}
		out, code := w.take(zones.ImportZoneIn{ZoneFile: file.String(), Replace: true})
		if why := reasons(out)["@ TXT"]; code != "" || why != "" && why != "spf_all" {
			t.Fatalf("%q: %s, skipped %v", tc.Old, code, out.Skipped)
		}
		served := w.servedSPF()
		if strings.Count(served, "v=spf1") != 1 || !strings.HasPrefix(served, "v=spf1 mx ") {
			t.Fatalf("%q became %q", tc.Old, served)
		}
		if len(there) > 0 {
			imports++
		}
		after := spftest.NewWorld(t, []string{"mail.ours.test"}, served)
		for i, theirs := range other.Evaluate(t, after, ours) {
			if result := after.Evaluate(t, ours[i]); result != "pass" || theirs != "pass" {
				t.Errorf("%q: our address %s has %s, and by pyspf %s", served, ours[i], result, theirs)
			}
		}
		for i, theirs := range other.Evaluate(t, after, spftest.Addresses) {
			address := spftest.Addresses[i]
			is := after.Evaluate(t, address)
			if is != theirs {
				t.Errorf("%q: %s has %s, and by pyspf %s", served, address, is, theirs)
			}
			var had []string
			for _, text := range there {
				had = append(had, spftest.NewWorld(t, spftest.MXHosts, text).Evaluate(t, address))
			}
			open := slices.Contains(there, "v=spf1 +all")
			hasEnd := len(there) == 1 && (strings.Contains(strings.ToLower(there[0]), "all") || strings.Contains(there[0], "redirect="))
			switch {
			case open || slices.Contains(had, "permerror"): // a malformed term is left out, and the others count
			case slices.Contains(had, "pass") != (is == "pass"), hasEnd && had[0] != is && (had[0] != "neutral" || is != "softfail"):
				t.Errorf("%q became %q: %s had %q and has %s", there, served, address, had, is)
			}
		}
	}
	if imports < 30 {
		t.Errorf("%d records were imported", imports)
	}
}

// servedSPF returns the texts of the domain itself that begin as an SPF record.
func (w *zoneWorld) servedSPF() string {
	w.t.Helper()
	out, err := w.Zones.GetZone(w.t.Context(), w.who, zones.GetZoneIn{DomainID: w.id})
	if err != nil {
		w.t.Fatal(err)
	}
	var texts []string
	for _, set := range out.Zone.Records {
		for _, value := range set.Values {
			if text := dnsprov.UnquoteText(value); set.Name == "@" && set.Type == "TXT" && spf.IsRecord(text) {
				texts = append(texts, text)
			}
		}
	}
	return strings.Join(texts, "\n")
}

// TestImportAllOrNothing: one set that cannot be, or a file that cannot be read, changes nothing.
func TestImportAllOrNothing(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	for _, c := range []struct{ file, want string }{
		{"a 300 IN A 192.0.2.1\nb 300 IN CNAME single.\n", "invalid_record"},
		{"a 300 IN A 192.0.2.1\na 300 IN CNAME a.example.net.\n", "invalid_record"},
		{"a 300 IN A 192.0.2.1\n$INCLUDE other\n", "zone_unreadable"},
		{"a 300 IN A not-an-address\n", "zone_unreadable"},
		{"sub 300 IN NS a.example.net.\nx.sub 300 IN TXT x\n", "invalid_record"},
		{strings.Repeat("x", 2<<20+1), "validation_error"},
	} {
		if _, code := w.take(zones.ImportZoneIn{ZoneFile: c.file}); code != c.want {
			t.Errorf("%.60q: %q, want %q", c.file, code, c.want)
		}
	}
	w.wantCustom()
	if n := w.rows(); n != 0 || len(w.changes()) != 0 {
		t.Errorf("%d rows and %d changes are left", n, len(w.changes()))
	}
}

// manyRecords returns a file with n records, with values of `bytes` bytes.
func manyRecords(n, bytes int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "r%d 300 IN TXT %q\n", i, strings.Repeat(value, bytes))
	}
	return b.String()
}

// TestInterruptedImport: until the last transaction nothing changes, and what is left of an import
// that was interrupted goes before the next change, or at the next start.
func TestInterruptedImport(t *testing.T) {
	for _, how := range []string{"change", "start"} {
		t.Run(how, func(t *testing.T) {
			w := newZoneWorld(t, store.Options{})
			n := 3 * zones.RowsPerWrite
			if _, code := w.take(zones.ImportZoneIn{ZoneFile: manyRecords(n, 1, "a")}); code != "" {
				t.Fatal(code)
			}
			before, generation := w.custom(), w.domain().ZoneGeneration
			// r0 gets another value, and r1 another TTL: both a removal and a change are
			// interrupted.
			file := strings.Replace(manyRecords(n, 1, "b"), "r1 300 IN TXT \"b\"", "r1 600 IN TXT \"a\"\nr1 600 IN TXT \"c\"", 1)
			if err := w.Zones.StageImport(t.Context(), w.who, zones.ImportZoneIn{DomainID: w.id, ZoneFile: file, Replace: true}); err != nil {
				t.Fatal(err)
			}
			if d := w.domain(); !d.ZoneStaged || d.ZoneGeneration != generation {
				t.Fatalf("the import was not interrupted: %v, generation %d", d.ZoneStaged, d.ZoneGeneration)
			}
			if got := w.custom(); !slices.Equal(got, before) {
				t.Errorf("an import that has not ended shows %d records, such as %q", len(got), got[0])
			}
			want := before
			switch how {
			case "change":
				if code := w.set("more", "A", "192.0.2.1"); code != "" {
					t.Fatal(code)
				}
				want = append(slices.Clone(before), "more A 300 192.0.2.1")
			case "start":
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					w.Zones.Run(ctx)
				}()
				for w.domain().ZoneStaged {
					time.Sleep(time.Millisecond)
				}
				cancel()
				<-done
			}
			w.wantCustom(want...)
			if got := w.rows(); got != len(want) || w.domain().ZoneStaged {
				t.Errorf("%d rows, want %d", got, len(want))
			}
			if _, code := w.take(zones.ImportZoneIn{ZoneFile: file, Replace: true}); code != "" {
				t.Fatal(code)
			}
			if code := w.undo(w.changes()[0]); code != "" {
				t.Fatal(code)
			}
			w.wantCustom(want...)
		})
	}
}

// TestLimitsOfRecords: 5 000 for a domain.
func TestLimitsOfRecords(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	if _, code := w.take(zones.ImportZoneIn{ZoneFile: manyRecords(zones.MaxCustomRecords+1, 1, "a")}); code != "too_many_items" {
		t.Errorf("over the limit: %q", code)
	}
	if _, code := w.take(zones.ImportZoneIn{ZoneFile: manyRecords(zones.MaxCustomRecords, 1, "a")}); code != "" {
		t.Fatal(code)
	}
	if code := w.set("more", "A", "192.0.2.1"); code != "too_many_items" {
		t.Errorf("one more: %q", code)
	}
	if code := w.set("r0", "TXT", "b"); code != "" {
		t.Errorf("another value in place of one: %q", code)
	}
	if code := w.drop("r1", "TXT"); code != "" {
		t.Error(code)
	}
	if code := w.set("more", "A", "192.0.2.1"); code != "" {
		t.Errorf("after one was deleted: %q", code)
	}
}

// TestLimitOfAnAccount counts the records of all its domains.
func TestLimitOfAnAccount(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	domains := zones.MaxAccountRecords / zones.MaxCustomRecords
	for i := range domains {
		d := servicetest.PutDomainRow(t, w.Service, w.who, fmt.Sprintf("d%d.test", i), store.DomainComplete)
		rows := zones.MaxCustomRecords
		if i == 0 {
			rows--
		}
		servicetest.PutMany(t, w.Service, store.CustomRecords, rows, func(n int) *store.CustomRecord {
			return &store.CustomRecord{ID: w.Core.Store.NewID("rec"), DomainID: d.ID, Name: fmt.Sprintf("r%d.%s", n, d.Name), Type: "A", Value: "192.0.2.1", TTL: 300}
		})
	}
	for i, want := range []string{"", "too_many_items"} {
		if code := w.set(fmt.Sprintf("n%d", i), "A", "192.0.2.1"); code != want {
			t.Errorf("record %d over %d domains: %q, want %q", i, domains, code, want)
		}
	}
}

// The addresses of a website elsewhere are imported, and an ALIAS becomes the alias of the domain.
// Undoing an import brings back what there was.
func TestImportsTheWebSite(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	apex := func(mode string) zones.Apex {
		t.Helper()
		d, err := w.Zones.EditApex(t.Context(), w.who, w.id, func(d *store.Domain) (*zones.ApexEdit, error) {
			if mode == "" {
				return nil, nil
			}
			return &zones.ApexEdit{Apex: store.DomainApex{Mode: mode, Chosen: true}}, nil
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return *zones.ApexOf(d)
	}
	out, code := w.take(zones.ImportZoneIn{ZoneFile: "@ 300 IN ALIAS cdn.old.test.\n"})
	if code != "" || reasons(out)["@ ALIAS"] != "here" || !strings.Contains(out.Skipped[0].Reason, "PATCH /v1/domains/"+w.id) {
		t.Errorf("here: %+v, %s", out, code)
	}
	apex("elsewhere")
	out, code = w.take(zones.ImportZoneIn{ZoneFile: "@ 300 IN ANAME www.own.test.\n"})
	if code != "" || reasons(out)["@ ANAME"] != "alias" {
		t.Errorf("of itself: %+v, %s", out, code)
	}
	out, code = w.take(zones.ImportZoneIn{ZoneFile: "@ 300 IN ALIAS cdn.old.test.\n@ 300 IN A 192.0.2.1\n@ 300 IN AAAA 2001:db8::1\n"})
	if got := apex(""); code != "" || out.Imported != 2 || reasons(out)["@ ALIAS"] != "alias" || !slices.Equal(got.Addresses, []string{"192.0.2.1", "2001:db8::1"}) {
		t.Errorf("both: %+v, %+v, %s", out, got, code)
	}
	out, code = w.take(zones.ImportZoneIn{ZoneFile: "@ 300 IN ALIAS cdn.old.test.\n"})
	if code != "" || reasons(out)["@ ALIAS"] != "exists" {
		t.Errorf("beside addresses: %+v, %s", out, code)
	}
	apex("elsewhere")
	out, code = w.take(zones.ImportZoneIn{ZoneFile: "@ 300 IN ALIAS cdn.old.test.\n"})
	if got := apex(""); code != "" || len(out.Merged) != 1 || got.Alias == nil || *got.Alias != "cdn.old.test" {
		t.Errorf("alone: %+v, %+v, %s", out, got, code)
	}
	out, code = w.take(zones.ImportZoneIn{ZoneFile: "@ 300 IN A 192.0.2.9\n"})
	if code != "" || reasons(out)["@ A"] != "exists" {
		t.Errorf("addresses beside an alias: %+v, %s", out, code)
	}
	out, code = w.take(zones.ImportZoneIn{ZoneFile: "@ 300 IN A 192.0.2.9\n", Replace: true})
	if got := apex(""); code != "" || out.Imported != 1 || got.Alias != nil || !slices.Equal(got.Addresses, []string{"192.0.2.9"}) {
		t.Errorf("instead of an alias: %+v, %+v, %s", out, got, code)
	}
	changes, err := w.Zones.ListZoneChanges(t.Context(), w.who, zones.ListZoneChangesIn{DomainID: w.id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Zones.UndoZoneChange(t.Context(), w.who, zones.UndoZoneChangeIn{DomainID: w.id, ID: changes.Data[0].ID}); err != nil {
		t.Fatal(err)
	}
	if got := apex(""); got.Mode != "elsewhere" || got.Alias == nil || *got.Alias != "cdn.old.test" || len(got.Addresses) > 0 {
		t.Errorf("undone: %+v", got)
	}
}

// TestImportedEndingOfSPF: the ending of an old SPF record stays if it can be one of ours. What
// becomes of another one is told.
func TestImportedEndingOfSPF(t *testing.T) {
	for end, want := range map[string]string{"-all": "-", "~all": "~", "?all": "~", "+all": "~"} {
		w := newZoneWorld(t, store.Options{})
		out, code := w.take(zones.ImportZoneIn{ZoneFile: "$ORIGIN own.test.\n@ 300 IN TXT \"v=spf1 ip4:192.0.2.77 " + end + "\"\n"})
		if code != "" {
			t.Fatal(code)
		}
		d := w.domain()
		if d.SPF == nil || d.SPF.All != want || !slices.Equal(d.SPF.Extra, []string{"ip4:192.0.2.77"}) || len(out.Merged) != 1 || !strings.HasSuffix(out.Merged[0].Value, " "+want+"all") {
			t.Errorf("%s became %+v, merged %+v", end, d.SPF, out.Merged)
		}
		told := end != want+"all"
		if is := len(out.Skipped) == 1 && out.Skipped[0].Value == `"`+end+`"` && strings.HasPrefix(out.Skipped[0].Reason, "spf_all: "); is != told || !told && len(out.Skipped) != 0 {
			t.Errorf("of %s is told %+v", end, out.Skipped)
		}
	}
}
