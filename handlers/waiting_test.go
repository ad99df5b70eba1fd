package handlers

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const waitedFor = "From: Far <a@far.test>\nTo: ann@boxes.test\nSubject: %\nMessage-ID: <%@far.test>\n\nYour code is 482913, or open https://far.test/c\n"

// TestWaitOverHTTPAndMCP: both doors answer when a message arrives, the chain of now misses none,
// and a token that was revoked meanwhile gets nothing.
func TestWaitOverHTTPAndMCP(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	path := "/v1/email-users/" + ann + "/inbox/wait"
	arrive := func(subject string) {
		t.Helper()
		if err := b.Arrive(t, "a@far.test", "ann@boxes.test", strings.ReplaceAll(waitedFor, "%", subject)); err != nil {
			t.Fatal(err)
		}
	}
	later := func(subject string) {
		go func() {
			time.Sleep(100 * time.Millisecond)
			arrive(subject)
		}()
	}
	later("one")
	got := b.get(path+"?timeout=20").is(200).has("message.subject", "one", "code", "482913", "links.0.url", "https://far.test/c", "links.0.same_domain", "false", "verified_domain", "<nil>")
	if got.text("now") != got.text("message.received_at") {
		t.Errorf("now is %s", got.text("now"))
	}
	arrive("two")
	arrive("three")
	got = b.get(path+"?since="+got.text("now")).is(200).has("message.subject", "two")
	got = b.get("/v1/inbox/wait?withhold=true&since="+got.text("now")).is(200).has("message.subject", "", "message.withheld", "true", "code", "482913")
	got = b.get("/v1/inbox/wait?timeout=1&since="+got.text("now")).is(200).has("message", "<nil>", "code", "<nil>")

	a := b.assistant(b.token)
	later("four")
	tool := a.call("wait_for_message", map[string]any{"user_id": ann, "since": got.text("now"), "timeout": 20}).is(200)
	if subject, code := tool.unmarked("message.subject"), tool.unmarked("code"); subject != "four" || code != "482913" || !strings.HasPrefix(tool.text("_notice"), "UNTRUSTED CONTENT") {
		t.Errorf("the tool says %q, %q: %.200s", subject, code, tool.raw)
	}
	b.get(path+"?timeout=61").fails(400, "validation_error")
	b.get(path+"?kind=number").fails(400, "validation_error")
	b.get(path+"?from_domain=co.uk").fails(400, "validation_error")
	b.get("/v1/email-users/eu_none/inbox/wait").fails(404, "not_found")

	// Revoked while it waits.
	token := b.Token(t, b.Owner.AccountID, "owner", "read")
	if err := b.Arrive(t, "a@far.test", "ann@boxes.test", strings.ReplaceAll(waitedFor, "%", "five")); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(100 * time.Millisecond)
		b.ExpireTokens(t, b.Owner.AccountID)
		_ = b.Arrive(t, "a@far.test", "ann@boxes.test", strings.ReplaceAll(waitedFor, "%", "six"))
	}()
	if r := b.with(token).get(path + "?timeout=20&subject=six"); r.status != 401 {
		t.Errorf("a token that ended meanwhile: %d %s", r.status, r.raw)
	}
}

// TestWaitersEndAtOnceWhenTheServerStops: a stop waits for no waiter, who gets the empty answer.
func TestWaitersEndAtOnceWhenTheServerStops(t *testing.T) {
	b := newSandbox(t, nil)
	api := New(b.Service)
	srv := httptest.NewUnstartedServer(api)
	srv.Config.RegisterOnShutdown(api.EndStreams)
	srv.Start()
	t.Cleanup(srv.Close)
	got := make(chan *reply, 1)
	c := &client{t, srv.URL, b.token}
	go func() { got <- c.get("/v1/inbox/wait?timeout=60") }()
	time.Sleep(200 * time.Millisecond)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := srv.Config.Shutdown(ctx); err != nil {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	(<-got).is(200).has("message", "<nil>")
}
