package e2e

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/dnsprov/cloudflare/cloudflaretest"
)

// edgeToken is one that may do everything with records.
const edgeToken = "edge-token-of-an-owner"

// A fakeEdge is Cloudflare's API on a server of its own.
type fakeEdge struct {
	*cloudflaretest.Server
	url  string
	mu   sync.Mutex
	hook func(method, path string) // sees each request before it is answered; may be nil
}

func newFakeEdge(t *testing.T, zones ...string) *fakeEdge {
	t.Helper()
	f := &fakeEdge{Server: cloudflaretest.New()}
	f.Between = func(n int) {
		call := f.Calls()[n]
		f.mu.Lock()
		hook := f.hook
		f.mu.Unlock()
		if hook != nil {
			hook(call.Method, call.Path)
		}
	}
	f.AddToken(edgeToken, cloudflaretest.Token{Rights: cloudflaretest.DNS})
	for _, z := range zones {
		f.AddZone(z, "")
	}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL + "/client/v4"
	return f
}

func (f *fakeEdge) watch(hook func(method, path string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// config is what the program needs to speak to it.
func (f *fakeEdge) config() string {
	return generousLimits + fmt.Sprintf("[cloudflare]\nbase_url = %q\n", f.url)
}

// put has somebody make a record. An MX begins with its priority.
func (f *fakeEdge) put(zone, kind, name, content string) {
	r := cloudflaretest.Record{Type: kind, Name: name, Content: content, TTL: 300}
	if pref, host, ok := strings.Cut(content, " "); ok && kind == "MX" {
		var n uint16
		_, _ = fmt.Sscan(pref, &n) // of the test
		r.Priority, r.Content = &n, host
	}
	f.Put(zone, r)
}

// lines lists the records of a zone, ours or those of others, as "TYPE name content"; keys are cut.
func (f *fakeEdge) lines(zone string, ours bool) []string {
	out := []string{}
	for _, r := range f.Records(zone) {
		if marked := r.Comment != nil && strings.HasPrefix(*r.Comment, "mailstead:"); marked != ours {
			continue
		}
		content, _, _ := strings.Cut(r.Content, "; p=M")
		if r.Priority != nil && r.Type == "MX" {
			content = fmt.Sprint(*r.Priority, " ", content)
		}
		out = append(out, r.Type+" "+r.Name+" "+content)
	}
	slices.Sort(out)
	return out
}

// has tells whether something of ours in a zone begins so.
func (f *fakeEdge) has(zone, line string) bool {
	return slices.ContainsFunc(f.lines(zone, true), func(l string) bool { return strings.HasPrefix(l, line) })
}

// An edgeResult is what connect says of one name.
type edgeResult struct {
	Domain   string
	DomainID string `json:"domain_id"`
	Status   string
	Error    string
}

// connectEdge connects names by a token.
func (i *instance) connectEdge(token string, names ...string) []edgeResult {
	i.t.Helper()
	var out struct {
		Domains     []edgeResult
		Nameservers []string
		EdgeMode    bool `json:"edge_mode"`
	}
	i.want(200, "POST", "/v1/domains/connect", map[string]any{"domains": names, "edge_api_token": token}, &out)
	if !out.EdgeMode || out.Nameservers == nil || len(out.Nameservers) > 0 || len(out.Domains) != len(names) {
		i.t.Fatalf("connect: %+v", out)
	}
	return out.Domains
}

// A seenJob is what the tests read of a job.
type seenJob struct {
	JobID    string `json:"job_id"`
	Status   string
	Attempts int
	Error    *struct{ Code, Message string }
	Steps    []struct {
		Name, Status string
		Error        *string
	}
	Resource struct{ ID string }
}

// endOf waits for a job's end.
func (i *instance) endOf(id string) (job seenJob) {
	i.t.Helper()
	i.until("the job has ended", func() bool {
		i.want(200, "GET", "/v1/jobs/"+id+"?wait=2", nil, &job)
		return job.Status == "completed" || job.Status == "error"
	})
	return job
}

// setUp runs a setup to its end.
func (i *instance) setUp(body map[string]any) seenJob {
	i.t.Helper()
	var job seenJob
	i.want(202, "POST", "/v1/domains/setup", body, &job)
	return i.endOf(job.JobID)
}

// erase deletes a domain and waits for the end of that.
func (i *instance) erase(id string) seenJob {
	i.t.Helper()
	var job seenJob
	i.want(202, "DELETE", "/v1/domains/"+id, nil, &job)
	return i.endOf(job.JobID)
}

// complete waits until a domain is.
func (i *instance) complete(id string) {
	i.t.Helper()
	i.until("the domain is complete", func() bool {
		var d struct {
			Status string
			Error  *struct{ Code, Message string }
		}
		i.want(200, "GET", "/v1/domains/"+id, nil, &d)
		if d.Status == "error" {
			i.t.Fatalf("the domain is in error: %+v", d.Error)
		}
		return d.Status == "complete"
	})
}

// A seenRecord is what the tests read of a custom record.
type seenRecord struct {
	Record struct {
		ID     string `json:"record_id"`
		Status string
		Error  *string
	}
}

// TestEdge is the life of domains at the edge provider, from connect to delete, beside what others
// have there.
func TestEdge(t *testing.T) {
	t.Parallel()
	f, world := newFakeEdge(t, "edge.test", "taken.test", "parent.test"), newResolver(t)
	f.AddToken("token-of-a-reader", cloudflaretest.Token{Rights: cloudflaretest.ReadZones | cloudflaretest.ReadRecords})
	f.AddToken("token-that-expired", cloudflaretest.Token{Rights: cloudflaretest.DNS, Status: "expired"})
	f.put("taken.test", "MX", "taken.test", "5 mx.elsewhere.test")
	f.put("edge.test", "CNAME", "edge.test", "site.elsewhere.test") // flattened there
	f.put("edge.test", "TXT", "edge.test", `"google-site-verification=1"`)
	f.put("edge.test", "TXT", "_dmarc.edge.test", `"v=DMARC1; p=reject"`)
	f.put("edge.test", "A", "shop.edge.test", "192.0.2.2")
	strangers := f.lines("edge.test", false)
	i := newInstance(t, f.config(), "--resolver", world.addr)

	results := i.edgeNames()
	id, sub := results[0].DomainID, results[3].DomainID
	i.complete(id)
	i.complete(sub)
	for _, line := range []string{"MX edge.test 10 mail.", "TXT edge.test \"v=spf1", "TXT ms1._domainkey.edge.test", "TXT ms1e._domainkey.edge.test"} {
		if !f.has("edge.test", line) {
			t.Errorf("%s is not among %q", line, f.lines("edge.test", true))
		}
	}
	if f.has("edge.test", "A edge.test") || f.has("edge.test", "TXT _dmarc") || !f.has("parent.test", "MX mail.parent.test 10") {
		t.Errorf("ours are %q and %q", f.lines("edge.test", true), f.lines("parent.test", true))
	}

	i.edgeRecords(f, id)
	i.edgeSeen(f, world, id)

	if job := i.erase(sub); job.Status != "completed" || len(f.lines("parent.test", true)) != 0 {
		t.Errorf("%+v left %q", job, f.lines("parent.test", true))
	}
	if job := i.erase(id); job.Status != "completed" || len(f.lines("edge.test", true)) != 0 {
		t.Errorf("%+v left %q", job, f.lines("edge.test", true))
	}
	if now := f.lines("edge.test", false); !slices.Equal(now, strangers) {
		t.Errorf("others have %q, had %q", now, strangers)
	}

	i.edgeTokens(f)
	for _, secret := range []string{edgeToken, "token-of-a-reader"} {
		for _, path := range []string{"/v1/domains", "/v1/jobs", "/v1/events"} {
			if strings.Contains(i.text(path), secret) {
				t.Errorf("%s shows a token", path)
			}
		}
	}
	i.check()
}

// edgeNames connects good names beside bad ones, and names by bad tokens.
func (i *instance) edgeNames() []edgeResult {
	t := i.t
	t.Helper()
	results := i.connectEdge(edgeToken, "edge.test", "taken.test", "nozone.test", "mail.parent.test", "no name")
	for n, want := range []string{"", `zone_conflict: `, "zone_not_found: ", "", "not a"} {
		if r := results[n]; (r.Status == "created") != (want == "") || n < 4 && !strings.HasPrefix(r.Error, want) {
			t.Errorf("connect: %+v", r)
		}
	}
	if !strings.Contains(results[1].Error, `MX taken.test "5 mx.elsewhere.test"`) {
		t.Errorf("the conflict: %s", results[1].Error)
	}
	for _, token := range []string{"token-that-expired", "token-of-nobody"} {
		for _, r := range i.connectEdge(token, "taken.test", "nozone.test") {
			if !strings.HasPrefix(r.Error, "edge_token_invalid: ") || strings.Contains(r.Error, token) {
				t.Errorf("with %s: %+v", token, r)
			}
		}
	}
	return results
}

// edgeTokens has a token that may only read found out when the first record is made, and a setup
// with a better one go on. With a dead token the domain goes, and the job says what remains.
func (i *instance) edgeTokens(f *fakeEdge) {
	t := i.t
	t.Helper()
	reader := i.connectEdge("token-of-a-reader", "edge.test")[0]
	var d struct {
		Status string
		Error  *struct{ Code, Message string }
	}
	i.until("the domain is in error", func() bool {
		i.want(200, "GET", "/v1/domains/"+reader.DomainID, nil, &d)
		return d.Status == "error"
	})
	if d.Error.Code != "edge_token_invalid" || !strings.Contains(d.Error.Message, "DNS → Edit") {
		t.Errorf("error %+v", d.Error)
	}
	if job := i.setUp(map[string]any{"domain": "edge.test", "edge_api_token": edgeToken}); job.Status != "completed" || !f.has("edge.test", "MX edge.test") {
		t.Errorf("setup %+v", job)
	}
	f.AddToken(edgeToken, cloudflaretest.Token{Status: "disabled"})
	job := i.erase(reader.DomainID)
	if step := job.Steps[1]; job.Status != "completed" || step.Status != "error" || !strings.Contains(*step.Error, "mailstead:"+reader.DomainID) || !strings.Contains(*step.Error, "MX edge.test") {
		t.Errorf("deletion %+v", job)
	}
}

// edgeRecords makes, changes and deletes records of one's own and the policy, and runs setup over
// it.
func (i *instance) edgeRecords(f *fakeEdge, id string) {
	t, path := i.t, "/v1/domains/"+id+"/custom-dns-records"
	t.Helper()
	post := func(name, kind, value, status string) string {
		t.Helper()
		var r seenRecord
		i.want(200, "POST", path, map[string]any{"name": name, "type": kind, "value": value}, &r)
		if r.Record.Status != status || (r.Record.Error != nil) != (status == "error") {
			t.Errorf("%s %s: %+v", kind, name, r.Record)
		}
		return r.Record.ID
	}
	post("shop", "CNAME", "shop.elsewhere.test", "error")
	www := post("web", "CNAME", "web.elsewhere.test", "active")
	post("quoted", "TXT", `say "hi" \o/ ü`, "active")
	post("long", "TXT", strings.Repeat("x", 700), "active")
	i.want(200, "PATCH", path+"/"+www, map[string]any{"name": "web2"}, nil)
	var d struct {
		Detail *string `json:"status_detail"`
	}
	i.want(200, "PUT", "/v1/domains/"+id+"/dmarc", map[string]any{"value": "v=DMARC1; p=none"}, nil)
	i.want(200, "GET", "/v1/domains/"+id, nil, &d)
	if d.Detail == nil || !strings.HasPrefix(*d.Detail, "zone_conflict: ") || !strings.Contains(*d.Detail, "_dmarc.edge.test") {
		t.Errorf("a policy in the place of somebody else's: %v", d.Detail)
	}
	i.want(200, "DELETE", "/v1/domains/"+id+"/dmarc", nil, nil)
	if i.want(200, "GET", "/v1/domains/"+id, nil, &d); d.Detail != nil {
		t.Errorf("status detail: %s", *d.Detail)
	}
	if !f.has("edge.test", "CNAME web2.edge.test web.elsewhere.test") || f.has("edge.test", "CNAME web.edge.test") || !f.has("edge.test", "TXT long") {
		t.Errorf("ours are %q", f.lines("edge.test", true))
	}
}

// edgeSeen shows that what is at the edge provider is what the domain needs, by looking it up.
func (i *instance) edgeSeen(f *fakeEdge, world *fakeResolver, id string) {
	t := i.t
	t.Helper()
	byName := map[string][]string{}
	for _, r := range f.Records("edge.test") {
		value := r.Content
		if r.Type == "MX" {
			value = fmt.Sprint(*r.Priority, " ", value, ".")
		}
		if r.Type == "MX" || r.Type == "TXT" {
			byName[r.Name+" "+r.Type] = append(byName[r.Name+" "+r.Type], value)
		}
	}
	for key, values := range byName {
		name, kind, _ := strings.Cut(key, " ")
		world.set(t, name, kind, values...)
	}
	var s struct {
		Status string
		Ready  bool
	}
	if i.want(200, "GET", "/v1/domains/"+id+"/dns-status?refresh=true", nil, &s); s.Status != "complete" || !s.Ready {
		t.Errorf("dns-status %+v: %s", s, i.text("/v1/domains/"+id+"/dns-status"))
	}
}
