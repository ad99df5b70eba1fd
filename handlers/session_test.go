package handlers

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service"
)

// A browser is a client with the cookie of its session.
type browser struct {
	*client
	cookie string
}

func (b *sandbox) browser() *browser { return &browser{client: b.with("")} }

// ask sends a request as a page of the dashboard does, and keeps the cookie that comes back.
func (b *browser) ask(method, path string, body any, header ...string) *reply {
	b.t.Helper()
	header = append([]string{"Sec-Fetch-Site", "same-origin"}, header...)
	if b.cookie != "" {
		header = append(header, "Cookie", b.cookie)
	}
	r := b.do(method, path, body, header...)
	for _, c := range (&http.Response{Header: r.header}).Cookies() {
		b.cookie = c.Name + "=" + c.Value
		if c.MaxAge < 0 {
			b.cookie = ""
		}
	}
	return r
}

// signIn signs the owner in.
func (b *browser) signIn() *browser {
	b.t.Helper()
	b.ask("POST", "/session", map[string]string{"email": "owner@example.test", "password": "correct horse"}).is(200)
	return b
}

func TestSignInAndOut(t *testing.T) {
	b := newSandbox(t, nil)
	web := b.browser()
	web.ask("GET", "/session", nil).fails(401, "unauthorized")
	r := web.ask("POST", "/session", map[string]string{"email": "Owner@example.test", "password": "correct horse"}).is(200)
	r.has("user.email", "owner@example.test", "user.role", "owner", "user.totp_enabled", "false", "sandbox", "true",
		"hostname", "mail.example.test", "api_base", "http://127.0.0.1", "account.plan", "startup")
	set := r.header.Get("Set-Cookie")
	for _, want := range []string{"mailstead=mst_", "; Path=/", "; HttpOnly", "; SameSite=Strict"} {
		if !strings.Contains(set, want) {
			t.Errorf("Set-Cookie lacks %q: %s", want, set)
		}
	}
	if strings.Contains(string(r.raw), "mst_") {
		t.Errorf("the answer shows the cookie: %s", r.raw)
	}
	web.ask("GET", "/session", nil).is(200).has("permissions.3", "admin")
	web.ask("GET", "/v1/account", nil).is(200).has("user.email", "owner@example.test")
	web.ask("POST", "/v1/auth/tokens", map[string]any{}).is(201)
	kept := web.cookie
	web.ask("DELETE", "/session", nil).is(200)
	if web.cookie != "" {
		t.Errorf("the cookie stays: %s", web.cookie)
	}
	web.cookie = kept
	web.ask("GET", "/v1/account", nil).fails(401, "unauthorized")
}

func TestWelcomeSetsAddressAndPasswordOnce(t *testing.T) {
	b := newSandbox(t, nil)
	a, err := b.CreateAccount(t.Context(), service.NewAccount{OwnerEmail: "made@up.test"})
	if err != nil {
		t.Fatal(err)
	}
	_, token, ok := strings.Cut(a.WelcomeLink, "http://127.0.0.1/welcome?token=")
	if !ok {
		t.Fatalf("the link is %q", a.WelcomeLink)
	}
	web := b.browser()
	web.ask("GET", "/session/welcome?token="+token, nil).is(200).has("email", "made@up.test", "name", "", "may_change_email", "true")
	body := map[string]string{"token": token, "email": "Ann@team.test", "name": "Ann van Dyke", "password": "a good one"}
	web.ask("POST", "/session/welcome", body).is(200).has("user.email", "ann@team.test", "user.name", "Ann van Dyke", "account.name", "ann@team.test")
	web.ask("GET", "/v1/account", nil).is(200).has("email", "ann@team.test")
	web.ask("POST", "/session/welcome", body).fails(404, "not_found")
	web.ask("GET", "/session/welcome?token="+token, nil).fails(404, "not_found")
	b.browser().ask("POST", "/session", map[string]string{"email": "ann@team.test", "password": "a good one"}).is(200)
	if _, err := b.Operator(t.Context(), "ann@team.test"); err != nil {
		t.Errorf("the operator of the account: %v", err)
	}
}
