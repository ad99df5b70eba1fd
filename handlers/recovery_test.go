package handlers

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// linkIn waits for a message in a mailbox with a link to a page, and returns the link's token.
func (b *sandbox) linkIn(userID, page string) string {
	b.t.Helper()
	link := regexp.MustCompile(page + `\?token=([A-Za-z0-9]+)`)
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
		list := b.get("/v1/email-users/" + userID + "/inbox").is(200)
		for _, uid := range list.list("data", "uid") {
			if found := link.FindStringSubmatch(b.get("/v1/email-users/" + userID + "/inbox/" + uid).is(200).text("text")); found != nil {
				return found[1]
			}
		}
	}
	b.t.Fatalf("no letter with a link to %s", page)
	return ""
}

// A recovery address counts once its holder has confirmed it; then a link goes there that sets the
// mailbox's password, once.
func TestRecovery(t *testing.T) {
	b := newSandbox(t, nil)
	id := b.post("/v1/email-users", `{"email":"ann@boxes.test","password":"correct horse","aliases":["anna@boxes.test"]}`).is(201).has("recovery_email", "<nil>", "recovery_confirmed", "false").text("user_id")
	path, home := "/v1/email-users/"+id, b.box("home")
	web := b.browser().signInTo("ann@boxes.test", "correct horse")

	// Not to itself, and not before it is confirmed.
	web.ask("PATCH", "/v1/me", `{"recovery_email":"anna+x@boxes.test"}`).fails(400, "validation_error").has("error.details.0.field", "recovery_email")
	web.ask("PATCH", "/v1/me", `{"recovery_email":"home@boxes.test"}`).is(200).has("mailbox.recovery_email", "home@boxes.test", "mailbox.recovery_confirmed", "false")
	token := b.linkIn(home, "/recovery")
	web.ask("GET", "/recovery?token="+url.QueryEscape(token), nil).is(200)
	b.get(path).has("recovery_confirmed", "false")
	b.browser().ask("POST", "/session/recovery", map[string]string{"token": "wrong"}).fails(404, "not_found")
	b.browser().ask("POST", "/session/recovery", map[string]string{"token": token}).is(200).has("recovery_email", "home@boxes.test")
	b.browser().ask("POST", "/session/recovery", map[string]string{"token": token}).fails(404, "not_found")
	b.get(path).has("recovery_email", "home@boxes.test", "recovery_confirmed", "true")

	// The response reveals nothing, and the link works once.
	said := b.browser().ask("POST", "/session/recover", map[string]string{"email": "nobody@boxes.test"}).is(202).text("message")
	b.browser().ask("POST", "/session/recover", map[string]string{"email": "Ann@Boxes.test"}).is(202).has("message", said)
	token = b.linkIn(home, "/reset")
	out := b.browser()
	out.ask("GET", "/session/welcome?token="+url.QueryEscape(token), nil).is(200).has("kind", "mailbox", "email", "ann@boxes.test")
	out.ask("POST", "/session/welcome", map[string]string{"token": token, "password": "short"}).fails(400, "validation_error")
	out.ask("POST", "/session/welcome", map[string]string{"token": token, "password": "battery staple"}).is(200).has("kind", "mailbox", "mailbox.user_id", id)
	out.ask("POST", "/session/welcome", map[string]string{"token": token, "password": "another staple"}).fails(404, "not_found")
	web.ask("GET", "/v1/me", nil).fails(401, "unauthorized")
	b.browser().ask("POST", "/session", map[string]string{"email": "ann@boxes.test", "password": "correct horse"}).fails(401, "invalid_credentials")
	b.browser().signInTo("ann@boxes.test", "battery staple")

	// The owner's link, on the page without scripts.
	made := b.post(path+"/recovery-link", nil).is(200)
	link, err := url.Parse(made.text("url"))
	if err != nil {
		t.Fatal(err)
	}
	token = link.Query().Get("token")
	r := b.do("POST", "/reset", url.Values{"token": {token}, "password": {"seven77"}, "again": {"seven77"}}.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	if r.status != http.StatusBadRequest || !strings.Contains(string(r.raw), "8 to 128") {
		t.Errorf("a short password: %d %s", r.status, r.raw)
	}
	b.do("POST", "/reset", url.Values{"token": {token}, "password": {"set by link"}, "again": {"set by link"}}.Encode(), "Content-Type", "application/x-www-form-urlencoded").is(200)
	b.browser().signInTo("ann@boxes.test", "set by link")
	b.post("/v1/email-users/eu_none/recovery-link", nil).fails(404, "not_found")

	// A new address is not confirmed, and none has no link.
	b.patch(path, `{"recovery_email":null}`).is(200).has("recovery_email", "<nil>", "recovery_confirmed", "false")
}
