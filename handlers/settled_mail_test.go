package handlers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
)

// TestZoneConflict: foreign mail in an edge zone is the error of its item in connect and of the job
// in setup, and stays where it is.
func TestZoneConflict(t *testing.T) {
	b, edge := newEdge(t, "edge.test", "taken.test")
	edge.Add("taken.test", "MX", "taken.test", "5 mx.elsewhere.test")
	r := b.post("/v1/domains/connect", `{"domains":["edge.test","taken.test"],"edge_api_token":"edge-token"}`).is(200).
		has("domains.0.status", "created", "domains.1.status", "error", "domains.1.domain_id", "<nil>", "domains_used", "2")
	if e := r.text("domains.1.error"); !strings.HasPrefix(e, "zone_conflict: ") || !strings.Contains(e, "mx.elsewhere.test") {
		t.Errorf("item error %q", e)
	}
	r = b.setUp(`{"domain":"taken.test","edge_api_token":"edge-token"}`).has("status", "error", "error.code", "zone_conflict")
	if e := r.text("error.message"); !strings.Contains(e, "mx.elsewhere.test") {
		t.Errorf("job error %q", e)
	}
	b.get("/v1/domains/"+r.text("resource.id")).is(200).has("status", "error", "error.code", "zone_conflict")
	if ours := edge.Ours("taken.test"); len(ours) != 0 {
		t.Errorf("changed: %q", ours)
	}
}

// TestAMailboxLiftsItsSuppression when it is made, when its domain is complete, and when it is
// taken back.
func TestAMailboxLiftsItsSuppression(t *testing.T) {
	b, _ := newWorld(t, func(c *core.Config) { c.Sandbox = false })
	suppress := func(email string) { t.Helper(); b.post("/v1/suppressions", map[string]any{"email": email}).is(201) }
	is := func(email string) bool {
		t.Helper()
		return slices.Contains(b.get("/v1/suppressions?limit=100").is(200).list("data", "email"), email)
	}
	for _, email := range []string{"one@boxes.test", "two@boxes.test", "else@boxes.test", "early@late.test"} {
		suppress(email)
	}
	one := b.box("one")
	b.post("/v1/email-users/bulk", `{"domain":"boxes.test","users":[{"username":"two"}]}`).is(200).has("created", "1")
	if is("one@boxes.test") || is("two@boxes.test") || !is("else@boxes.test") {
		t.Error("one or two is suppressed, or else is not")
	}
	suppress("one@boxes.test")
	b.patch("/v1/email-users/"+one, `{"name":"One"}`).is(200)
	b.patch("/v1/email-users/"+one, `{"status":"suspended"}`).is(200)
	if !is("one@boxes.test") {
		t.Error("lifted by another change")
	}
	b.patch("/v1/email-users/"+one, `{"status":"active"}`).is(200)
	if is("one@boxes.test") {
		t.Error("taken back, and still suppressed")
	}
	late := b.connect("late.test")
	b.post("/v1/email-users", `{"email":"early@late.test"}`).is(201).has("status", "pending")
	if is("early@late.test") {
		t.Error("made, and still suppressed")
	}
	suppress("early@late.test")
	b.post("/v1/domains/check-ns", `{"domains":["late.test"]}`).is(200)
	b.until("/v1/domains/"+late, "status", "complete")
	b.until("/v1/email-users?domain=late.test", "data.0.status", "active")
	if is("early@late.test") {
		t.Error("active, and still suppressed")
	}
}

// TestWhatAnEventSaysOfAMessage: whom it was written to, what it answers, and no more of long lists
// than their bounds; the inbox says the same.
func TestWhatAnEventSaysOfAMessage(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	sent := b.post("/v1/email-users/"+ann+"/inbox/send", `{"to":"far@far.test","subject":"s","text":"t"}`).is(200).text("message_id")
	many := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return strings.Join(all, ",\n ")
	}
	arrive := func(to, header string) *reply {
		t.Helper()
		if err := b.Arrive(t, "far@far.test", to, "From: far@far.test\n"+header+"Subject: s\n\nx\n"); err != nil {
			t.Fatal(err)
		}
		return b.get("/v1/events?type=email.received&limit=1").is(200)
	}
	e := arrive("Ann+Shop@boxes.test", "To: "+many(50, "a%02d@far.test")+"\nIn-Reply-To: "+sent+"\n")
	e.has("data.0.data.recipient", "ann+shop@boxes.test", "data.0.data.mailbox", "ann@boxes.test", "data.0.data.original_message_id", sent, "data.0.data.to_count", "50", "data.0.data.cc_count", "0", "data.0.data.references_count", "0")
	if n := len(e.items("data.0.data.to")); n != 50 {
		t.Errorf("%d of 50 in to", n)
	}
	b.get("/v1/inbox").has("data.0.recipient", e.text("data.0.data.recipient"), "data.0.mailbox", "ann@boxes.test", "data.0.original_message_id", sent)
	refs := strings.ReplaceAll(many(21, "<r%02d@far.test>"), ",", "")
	e = arrive("ann@boxes.test", "To: "+many(51, "a%02d@far.test")+"\nCc: "+many(51, "c%02d@far.test")+"\nReferences: "+refs+"\n")
	e.has("data.0.data.to_count", "51", "data.0.data.cc_count", "51", "data.0.data.references_count", "21", "data.0.data.original_message_id", "<nil>",
		"data.0.data.references.0", "<r00@far.test>", "data.0.data.references.1", "<r02@far.test>", "data.0.data.references.19", "<r20@far.test>", "data.0.data.to.49", "a49@far.test")
	for field, want := range map[string]int{"to": 50, "cc": 50, "references": 20} {
		if n := len(e.items("data.0.data." + field)); n != want {
			t.Errorf("%d in %s, want %d", n, field, want)
		}
	}
}

// items is the list at a path.
func (r *reply) items(path string) []any {
	r.t.Helper()
	v, _ := r.at(path)
	list, ok := v.([]any)
	if !ok {
		r.t.Fatalf("%s is no list in %.500s", path, r.raw)
	}
	return list
}

// TestInboxOfADomain: the filter takes a name or an id, combines with the others, and passes pages
// on.
func TestInboxOfADomain(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	second := b.Domain(t, b.Owner.AccountID, "second.test", "builtin", "complete").ID
	cleo := b.post("/v1/email-users", `{"email":"cleo@second.test"}`).is(201).text("id")
	for n := range 12 {
		to := map[bool]string{true: "cleo@second.test", false: "ann@boxes.test"}[n%4 == 0]
		b.Put(t, to, fmt.Sprintf("From: fred@far.test\nSubject: m%d\n\nThe body of %d\n", n, n), mail{Received: time.Date(2026, 11, 1+n, 0, 0, 0, 0, time.UTC)})
	}
	for _, indexed := range []bool{false, true} {
		if indexed {
			b.IndexMail(t)
		}
		for query, want := range map[string]string{
			"/v1/inbox?domain=Second.test":                                "[m8 m4 m0]",
			"/v1/inbox?domain=" + second + "&date_from=2026-11-05":        "[m8 m4]",
			"/v1/inbox?filter[domain]=second.test&q=body":                 "[m8 m4 m0]",
			"/v1/inbox?domain=boxes.test&q=body+8":                        "[]",
			"/v1/inbox?domain=boxes.test&from=fred":                       "[m11 m10 m9 m7 m6 m5 m3 m2 m1]",
			"/v1/inbox?domain=second.test&mailbox=ann@boxes.test":         "[]",
			"/v1/inbox?domain=second.test&mailbox=cleo@second.test":       "[m8 m4 m0]",
			"/v1/inbox?domain=nowhere.test":                               "[]",
			"/v1/inbox?domain=no%20name&q=body":                           "[]",
			"/v1/email-users/" + cleo + "/inbox?domain=second.test":       "[m8 m4 m0]",
			"/v1/email-users/" + ann + "/inbox?domain=second.test":        "[]",
			"/v1/email-users/" + ann + "/inbox?domain=second.test&q=body": "[]",
		} {
			if got := fmt.Sprint(b.get(query).is(200).list("data", "subject")); got != want {
				t.Errorf("indexed %v: %s: %s, want %s", indexed, query, got, want)
			}
		}
		for _, q := range []string{"", "&q=body"} {
			var got []string
			for cursor := ""; ; {
				r := b.get("/v1/inbox?limit=1&domain=second.test" + q + cursor).is(200)
				got = append(got, r.list("data", "subject")...)
				if r.text("pagination.has_more") != "true" {
					break
				}
				cursor = "&cursor=" + r.text("pagination.cursor")
				b.get("/v1/inbox?limit=1&domain=boxes.test"+q+cursor).fails(400, "invalid_cursor")
			}
			if fmt.Sprint(got) != "[m8 m4 m0]" {
				t.Errorf("pages of %q: %v", q, got)
			}
		}
	}
	other := b.with(b.Account(t, "other@example.test").Token)
	other.get("/v1/inbox?domain="+second).is(200).has("pagination.count", "0")
}
