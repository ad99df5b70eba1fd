package e2e

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.etcd.io/bbolt"
)

// A walk is one domain's way through the states of the interface, seen from outside only.
type walk struct {
	*instance
	world *fakeResolver
	name  string
	id    string
}

// TestStatesOfDomains walks the state table of the interface for the ways of DNS that need no
// provider. Everything is told of once, and what is deleted leaves nothing behind.
func TestStatesOfDomains(t *testing.T) {
	t.Parallel()
	world := newResolver(t)
	i := newInstance(t, generousLimits+"[dns]\nlisten = \"127.0.0.1:0\"\n", "--resolver", world.addr)
	walks := []*walk{{i, world, "builtin.test", ""}, {i, world, "manual.test", ""}, {i, world, "external.test", ""}, {i, world, "setup.test", ""}}
	for n, of := range []func(*walk){(*walk).builtin, (*walk).manual, (*walk).external, (*walk).setUp} {
		of(walks[n])
	}
	for _, w := range walks {
		w.erase()
	}
	i.stop()
	i.check()
	for _, w := range walks {
		w.wantNothingLeft()
	}
}

func (w *walk) connect(body map[string]any, status string) {
	w.t.Helper()
	body["domains"] = []string{w.name}
	var got struct{ Domains []edgeResult }
	w.want(200, "POST", "/v1/domains/connect", body, &got)
	if w.id = got.Domains[0].DomainID; got.Domains[0].Status != "created" {
		w.t.Fatalf("%s: %+v", w.name, got)
	}
	w.wantStatus(status)
	w.want(200, "POST", "/v1/domains/connect", body, &got)
	if got.Domains[0].Status != "already_exists" || got.Domains[0].DomainID != w.id {
		w.t.Errorf("%s again: %+v", w.name, got)
	}
}

// wantStatus wants a domain to be in one of two states that follow each other quickly, or in the
// only one.
func (w *walk) wantStatus(any ...string) {
	w.t.Helper()
	var d struct{ Status string }
	if w.want(200, "GET", "/v1/domains/"+w.id, nil, &d); !slices.Contains(any, d.Status) {
		w.t.Errorf("%s is %s, want %s", w.name, d.Status, any)
	}
}

func (w *walk) reaches(status string) {
	w.t.Helper()
	w.until(w.name+" is "+status, func() bool {
		var d struct{ Status string }
		w.want(200, "GET", "/v1/domains/"+w.id, nil, &d)
		return d.Status == status
	})
}

// told gives how often each event about the domain was sent.
func (w *walk) told(want ...string) {
	w.t.Helper()
	var page struct {
		Data []struct {
			Type string
			Data struct{ Domain string }
		}
	}
	w.want(200, "GET", "/v1/events?limit=100", nil, &page)
	var got []string
	for _, e := range page.Data {
		if e.Data.Domain == w.name && strings.HasPrefix(e.Type, "domain.") {
			got = append(got, strings.TrimPrefix(e.Type, "domain."))
		}
	}
	if slices.Reverse(got); !slices.Equal(got, want) {
		w.t.Errorf("%s: events %s, want %s", w.name, got, want)
	}
}

func (w *walk) checkNS(want string) {
	w.t.Helper()
	var got struct{ Domains []struct{ Status string } }
	if w.want(200, "POST", "/v1/domains/check-ns", map[string]any{"domains": []string{w.name}}, &got); got.Domains[0].Status != want {
		w.t.Errorf("check-ns %s: %s, want %s", w.name, got.Domains[0].Status, want)
	}
}

// answers gives what our DNS server says now.
func (w *walk) answers(name, typ string) string {
	w.t.Helper()
	q := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.StringToType[typ])
	r, _, err := new(dns.Client).Exchange(q, w.ready.DNS)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, rr := range r.Answer {
		out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	return strings.TrimSpace(dns.RcodeToString[r.Rcode] + " " + strings.Join(out, ", "))
}

func (w *walk) wantAnswer(name, typ, want string) {
	w.t.Helper()
	if got := w.answers(name, typ); got != want {
		w.t.Errorf("%s %s: %s, want %s", name, typ, got, want)
	}
}

// builtin: connect → pending_ns, check-ns → complete, then records, policy and health.
func (w *walk) builtin() {
	w.t.Helper()
	w.connect(map[string]any{}, "pending_ns")
	w.told()
	w.checkNS("failed")
	w.wantStatus("pending_ns")
	w.world.delegate(w.ready.DNS)
	w.checkNS("verified")
	w.reaches("complete")
	w.checkNS("already_complete")
	w.told("created", "ready")
	w.records()
	w.health()
}

// records are changed and seen with the next question.
func (w *walk) records() {
	w.t.Helper()
	path := "/v1/domains/" + w.id
	var made struct {
		Record struct {
			RecordID string `json:"record_id"`
			Status   string
		}
	}
	w.want(200, "POST", path+"/custom-dns-records", map[string]any{"name": "own", "type": "A", "value": "192.0.2.7"}, &made)
	w.wantAnswer("own.builtin.test", "A", "NOERROR 192.0.2.7")
	w.want(200, "PATCH", path+"/custom-dns-records/"+made.Record.RecordID, map[string]any{"value": "192.0.2.8"}, nil)
	w.wantAnswer("own.builtin.test", "A", "NOERROR 192.0.2.8")
	w.want(200, "DELETE", path+"/custom-dns-records/"+made.Record.RecordID, nil, nil)
	w.wantAnswer("own.builtin.test", "A", "NXDOMAIN")
	w.want(200, "POST", path+"/custom-dns-records", map[string]any{"name": "stays", "type": "TXT", "value": "here"}, nil)

	w.wantAnswer("_dmarc.builtin.test", "TXT", `NOERROR "v=DMARC1; p=reject"`)
	w.want(200, "PUT", path+"/dmarc", map[string]any{"value": "v=DMARC1; p=none"}, nil)
	w.wantAnswer("_dmarc.builtin.test", "TXT", `NOERROR "v=DMARC1; p=none"`)
	if job := w.instance.setUp(map[string]any{"domain": w.name}); job.Status != "completed" {
		w.t.Errorf("setup again: %+v", job)
	}
	w.wantStatus("complete")
	w.wantAnswer("_dmarc.builtin.test", "TXT", `NOERROR "v=DMARC1; p=none"`)
	w.want(200, "DELETE", path+"/dmarc", nil, nil)
	w.wantAnswer("_dmarc.builtin.test", "TXT", `NOERROR "v=DMARC1; p=reject"`)
	w.told("created", "ready")
}

// health: two bad looks are told of once, and a good one ends the episode.
func (w *walk) health() {
	w.t.Helper()
	var d struct {
		Status string
		Detail *string `json:"status_detail"`
		Health struct {
			Status string
			Since  *time.Time `json:"failing_since"`
			Issues []struct{ Code string }
		} `json:"dns_health"`
	}
	look := func() {
		w.want(200, "GET", "/v1/domains/"+w.id+"/dns-status?refresh=true", nil, nil)
		w.want(200, "GET", "/v1/domains/"+w.id, nil, &d)
	}
	w.world.set(w.t, w.name, "NS", "ns.elsewhere.test.")
	for n, want := range []string{"degraded", "failing", "failing"} {
		if look(); d.Status != "complete" || d.Health.Status != want || len(d.Health.Issues) == 0 || d.Health.Since == nil {
			w.t.Errorf("bad look %d: %+v", n+1, d)
		}
	}
	w.told("created", "ready", "dns_failed")
	w.world.set(w.t, w.name, "NS", "ns1.mailstead.test.", "ns2.mailstead.test.")
	if look(); d.Health.Status != "healthy" || d.Detail == nil || !strings.Contains(*d.Detail, "in order again") {
		w.t.Errorf("recovered: %+v", d)
	}
	w.told("created", "ready", "dns_failed")
}

// manual: connect → pending_dns_records, verify-dns → complete once all critical records are there.
func (w *walk) manual() {
	w.t.Helper()
	w.world.delegate("")
	w.connect(map[string]any{"manual_dns": true}, "in_progress")
	w.reaches("pending_dns_records")
	path := "/v1/domains/" + w.id
	w.want(503, "GET", path+"/custom-dns-records", nil, nil)
	w.want(503, "PUT", path+"/dmarc", map[string]any{"value": "v=DMARC1; p=none"}, nil)
	var list struct {
		Status  string
		Records []struct {
			Type, Host, Value, Purpose string
			Priority                   *int
		}
	}
	if w.want(200, "GET", path+"/dns-records", nil, &list); list.Status != "ready" {
		w.t.Fatalf("dns-records: %+v", list)
	}
	var seen struct {
		All      bool `json:"all_verified"`
		Critical bool `json:"critical_verified"`
	}
	for _, r := range list.Records {
		if w.want(200, "POST", path+"/verify-dns", nil, &seen); seen.Critical && r.Purpose != "DMARC" {
			w.t.Errorf("critical records are verified before %s is there", r.Purpose)
		}
		if seen.Critical {
			break // the rest is not
		}
		w.wantStatus("pending_dns_records")
		name, value := r.Host+"."+w.name, r.Value
		if r.Host == "@" {
			name = w.name
		}
		switch r.Type {
		case "TXT":
			value = quoted(value)
		case "MX":
			value = fmt.Sprintf("%d %s.", *r.Priority, value)
		}
		w.world.set(w.t, name, r.Type, value)
	}
	if !seen.Critical || seen.All {
		w.t.Errorf("without DMARC: %+v", seen)
	}
	w.wantStatus("complete")
	w.told("created", "ready")
}

// quoted is a text in zone-file form.
func quoted(text string) string {
	var out []string
	for part := range slices.Chunk([]byte(text), 255) {
		out = append(out, `"`+string(part)+`"`)
	}
	return strings.Join(out, " ")
}

// external: complete at once, and nothing of it is ours to change.
func (w *walk) external() {
	w.t.Helper()
	w.connect(map[string]any{"external": true}, "complete")
	path := "/v1/domains/" + w.id
	w.want(503, "POST", path+"/custom-dns-records", map[string]any{"name": "a", "type": "TXT", "value": "x"}, nil)
	w.want(503, "DELETE", path+"/dmarc", nil, nil)
	w.want(400, "GET", path+"/dns-records", nil, nil)
	w.want(400, "POST", path+"/verify-dns", nil, nil)
	w.want(400, "POST", "/v1/domains/setup", map[string]any{"domain": w.name}, nil)
	w.told("created", "ready")
	w.wantAnswer(w.name, "MX", "REFUSED")
}

// setUp: queued, pending_ns until it is delegated to us, complete.
func (w *walk) setUp() {
	w.t.Helper()
	body := map[string]any{"domain": w.name, "users": []any{map[string]any{"username": "ann"}}, "redirect_url": "https://elsewhere.test/", "forward_address": "x@elsewhere.test"}
	var job seenJob
	w.want(202, "POST", "/v1/domains/setup", body, &job)
	w.id = job.Resource.ID
	w.reaches("pending_ns")
	w.told("created")
	w.checkNS("failed")
	w.world.delegate(w.ready.DNS)
	w.checkNS("verified")
	if job = w.endOf(job.JobID); job.Status != "completed" {
		w.t.Errorf("setup: %+v", job)
	}
	w.wantStatus("complete")
	w.told("created", "ready")
	w.wantAnswer("www.setup.test", "A", "NOERROR 127.0.0.1")
}

func (w *walk) erase() {
	w.t.Helper()
	var d struct{ Status string }
	if job := w.instance.erase(w.id); job.Status != "completed" {
		w.t.Errorf("delete %s: %+v", w.name, job)
	}
	w.want(404, "GET", "/v1/domains/"+w.id, nil, &d)
	for _, name := range []string{w.name, "stays." + w.name, "ms1._domainkey." + w.name} {
		w.wantAnswer(name, "TXT", "REFUSED")
	}
	w.wantAnswer(w.name, "DNSKEY", "REFUSED")
}

// wantNothingLeft looks through every row of the stopped store. What tells of the past stays:
// events, jobs.
func (w *walk) wantNothingLeft() {
	w.t.Helper()
	db, err := bbolt.Open(filepath.Join(w.dir, "mailstead.db"), 0o600, &bbolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	var search func(place string, b *bbolt.Bucket) error
	search = func(place string, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if v == nil {
				return search(place+"/"+string(k), b.Bucket(k))
			}
			for _, of := range []string{w.name, w.id} {
				if bytes.Contains(k, []byte(of)) || bytes.Contains(v, []byte(of)) {
					w.t.Errorf("%s is left in %s: %.100q = %.200q", w.name, place, k, v)
					break
				}
			}
			return nil
		})
	}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if past := []string{"event", "job", "job.key"}; slices.Contains(past, string(name)) {
				return nil
			}
			return search(string(name), b)
		})
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
