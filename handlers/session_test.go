package handlers

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/descope/virtualwebauthn"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/signin"
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
	a, err := b.Accounts.CreateAccount(t.Context(), accounts.NewAccount{OwnerEmail: "made@up.test"})
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
	if _, err := b.Accounts.Operator(t.Context(), "ann@team.test"); err != nil {
		t.Errorf("the operator of the account: %v", err)
	}
}

// appStep is the present step of the clock. Codes of it and of the next one stay good while a test
// runs.
func appStep() int64 { return time.Now().Unix() / 30 }

// appCode is what an authenticator app shows at a step of the clock.
func appCode(t *testing.T, secret string, step int64) string {
	t.Helper()
	key, err := base32.StdEncoding.DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	h := hmac.New(sha1.New, key)
	if err := binary.Write(h, binary.BigEndian, step); err != nil {
		t.Fatal(err)
	}
	sum := h.Sum(nil)
	at := sum[19] & 15
	return fmt.Sprintf("%06d", (binary.BigEndian.Uint32(sum[at:])&0x7fffffff)%1_000_000)
}

// TestSecondFactorOutlivesTheMasterKey: codes of the app and recovery codes hold when the master
// key is changed, and so do sessions.
func TestSecondFactorOutlivesTheMasterKey(t *testing.T) {
	b := newSandbox(t, nil)
	web, step := b.browser().signIn(), appStep()
	secret := web.ask("POST", "/session/totp", map[string]string{"password": "correct horse"}).is(200).text("secret")
	codes := web.ask("POST", "/session/totp/confirm", map[string]string{"code": appCode(t, secret, step)}).is(200)
	if _, err := b.Core.RotateKey(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	web.ask("GET", "/session", nil).is(200)
	for _, code := range []string{appCode(t, secret, step+1), codes.text("recovery_codes.3")} {
		in := map[string]string{"email": "owner@example.test", "password": "correct horse", "code": code}
		b.browser().ask("POST", "/session", in).is(200)
		b.browser().ask("POST", "/session", in).fails(400, "invalid_code")
	}
}

func TestSecondFactor(t *testing.T) {
	b := newSandbox(t, nil)
	web, other, step := b.browser().signIn(), b.browser().signIn(), appStep()
	web.ask("POST", "/session/totp", nil).fails(400, "validation_error")
	web.ask("POST", "/session/totp", map[string]string{"password": "wrong horse"}).fails(403, "wrong_password")
	right := map[string]string{"password": "correct horse"}
	secret := web.ask("POST", "/session/totp", right).is(200).text("secret")
	web.ask("GET", "/session", nil).is(200).has("user.totp_enabled", "false")
	web.ask("POST", "/session/totp/confirm", map[string]string{"code": "000"}).fails(400, "invalid_code")
	codes := web.ask("POST", "/session/totp/confirm", map[string]string{"code": appCode(t, secret, step)}).is(200)
	other.ask("GET", "/session", nil).fails(401, "unauthorized")
	web.ask("GET", "/session", nil).is(200).has("user.totp_enabled", "true", "user.recovery_codes_left", "10")
	web.ask("POST", "/session/totp", right).fails(409, "totp_enabled")

	in := func(code string) *reply {
		return b.browser().ask("POST", "/session", map[string]string{"email": "owner@example.test", "password": "correct horse", "code": code})
	}
	in("").fails(401, "second_factor_required")
	in(appCode(t, secret, step)).fails(400, "invalid_code") // it confirmed
	in(appCode(t, secret, step+1)).is(200)
	in(appCode(t, secret, step+1)).fails(400, "invalid_code")
	in(codes.text("recovery_codes.3")).is(200).has("user.recovery_codes_left", "9")
	in(codes.text("recovery_codes.3")).fails(400, "invalid_code")

	web.ask("DELETE", "/session/totp", map[string]string{"password": "wrong horse"}).fails(403, "wrong_password")
	web.ask("DELETE", "/session/totp", map[string]string{"password": "correct horse"}).is(200)
	in("").is(200)
}

func TestSecondFactorHoldsGuessersOff(t *testing.T) {
	b := newSandbox(t, nil)
	web, step := b.browser().signIn(), appStep()
	secret := web.ask("POST", "/session/totp", map[string]string{"password": "correct horse"}).is(200).text("secret")
	web.ask("POST", "/session/totp/confirm", map[string]string{"code": appCode(t, secret, step)}).is(200)
	ask := func(addr, code string) error {
		_, err := b.Signin.SignIn(t.Context(), signin.Visitor{IP: addr}, signin.SignInIn{Email: "owner@example.test", Password: "correct horse", Code: code})
		return err
	}
	answers := map[string]int{}
	for i := range 40 {
		e, ok := core.AsError(ask(fmt.Sprintf("192.0.2.%d", i), "000000"))
		if !ok {
			t.Fatal("a guess was let in")
		}
		answers[e.Code]++
	}
	if answers["invalid_code"] != 20 || answers["rate_limited"] != 20 {
		t.Errorf("40 guesses from 40 networks: %v", answers)
	}
	if err := ask("192.0.2.99", appCode(t, secret, step+1)); err == nil {
		t.Error("a right code after them was looked at")
	}
	if err := ask("127.0.0.1", appCode(t, secret, step+1)); err != nil {
		t.Errorf("the user at home was locked out: %v", err)
	}
}

// newPasskey makes a key whose coordinates have 32 bytes each. The library leaves out leading
// zeros, which RFC 8152 section 13.1.1 forbids.
func newPasskey() virtualwebauthn.Credential {
	for {
		key := virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2)
		if len(key.Key.AttestationData()) == 77 {
			return key
		}
	}
}

func TestPasskeys(t *testing.T) {
	b := newSandbox(t, nil)
	web := b.browser().signIn()
	right := map[string]string{"password": "correct horse"}
	web.ask("POST", "/session/passkeys/options", right).fails(409, "passkeys_unavailable") // at 127.0.0.1
	web.url = strings.Replace(web.url, "127.0.0.1", "localhost", 1)
	rp := virtualwebauthn.RelyingParty{ID: "localhost", Name: "Mailstead", Origin: web.url}
	app := virtualwebauthn.NewAuthenticator()
	key := newPasskey()

	web.ask("POST", "/session/passkeys/options", nil).fails(400, "validation_error")
	web.ask("POST", "/session/passkeys/options", map[string]string{"password": "wrong horse"}).fails(403, "wrong_password")
	offer := web.ask("POST", "/session/passkeys/options", right).is(200)
	asked, err := virtualwebauthn.ParseAttestationOptions(string(offer.raw))
	if err != nil || asked.RelyingPartyID != "localhost" {
		t.Fatalf("options %s: %v", offer.raw, err)
	}
	app.Options.UserHandle = []byte(asked.UserID)
	made := json.RawMessage(virtualwebauthn.CreateAttestationResponse(rp, app, key, *asked))
	elsewhere := rp
	elsewhere.Origin = "http://evil.test"
	stolen := json.RawMessage(virtualwebauthn.CreateAttestationResponse(elsewhere, app, key, *asked))
	web.ask("POST", "/session/passkeys", map[string]any{"name": "x", "credential": stolen}).fails(400, "validation_error")
	r := web.ask("POST", "/session/passkeys", map[string]any{"name": "Key ring", "credential": made}).is(201)
	r.has("user.passkeys.0.name", "Key ring", "user.passkeys.0.last_used_at", "<nil>")
	web.ask("POST", "/session/passkeys", map[string]any{"name": "again", "credential": made}).fails(409, "passkey_exists")

	in := b.browser()
	in.url = web.url
	sign := func(rp virtualwebauthn.RelyingParty, key virtualwebauthn.Credential) map[string]any {
		offer := in.ask("POST", "/session/passkey/options", nil).is(200)
		asked, err := virtualwebauthn.ParseAssertionOptions(string(offer.raw))
		if err != nil {
			t.Fatal(err)
		}
		return map[string]any{"credential": json.RawMessage(virtualwebauthn.CreateAssertionResponse(rp, app, key, *asked))}
	}
	in.ask("POST", "/session/passkey", sign(elsewhere, key)).fails(401, "invalid_credentials")
	in.ask("POST", "/session/passkey", sign(rp, newPasskey())).fails(401, "invalid_credentials")
	answer := sign(rp, key)
	r = in.ask("POST", "/session/passkey", answer).is(200).has("user.email", "owner@example.test")
	if r.text("user.passkeys.0.last_used_at") == "<nil>" {
		t.Error("the passkey's use was not noted")
	}
	in.ask("GET", "/v1/account", nil).is(200)
	in.ask("POST", "/session/passkey", answer).fails(401, "invalid_credentials")
	app.Options.UserNotVerified = true
	in.ask("POST", "/session/passkey", sign(rp, key)).fails(401, "invalid_credentials")
	app.Options.UserNotVerified = false
	web.ask("DELETE", "/session/passkeys/"+r.text("user.passkeys.0.id"), nil).is(200)
	in.ask("POST", "/session/passkey", sign(rp, key)).fails(401, "invalid_credentials")
}

const (
	sessionShape = `kind(team|mailbox) mailbox{user_id,email,name}|null choose_password limited by_operator operator security{totp_enabled,recovery_codes_left,passkeys[{id,name,created_at,last_used_at|null}]} user{id,name,email,role(owner|admin|member),totp_enabled,recovery_codes_left,passkeys[{id,name,created_at,last_used_at|null}]}
		account{id,name,plan(startup|enterprise)} permissions[](read|write|purchase|admin) sandbox outbound(capture|relay|direct) smtp_port hostname version api_base expires_at`
	ownSessionsShape = "data[{id,ip,user_agent,created_at,last_used_at,current,by_operator}] count"
)

// like tells what of an answer differs from a shape; see parseShape.
func (r *reply) like(shape string) *reply {
	r.t.Helper()
	if problems := compare("", r.json, parseShape(shape)); len(problems) > 0 {
		r.t.Errorf("%v in %.900s", problems, r.raw)
	}
	return r
}

func TestSessionAnswers(t *testing.T) {
	b := newSandbox(t, nil)
	web := b.browser()
	web.ask("POST", "/session", map[string]string{"email": "owner@example.test", "password": "correct horse"}).is(200).like(sessionShape)
	web.ask("GET", "/session/here", nil).is(200).like("session" + "{" + sessionShape + "}")
	web.ask("GET", "/session", nil).is(200).like(sessionShape)
	for range 150 { // a stranger may not so often
		web.ask("GET", "/session/here", nil).is(200)
	}
	web.ask("GET", "/session/list", nil).is(200).like(ownSessionsShape)
	web.ask("PATCH", "/session/profile", map[string]string{"name": "Ann"}).is(200).like(sessionShape).has("user.name", "Ann")
	web.ask("PATCH", "/session/profile", map[string]string{"name": "owner@example.test"}).is(200).has("user.name", "owner@example.test")
	web.ask("PATCH", "/session/profile", map[string]string{}).fails(400, "nothing_to_update")
	web.ask("POST", "/session/totp", map[string]string{"password": "correct horse"}).is(200).like("secret uri")
	web.ask("POST", "/session/forgot", map[string]string{"email": "nobody@example.test"}).is(202).like("message")
	web.ask("GET", "/session/nothing", nil).fails(404, "not_found")
	web.ask("PUT", "/session", nil).fails(405, "method_not_allowed")
	web.ask("POST", "/session", "{").fails(400, "invalid_json")
	web.ask("POST", "/session", map[string]string{}).fails(400, "validation_error")
	web.ask("DELETE", "/session?everywhere=true", nil).is(200).like("message")
}

// TestNoOtherSiteUsesASession: what another site has the browser send changes nothing, neither
// below /session nor in the API.
func TestNoOtherSiteUsesASession(t *testing.T) {
	b := newSandbox(t, nil)
	web := b.browser().signIn()
	for _, from := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", "http://evil.test"},
		{"Origin", "null"},
	} {
		for _, ask := range [][3]string{
			{"POST", "/session", `{"email":"owner@example.test","password":"correct horse"}`},
			{"DELETE", "/session", ""},
			{"DELETE", "/session/totp", `{"password":"correct horse"}`},
			{"POST", "/session/totp", ""},
			{"POST", "/session/welcome", `{"token":"x","password":"abcdef"}`},
			{"POST", "/session/forgot", `{"email":"owner@example.test"}`},
			{"PATCH", "/session/profile", `{"name":"x"}`},
			{"POST", "/v1/auth/tokens", `{}`},
			{"PATCH", "/v1/account", `{"name":"x"}`},
			{"DELETE", "/v1/domains/" + b.domain, ""},
		} {
			r := web.do(ask[0], ask[1], ask[2], append([]string{"Cookie", web.cookie}, from...)...)
			if r.status != 403 || r.text("error.code") != "cross_origin" {
				t.Errorf("%s %s with %v: %d %s", ask[0], ask[1], from, r.status, r.raw)
			}
		}
	}
	form := web.do("POST", "/session", "email=owner@example.test&password=correct horse", "Content-Type", "text/plain")
	form.fails(415, "unsupported_media_type")
	web.ask("GET", "/v1/account", nil).is(200).has("name", "owner@example.test")
	b.with(b.Owner.Token).do("PATCH", "/v1/account", `{"name":"by token"}`, "Origin", "http://evil.test", "Cookie", web.cookie).is(200)
}

func TestForgedCookies(t *testing.T) {
	b := newSandbox(t, nil)
	web := b.browser().signIn()
	good := web.cookie
	last := "0"
	if strings.HasSuffix(good, "0") {
		last = "1"
	}
	for _, cookie := range []string{
		"mailstead=", "mailstead=x", "mailstead=mst_", "mailstead=" + b.Owner.Token, good[:len(good)-1] + last, "__Host-" + good,
		"Mailstead" + strings.TrimPrefix(good, "mailstead"), "mailstead=" + strings.Repeat("a", 5000), "mailstead=mst_" + strings.Repeat("0", 46),
	} {
		web.cookie = cookie
		web.ask("GET", "/session", nil).fails(401, "unauthorized")
		web.cookie = cookie
		web.ask("GET", "/v1/account", nil).fails(401, "unauthorized")
	}
	value := strings.TrimPrefix(good, "mailstead=")
	b.with(value).get("/v1/account").fails(401, "unauthorized") // a session is no API token
	web.cookie = good
	web.do("GET", "/v1/account", nil, "Cookie", good, "Authorization", "Bearer mst_wrong").fails(401, "unauthorized")
	web.do("GET", "/session", nil, "Cookie", good, "Authorization", "Bearer "+b.Owner.Token).fails(401, "unauthorized")
	web.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Cookie", good).is(401)
}

// TestNoSessionIsFixed: signing in never goes on with the session that the browser came with, and
// ends it.
func TestNoSessionIsFixed(t *testing.T) {
	b := newSandbox(t, nil)
	attacker := b.browser().signIn()
	planted := attacker.cookie
	victim := b.browser()
	victim.cookie = planted
	victim.signIn()
	if victim.cookie == planted {
		t.Error("the planted session was taken over")
	}
	attacker.ask("GET", "/session", nil).fails(401, "unauthorized")
	victim.ask("GET", "/session", nil).is(200)
}

func TestSessionsOfOthers(t *testing.T) {
	b := newSandbox(t, nil)
	b.Account(t, "other@example.test")
	mine, theirs := b.browser().signIn(), b.browser()
	theirs.ask("POST", "/session", map[string]string{"email": "other@example.test", "password": "correct horse"}).is(200)
	id := theirs.ask("GET", "/session/list", nil).is(200).text("data.0.id")
	mine.ask("DELETE", "/session/list/"+id, nil).fails(404, "not_found")
	mine.ask("DELETE", "/v1/auth/tokens/"+id, nil).fails(404, "not_found")
	mine.ask("GET", "/v1/domains", nil).is(200).has("data.0.domain", "boxes.test")
	theirs.ask("GET", "/v1/domains/"+b.domain, nil).fails(404, "not_found")
	theirs.ask("GET", "/session", nil).is(200)

	again := b.browser().signIn()
	list := mine.ask("GET", "/session/list", nil).is(200).has("count", "2", "data.0.current", "false", "data.1.current", "true")
	if all := mine.ask("GET", "/v1/auth/tokens", nil).list("data", "kind"); slices.Contains(all, "session") {
		t.Errorf("the tokens list a session: %v", all)
	}
	mine.ask("DELETE", "/session/list/"+list.text("data.0.id"), nil).is(200)
	again.ask("GET", "/session", nil).fails(401, "unauthorized")
	again.signIn()
	mine.ask("DELETE", "/session?everywhere=true", nil).is(200)
	again.ask("GET", "/session", nil).fails(401, "unauthorized")
}

// TestChangesReachSessionsAtOnce: a lower role narrows a session, a new password and a deletion end
// it.
func TestChangesReachSessionsAtOnce(t *testing.T) {
	b := newSandbox(t, nil)
	invite := func(email string) (string, *browser) {
		id := b.post("/v1/account/users/invite", map[string]string{"email": email, "password": "correct horse", "role": "admin"}).is(200).text("id")
		web := b.browser()
		web.ask("POST", "/session", map[string]string{"email": email, "password": "correct horse"}).is(200).has("permissions.3", "admin")
		return id, web
	}
	id, web := invite("ann@team.test")
	b.patch("/v1/account/users/"+id, `{"role":"member"}`).is(200)
	if got := web.ask("GET", "/session", nil).is(200).has("user.role", "member").list("permissions", "x"); len(got) != 2 {
		t.Errorf("a member's session has %d permissions", len(got))
	}
	web.ask("POST", "/v1/domains/connect", `{"domains":["x.test"]}`).is(403)
	web.ask("PATCH", "/session/profile", map[string]string{"email": "new@team.test", "current_password": "correct horse"}).fails(403, "forbidden_role")
	b.patch("/v1/account/users/"+id, `{"password":"another horse"}`).is(200)
	web.ask("GET", "/session", nil).fails(401, "unauthorized")
	id, web = invite("bob@team.test")
	b.remove("/v1/account/users/" + id).is(200)
	web.ask("GET", "/v1/account", nil).fails(401, "unauthorized")
	_, web = invite("eve@team.test")
	if _, err := b.Accounts.ResetPassword(t.Context(), accounts.ResetPasswordIn{User: "eve@team.test"}); err != nil {
		t.Fatal(err)
	}
	web.ask("GET", "/session", nil).fails(401, "unauthorized")
}

func TestOwnPasswordEndsOtherSessions(t *testing.T) {
	b := newSandbox(t, nil)
	mine, other := b.browser().signIn(), b.browser().signIn()
	mine.ask("PATCH", "/session/profile", map[string]string{"password": "another horse"}).fails(400, "validation_error")
	mine.ask("PATCH", "/session/profile", map[string]string{"password": "another horse", "current_password": "no horse"}).fails(403, "wrong_password")
	mine.ask("PATCH", "/session/profile", map[string]string{
		"password": "another horse", "email": "boss@example.test", "current_password": "correct horse",
	}).is(200).has("user.email", "boss@example.test", "account.name", "boss@example.test")
	mine.ask("GET", "/session", nil).is(200)
	other.ask("GET", "/session", nil).fails(401, "unauthorized")
	if who, err := b.Accounts.Operator(t.Context(), ""); err != nil || who.Email != "boss@example.test" {
		t.Errorf("the operator acts as %q: %v", who.Email, err)
	}
}

// TestPrintedPasswordMustBeChanged: who signs in with a password that was generated, and so printed
// somewhere, has to choose another one. A password that was given to the command stays.
func TestPrintedPasswordMustBeChanged(t *testing.T) {
	b := newSandbox(t, nil)
	ctx := t.Context()
	made, err := b.Accounts.CreateAccount(ctx, accounts.NewAccount{OwnerEmail: "made@up.test"})
	if err != nil {
		t.Fatal(err)
	}
	choose := func(email, password, next string) {
		t.Helper()
		web := b.browser()
		web.ask("POST", "/session", map[string]string{"email": email, "password": password}).is(200).has("choose_password", "true")
		web.ask("POST", "/session/passkeys/options", map[string]string{"password": password}).fails(403, "person_required")
		web.ask("PATCH", "/session/profile", map[string]string{"password": next, "current_password": password}).is(200).has("choose_password", "false")
		b.browser().ask("POST", "/session", map[string]string{"email": email, "password": next}).is(200).has("choose_password", "false")
	}
	choose("made@up.test", made.OwnerPassword, "of my own choice")
	reset, err := b.Accounts.ResetPassword(ctx, accounts.ResetPasswordIn{User: "made@up.test"})
	if err != nil {
		t.Fatal(err)
	}
	choose("made@up.test", reset.Password, "my own choice again")
	if _, err := b.Accounts.CreateAccount(ctx, accounts.NewAccount{OwnerEmail: "given@up.test", OwnerPassword: "correct horse"}); err != nil {
		t.Fatal(err)
	}
	b.browser().ask("POST", "/session", map[string]string{"email": "given@up.test", "password": "correct horse"}).is(200).has("choose_password", "false")
	if _, err := b.Accounts.ResetPassword(ctx, accounts.ResetPasswordIn{User: "given@up.test", Password: "another horse"}); err != nil {
		t.Fatal(err)
	}
	b.browser().ask("POST", "/session", map[string]string{"email": "given@up.test", "password": "another horse"}).is(200).has("choose_password", "false")
}

func TestWelcomeInParallelSetsOnePassword(t *testing.T) {
	b := newSandbox(t, nil)
	a, err := b.Accounts.CreateAccount(t.Context(), accounts.NewAccount{OwnerEmail: "made@up.test"})
	if err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(a.WelcomeLink, "token=")
	var won, lost int
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			_, err := b.Signin.CompleteWelcome(t.Context(), signin.Visitor{IP: "192.0.2.1"}, signin.WelcomeIn{Token: token, Password: strings.Repeat("xy z", 2+i)})
			mu.Lock()
			defer mu.Unlock()
			if e, ours := core.AsError(err); ours && e.Code == "not_found" {
				lost++
			} else if err == nil {
				won++
			}
		})
	}
	all.Wait()
	if won != 1 || lost != 3 {
		t.Errorf("%d won, %d found the link used", won, lost)
	}
}

// TestPlainHTTP: in production nobody signs in where the password can be overheard, and no cookie
// is believed there.
func TestPlainHTTP(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.Sandbox, c.BaseURL = false, "https://mail.example.test" })
	login := map[string]string{"email": "owner@example.test", "password": "correct horse"}
	b.browser().ask("POST", "/session", login).fails(403, "https_required")

	tls := httptest.NewTLSServer(b.server)
	defer tls.Close()
	ask := func(method, path, cookie string) *http.Response {
		r := httptest.NewRequestWithContext(t.Context(), method, tls.URL+path, strings.NewReader(`{"email":"owner@example.test","password":"correct horse"}`))
		r.RequestURI = ""
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Cookie", cookie)
		resp, err := tls.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp
	}
	resp := ask("POST", "/session", "")
	if resp.StatusCode != 200 || len(resp.Cookies()) != 1 {
		t.Fatalf("over TLS: %d %v", resp.StatusCode, resp.Header)
	}
	cookie := resp.Cookies()[0]
	if cookie.Name != "__Host-mailstead" || !cookie.Secure || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" {
		t.Errorf("the cookie is %v", cookie)
	}
	if resp := ask("GET", "/v1/account", "__Host-mailstead="+cookie.Value); resp.StatusCode != 200 {
		t.Errorf("with the cookie over TLS: %d", resp.StatusCode)
	}
	if resp := ask("GET", "/v1/account", "mailstead="+cookie.Value); resp.StatusCode != 401 {
		t.Errorf("under the sandbox's name: %d", resp.StatusCode)
	}
	b.server.Web = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for path, to := range map[string]string{"/welcome?token=x": "/welcome?token=x", "//evil.test/a": "/evil.test/a", "/domains": "/domains"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.URL = &url.URL{}
		r.URL.Path, r.URL.RawQuery, _ = strings.Cut(path, "?")
		if b.server.ServeHTTP(w, r); w.Code != 307 || w.Header().Get("Location") != "https://mail.example.test"+to {
			t.Errorf("the page %s over plain HTTP: %d %v", path, w.Code, w.Header())
		}
	}
	b.with("").do("GET", "/healthz", nil).is(200)
	for _, name := range []string{"mailstead=", "__Host-mailstead="} {
		b.with("").do("GET", "/v1/account", nil, "Cookie", name+cookie.Value).fails(401, "unauthorized")
	}
}

// TestSessionsHaveABudgetOfTheirOwn: what the dashboard asks counts apart from what tokens ask.
func TestSessionsHaveABudgetOfTheirOwn(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.Limits.RatePerMinute, c.Limits.BurstPerMinute = 3, 3 })
	web := b.browser().signIn()
	statuses := func(ask func() *reply) (out []int) {
		for range 4 {
			out = append(out, ask().status)
		}
		return out
	}
	token := statuses(func() *reply { return b.get("/v1/account") })
	session := statuses(func() *reply { return web.ask("GET", "/v1/account", nil) })
	want := []int{200, 200, 200, 429}
	if !slices.Equal(token, want) || !slices.Equal(session, want) {
		t.Errorf("by token %v, by session %v", token, session)
	}
}

func TestDoorIsBounded(t *testing.T) {
	b := newSandbox(t, nil)
	web := b.browser()
	for i := range anonymousPerMinute {
		if r := web.ask("GET", "/session/welcome?token=none", nil); r.status != 404 {
			t.Fatalf("request %d: %d", i, r.status)
		}
	}
	r := web.ask("POST", "/session", map[string]string{"email": "owner@example.test", "password": "correct horse"}).fails(429, "rate_limited")
	if r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

func FuzzSessionCookie(f *testing.F) {
	b := newSandbox(f, nil)
	for _, text := range []string{"", "mailstead=x", `mailstead="mst_"`, "a=b; mailstead=mst_;;", "mailstead=\x00\xff"} {
		f.Add(text, "agent")
	}
	f.Fuzz(func(t *testing.T, cookie, agent string) {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/session", nil)
		r.Header["Cookie"], r.Header["User-Agent"] = []string{cookie}, []string{agent}
		w := httptest.NewRecorder()
		b.server.ServeHTTP(w, r)
		if w.Code != 401 && w.Code != 429 { // past a number of bad ones
			t.Errorf("%q is let in: %d", cookie, w.Code)
		}
	})
}
