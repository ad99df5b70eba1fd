package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// A script is a server that gives prepared answers to requests with a method and a path, one after
// the other; the last one again and again.
type script struct {
	answers map[string][]string
	asked   []string
	waited  time.Duration
}

// waiter returns a waiter that asks the script, and never really waits. It gives up after an hour.
func (s *script) waiter(t *testing.T, shown *bytes.Buffer) *waiter {
	w := &waiter{line: &progressLine{out: shown, now: func() time.Time { return time.Unix(0, 0).Add(s.waited) }}}
	w.ctx = t.Context()
	w.pause = func(d time.Duration) error {
		s.waited += d
		if s.waited > time.Hour {
			return errors.New("it takes too long")
		}
		return nil
	}
	w.send = func(r *http.Request) (*http.Response, error) {
		name := r.Method + " " + r.URL.Path
		s.asked = append(s.asked, name)
		list := s.answers[name]
		if len(list) == 0 {
			return nil, fmt.Errorf("nobody expects %s", name)
		}
		if len(list) > 1 {
			s.answers[name] = list[1:]
		}
		rec := httptest.NewRecorder()
		status, body, ok := strings.Cut(list[0], " ")
		if !ok || status[0] == '{' {
			status, body = "200", list[0]
		}
		rec.WriteHeader(map[string]int{"200": 200, "404": 404, "409": 409}[status])
		_, _ = io.WriteString(rec, body)
		return rec.Result(), nil
	}
	return w
}

// TestWaitForJob: it shows what the job does, and the error says how it failed.
func TestWaitForJob(t *testing.T) {
	const get = "GET /v1/jobs/job_1"
	for end, want := range map[string]string{
		`{"job_id":"job_1","type":"domain_setup","status":"completed","result":{"a":1}}`:                                    "",
		`{"job_id":"job_1","type":"domain_setup","status":"error","error":{"code":"x","message":"The registrar refused."}}`: "the job job_1 of domain_setup ended as error: The registrar refused.",
		`{"job_id":"job_1","type":"domain_setup","status":"cancelled","error":null}`:                                        "the job job_1 of domain_setup ended as cancelled",
		`404 {"error":{"code":"not_found","message":"There is no such job."}}`:                                              "There is no such job. (not_found)",
	} {
		var shown bytes.Buffer
		s := &script{answers: map[string][]string{get: {
			`{"job_id":"job_1","type":"domain_setup","status":"queued","progress":null,"steps":[]}`,
			`{"job_id":"job_1","type":"domain_setup","status":"in_progress","progress":{"completed":1,"total":4},"steps":[{"name":"wait_for_dns","status":"in_progress"}]}`, end,
		}}}
		job, err := s.waiter(t, &shown).wait("setup_domain", nil, jsonObject{"job_id": "job_1"})
		if want == "" && (err != nil || !strings.Contains(string(job), `"status":"completed","result":{"a":1}`)) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v, %v", end, job, err)
		}
		if got := shown.String(); !strings.Contains(got, "domain setup …") || !strings.Contains(got, "domain setup, wait for dns: 1 of 4 (25 %)") {
			t.Errorf("it showed %q", got)
		}
	}
}

// TestWaitForDomains: the server is asked to look at the DNS until the domains are complete; one
// that fails does not stop the others.
func TestWaitForDomains(t *testing.T) {
	domain := func(id, status, more string) string {
		return fmt.Sprintf(`{"domain_id":%q,"domain":"%s.test","status":%q,"nameservers":["ns1.x.test","ns2.x.test"]%s}`, id, id, status, more)
	}
	answers := func() map[string][]string {
		return map[string][]string{
			"GET /v1/domains/a":             {domain("a", "pending_ns", ""), domain("a", "pending_ns", ""), domain("a", "in_progress", ""), domain("a", "complete", "")},
			"POST /v1/domains/check-ns":     {`{"domains":[]}`},
			"GET /v1/domains/b":             {domain("b", "pending", ""), domain("b", "pending_dns_records", ""), domain("b", "pending_dns_records", ""), domain("b", "complete", "")},
			"POST /v1/domains/b/verify-dns": {`409 {"error":{"code":"records_not_ready","message":"later"}}`, `{}`},
			"GET /v1/domains/c":             {domain("c", "error", `,"error":{"message":"No more domains."}`)},
			"GET /v1/domains/d":             {`404 {"error":{"code":"not_found","message":"none"}}`},
			"GET /v1/domains/e":             {domain("e", "pending_ns", "")},
		}
	}
	for _, c := range []struct {
		operation    string
		args, answer jsonObject
		complete     []string
		failed, said string
	}{
		{"check_nameservers", nil, jsonObject{"domains": []any{map[string]any{"domain_id": "a", "domain": "a.test", "status": "failed"}}}, []string{"a.test"}, "", "a.test: waiting for its nameservers to be ns1.x.test, ns2.x.test …"},
		{"verify_dns", jsonObject{"domain_id": "b"}, jsonObject{"domain": "b.test"}, nil, "", "b.test: waiting for its DNS records …"},
		{
			"connect_domains", nil, jsonObject{"domains": []any{
				map[string]any{"domain_id": "c", "domain": "c.test"}, map[string]any{"domain_id": nil, "domain": "bad", "status": "error", "error": "It is no name."},
				map[string]any{"domain_id": "d"}, map[string]any{"domain_id": "a"},
			}}, []string{"c.test", "a.test"}, "the domain c.test has the status error: No more domains.\nbad: It is no name.\nthe domain d was deleted", "a.test: being set up …",
		},
		{"connect_domains", nil, jsonObject{"domains": []any{map[string]any{"domain_id": "e"}}}, []string{"e.test"}, "it takes too long", "e.test: waiting"},
		{"list_domains", nil, jsonObject{"data": []any{}}, nil, "", ""},
	} {
		var shown bytes.Buffer
		s := &script{answers: answers()}
		got, err := s.waiter(t, &shown).wait(c.operation, c.args, c.answer)
		message := ""
		if err != nil {
			message = err.Error()
		}
		var complete []string
		var list struct{ Domains []struct{ Domain string } }
		if got != nil && json.Unmarshal(got, &list) != nil {
			t.Errorf("%s: %s", c.operation, got)
		}
		for _, d := range list.Domains {
			complete = append(complete, d.Domain)
		}
		if message != c.failed || !slices.Equal(complete, c.complete) || !strings.Contains(shown.String(), c.said) {
			t.Errorf("%s: %v, %q, want %q; showed %q", c.operation, complete, message, c.failed, shown.String())
		}
		if looks := len(slices.DeleteFunc(s.asked, func(one string) bool { return one != "POST /v1/domains/check-ns" })); c.failed == "it takes too long" && (looks < 200 || looks > 260) {
			t.Errorf("the DNS was looked at %d times in an hour", looks)
		}
	}
}
