package zones_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
	"github.com/miekg/dns"
)

// A zoneWorld is a service with one complete builtin domain, own.test.
type zoneWorld struct {
	*service.Service
	t   *testing.T
	who core.Actor
	id  string
	dns *servicetest.FakeDNS
}

func newZoneWorld(t *testing.T, o store.Options) *zoneWorld {
	t.Helper()
	s, who := servicetest.NewWith(t, o)
	servicetest.ServeZones(s)
	w := &zoneWorld{Service: s, t: t, who: who, dns: servicetest.NewFakeDNS()}
	s.Core.Resolver, s.Core.Config.PublicIPs = w.dns, servicetest.TestIPs
	w.id = servicetest.PutDomainRow(t, s, who, "own.test", store.DomainComplete).ID
	return w
}

// set calls set_zone_records, and returns the code of the error.
func (w *zoneWorld) set(name, typ string, values ...string) string {
	w.t.Helper()
	_, err := w.Zones.SetZoneRecords(w.t.Context(), w.who, zones.SetZoneRecordsIn{DomainID: w.id, Name: name, Type: typ, Values: values})
	return codeOf(w.t, err)
}

// codeOf returns the code of an error; "" for nil.
func codeOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	e, ok := core.AsError(err)
	if !ok {
		t.Fatal(err)
	}
	return e.Code
}

func (w *zoneWorld) drop(name, typ string) string {
	w.t.Helper()
	_, err := w.Zones.DeleteZoneRecords(w.t.Context(), w.who, zones.DeleteZoneRecordsIn{DomainID: w.id, Name: name, Type: typ})
	return codeOf(w.t, err)
}

// custom lists the owner's records, as "name TYPE ttl value".
func (w *zoneWorld) custom() []string {
	w.t.Helper()
	out, err := w.Zones.GetZone(w.t.Context(), w.who, zones.GetZoneIn{DomainID: w.id})
	if err != nil {
		w.t.Fatal(err)
	}
	list := []string{}
	for _, set := range out.Zone.Records {
		for _, value := range set.Values {
			if set.Source == "custom" {
				list = append(list, fmt.Sprintf("%s %s %d %s", set.Name, set.Type, set.TTL, value))
			}
		}
	}
	slices.Sort(list)
	return list
}

func (w *zoneWorld) wantCustom(want ...string) {
	w.t.Helper()
	slices.Sort(want)
	if got := w.custom(); !slices.Equal(got, want) {
		w.t.Errorf("custom records:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// ask returns the answers of our own server, each as its data.
func (w *zoneWorld) ask(name string, typ uint16) (answers, referral []string) {
	w.t.Helper()
	zone, ok := w.Zones.Zone(name)
	if !ok {
		w.t.Fatalf("%s is not served", name)
	}
	m := zone.Answer(new(dns.Msg).SetQuestion(name+".", typ))
	text := func(rrs []dns.RR) (out []string) {
		for _, rr := range rrs {
			out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
		}
		return out
	}
	return text(m.Answer), text(m.Ns)
}

// changes lists the changes of the zone, the newest first.
func (w *zoneWorld) changes() []zones.ZoneChange {
	w.t.Helper()
	var all []zones.ZoneChange
	most := 100
	in := zones.ListZoneChangesIn{DomainID: w.id, Query: page.Query{Limit: &most}}
	for more := true; more; {
		out, err := w.Zones.ListZoneChanges(w.t.Context(), w.who, in)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, out.Data...)
		more = out.Pagination.HasMore
		if more {
			in.Cursor = *out.Pagination.Cursor
		}
	}
	return all
}

func (w *zoneWorld) undo(c zones.ZoneChange) string {
	w.t.Helper()
	_, err := w.Zones.UndoZoneChange(w.t.Context(), w.who, zones.UndoZoneChangeIn{DomainID: w.id, ID: c.ID})
	return codeOf(w.t, err)
}

// rows counts the rows of custom records, also those of earlier generations.
func (w *zoneWorld) rows() (n int) {
	w.t.Helper()
	err := w.Core.Store.View(func(tx *store.Tx) error {
		for range store.CustomRecords.All(tx) {
			n++
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// TestSetZoneRecordsOfEveryType: what is set is answered and served.
func TestSetZoneRecordsOfEveryType(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	for _, c := range []struct {
		name, typ, given, shown, served string
	}{
		{"a", "A", "192.0.2.7", "192.0.2.7", "192.0.2.7"},
		{"a", "AAAA", "2001:DB8::7", "2001:db8::7", "2001:db8::7"},
		{"c", "CNAME", "@", "own.test", "own.test."},
		{"t", "TXT", `"two words"`, `"two words"`, `"two words"`},
		{"u", "TXT", "plain", `"plain"`, `"plain"`},
		{"m", "MX", "10 Mail.Example.net.", "10 mail.example.net", "10 mail.example.net."},
		{"n", "NS", "ns.example.net", "ns.example.net", ""},
		{"_x._tcp", "SRV", "0 5 443 a.own.test", "0 5 443 a.own.test", "0 5 443 a.own.test."},
		{"@", "CAA", `0 issue "ca.example.net"`, `0 issue "ca.example.net"`, `0 issue "ca.example.net"`},
		{"_443._tcp.a", "TLSA", "3 1 1 " + strings.Repeat("AB", 32), "3 1 1 " + strings.Repeat("ab", 32), "3 1 1 " + strings.Repeat("ab", 32)},
		{"*.w", "A", "192.0.2.8", "192.0.2.8", ""},
	} {
		ttl := 120
		out, err := w.Zones.SetZoneRecords(t.Context(), w.who, zones.SetZoneRecordsIn{DomainID: w.id, Name: c.name, Type: strings.ToLower(c.typ), TTL: &ttl, Values: []string{c.given}})
		if err != nil {
			t.Errorf("%s %s: %v", c.name, c.typ, err)
			continue
		}
		if out.Name != c.name || out.Type != c.typ || out.TTL != 120 || out.Source != "custom" || !slices.Equal(out.Values, []string{c.shown}) {
			t.Errorf("%s %s: %+v", c.name, c.typ, out)
		}
		if c.served == "" {
			continue
		}
		name, _ := dnsprov.CustomName(c.name, "own.test")
		if got, _ := w.ask(name, dns.StringToType[c.typ]); !slices.Contains(got, c.served) {
			t.Errorf("%s %s is served as %q", c.name, c.typ, got)
		}
	}
	if _, ns := w.ask("deep.n.own.test", dns.TypeA); !slices.Equal(ns, []string{"ns.example.net."}) {
		t.Errorf("below a delegation: %q", ns)
	}
	if got, _ := w.ask("some.w.own.test", dns.TypeA); !slices.Equal(got, []string{"192.0.2.8"}) {
		t.Errorf("by the wildcard: %q", got)
	}
}

// TestSetZoneRecordsReplacesTheSet: values that stay keep their record_id, others go and come.
func TestSetZoneRecordsReplacesTheSet(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	ids := func() map[string]string {
		t.Helper()
		out, err := w.Zones.ListCustomDNSRecords(t.Context(), w.who, zones.ListCustomDNSRecordsIn{DomainID: w.id})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, r := range out.Records {
			found[r.Value] = r.RecordID
		}
		return found
	}
	w.set("www", "A", "192.0.2.1", "192.0.2.2")
	before := ids()
	w.set("www", "A", "192.0.2.2", "192.0.2.3")
	after := ids()
	if len(after) != 2 || after["192.0.2.2"] != before["192.0.2.2"] || after["192.0.2.3"] == "" {
		t.Errorf("record ids %v, before %v", after, before)
	}
	ttl := 600
	if _, err := w.Zones.SetZoneRecords(t.Context(), w.who, zones.SetZoneRecordsIn{DomainID: w.id, Name: "www", Type: "A", TTL: &ttl, Values: []string{"192.0.2.2"}}); err != nil {
		t.Fatal(err)
	}
	if now := ids(); len(now) != 1 || now["192.0.2.2"] != before["192.0.2.2"] {
		t.Errorf("with another TTL, the record ids are %v, before %v", now, before)
	}
	w.wantCustom("www A 600 192.0.2.2")
	n := len(w.changes())
	if _, err := w.Zones.SetZoneRecords(t.Context(), w.who, zones.SetZoneRecordsIn{DomainID: w.id, Name: "www", Type: "A", TTL: &ttl, Values: []string{"192.0.2.2"}}); err != nil {
		t.Fatal(err)
	}
	if len(w.changes()) != n {
		t.Error("to set what is there counts as a change")
	}
	if code := w.drop("www", "A"); code != "" {
		t.Error(code)
	}
	w.wantCustom()
	for _, at := range [][2]string{{"www", "A"}, {"other", "TXT"}} {
		if code := w.drop(at[0], at[1]); code != "not_found" {
			t.Errorf("deleting %s, which is not there: %q", at, code)
		}
	}
}

// TestRecordsThatCannotBe: managed records, records that exclude each other, and what is no record.
func TestRecordsThatCannotBe(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	servicetest.PutDomainRow(t, w.Service, w.who, "in.sub.own.test", store.DomainPendingNS)
	for _, name := range []string{"here", "glue"} {
		if code := w.set(name, "A", "192.0.2.1"); code != "" {
			t.Fatal(code)
		}
	}
	if code := w.set("cut", "NS", "ns1.cut.own.test", "ns.example.net"); code != "" {
		t.Fatal(code)
	}
	for _, c := range []struct {
		name, typ, value, want string
	}{
		{"@", "MX", "10 a.example.net", "managed_record_collision"},
		{"@", "NS", "ns.example.net", "managed_record_collision"},
		{"@", "A", "192.0.2.1", "managed_record_collision"},
		{"@", "TXT", "v=spf1 -all", "managed_record_collision"},
		{"@", "TXT", `"v=spf1" " -all"`, "managed_record_collision"},
		{"@", "TXT", "site-verification=x", ""},
		{"_dmarc", "TXT", "v=DMARC1; p=none", "managed_record_collision"},
		{"ms1._domainkey", "TXT", "x", "managed_record_collision"},
		{"ms1._domainkey", "CNAME", "x.example.net", "managed_record_collision"},
		{"_domainkey", "NS", "ns.example.net", "managed_record_collision"},
		{"sub", "NS", "ns.example.net", "managed_record_collision"},
		{"in.sub", "NS", "ns.example.net", "managed_record_collision"},
		{"@", "CNAME", "x.example.net", "cname_at_apex"},
		{"@", "DS", "1 13 2 " + strings.Repeat("ab", 32), "invalid_record"},
		{"here", "CNAME", "x.example.net", "invalid_record"},
		{"here", "SOA", "x", "invalid_record"},
		{"here", "DS", "1 13 2 " + strings.Repeat("ab", 32), "invalid_record"},
		{"here", "NS", "ns.example.net", "invalid_record"},
		{"here", "MX", "10 single", "invalid_record"},
		{"a b", "A", "192.0.2.1", "invalid_record"},
		{"www.example.net.", "A", "192.0.2.1", "invalid_record"},
		{"cut", "A", "192.0.2.1", "invalid_record"},
		{"cut", "DS", "1 13 2 " + strings.Repeat("ab", 32), ""},
		{"ns1.cut", "A", "192.0.2.1", ""},
		{"ns1.cut", "TXT", "x", "invalid_record"},
		{"ns2.cut", "A", "192.0.2.1", "invalid_record"},
		{"x.ns1.cut", "A", "192.0.2.1", "invalid_record"},
		{"x.cut", "NS", "ns.example.net", "invalid_record"},
	} {
		before := w.custom()
		if code := w.set(c.name, c.typ, c.value); code != c.want {
			t.Errorf("%s %s %q: %q, want %q", c.name, c.typ, c.value, code, c.want)
		}
		if after := w.custom(); c.want != "" && !slices.Equal(before, after) {
			t.Errorf("%s %s %q has changed the records to %q", c.name, c.typ, c.value, after)
		}
	}
	if code := w.drop("cut", "NS"); code != "invalid_record" { // its DS would stay
		t.Errorf("NS below a DS: %q", code)
	}
	if code := w.drop("@", "MX"); code != "managed_record_collision" {
		t.Errorf("the managed MX: %q", code)
	}
}

// TestOwnRecordsWinWhereOursAreOptional.
func TestOwnRecordsWinWhereOursAreOptional(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	w.Core.Config.HTTPS = true
	for _, c := range []struct{ name, typ, value, want string }{
		{"autoconfig", "A", "192.0.2.1", ""},
		{"autodiscover", "CNAME", "autodiscover.example.net", ""},
		{"_autodiscover._tcp", "SRV", "0 0 443 a.example.net", ""},
		{"mta-sts", "A", "192.0.2.1", "managed_record_collision"},
		{"_smtp._tls", "TXT", "v=TLSRPTv1; rua=mailto:a@example.net", "managed_record_collision"},
	} {
		if code := w.set(c.name, c.typ, c.value); code != c.want {
			t.Errorf("%s %s: %q, want %q", c.name, c.typ, code, c.want)
		}
	}
	if got, _ := w.ask("autoconfig.own.test", dns.TypeA); !slices.Equal(got, []string{"192.0.2.1"}) {
		t.Errorf("autoconfig is %q", got)
	}
	_, err := w.Zones.CreateCustomDNSRecord(t.Context(), w.who, zones.CreateCustomDNSRecordIn{DomainID: w.id, Name: "mta-sts", Type: "A", Value: "192.0.2.1"})
	if codeOf(t, err) != "managed_record_collision" {
		t.Errorf("a single record at mta-sts: %v", err)
	}
}

// TestSingleRecordsAndSetsAreTheSame: what one operation adds, the other shows and changes.
func TestSingleRecordsAndSetsAreTheSame(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	made, err := w.Zones.CreateCustomDNSRecord(t.Context(), w.who, zones.CreateCustomDNSRecordIn{DomainID: w.id, Name: "www", Type: "TXT", Value: "one"})
	if err != nil {
		t.Fatal(err)
	}
	w.set("www", "TXT", "one", "two")
	w.set("mail", "MX", "10 a.example.net")
	w.wantCustom(`www TXT 300 "one"`, `www TXT 300 "two"`, "mail MX 300 10 a.example.net")
	three := "three"
	changed, err := w.Zones.UpdateCustomDNSRecord(t.Context(), w.who, zones.UpdateCustomDNSRecordIn{DomainID: w.id, RecordID: made.Record.ID, Value: &three})
	if err != nil || changed.Record.ID != made.Record.ID || !changed.Record.CreatedAt.Equal(made.Record.CreatedAt.Time) {
		t.Errorf("changed %+v, %v", changed, err)
	}
	w.wantCustom(`www TXT 300 "three"`, `www TXT 300 "two"`, "mail MX 300 10 a.example.net")
	list, err := w.Zones.ListCustomDNSRecords(t.Context(), w.who, zones.ListCustomDNSRecordsIn{DomainID: w.id})
	if err != nil || len(list.Records) != 2 {
		t.Errorf("single records: %+v, %v", list, err)
	}
	if _, err := w.Zones.DeleteCustomDNSRecord(t.Context(), w.who, zones.CustomDNSRecordIn{DomainID: w.id, RecordID: made.Record.ID}); err != nil {
		t.Fatal(err)
	}
	w.wantCustom(`www TXT 300 "two"`, "mail MX 300 10 a.example.net")
	var kinds []string
	for _, c := range w.changes() {
		kinds = append(kinds, fmt.Sprintf("%s %s %s +%d -%d", c.Kind, *c.Name, *c.Type, c.Added, c.Removed))
	}
	want := []string{"delete www TXT +0 -1", "set www TXT +1 -1", "set mail MX +1 -0", "set www TXT +1 -0", "set www TXT +1 -0"}
	if !slices.Equal(kinds, want) {
		t.Errorf("changes %q, want %q", kinds, want)
	}
}

// TestUndo: a change is undone as a whole, also an undo, and not over later changes of the same
// set.
func TestUndo(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	w.set("www", "A", "192.0.2.1", "192.0.2.2")
	w.set("www", "A", "192.0.2.2", "192.0.2.3")
	w.set("other", "TXT", "x")
	second := w.changes()[1]
	if code := w.undo(second); code != "" {
		t.Fatal(code)
	}
	w.wantCustom("www A 300 192.0.2.1", "www A 300 192.0.2.2", `other TXT 300 "x"`)
	if got, _ := w.ask("www.own.test", dns.TypeA); len(got) != 2 || slices.Contains(got, "192.0.2.3") {
		t.Errorf("served: %q", got)
	}
	if code := w.undo(second); code != "zone_changed" {
		t.Errorf("undone twice: %q", code)
	}
	undo := w.changes()[0]
	if undo.Kind != "undo" || *undo.Name != "www" {
		t.Errorf("the newest change is %+v", undo)
	}
	if code := w.undo(undo); code != "" {
		t.Fatal(code)
	}
	w.wantCustom("www A 300 192.0.2.2", "www A 300 192.0.2.3", `other TXT 300 "x"`)
	w.drop("www", "A")
	if code := w.undo(w.changes()[0]); code != "" {
		t.Fatal(code)
	}
	w.wantCustom("www A 300 192.0.2.2", "www A 300 192.0.2.3", `other TXT 300 "x"`)

	// A record that is renamed changes two sets.
	list, err := w.Zones.ListCustomDNSRecords(t.Context(), w.who, zones.ListCustomDNSRecordsIn{DomainID: w.id})
	if err != nil {
		t.Fatal(err)
	}
	name := "renamed"
	if _, err := w.Zones.UpdateCustomDNSRecord(t.Context(), w.who, zones.UpdateCustomDNSRecordIn{DomainID: w.id, RecordID: list.Records[0].ID, Name: &name}); err != nil {
		t.Fatal(err)
	}
	renamed := w.changes()[0]
	if renamed.Name != nil || len(w.custom()) != 3 {
		t.Errorf("change %+v, records %q", renamed, w.custom())
	}
	w.set("renamed", "CAA", `0 issue "ca.test"`) // another set
	if code := w.undo(renamed); code != "" {
		t.Fatal(code)
	}
	w.wantCustom("www A 300 192.0.2.2", "www A 300 192.0.2.3", `other TXT 300 "x"`, `renamed CAA 300 0 issue "ca.test"`)
	if code := w.undo(zones.ZoneChange{ID: "zch_none"}); code != "not_found" {
		t.Errorf("an unknown change: %q", code)
	}
}

// TestHistoryIsBounded: the last 100 changes are kept, and no row that only older ones need.
func TestHistoryIsBounded(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	for i := range zones.KeptChanges + 20 {
		if code := w.set("www", "A", fmt.Sprintf("192.0.2.%d", i)); code != "" {
			t.Fatal(code)
		}
	}
	all := w.changes()
	if len(all) != zones.KeptChanges {
		t.Errorf("%d changes are kept", len(all))
	}
	if n := w.rows(); n != zones.KeptChanges+1 {
		t.Errorf("%d rows are kept", n)
	}
	if code := w.undo(all[0]); code != "" {
		t.Fatal(code)
	}
	w.wantCustom(fmt.Sprintf("www A 300 192.0.2.%d", zones.KeptChanges+18))
	if err := w.Zones.EraseCustomRecords(t.Context(), w.id); err != nil {
		t.Fatal(err)
	}
	if n := w.rows(); n != 0 || len(w.changes()) != 0 {
		t.Errorf("%d rows and %d changes are left of a deleted domain", n, len(w.changes()))
	}
}

// TestGetZoneOfEachProvider.
func TestGetZoneOfEachProvider(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	w.set("@", "TXT", "site-verification=x")
	out, err := w.Zones.GetZone(t.Context(), w.who, zones.GetZoneIn{DomainID: w.id})
	if err != nil {
		t.Fatal(err)
	}
	var texts []zones.RecordSet
	for _, set := range out.Zone.Records {
		if set.Name == "@" && set.Type == "TXT" {
			texts = append(texts, set)
		}
	}
	if len(texts) != 2 || texts[0].Source == texts[1].Source || texts[0].TTL != 300 || texts[1].TTL != 300 {
		t.Errorf("a set of ours and the owner's: %+v", texts)
	}
	for provider, want := range map[string]string{"manual": "", "cloudflare": "", "external": "dns_provider_unsupported"} {
		d := servicetest.PutDomainRow(t, w.Service, w.who, provider+".test", store.DomainComplete)
		servicetest.Update(t, w.Service, func(tx *store.Tx) error {
			d.DNSProvider, d.Status = provider, store.DomainInProgress // so that no job has to write records there
			return store.Domains.Put(tx, d)
		})
		for _, accept := range []string{"application/json", "text/dns"} {
			out, err := w.Zones.GetZone(t.Context(), w.who, zones.GetZoneIn{DomainID: d.ID, Accept: accept})
			if code := codeOf(t, err); code != want {
				t.Errorf("%s as %s: %q", provider, accept, code)
			}
			if err == nil && (out.File != nil) != (accept == "text/dns") {
				t.Errorf("%s as %s: %+v", provider, accept, out)
			}
		}
		_, err := w.Zones.SetZoneRecords(t.Context(), w.who, zones.SetZoneRecordsIn{DomainID: d.ID, Name: "www", Type: "A", Values: []string{"192.0.2.1"}})
		if code := codeOf(t, err); (code == "dns_provider_unsupported") != (provider != "cloudflare") {
			t.Errorf("set at %s: %q", provider, code)
		}
	}
	other := w.who
	other.AccountID = "acc_other"
	if _, err := w.Zones.GetZone(t.Context(), other, zones.GetZoneIn{DomainID: w.id}); codeOf(t, err) != "not_found" {
		t.Errorf("of another account: %v", err)
	}
}

// TestZoneFileCanBeImportedAgain: a zone is the same after its file was imported elsewhere.
func TestZoneFileCanBeImportedAgain(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	w.set("www", "A", "192.0.2.1", "192.0.2.2")
	w.set("@", "TXT", "site-verification=x", `a "quoted" text`)
	w.set("cut", "NS", "ns1.cut.own.test")
	w.set("ns1.cut", "A", "192.0.2.3")
	w.set("_s._tcp", "SRV", "0 0 0 .")
	w.set("long", "TXT", strings.Repeat("long ", 100))
	out, err := w.Zones.GetZone(t.Context(), w.who, zones.GetZoneIn{DomainID: w.id, Accept: "text/dns"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out.File.Body)
	if err != nil || int64(len(text)) != out.File.Size || out.File.Name != "own.test.zone" {
		t.Fatalf("file %+v of %d bytes: %v", out.File, len(text), err)
	}
	again := newZoneWorld(t, store.Options{})
	done, err := again.Zones.ImportZone(context.Background(), again.who, zones.ImportZoneIn{DomainID: again.id, ZoneFile: string(text)})
	if err != nil {
		t.Fatal(err)
	}
	if want := w.custom(); done.Imported != len(want) || !slices.Equal(again.custom(), want) {
		t.Errorf("imported %d:\n%s\nwant:\n%s\nskipped: %+v", done.Imported, strings.Join(again.custom(), "\n"), strings.Join(want, "\n"), done.Skipped)
	}
}

// TestSPFOfTheOwner: ours come first, then the owner's terms in order, then all.
func TestSPFOfTheOwner(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	set := func(all string, extra ...string) (string, string) {
		t.Helper()
		out, err := w.Zones.SetSPF(t.Context(), w.who, zones.SetSPFIn{DomainID: w.id, Extra: extra, All: all})
		if err != nil {
			return "", codeOf(t, err)
		}
		got, _ := w.ask("own.test", dns.TypeTXT)
		return strings.Join(out.SPF.Extra, " ") + " " + out.SPF.All, strings.Join(got, "")
	}
	for _, c := range []struct {
		all         string
		extra       []string
		shown, want string
	}{
		{"-", []string{"include:_spf.example.net", " ip4:192.0.2.0/24 "}, "include:_spf.example.net ip4:192.0.2.0/24 -", `"v=spf1 mx ip4:127.0.0.1 include:_spf.example.net ip4:192.0.2.0/24 -all"`},
		{"", []string{}, " ~", `"v=spf1 mx ip4:127.0.0.1 ~all"`},
		{"", []string{"redirect=_spf.example.net"}, "redirect=_spf.example.net ~", `"v=spf1 mx ip4:127.0.0.1 redirect=_spf.example.net"`},
		{"", []string{"redirect=_spf.example.net", "a"}, "", "validation_error"},
		{"", []string{"-all"}, "", "validation_error"},
		{"", []string{"a b"}, "", "validation_error"},
		{"", []string{"include"}, "", "validation_error"},
		{"", slices.Repeat([]string{"a:x.example.net"}, 9), strings.Repeat("a:x.example.net ", 9) + "~", `"v=spf1 mx ip4:127.0.0.1 a:x.example.net ~all"`},
		{"", []string{"a", "a:b.test", "a:c.test", "a:d.test", "a:e.test", "a:f.test", "a:g.test", "a:h.test", "a:i.test", "a:j.test"}, "a a:b.test a:c.test a:d.test a:e.test a:f.test a:g.test a:h.test a:i.test a:j.test ~",
			`"v=spf1 ip4:127.0.0.1 a a:b.test a:c.test a:d.test a:e.test a:f.test a:g.test a:h.test a:i.test a:j.test ~all"`}, // ours by address alone
		{"", []string{"a", "a:b.test", "a:c.test", "a:d.test", "a:e.test", "a:f.test", "a:g.test", "a:h.test", "a:i.test", "a:j.test", "a:k.test"}, "", "validation_error"},
	} {
		shown, got := set(c.all, c.extra...)
		if shown != c.shown || got != c.want {
			t.Errorf("%q %q: shown as %q, served as %s; want %q, %s", c.extra, c.all, shown, got, c.shown, c.want)
		}
	}
	out, err := w.Zones.ResetSPF(t.Context(), w.who, zones.ResetSPFIn{DomainID: w.id})
	if err != nil || out.AppliedDefault != "v=spf1 mx ip4:127.0.0.1 ~all" {
		t.Errorf("reset: %+v, %v", out, err)
	}
}

// TestAnswersFit: records with short texts that are long on the wire are counted as they are there.
func TestAnswersFit(t *testing.T) {
	w := newZoneWorld(t, store.Options{})
	var values []string
	for n := range 3 {
		var hints []string
		for i := range 600 {
			hints = append(hints, fmt.Sprintf("%x::", 1000*n+i+1))
		}
		values = append(values, fmt.Sprintf(`%d . ipv6hint="%s"`, n+1, strings.Join(hints, ",")))
	}
	if code := w.set("fits", "HTTPS", values...); code != "" {
		t.Fatal(code)
	}
	if answers, _ := w.ask("fits.own.test", dns.TypeHTTPS); len(answers) != len(values) {
		t.Errorf("%d records are answered", len(answers))
	}
	for n := range 5 {
		values = append(values, fmt.Sprintf(`%d%s`, n+4, values[0][1:]))
	}
	if code := w.set("fits", "HTTPS", values...); code != "invalid_record" {
		t.Errorf("%d such records: %q", len(values), code)
	}
}
