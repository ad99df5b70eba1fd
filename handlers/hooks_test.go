package handlers

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/code"
)

func TestHooksNeedAKnownRelayAndItsProof(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) {
		c.Relays = []core.Relay{
			{Name: "pm", Kind: "postmark", Host: "127.0.0.1", Port: 1, WebhookSecret: "s3cret"},
			{Name: "mute", Kind: "mailgun", Host: "127.0.0.1", Port: 1},
			{Name: "aws", Kind: "ses", Host: "127.0.0.1", Port: 1, TopicARN: "arn:aws:sns:us-east-1:123456789012:x"},
		}
	})
	stranger := b.with("")
	secret := []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("pm:s3cret"))}
	const bounce = `{"RecordType":"Bounce","Type":"HardBounce","Email":"x@far.test"}`
	stranger.do("POST", "/hooks/postmark/pm", bounce, secret...).is(200)
	stranger.do("POST", "/hooks/postmark/pm", bounce).is(403)
	stranger.do("POST", "/hooks/postmark/pm?secret=s3cret", bounce, "Content-Type", "text/plain").is(200)
	stranger.do("POST", "/hooks/postmark/pm", "no json", secret...).is(400)
	stranger.do("POST", "/hooks/ses/aws", `{"TopicArn":"arn:aws:sns:us-east-1:123456789012:y"}`).is(403)
	stranger.do("POST", "/hooks/ses/aws", `{"TopicArn":"arn:aws:sns:us-east-1:123456789012:x","SigningCertURL":"https://evil.test/x.pem"}`).is(403)
	for _, path := range []string{"/hooks/postmark/other", "/hooks/mailgun/pm", "/hooks/mailgun/mute", "/hooks/postmark", "/hooks/", "/hooks/postmark/pm/x", "/hooks/custom/"} {
		stranger.do("POST", path, bounce, secret...).is(404)
	}
	if r := stranger.get("/hooks/postmark/pm").is(405); r.header.Get("Allow") != "POST" {
		t.Errorf("headers %v", r.header)
	}
	large := `{"Details":"` + strings.Repeat("x", feedback.MaxBody) + `"}`
	stranger.do("POST", "/hooks/postmark/pm", large, secret...).is(413)
	b.do("POST", "/hooks/postmark/pm", bounce).is(403) // a token is no proof
}

func TestHooksAreBounded(t *testing.T) {
	h := newNoticeLimiter()
	now := time.Date(2026, 11, 2, 10, 0, 20, 0, time.UTC)
	status := func(addr string, now time.Time) int {
		release, err := h.acquireSlot(addr, now)
		if err == nil {
			release()
			return 0
		}
		e := new(core.Error)
		if !errors.As(err, &e) || e.RetryAfter == 0 {
			t.Errorf("%v", err)
		}
		return code.Status(e.Code)
	}
	for n := range noticesPerMinute + 1 {
		if got := status("192.0.2.1", now); (got != 0) != (n == noticesPerMinute) {
			t.Fatalf("request %d: %d", n, got)
		}
	}
	if got := status("192.0.2.2", now); got != 0 {
		t.Errorf("another address: %d", got)
	}
	for range refusedPerMinute + 1 {
		h.refused.add("192.0.2.3", now)
	}
	if got := status("192.0.2.3", now); got != http.StatusTooManyRequests {
		t.Errorf("a forger: %d", got)
	}
	if got := status("192.0.2.3", now.Add(time.Minute)); got != 0 {
		t.Errorf("a minute later: %d", got)
	}
	var held []func()
	for addr := range 2 {
		slow := "192.0.2." + string(rune('4'+addr))
		for range maxNoticesOfAddress {
			release, err := h.acquireSlot(slow, now)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		if got := status(slow, now); got != http.StatusServiceUnavailable {
			t.Errorf("with all its slots: %d", got)
		}
		if got := status("192.0.2.2", now); (got != 0) != (addr == 1) {
			t.Errorf("another address beside %d that are slow: %d", addr+1, got)
		}
	}
	for _, release := range held[:maxNoticesOfAddress] {
		release()
	}
	if got := status("192.0.2.2", now); got != 0 {
		t.Errorf("later: %d", got)
	}
}

// TestUnsubscribePage follows the link of a message from boxes.test to a mailbox of another domain.
func TestUnsubscribePage(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.BaseURL = "https://mail.mailstead.test" })
	b.Domain(t, b.Owner.AccountID, "other.test", "builtin", "complete")
	path := "/v1/domains/" + b.domain
	b.get(path).has("list_unsubscribe", "false")
	b.patch(path, `{"list_unsubscribe":"yes"}`).fails(400, "validation_error")
	b.patch(path, `{"list_unsubscribe":true}`).is(200).has("list_unsubscribe", "true")
	ann := b.post("/v1/email-users", `{"email":"ann@boxes.test"}`).is(201).text("user_id")
	bob := b.post("/v1/email-users", `{"email":"bob@other.test"}`).is(201).text("user_id")
	b.post("/v1/email-users/"+ann+"/inbox/send", `{"to":"bob@other.test","subject":"news","text":"hello"}`).is(200)
	var raw string
	for deadline := time.Now().Add(10 * time.Second); raw == "" && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if list := b.get("/v1/email-users/" + bob + "/inbox").is(200); strings.Contains(string(list.raw), `"uid"`) {
			raw = string(b.get("/v1/email-users/" + bob + "/inbox/" + list.text("data.0.uid") + "/raw").is(200).raw)
		}
	}
	_, link, ok := strings.Cut(raw, "List-Unsubscribe: <https://mail.mailstead.test")
	link, _, _ = strings.Cut(link, ">")
	if !ok || !strings.HasPrefix(link, "/unsubscribe/") {
		t.Fatalf("no link in\n%s", raw)
	}
	stranger := b.with("")
	for range 2 { // looking changes nothing
		r := stranger.get(link).is(200)
		csp := r.header.Get("Content-Security-Policy")
		if want := "default-src 'none'; style-src '" + styleHash(string(r.raw)) + "'; form-action 'self'"; !strings.HasPrefix(csp, want) || strings.Contains(csp, "unsafe") {
			t.Errorf("headers %v", r.header)
		}
		if page := string(r.raw); !strings.Contains(page, "bob@other.test") || !strings.Contains(page, "<form method=\"post\">") || strings.Contains(page, "<script") {
			t.Errorf("page %s", page)
		}
	}
	stranger.do("HEAD", link, nil).is(200)
	if list := b.get("/v1/suppressions").is(200); strings.Contains(string(list.raw), "bob@") {
		t.Errorf("suppressed by looking: %s", list.raw)
	}
	stranger.do("DELETE", link, nil).is(405)
	stranger.do("POST", link+"x", "List-Unsubscribe=One-Click").is(404)
	stranger.get("/unsubscribe/").is(404)
	for range 2 {
		stranger.do("POST", link, "List-Unsubscribe=One-Click", "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "cross-site").is(200)
	}
	b.get("/v1/suppressions").is(200).has("data.0.email", "bob@other.test", "data.0.reason", "manual")
	b.patch(path, `{"list_unsubscribe":false}`).is(200).has("list_unsubscribe", "false")
	now := time.Now()
	b.server.now = func() time.Time { return now }
	for range unsubscribesPerMinute {
		b.server.notices.requests.add("unsubscribe 127.0.0.1", now)
	}
	if r := stranger.get(link).is(429); r.header.Get("Retry-After") == "" {
		t.Errorf("headers %v", r.header)
	}
}
