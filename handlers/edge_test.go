package handlers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/servicetest"
)

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
