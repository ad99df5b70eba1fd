package handlers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
)

// TestZone sets, lists and deletes record sets by paths.
func TestZone(t *testing.T) {
	b, _ := newWorld(t, nil)
	zone := "/v1/domains/" + b.complete("own.test") + "/zone"
	for _, c := range []struct{ path, values, name, served, answer string }{
		{"www/A", `["192.0.2.1","192.0.2.2"]`, "www", "www.own.test", "NOERROR 300 192.0.2.1 300 192.0.2.2"},
		{"@/CAA", `["0 issue \"ca.test\""]`, "@", "own.test", `NOERROR 300 0 issue "ca.test"`},
		{"%40/TXT", `["x"]`, "@", "", ""},
		{"_x._tcp/SRV", `["0 1 443 www.own.test"]`, "_x._tcp", "_x._tcp.own.test", "NOERROR 300 0 1 443 www.own.test."},
		{"*.w/AAAA", `["2001:db8::1"]`, "*.w", "any.w.own.test", "NOERROR 300 2001:db8::1"},
		{"deep.own.test/mx", `["10 @"]`, "deep", "deep.own.test", "NOERROR 300 10 own.test."},
	} {
		_, typ, _ := strings.Cut(c.path, "/")
		b.put(zone+"/"+c.path, `{"values":`+c.values+`}`).is(200).has("name", c.name, "type", strings.ToUpper(typ), "source", "custom", "ttl", "300")
		if c.served != "" {
			b.wantAnswer(dns.StringToType[strings.ToUpper(typ)], c.served, c.answer)
		}
	}
	for _, bad := range []string{`{}`, `{"values":[]}`, `{"values":["a"],"ttl":59}`, `{"values":[null]}`, `{"values":"192.0.2.1"}`} {
		b.put(zone+"/www/A", bad).fails(400, "validation_error")
	}
	b.put(zone+"/www/A", map[string]any{"values": strings.Split(strings.Repeat("192.0.2.1,", 50)+"192.0.2.1", ",")}).fails(400, "too_many_items")
	b.put(zone+"/www/A", `{"values":["192.0.2.1","x"]}`).fails(400, "invalid_record").has("error.details.0.field", "values.1")
	b.put(zone+"/www/TYPE99", `{"values":["x"]}`).fails(400, "invalid_record").has("error.details.0.field", "type")
	b.put(zone+"/@/MX", `{"values":["10 a.test"]}`).fails(409, "managed_record_collision")
	b.remove(zone+"/deep/MX").is(200).has("name", "deep", "type", "MX")
	b.remove(zone+"/deep/MX").fails(404, "not_found")
	b.wantAnswer(dns.TypeMX, "deep.own.test", "NXDOMAIN")
	b.put("/v1/domains/none/zone/www/A", `{"values":["192.0.2.1"]}`).fails(404, "not_found")
}

// TestZoneAsFile: the answer and the body of an import are a zone file, if the client says so.
func TestZoneAsFile(t *testing.T) {
	b, _ := newWorld(t, nil)
	zone := "/v1/domains/" + b.complete("own.test") + "/zone"
	file := "www 300 IN A 192.0.2.1\n@ 300 IN SOA ns.old.test. h.old.test. 1 2 3 4 5\n"
	b.do("POST", zone+"/import", file, "Content-Type", "text/dns; charset=utf-8").is(200).has("imported", "1", "records.0.name", "www", "skipped.0.type", "SOA", "dry_run", "false")
	got := b.do("GET", zone, "", "Accept", "text/dns").is(200)
	if text := string(got.raw); got.header.Get("Content-Type") != "text/dns; charset=us-ascii" || !strings.Contains(text, "SOA") || !strings.Contains(text, "192.0.2.1") {
		t.Errorf("%v\n%s", got.header, text)
	}
	b.get(zone).is(200).has("domain", "own.test", "dns_provider", "builtin")
	b.do("POST", zone+"/import", string(got.raw), "Content-Type", "text/dns").is(200).has("imported", "0")
	b.do("POST", zone+"/import", "www 300 IN A\n", "Content-Type", "text/dns").fails(422, "zone_unreadable")
	b.do("POST", zone+"/import", "www 300 IN TXT \xff\n", "Content-Type", "text/dns").fails(415, "unsupported_media_type")
	b.do("POST", zone+"/import", "", "Content-Type", "text/dns").fails(400, "exactly_one_parameter")
	b.do("POST", zone+"/import", strings.Repeat(";", 2<<20+1), "Content-Type", "text/dns").fails(400, "validation_error")
	b.do("POST", zone+"/import", strings.Repeat(";", 3<<20+1), "Content-Type", "text/dns").fails(413, "payload_too_large")
	b.do("POST", zone+"/import", file, "Content-Type", "text/csv").fails(415, "unsupported_media_type")
}

// TestZoneChangesAreDoneOnce: an import and an undo with the key of a request that was carried out
// answer as that did.
func TestZoneChangesAreDoneOnce(t *testing.T) {
	b, _ := newWorld(t, nil)
	zone := "/v1/domains/" + b.complete("own.test") + "/zone"
	body := `{"zone_file":"www 300 IN A 192.0.2.1\n"}`
	first := b.do("POST", zone+"/import", body, "Idempotency-Key", "one").is(200).has("imported", "1")
	change := b.get(zone + "/history").is(200).text("data.0.id")
	b.remove(zone + "/www/A").is(200)
	if again := b.do("POST", zone+"/import", body, "Idempotency-Key", "one").is(200); string(again.raw) != string(first.raw) || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("imported again: %s", again.raw)
	}
	b.wantAnswer(dns.TypeA, "www.own.test", "NXDOMAIN")
	b.post(zone+"/history/"+change+"/undo", nil).fails(409, "zone_changed")
	deleted := b.get(zone + "/history").is(200).text("data.0.id")
	undone := b.do("POST", zone+"/history/"+deleted+"/undo", "", "Idempotency-Key", "two").is(200).has("kind", "undo", "added", "1")
	if again := b.do("POST", zone+"/history/"+deleted+"/undo", "", "Idempotency-Key", "two").is(200); string(again.raw) != string(undone.raw) {
		t.Errorf("undone again: %s", again.raw)
	}
	b.wantAnswer(dns.TypeA, "www.own.test", "NOERROR 300 192.0.2.1")
}

// TestSPF sets and resets terms of the SPF record.
func TestSPF(t *testing.T) {
	b, _ := newWorld(t, nil)
	domain := "/v1/domains/" + b.complete("own.test")
	b.get(domain).has("spf.extra", "[]", "spf.all", "~")
	b.put(domain+"/spf", `{"extra":["include:_spf.example.net"],"all":"-"}`).is(200).has("spf.extra.0", "include:_spf.example.net", "spf.all", "-")
	b.get(domain).has("spf.extra.0", "include:_spf.example.net", "spf.all", "-")
	if got := b.asked(dns.TypeTXT, "own.test"); !strings.HasSuffix(got, ` include:_spf.example.net -all"`) {
		t.Errorf("served: %s", got)
	}
	for _, bad := range []string{`{}`, `{"extra":["all"]}`, `{"extra":[],"all":"+"}`, `{"extra":["v=spf1"]}`} {
		b.put(domain+"/spf", bad).fails(400, "validation_error")
	}
	b.remove(domain+"/spf").is(200).has("reset", "true")
	if got := b.asked(dns.TypeTXT, "own.test"); !strings.HasSuffix(got, ` ~all"`) || strings.Contains(got, "include") {
		t.Errorf("served after the reset: %s", got)
	}
}

// TestScanOfAZone: the answer is a job, whose result get_job has alone, and import_zone takes it.
func TestScanOfAZone(t *testing.T) {
	b, _ := newWorld(t, func(c *core.Config) { c.Scanner = servicetest.NoServers{} })
	domain := "/v1/domains/" + b.complete("own.test")
	r := b.post(domain+"/zone/scan", `{"nameservers":["ns1.old.test"]}`).is(202).has("type", "zone_scan", "resource.name", "own.test")
	job := r.text("job_id")
	if at := r.header.Get("Location"); at != "/v1/jobs/"+job {
		t.Errorf("Location %q", at)
	}
	b.until("/v1/jobs/"+job, "status", "completed").has("result.method", "none", "result.nameservers.0", "ns1.old.test", "result.complete", "false", "result.wildcard", "false")
	b.post(domain+"/zone/scan", `{}`).is(202).has("job_id", job)
	b.get("/v1/jobs?type=zone_scan").is(200).has("data.0.id", job, "data.0.result", "<nil>")
	b.post(domain+"/zone/import", `{"scan":"`+job+`"}`).is(200).has("imported", "0")
	b.post(domain+"/zone/import", `{"scan":"`+job+`","zone_file":"www A 192.0.2.1\n"}`).fails(400, "exactly_one_parameter")
	b.post(domain+"/zone/import", `{"scan":"job_x"}`).fails(400, "validation_error")
	b.post(domain+"/zone/scan", `{"nameservers":["127.0.0.1:5353"]}`).fails(400, "validation_error")
	far := b.post("/v1/domains/connect", `{"domains":["far.test"],"external":true}`).is(200).text("domains.0.domain_id")
	b.post("/v1/domains/none/zone/scan", `{}`).fails(404, "not_found")
	b.post("/v1/domains/"+far+"/zone/scan", `{}`).fails(503, "dns_provider_unsupported")
}

// TestBrokenZoneFilesNameTheirLine imports each of the broken files that zonefile has.
func TestBrokenZoneFilesNameTheirLine(t *testing.T) {
	b, _ := newWorld(t, nil)
	path := "/v1/domains/" + b.complete("example.com") + "/zone"
	files, err := filepath.Glob("../dnsprov/zonefile/testdata/broken/*.zone")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	before := string(b.get(path).is(200).raw)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		place, _, _ := strings.Cut(strings.TrimPrefix(string(text), "; "), ":") // "line 7", as the file's first line says
		answer := b.post(path+"/import", map[string]any{"zone_file": string(text)})
		if message := answer.fails(422, "zone_unreadable").text("error.message"); !strings.HasPrefix(message, "zone_file, "+place+": ") {
			t.Errorf("%s: %q does not name %s", file, message, place)
		}
	}
	if after := string(b.get(path).is(200).raw); after != before {
		t.Errorf("broken files have changed the zone from %s to %s", before, after)
	}
}

// TestLargestImport: a file of 5 000 records and nearly 2 MiB is imported in one request. Its
// characters are those that JSON writes in six bytes, so the answer is too large to be kept. No
// transaction is over the limits of the store, which fails it in tests.
func TestLargestImport(t *testing.T) {
	b, _ := newWorld(t, nil)
	path := "/v1/domains/" + b.complete("own.test") + "/zone"
	var file strings.Builder
	for n := range 5000 {
		fmt.Fprintf(&file, "r%d 300 TXT %q\n", n, strings.Repeat("<", 395))
	}
	if n := file.Len(); n > 2<<20 || n < 2<<20-50_000 {
		t.Fatalf("%d bytes", n)
	}
	b.do("POST", path+"/import", file.String(), "Content-Type", "text/dns", "Idempotency-Key", "large").is(200).has("imported", "5000")
	b.do("POST", path+"/import", file.String(), "Content-Type", "text/dns", "Idempotency-Key", "large").fails(409, "answer_not_kept")
	b.wantAnswer(dns.TypeA, "r4999.own.test", "NOERROR")
}
