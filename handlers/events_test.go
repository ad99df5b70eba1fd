package handlers

import (
	"testing"
	"time"
)

// TestEventIDCombinesWithFilters lists one event by its id, and by each other filter at once.
func TestEventIDCombinesWithFilters(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("anna")
	b.box("boris")
	event := b.get("/v1/events?type=email_user.created").is(200).text("data.0.id")
	past, future := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for query, want := range map[string]string{
		"":                         "1",
		"&type=email_user.created": "1",
		"&type=email.received":     "0",
		"&created_after=" + past:   "1",
		"&created_after=" + future: "0",
		"&type=email_user.created&created_after=" + future: "0",
	} {
		b.get("/v1/events?event_id="+event+query).is(200).has("pagination.count", want, "pagination.has_more", "false")
	}
	b.get("/v1/events?event_id="+event[:20]).is(200).has("pagination.count", "0")
	b.get("/v1/events?event_id="+event+"&cursor=x").fails(400, "invalid_cursor")
	cursor := b.get("/v1/events?limit=1").is(200).text("pagination.cursor")
	b.get("/v1/events?event_id="+event+"&cursor="+cursor).fails(400, "invalid_cursor")
	other := b.with(b.Account(t, "other@example.test").Token)
	other.get("/v1/events?event_id="+event).is(200).has("pagination.count", "0")
}

// TestRedeliverBeforeTheFirstAttempt finds events whose first attempt still waits: a test, and one
// that was announced.
func TestRedeliverBeforeTheFirstAttempt(t *testing.T) {
	b := newSandbox(t, nil) // its queue does not run
	hook := func(events ...string) string {
		return b.post("/v1/webhooks", map[string]any{"url": "https://example.com/hook", "events": events}).is(201).text("id")
	}
	all, bounces := hook("*"), hook("email.bounced")
	again := func(hook, event string) *reply {
		t.Helper()
		return b.post("/v1/webhooks/"+hook+"/deliveries/"+event+"/redeliver", nil)
	}
	ping := b.post("/v1/webhooks/"+bounces+"/test", nil).is(200).text("event_id")
	again(bounces, ping).is(200).has("event_id", ping, "queued", "true")
	again(all, ping).fails(404, "not_found")
	b.box("anna")
	made := b.get("/v1/events?type=email_user.created").is(200).text("data.0.id")
	again(all, made).is(200)
	again(bounces, made).fails(404, "not_found")
	time.Sleep(2 * time.Millisecond)
	again(hook("*"), made).fails(404, "not_found")
}
