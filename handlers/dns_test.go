package handlers

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/handlers/dnsd"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/miekg/dns"
)

// put sends a PUT.
func (c *client) put(path string, body any) *reply { c.t.Helper(); return c.do("PUT", path, body) }

// asked is what our server answers about a name.
func (b *sandbox) asked(typ uint16, name string) string {
	b.t.Helper()
	zone, ok := b.Zones.Zone(name)
	if !ok {
		return "REFUSED"
	}
	m := zone.Answer(new(dns.Msg).SetQuestion(dns.Fqdn(name), typ))
	out := dns.RcodeToString[m.Rcode]
	for _, rr := range m.Answer {
		out += fmt.Sprintf(" %d %s", rr.Header().Ttl, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	return out
}

func (b *sandbox) wantAnswer(typ uint16, name, want string) {
	b.t.Helper()
	if got := b.asked(typ, name); got != want {
		b.t.Errorf("%s %s: %q, want %q", name, dns.TypeToString[typ], got, want)
	}
}

func TestCustomRecords(t *testing.T) {
	b, _ := newWorld(t, nil)
	id := b.complete("own.test")
	path := "/v1/domains/" + id + "/custom-dns-records"
	b.get(path).is(200).has("domain", "own.test", "dns_provider", "builtin", "records", "[]", "dmarc_override", "<nil>")
	r := b.post(path, `{"name":"WWW","type":"CNAME","value":"Pages.Example.NET."}`).is(200).has("record.name", "www", "record.fqdn", "www.own.test", "record.type", "CNAME",
		"record.value", "pages.example.net", "record.ttl", "300", "record.status", "active", "record.error", "<nil>")
	rec := r.text("record.record_id")
	if !strings.HasPrefix(rec, "rec_") || r.text("record.id") != rec || r.text("record.created_at") == "" {
		t.Errorf("record %s", r.raw)
	}
	b.wantAnswer(dns.TypeCNAME, "www.own.test", "NOERROR 300 pages.example.net.")
	b.post(path, `{"name":"@","type":"TXT","value":"\"verify=\" \"1\"","ttl":60}`).is(200).has("record.value", "verify=1", "record.name", "@", "record.fqdn", "own.test")
	b.post(path, `{"name":"app.own.test","type":"A","value":"192.0.2.1","ttl":86400}`).is(200).has("record.name", "app")
	b.post(path, `{"name":"app","type":"AAAA","value":"2001:DB8::1"}`).is(200).has("record.value", "2001:db8::1")
	b.post(path, `{"name":"bücher","type":"A","value":"192.0.2.2"}`).is(200).has("record.fqdn", "xn--bcher-kva.own.test")
	long := strings.Repeat("x", 700)
	b.post(path, map[string]any{"name": "_long", "type": "TXT", "value": long}).is(200)
	if got := b.asked(dns.TypeTXT, "_long.own.test"); strings.Count(got, "x") != 700 || strings.Count(got, `"`) != 6 {
		t.Errorf("a long text is served as %s", got)
	}
	b.get(path).has("records.0.record_id", rec, "records.1.ttl", "60", "records.5.value", long, "records.6", "")

	one := path + "/" + rec
	b.patch(one, `{"ttl":120}`).is(200).has("record.ttl", "120", "record.value", "pages.example.net", "record.record_id", rec)
	b.patch(one, `{"name":"shop.own.test","type":"TXT","value":"a \"quoted\" word"}`).is(200).has("record.name", "shop", "record.type", "TXT", "record.value", `a "quoted" word`)
	b.patch(one, `{"ttl":60}`).is(200).has("record.value", `a "quoted" word`)
	b.wantAnswer(dns.TypeCNAME, "www.own.test", "NXDOMAIN")
	b.wantAnswer(dns.TypeTXT, "shop.own.test", `NOERROR 60 "a \"quoted\" word"`)
	b.remove(one).is(200).has("deleted", rec)
	b.wantAnswer(dns.TypeTXT, "shop.own.test", "NXDOMAIN")
	b.remove(one).fails(404, "not_found")
	b.patch(one, `{"ttl":60}`).fails(404, "not_found")
	b.get(path).has("records.0.fqdn", "own.test", "records.5", "")

	other := "/v1/domains/" + b.complete("other.test") + "/custom-dns-records"
	b.patch(other+"/"+b.get(path).text("records.0.record_id"), `{"ttl":60}`).fails(404, "not_found")
}

func TestWildcardRecords(t *testing.T) {
	b, _ := newWorld(t, nil)
	path := "/v1/domains/" + b.complete("own.test") + "/custom-dns-records"
	b.post(path, `{"name":"*","type":"TXT","value":"wild"}`).is(200).has("record.name", "*", "record.fqdn", "*.own.test")
	b.post(path, `{"name":"*.sub.own.test","type":"A","value":"192.0.2.7"}`).is(200).has("record.name", "*.sub")
	b.wantAnswer(dns.TypeTXT, "any.thing.own.test", `NOERROR 300 "wild"`)
	b.wantAnswer(dns.TypeA, "x.sub.own.test", "NOERROR 300 192.0.2.7")
	b.wantAnswer(dns.TypeTXT, "y._domainkey.own.test", "NXDOMAIN")
}

func TestCustomRecordsRefuse(t *testing.T) {
	b, _ := newWorld(t, nil)
	path := "/v1/domains/" + b.complete("own.test") + "/custom-dns-records"
	rec := b.post(path, `{"name":"www","type":"A","value":"192.0.2.1"}`).is(200).text("record.record_id")
	b.post(path, `{"name":"pages","type":"CNAME","value":"pages.example.net"}`).is(200)
	b.post(path, `{"name":"@","type":"TXT","value":"one"}`).is(200)
	for _, tc := range []struct {
		name, typ, value string
		status           int
		code             string
	}{
		{"@", "CNAME", "www.example.net", 400, "cname_at_apex"},
		{"own.test.", "CNAME", "www.example.net", 400, "cname_at_apex"},
		{"www", "MX", "10 mail.example.net", 400, "validation_error"},
		{"www", "txt", "x", 400, "validation_error"},
		{"www", "A", "192.0.2.300", 400, "invalid_record"},
		{"www", "AAAA", "192.0.2.1", 400, "invalid_record"},
		{"x", "CNAME", "192.0.2.1", 400, "invalid_record"},
		{"x", "CNAME", "x.own.test", 400, "invalid_record"},
		{"x", "TXT", "", 400, "invalid_record"},
		{"x", "TXT", "a\nb", 400, "invalid_record"},
		{"x", "TXT", strings.Repeat("x", 5000), 400, "invalid_record"},
		{"x\x00", "TXT", "x", 400, "validation_error"},
		{"", "TXT", "x", 400, "invalid_record"},
		{"a.*", "A", "192.0.2.1", 400, "invalid_record"},
		{"*x", "A", "192.0.2.1", 400, "invalid_record"},
		{"www.elsewhere.com", "A", "192.0.2.1", 400, "invalid_record"},
		{"www.notown.test", "A", "192.0.2.1", 400, "invalid_record"},
		{"www", "CNAME", "a.example.net", 400, "invalid_record"},
		{"pages", "A", "192.0.2.1", 400, "invalid_record"},
		{"pages", "CNAME", "other.example.net", 400, "invalid_record"},
		{"WWW.own.test", "A", "192.0.2.1", 409, "duplicate_record"},
		{"@", "TXT", `"one"`, 409, "duplicate_record"},
		{"@", "A", "192.0.2.9", 409, "managed_record_collision"},
		{"@", "TXT", "v=spf1 -all", 409, "managed_record_collision"},
		{"@", "TXT", `"V=SPF1 mx"`, 409, "managed_record_collision"},
		{"_dmarc", "TXT", "v=DMARC1; p=none", 409, "managed_record_collision"},
		{"_dmarc", "TXT", "anything", 409, "managed_record_collision"},
		{"_dmarc", "CNAME", "x.example.net", 409, "managed_record_collision"},
		{"ms1._domainkey", "TXT", "v=DKIM1; p=x", 409, "managed_record_collision"},
		{"ms1e._domainkey.own.test", "CNAME", "x.example.net", 409, "managed_record_collision"},
	} {
		b.post(path, map[string]any{"name": tc.name, "type": tc.typ, "value": tc.value}).fails(tc.status, tc.code)
	}
	for _, body := range []string{
		`{"name":"x","type":"A"}`, `{"type":"A","value":"192.0.2.1"}`, `{"name":"x","type":"A","value":"192.0.2.1","ttl":59}`, `{"name":"x","type":"A","value":"192.0.2.1","ttl":86401}`,
		`{"name":"x","type":"A","value":"192.0.2.1","ttl":"300"}`, `{"name":"x","type":"A","value":"192.0.2.1","ttl":300.5}`, `{"name":1,"type":"A","value":"192.0.2.1"}`,
	} {
		b.post(path, body).fails(400, "validation_error")
	}
	one := path + "/" + rec
	b.patch(one, `{}`).fails(400, "nothing_to_update")
	b.patch(one, `{"fqdn":"x"}`).fails(400, "nothing_to_update")
	b.patch(one, `{"ttl":5}`).fails(400, "validation_error")
	b.patch(one, `{"name":"@"}`).fails(409, "managed_record_collision")
	b.patch(one, `{"type":"CNAME"}`).fails(400, "invalid_record")
	b.patch(one, `{"name":"pages"}`).fails(400, "invalid_record")
	b.patch(one, `{"name":"@","type":"TXT","value":"one"}`).fails(409, "duplicate_record")
	b.patch(one, `{"name":"@","type":"CNAME","value":"a.example.net"}`).fails(400, "cname_at_apex")
	b.get(path).has("records.0.name", "www", "records.0.value", "192.0.2.1", "records.2.value", "one", "records.3", "")
	b.wantAnswer(dns.TypeA, "www.own.test", "NOERROR 300 192.0.2.1")
}

func TestCustomRecordsAreBounded(t *testing.T) {
	b, _ := newWorld(t, nil)
	path := "/v1/domains/" + b.connect("own.test")
	var file strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&file, "h%d 300 IN A 192.0.2.1\n", i)
	}
	b.post(path+"/zone/import", map[string]any{"zone_file": file.String()}).is(200).has("imported", "5000")
	b.post(path+"/custom-dns-records", `{"name":"more","type":"A","value":"192.0.2.1"}`).fails(400, "too_many_items")
}

// A record of a domain that is not complete waits with it, and is served all the same; names of
// keys that are still to be made are taken.
func TestCustomRecordsWaitWithTheirDomain(t *testing.T) {
	b, _ := newWorld(t, nil)
	id := b.connect("early.test")
	path := "/v1/domains/" + id + "/custom-dns-records"
	b.post(path, `{"name":"ms1._domainkey","type":"TXT","value":"x"}`).fails(409, "managed_record_collision")
	b.post(path, `{"name":"www","type":"A","value":"192.0.2.1"}`).is(200).has("record.status", "pending")
	b.wantAnswer(dns.TypeA, "www.early.test", "NOERROR 300 192.0.2.1")
	b.post("/v1/domains/check-ns", `{"domains":["early.test"]}`).is(200)
	b.until("/v1/domains/"+id, "status", "complete")
	b.get(path).has("records.0.status", "active")
}

func TestCustomRecordsNeedOurDNS(t *testing.T) {
	b := newSandbox(t, nil)
	for _, provider := range []string{"manual", "external"} {
		path := "/v1/domains/" + b.Domain(t, b.Owner.AccountID, provider+".test", provider, "complete").ID
		const record = `{"name":"www","type":"A","value":"192.0.2.1"}`
		b.get(path+"/custom-dns-records").fails(503, "dns_provider_unsupported")
		b.post(path+"/custom-dns-records", record).fails(503, "dns_provider_unsupported")
		b.patch(path+"/custom-dns-records/rec_x", record).fails(503, "dns_provider_unsupported")
		b.remove(path+"/custom-dns-records/rec_x").fails(503, "dns_provider_unsupported")
		b.put(path+"/dmarc", `{"value":"v=DMARC1; p=none"}`).fails(503, "dns_provider_unsupported")
		b.remove(path+"/dmarc").fails(503, "dns_provider_unsupported")
	}
	going := "/v1/domains/" + b.Domain(t, b.Owner.AccountID, "going.test", "builtin", "deleting").ID
	b.get(going + "/custom-dns-records").is(200)
	b.post(going+"/custom-dns-records", `{"name":"www","type":"A","value":"192.0.2.1"}`).fails(409, "domain_busy")
	b.put(going+"/dmarc", `{"value":"v=DMARC1; p=none"}`).fails(409, "domain_busy")
	b.post(going+"/redirect", `{"url":"https://example.net/"}`).fails(409, "domain_busy")
	b.post(going+"/forward", `{"address":"a@example.net"}`).fails(409, "domain_busy")
}

func TestDMARC(t *testing.T) {
	b, _ := newWorld(t, nil)
	id := b.complete("policy.test")
	path := "/v1/domains/" + id
	const own = "v=DMARC1; p=none; rua=mailto:reports@policy.test"
	r := b.put(path+"/dmarc", map[string]any{"value": " " + own + " "}).is(200).has("dmarc_override.value", own)
	at := r.text("dmarc_override.updated_at")
	b.get(path).has("dmarc_override.value", own, "dmarc_override.updated_at", at)
	b.get(path+"/custom-dns-records").has("dmarc_override.value", own, "dmarc_override.updated_at", at, "records", "[]")
	b.wantAnswer(dns.TypeTXT, "_dmarc.policy.test", `NOERROR 3600 "`+own+`"`)
	b.get(path+"/dns-status?refresh=true").has("summary.dmarc", "true")
	for _, body := range []string{`{"value":"p=none"}`, `{"value":""}`, `{"value":"v=DMARC1"}`, `{"value":"v=DMARC1; p=maybe"}`, `{"value":"v=dmarc1; p=none"}`} {
		b.put(path+"/dmarc", body).fails(400, "invalid_dmarc")
	}
	b.put(path+"/dmarc", `{}`).fails(400, "validation_error")
	b.put(path+"/dmarc", `{"value":7}`).fails(400, "validation_error")
	b.wantAnswer(dns.TypeTXT, "_dmarc.policy.test", `NOERROR 3600 "`+own+`"`)
	b.remove(path+"/dmarc").is(200).has("reset", "true", "applied_default", "v=DMARC1; p=reject")
	b.get(path).has("dmarc_override", "<nil>")
	b.wantAnswer(dns.TypeTXT, "_dmarc.policy.test", `NOERROR 3600 "v=DMARC1; p=reject"`)
	b.remove(path + "/dmarc").is(200)
}

// More texts at one name than a DNS answer holds would take the SPF record beside them out of the
// world.
func TestTextsAtANameFitIntoAnAnswer(t *testing.T) {
	b, _ := newWorld(t, nil)
	path := "/v1/domains/" + b.complete("texts.test") + "/custom-dns-records"
	text := func(n int) map[string]any {
		return map[string]any{"name": "@", "type": "TXT", "value": fmt.Sprint(n, strings.Repeat("x", 4095))}
	}
	for n := range 8 {
		b.post(path, text(n)).is(200)
	}
	b.post(path, text(8)).fails(400, "invalid_record")
	b.post(path, map[string]any{"name": "other", "type": "TXT", "value": "x"}).is(200)
	zone, _ := b.Zones.Zone("texts.test")
	if r := zone.Answer(new(dns.Msg).SetQuestion("texts.test.", dns.TypeTXT).SetEdns0(4096, true)); len(r.Answer) != 10 || r.Len() > dns.MaxMsgSize {
		t.Errorf("%d records in %d bytes", len(r.Answer), r.Len())
	}
}

func TestRedirect(t *testing.T) {
	b, _ := newWorld(t, nil)
	id := b.complete("moved.test")
	path := "/v1/domains/" + id
	r := b.post(path+"/redirect", `{"redirect_url":"https://www.example.net/shop"}`).is(200).has("domain", "moved.test", "redirect_url", "https://www.example.net/shop", "queued", "true")
	b.get(path).has("redirect_url", "https://www.example.net/shop", "redirect.url", "https://www.example.net/shop", "redirect.permanent", "true", "redirect.preserve_path", "false")
	b.get("/v1/jobs/"+r.text("job_id")+"?wait=10").is(200).has("type", "redirect_update", "status", "completed", "resource.id", id, "progress.percent", "100",
		"steps.0.name", "verify", "steps.0.status", "completed", "status_detail", "It is in effect: the A records of moved.test lead here.")
	b.post(path+"/redirect", `{"url":"http://bücher.example:8080/?x=1","permanent":false,"preserve_path":true}`).is(200).has("redirect_url", "http://xn--bcher-kva.example:8080/?x=1")
	for _, url := range []string{"", "www.example.net", "ftp://example.net/", "https://", "javascript:alert(1)", "https://user:pass@example.net/", "https://moved.test/x", "https://a b/", "https://example.net:99999/", "https://example.net:0/", "https://a..b/", "https://-a.net/", "https://a_-.net/", "https://пример_.net/", "https://example.net/" + strings.Repeat("x", 2048)} {
		b.post(path+"/redirect", map[string]any{"redirect_url": url}).fails(400, "validation_error")
	}
	b.post(path+"/redirect", `{}`).fails(400, "validation_error")
	b.get(path).has("redirect_url", "http://xn--bcher-kva.example:8080/?x=1", "redirect.permanent", "false", "redirect.preserve_path", "true")
	job := b.remove(path+"/redirect").is(200).has("queued", "true").text("job_id")
	b.get("/v1/jobs/"+job+"?wait=10").has("status", "completed")
	b.get(path).has("redirect_url", "<nil>", "redirect", "<nil>")
	b.remove(path+"/redirect").is(200).has("queued", "false", "job_id", "<nil>")
}

// TestRedirectToOwnWWW: the bare domain may lead to the website at its own www, whose records and
// visitors are then left alone.
func TestRedirectToOwnWWW(t *testing.T) {
	b, _ := newWorld(t, nil)
	id := b.complete("moved.test")
	path := "/v1/domains/" + id
	asked := func(name string) int {
		b.Zones.MakeZones() // a query does not wait while another builds the zone
		zone, _ := b.Zones.Zone("moved.test")
		return len(zone.Answer(new(dns.Msg).SetQuestion(name+".", dns.TypeA)).Answer)
	}
	visit := func(host string) string {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/a", nil)
		r.Host = host
		b.server.ServeHTTP(w, r)
		return w.Header().Get("Location")
	}
	b.post(path+"/redirect", `{"redirect_url":"https://example.net/"}`).is(200)
	if asked("www.moved.test") == 0 || visit("www.moved.test") != "https://example.net/" {
		t.Errorf("a redirect elsewhere is one of www too: %d records, to %s", asked("www.moved.test"), visit("www.moved.test"))
	}
	for _, to := range []string{"https://www.moved.test/", "http://WWW.Moved.test"} {
		b.post(path+"/redirect", map[string]any{"redirect_url": to, "preserve_path": true}).is(200).has("redirect_url", to)
		if asked("www.moved.test") != 0 || asked("moved.test") == 0 {
			t.Errorf("%s: %d records of www, %d of the domain", to, asked("www.moved.test"), asked("moved.test"))
		}
		if got := visit("moved.test"); !strings.EqualFold(got, strings.TrimSuffix(to, "/")+"/a") {
			t.Errorf("visitors of the domain are sent to %s", got)
		}
		if got := visit("www.moved.test"); got != "" {
			t.Errorf("visitors of www are sent to %s", got)
		}
	}
	b.post(path+"/custom-dns-records", `{"name":"www","type":"A","value":"192.0.2.7"}`).is(200)
	if asked("www.moved.test") != 1 {
		t.Errorf("%d records of the owner's www", asked("www.moved.test"))
	}
	b.post(path+"/redirect", `{"redirect_url":"https://moved.test/"}`).fails(400, "validation_error")
}

func TestForward(t *testing.T) {
	b, world := newWorld(t, nil)
	id := b.complete("passed.test")
	path := "/v1/domains/" + id
	r := b.post(path+"/forward", `{"address":"Team@Example.NET"}`).is(200).has("domain", "passed.test", "forward_address", "team@example.net", "queued", "true")
	b.get(path).has("forward_address", "team@example.net", "redirect_url", "<nil>")
	b.get("/v1/jobs/"+r.text("job_id")+"?wait=10").is(200).has("type", "forward_update", "status", "completed", "status_detail", "It is in effect: the MX records of passed.test lead here.")
	for _, address := range []string{"", "nobody", "x@passed.test", "X@PASSED.test", "a@b@c"} {
		b.post(path+"/forward", map[string]any{"forward_address": address}).fails(400, "validation_error")
	}
	world.Tell("MX", "passed.test", "1 mx.else.test.")
	r = b.post(path+"/forward", `{"forward_address":"other@example.net"}`).is(200)
	b.get("/v1/jobs/"+r.text("job_id")+"?wait=10").has("status", "completed", "status_detail", "Mail of passed.test may not come here yet: see its dns-status for the MX records.")
	b.remove(path+"/forward").is(200).has("queued", "true")
	b.get(path).has("forward_address", "<nil>")
	b.remove(path+"/forward").is(200).has("queued", "false", "job_id", "<nil>")

	waiting := b.connect("waiting.test")
	r = b.post("/v1/domains/"+waiting+"/forward", `{"forward_address":"other@example.net"}`).is(200)
	b.get("/v1/jobs/"+r.text("job_id")+"?wait=10").has("status", "completed", "status_detail", "It takes effect once waiting.test is complete.")
	away := "/v1/domains/" + b.Domain(t, b.Owner.AccountID, "away.test", "external", "complete").ID
	b.post(away+"/forward", `{"forward_address":"other@example.net"}`).fails(400, "validation_error")
	b.post(away+"/redirect", `{"url":"https://example.net/"}`).fails(400, "validation_error")
}

// Visitors of a redirected domain are sent on, whatever they ask for; those of the installation are
// not.
func TestVisitorsAreRedirected(t *testing.T) {
	b, _ := newWorld(t, nil)
	path := "/v1/domains/" + b.complete("moved.test")
	visit := func(host, uri string) string {
		t.Helper()
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", uri, nil)
		r.Host = host
		b.server.ServeHTTP(w, r)
		return fmt.Sprint(w.Code, " ", w.Header().Get("Location"))
	}
	want := func(host, uri, want string) {
		t.Helper()
		if got := visit(host, uri); got != want {
			t.Errorf("%s%s: %s, want %s", host, uri, got, want)
		}
	}
	want("moved.test", "/", "404 ")
	b.post(path+"/redirect", `{"redirect_url":"https://example.net/shop?a=1#top"}`).is(200)
	want("moved.test", "/x?y", "301 https://example.net/shop?a=1#top")
	want("moved.test", "/.well-known/acme-challenge/no-token-of-ours", "404 ") // whoever answers there gets certificates
	want("WWW.Moved.test.:8080", "/v1/account", "301 https://example.net/shop?a=1#top")
	want("other.moved.test", "/", "404 ")
	want("127.0.0.1:8080", "/healthz", "200 ")
	b.post(path+"/redirect", `{"redirect_url":"http://x/","permanent":false,"preserve_path":true}`).is(200)
	want("moved.test", "/a", "302 http://x/a")
	want("moved.test", "/a%2Fb/?q=%20", "302 http://x/a%2Fb/?q=%20")
	b.post(path+"/redirect", `{"redirect_url":"http://x/p/?k=v","preserve_path":true}`).is(200)
	want("moved.test", "//evil.test/..", "301 http://x/p//evil.test/..?k=v")
	want("moved.test", "/?q", "301 http://x/p/?k=v&q")
	b.remove(path + "/redirect").is(200)
	want("moved.test", "/", "404 ")
	waiting := "/v1/domains/" + b.connect("waiting.test")
	b.post(waiting+"/redirect", `{"redirect_url":"http://x/"}`).is(200)
	if got := visit("waiting.test", "/"); got != "404 " && b.get(waiting).text("status") != "complete" { // the sandbox's DNS has it by and by
		t.Errorf("waiting.test: %s", got)
	}
}

// Who may do what, and whose things there are.
func TestDNSIsForManagersOfTheAccount(t *testing.T) {
	b := newSandbox(t, nil)
	path := "/v1/domains/" + b.domain
	member, reader := b.Token(t, b.Owner.AccountID, "member", "read", "write"), b.Token(t, b.Owner.AccountID, "admin", "read")
	other := b.with(b.Account(t, "other@example.test").Token)
	for _, tc := range []struct {
		method, path string
		body         any
	}{
		{"POST", "/custom-dns-records", `{"name":"www","type":"A","value":"192.0.2.1"}`}, {"PATCH", "/custom-dns-records/rec_x", `{"ttl":60}`}, {"DELETE", "/custom-dns-records/rec_x", nil},
		{"PUT", "/dmarc", `{"value":"v=DMARC1; p=none"}`}, {"DELETE", "/dmarc", nil}, {"POST", "/redirect", `{"url":"https://example.net/"}`}, {"DELETE", "/redirect", nil},
		{"POST", "/forward", `{"address":"a@example.net"}`}, {"DELETE", "/forward", nil},
	} {
		b.with(member).do(tc.method, path+tc.path, tc.body).fails(403, "forbidden_role")
		b.with(reader).do(tc.method, path+tc.path, tc.body).fails(403, "insufficient_scope")
		b.with("").do(tc.method, path+tc.path, tc.body).fails(401, "unauthorized")
		other.do(tc.method, path+tc.path, tc.body).fails(404, "not_found")
	}
	b.with(reader).get(path + "/custom-dns-records").is(200)
	b.with(member).get(path + "/custom-dns-records").is(200)
	other.get(path+"/custom-dns-records").fails(404, "not_found")
	b.with(reader).get(path + "/zone/questions").is(200)
	b.with(member).get(path + "/zone/questions").is(200)
	other.get(path+"/zone/questions").fails(404, "not_found")
}

// The questions for a zone are counted, also while the zone changes.
func TestQuestionsForAZone(t *testing.T) {
	b, _ := newWorld(t, nil)
	addr := b.serveZones()
	id := b.complete("own.test")
	path := "/v1/domains/" + id + "/zone/questions"
	before := b.get(path).is(200).has("domain", "own.test", "total", "0", "last_asked_at", "<nil>", "hours.23.count", "0")
	if before.text("since") == "" {
		t.Errorf("since when it counts: %s", before.raw)
	}
	for _, name := range []string{"own.test.", "nothing.own.test.", "OWN.test."} {
		if _, _, err := new(dns.Client).Exchange(new(dns.Msg).SetQuestion(name, dns.TypeMX), addr); err != nil {
			t.Fatal(err)
		}
	}
	b.put("/v1/domains/"+id+"/zone/x/A", `{"values":["192.0.2.1"]}`).is(200)
	after := b.get(path).is(200).has("total", "3", "since", before.text("since"))
	if at := after.text("last_asked_at"); at == "" || at == "<nil>" {
		t.Errorf("the last question: %s", after.raw)
	}
	manual := b.post("/v1/domains/connect", `{"domains":["hand.test"],"manual_dns":true}`).is(200).text("domains.0.domain_id")
	b.get("/v1/domains/"+manual+"/zone/questions").fails(503, "dns_provider_unsupported")
}

type serviceZones struct{ *service.Service }

func (z serviceZones) Zone(name string) (dnsd.Answerer, bool) {
	zone, ok := z.Service.Zones.Zone(name)
	return zone, ok
}

// serveZones serves the sandbox's zones on the loopback until the test ends.
func (b *sandbox) serveZones() (addr string) {
	b.t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(tcp.Addr().String())))
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- (&dnsd.Server{Zones: serviceZones{b.Service}}).Run(ctx, udp, tcp) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("dnsd: %v", err)
		}
	})
	return tcp.Addr().String()
}

// A domain is in the DNS from the moment that it is connected until it is deleted.
func TestOurServerAnswersForDomains(t *testing.T) {
	b, _ := newWorld(t, nil)
	addr := b.serveZones()
	answer := func(typ uint16, name string) string {
		t.Helper()
		m, _, err := (&dns.Client{}).Exchange(new(dns.Msg).SetQuestion(dns.Fqdn(name), typ), addr)
		if err != nil {
			t.Fatal(err)
		}
		out := dns.RcodeToString[m.Rcode]
		for _, rr := range m.Answer {
			out += " | " + strings.TrimPrefix(rr.String(), rr.Header().String())
		}
		return out
	}
	want := func(typ uint16, name, want string) {
		t.Helper()
		if got := answer(typ, name); !strings.HasPrefix(got, want) {
			t.Errorf("%s %s: %q, want %q", name, dns.TypeToString[typ], got, want)
		}
	}
	want(dns.TypeNS, "served.test", "REFUSED")
	want(dns.TypeA, "mail.example.test", "NOERROR | 127.0.0.1")
	want(dns.TypeA, "ns1.example.test", "NOERROR | 127.0.0.1")
	id := b.connect("served.test")
	want(dns.TypeNS, "served.test", "NOERROR | ns1.example.test. | ns2.example.test.")
	want(dns.TypeMX, "Served.TEST", "NOERROR | 10 mail.example.test.")
	want(dns.TypeTXT, "ms1._domainkey.served.test", `NOERROR | "v=DKIM1; k=rsa; p=`)
	first := answer(dns.TypeSOA, "served.test")
	b.post("/v1/domains/check-ns", `{"domains":["served.test"]}`).is(200)
	b.until("/v1/domains/"+id, "status", "complete")
	want(dns.TypeTXT, "ms1._domainkey.served.test", `NOERROR | "v=DKIM1; k=rsa; p=`)
	want(dns.TypeTXT, "ms1e._domainkey.served.test", `NOERROR | "v=DKIM1; k=ed25519; p=`)
	want(dns.TypeTXT, "served.test", `NOERROR | "v=spf1 mx ip4:127.0.0.1 ~all"`)
	want(dns.TypeTXT, "_dmarc.served.test", `NOERROR | "v=DMARC1; p=reject"`)
	if now := answer(dns.TypeSOA, "served.test"); now == first {
		t.Errorf("the serial stayed while records came: %s", now)
	}
	job := b.remove("/v1/domains/" + id).is(202).text("job_id")
	b.get("/v1/jobs/"+job+"?wait=10").has("status", "completed")
	want(dns.TypeNS, "served.test", "REFUSED")
}

// newEdge makes a sandbox whose edge provider has zones.
func newEdge(t *testing.T, zones ...string) (*sandbox, *servicetest.Edge) {
	t.Helper()
	edge := servicetest.NewEdge(zones...)
	b, _ := newWorld(t, edge.With(nil))
	return b, edge
}

func TestConnectAtTheEdge(t *testing.T) {
	b, edge := newEdge(t, "edge.test", "taken.test")
	edge.Add("taken.test", "MX", "taken.test", "5 mx.elsewhere.test")
	r := b.post("/v1/domains/connect", `{"domains":["edge.test","taken.test","nozone.test","boxes.test","bad name"],"edge_api_token":"edge-token","tags":["t"]}`).is(200).
		has("edge_mode", "true", "nameservers", "[]", "domains_used", "2", "domains.0.status", "created", "domains.0.dns_provider", "cloudflare",
			"domains.0.nameservers", "[]", "domains.0.error", "<nil>", "domains.1.status", "error", "domains.1.domain_id", "<nil>", "domains.2.status", "error",
			"domains.3.status", "already_exists", "domains.3.dns_provider", "builtin", "domains.4.status", "error")
	for at, want := range map[string]string{"domains.1.error": `zone_conflict: `, "domains.2.error": "zone_not_found: "} {
		if got := r.text(at); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", at, got)
		}
	}
	path := "/v1/domains/" + r.text("domains.0.domain_id")
	b.until(path, "status", "complete").has("dns_provider", "cloudflare", "ns_status", "not_required", "nameservers", "[]", "dkim_selector", "ms1", "tags", "[t]", "error", "<nil>")
	job := b.get("/v1/jobs/"+b.get(path).text("job_id")).has("type", "domain_provision", "status", "completed", "progress.percent", "100")
	if got := fmt.Sprint(job.list("steps", "name")); got != "[keys edge_records mail verify]" {
		t.Errorf("steps %s", got)
	}
	b.get(path+"/dns-records").fails(400, "not_manual_domain")
	b.get(path+"/dns-status").is(200).has("nameservers.verified", "true", "nameservers.expected", "[]", "records.0.purpose", "MX")
	b.post("/v1/domains/check-ns", `{"domains":["edge.test"]}`).has("domains.0.status", "already_complete")
	b.post("/v1/email-users", `{"email":"ann@edge.test"}`).is(201).has("status", "active")
	for _, d := range b.post("/v1/domains/connect", `{"domains":["a.test","b.test"],"cloudflare_api_token":"hush-hush"}`).is(200).list("domains", "error") {
		if why := fmt.Sprint(d); !strings.HasPrefix(why, "edge_token_invalid: ") || strings.Contains(why, "hush") {
			t.Errorf("with a bad token: %s", why)
		}
	}
	for _, token := range []string{"two words", strings.Repeat("x", 501), "a\nb"} {
		b.post("/v1/domains/connect", map[string]any{"domains": []string{"a.test"}, "edge_api_token": token}).fails(400, "validation_error")
	}

	del := b.remove(path).is(202).text("job_id")
	gone := b.get("/v1/jobs/"+del+"?wait=10").has("status", "completed")
	if got := fmt.Sprint(gone.list("steps", "name")); got != "[mailboxes edge_records custom_records domain]" || len(edge.Ours("edge.test")) != 0 {
		t.Errorf("steps %s, left %s", got, edge.Ours("edge.test"))
	}
}

func TestRecordsAtTheEdge(t *testing.T) {
	b, edge := newEdge(t, "edge.test")
	edge.Add("edge.test", "A", "shop.edge.test", "192.0.2.1")
	r := b.setUp(`{"domain":"edge.test","edge_api_token":"edge-token","users":[{"username":"ann"}],"redirect_url":"https://example.net/"}`).has("status", "completed", "result.status", "complete")
	if got := fmt.Sprint(r.list("steps", "name")); got != "[edge_token keys users redirect edge_records mail verify]" {
		t.Errorf("steps %s", got)
	}
	path := "/v1/domains/" + r.text("resource.id")
	records := path + "/custom-dns-records"
	b.post(records, `{"name":"www2","type":"CNAME","value":"pages.example.net"}`).is(200).has("record.status", "active", "record.error", "<nil>")
	b.post(records, `{"name":"shop","type":"CNAME","value":"shop.example.net"}`).is(200).has("record.status", "error")
	own := b.post(records, `{"name":"x","type":"TXT","value":"one","ttl":60}`).is(200).has("record.status", "active").text("record.record_id")
	b.patch(records+"/"+own, `{"value":"two"}`).is(200).has("record.status", "active", "record.value", "two")
	b.get(records).is(200).has("dns_provider", "cloudflare", "records.0.status", "active", "records.1.status", "error", "records.2.value", "two", "dmarc_override", "<nil>")
	b.post(records, `{"name":"_dmarc","type":"TXT","value":"x"}`).fails(409, "managed_record_collision")
	b.post(records, `{"name":"@","type":"CNAME","value":"pages.example.net"}`).fails(400, "cname_at_apex")
	b.put(path+"/dmarc", `{"value":"v=DMARC1; p=none"}`).is(200).has("dmarc_override.value", "v=DMARC1; p=none")
	ours := strings.Join(edge.Ours("edge.test"), "|")
	for _, want := range []string{"CNAME www2.edge.test pages.example.net", "TXT x.edge.test two", "TXT _dmarc.edge.test v=DMARC1; p=none", "A edge.test 127.0.0.1"} {
		if !strings.Contains(ours, want) {
			t.Errorf("there is no %s in %s", want, ours)
		}
	}
	b.remove(records+"/"+own).is(200).has("deleted", own)
	b.remove(path+"/dmarc").is(200).has("reset", "true", "applied_default", "v=DMARC1; p=reject")
	job := b.remove(path + "/redirect").is(200).text("job_id")
	b.get("/v1/jobs/"+job+"?wait=10").has("status", "completed", "steps.0.name", "edge_records", "steps.1.name", "verify")
	ours = strings.Join(edge.Ours("edge.test"), "|")
	if strings.Contains(ours, "TXT x.edge.test") || strings.Contains(ours, "A edge.test") || !strings.Contains(ours, "_dmarc.edge.test v=DMARC1; p=reject") {
		t.Errorf("ours are %s", ours)
	}
	b.post("/v1/domains/setup", `{"domain":"boxes.test","edge_api_token":"edge-token"}`).fails(400, "validation_error")
	b.setUp(`{"domain":"edge.test","cloudflare_api_token":"worse"}`).has("status", "error", "error.code", "edge_token_invalid", "steps.0.name", "edge_token", "steps.0.status", "error")
	b.get(path).has("status", "complete")
}
