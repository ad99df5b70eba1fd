package handlers

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/descope/virtualwebauthn"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
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
	a, err := b.CreateAccount(t.Context(), accounts.NewAccount{OwnerEmail: "made@up.test"})
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
		_, err := b.SignIn(t.Context(), accounts.Visitor{IP: addr}, accounts.SignInIn{Email: "owner@example.test", Password: "correct horse", Code: code})
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

func TestPasskeys(t *testing.T) {
	b := newSandbox(t, nil)
	web := b.browser().signIn()
	right := map[string]string{"password": "correct horse"}
	web.ask("POST", "/session/passkeys/options", right).fails(409, "passkeys_unavailable") // at 127.0.0.1
	web.url = strings.Replace(web.url, "127.0.0.1", "localhost", 1)
	rp := virtualwebauthn.RelyingParty{ID: "localhost", Name: "Mailstead", Origin: web.url}
	app := virtualwebauthn.NewAuthenticator()
	key := virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2)

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
	in.ask("POST", "/session/passkey", sign(rp, virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2))).fails(401, "invalid_credentials")
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
