package handlers

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
)

const users = "/v1/account/users"

// invite adds a team user with the password "correct horse", and gives their id.
func (b *sandbox) invite(email, role string) string {
	b.t.Helper()
	return b.post(users+"/invite", map[string]any{"email": email, "role": role, "password": "correct horse"}).is(200).text("id")
}

// tokenOf returns a client whose token belongs to an invited team user.
func (b *sandbox) tokenOf(email string, permissions ...string) *client {
	b.t.Helper()
	t, err := b.Accounts.CreateTokenFor(b.t.Context(), accounts.CreateTokenForIn{User: email, Permissions: permissions})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.with(t.Value)
}

func TestTeamIsSortedByRoleAndAddress(t *testing.T) {
	b := newSandbox(t, nil)
	for email, role := range map[string]string{"zoe@team.test": "admin", "bob@team.test": "member", "amy@team.test": "member", "max@team.test": "admin"} {
		b.invite(email, role)
	}
	r := b.get(users).is(200).has("total", "5", "users.0.role", "owner", "users.0.is_superadmin", "true", "users.0.is_admin", "true",
		"users.0.display_name", "owner@example.test", "users.0.first_name", "<nil>", "users.0.status", "active", "users.0.invited_by", "<nil>",
		"users.1.is_admin", "true", "users.1.is_superadmin", "false", "users.3.is_admin", "false", "users.3.last_login_at", "<nil>", "users.3.invited_by", b.Owner.UserID)
	if got := strings.Join(r.list("users", "email"), " "); got != "owner@example.test max@team.test zoe@team.test amy@team.test bob@team.test" {
		t.Errorf("order %s", got)
	}
	b.get("/v1/account").has("team_users_used", "5", "team_users_limit", "25")
}

// TestGivenPasswords: a password that somebody gives a team user may be short, which the answer
// warns of, and must not be one that is tried first.
func TestGivenPasswords(t *testing.T) {
	b := newSandbox(t, nil)
	const warning = "The password has less than 8 characters. Have its user choose a longer one."
	id := b.post(users+"/invite", `{"email":"short@team.test","password":"s3cr3ts"}`).is(200).has("password_warning", warning).text("id")
	b.patch(users+"/"+id, `{"password":"s3cr3t"}`).is(200).has("password_warning", warning)
	b.patch(users+"/"+id, `{"password":"correct horse"}`).is(200).has("password_warning", "<nil>")
	b.patch(users+"/"+id, `{"first_name":"Sue"}`).is(200).has("password_warning", "<nil>")
	for _, common := range []string{"Password1", "12345678", "qwerty"} {
		b.patch(users+"/"+id, map[string]any{"password": common}).fails(400, "validation_error").has("error.details.0.code", "too_common")
	}
	b.post("/v1/email-users", `{"email":"x@boxes.test","password":"password1"}`).fails(400, "validation_error").has("error.details.0.code", "too_common")
}

func TestInviteTeamUser(t *testing.T) {
	b := newSandbox(t, nil)
	b.post(users+"/invite", `{"email":"Ann@Team.test","first_name":"Ann","last_name":"Lee","role":"admin"}`).is(200).
		has("success", "true", "email", "ann@team.test", "role", "admin", "first_name", "Ann", "last_name", "Lee")
	r := b.post(users+"/invite", `{"email":"bob@team.test","password":"a secret"}`).is(200).has("role", "member", "first_name", "<nil>")
	if _, there := r.at("reset_link"); there {
		t.Error("a password was given, and there is a reset_link")
	}
	b.get(users).has("users.1.display_name", "Ann Lee", "users.1.status", "invited", "users.2.status", "active")
	b.Account(t, "other@example.test")
	for _, email := range []string{"ann@team.test", "OWNER@example.test", "other@example.test"} {
		b.post(users+"/invite", map[string]any{"email": email}).fails(403, "email_already_exists")
	}
	for body, field := range map[string]string{
		`{}`:              "email",
		`{"email":"ann"}`: "email",
		`{"email":"c@team.test","password":"short"}`:                              "password",
		`{"email":"c@team.test","password":"` + strings.Repeat("x", 129) + `"}`:   "password",
		`{"email":"c@team.test","role":"owner"}`:                                  "role",
		`{"email":"c@team.test","first_name":"` + strings.Repeat("x", 101) + `"}`: "first_name",
		`{"email":"c@team.test","last_name":"a\nb"}`:                              "last_name",
		`{"email":7}`: "email",
		`{"email":"c@team.test","last_name":["Lee"]}`: "last_name",
	} {
		b.post(users+"/invite", body).fails(400, "validation_error").has("error.details.0.field", field)
	}
	b.get(users).has("total", "3")
}

func TestTeamIsBounded(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.Limits.TeamUsers = 2 })
	id := b.invite("ann@team.test", "member")
	b.post(users+"/invite", `{"email":"bob@team.test"}`).fails(403, "user_limit_reached")
	b.post(users+"/invite", `{"email":"ann@team.test"}`).fails(403, "email_already_exists")
	b.remove(users + "/" + id).is(200)
	b.invite("bob@team.test", "member")
}

func TestUpdateTeamUser(t *testing.T) {
	b := newSandbox(t, nil)
	id := b.invite("ann@team.test", "member")
	b.invite("bob@team.test", "member")
	path := users + "/" + id
	b.patch(path, `{"email":"Anna@team.test","first_name":"Anna","last_name":"Lee","role":"admin","password":"longer","id":"ignored"}`).is(200).
		has("success", "true", "id", id, "email", "anna@team.test", "display_name", "Anna Lee", "first_name", "Anna", "last_name", "Lee",
			"role", "admin", "is_admin", "true", "is_superadmin", "false")
	b.patch(path, `{"last_name":null}`).is(200).has("display_name", "Anna", "last_name", "<nil>", "first_name", "Anna")
	b.patch(path, `{"email":"anna@team.test"}`).is(200) // their own
	b.patch(path, `{"email":"bob@team.test"}`).fails(403, "email_already_exists")
	for body, code := range map[string]string{
		`{}`: "nothing_to_update", ``: "nothing_to_update", `{"id":"x"}`: "nothing_to_update", `{"email":null}`: "validation_error", `[]`: "invalid_json",
		`{"email":"x"}`: "validation_error", `{"password":"short"}`: "validation_error", `{"role":"owner"}`: "validation_error", `{"first_name":"a\u0000"}`: "validation_error",
		`{"first_name":"a\n"}`: "validation_error", `{"last_name":"a\n"}`: "validation_error", `{"role":1}`: "validation_error",
	} {
		b.patch(path, body).fails(400, code)
	}
	other := b.with(b.Account(t, "other@example.test").Token)
	for _, c := range []struct {
		client *client
		id     string
		status int
		code   string
	}{
		{b.client, "usr_none", 404, "not_found"}, {other, id, 403, "user_not_in_account"}, {b.client, b.Owner.UserID, 403, "owner_protected"},
		{other, b.Owner.UserID, 403, "user_not_in_account"},
	} {
		c.client.patch(users+"/"+c.id, `{"first_name":"X","password":"what ever it is"}`).fails(c.status, c.code)
		c.client.remove(users+"/"+c.id).fails(c.status, c.code)
	}
	b.tokenOf("owner@example.test", "write").patch(users+"/"+b.Owner.UserID, `{"email":"x@team.test"}`).fails(403, "owner_protected")
	b.get(users).has("users.1.first_name", "Anna", "total", "3")
}

func TestDeleteTeamUserRevokesTokens(t *testing.T) {
	b := newSandbox(t, nil)
	id := b.invite("ann@team.test", "member")
	ann := b.tokenOf("ann@team.test", "read", "write")
	ann.get("/v1/account").is(200)
	b.remove(users+"/"+id).is(200).has("success", "true", "id", id, "deleted", "true")
	ann.get("/v1/account").fails(401, "token_revoked")
	b.remove(users+"/"+id).fails(404, "not_found")
	b.get(users).has("total", "1")
	b.get("/v1/auth/tokens").has("count", "1")
	if b.invite("ann@team.test", "member") == id {
		t.Error("an id was used again")
	}
	ann.get("/v1/account").fails(401, "token_revoked")
}

// TestTeamRoles is the contract's row on the team: the owner may do all, an admin touches members
// only, a member their own name and password.
func TestTeamRoles(t *testing.T) {
	b := newSandbox(t, nil)
	admin, second, member, peer := b.invite("admin@team.test", "admin"), b.invite("second@team.test", "admin"), b.invite("member@team.test", "member"), b.invite("peer@team.test", "member")
	name, role := `{"first_name":"X"}`, `{"role":"member"}`
	for _, tc := range []struct {
		who    string
		scope  string
		method string
		id     string
		body   string
		code   string // "" is 200
	}{
		{"admin", "admin", "PATCH", member, name, ""},
		{"admin", "admin", "PATCH", member, `{"email":"moved@team.test","role":"member","password":"a secret"}`, ""},
		{"admin", "admin", "PATCH", member, `{"role":"admin"}`, "forbidden_role"},
		{"admin", "admin", "PATCH", second, name, "forbidden_role"},
		{"admin", "admin", "DELETE", second, "", "forbidden_role"},
		{"admin", "admin", "DELETE", admin, "", "forbidden_role"},
		{"admin", "admin", "PATCH", b.Owner.UserID, name, "owner_protected"},
		{"admin", "admin", "DELETE", b.Owner.UserID, "", "owner_protected"},
		{"admin", "write", "PATCH", admin, name, ""},
		{"admin", "admin", "PATCH", admin, role, "forbidden_role"},
		{"admin", "admin", "PATCH", admin, `{"email":"x@team.test"}`, "forbidden_role"},
		{"admin", "write", "PATCH", member, name, "insufficient_scope"},
		{"admin", "write", "PATCH", "usr_none", name, "insufficient_scope"},
		{"admin", "purchase", "DELETE", member, "", "insufficient_scope"},
		{"admin", "read", "PATCH", admin, name, "insufficient_scope"},
		{"member", "write", "PATCH", member, name, ""},
		{"member", "write", "PATCH", member, `{"password":"a secret"}`, "insufficient_scope"},
		{"member", "write", "PATCH", member, `{"email":"x@team.test"}`, "forbidden_role"},
		{"member", "write", "PATCH", member, `{"role":"admin"}`, "forbidden_role"},
		{"member", "write", "PATCH", peer, name, "insufficient_scope"},
		{"member", "admin", "PATCH", peer, name, "forbidden_role"},
		{"member", "admin", "PATCH", "usr_none", name, "forbidden_role"},
		{"member", "admin", "DELETE", member, "", "forbidden_role"},
		{"member", "admin", "POST", "invite", `{"email":"new@team.test"}`, "forbidden_role"},
		{"member", "write", "POST", "invite", `{"email":"new@team.test"}`, "insufficient_scope"},
		{"admin", "admin", "POST", "invite", `{"email":"new@team.test","role":"admin"}`, "forbidden_role"},
		{"admin", "admin", "POST", "invite", `{"email":"new@team.test"}`, ""},
		{"owner", "admin", "PATCH", second, role, ""},
		{"owner", "admin", "DELETE", peer, "", ""},
		{"owner", "purchase", "DELETE", second, "", "insufficient_scope"},
	} {
		c := b.with(b.tokenAs(map[string]string{"owner": b.Owner.UserID, "admin": admin, "member": member}[tc.who], tc.who, tc.scope))
		r := c.do(tc.method, users+"/"+tc.id, tc.body)
		if tc.code == "" {
			r.is(200)
		} else {
			r.fails(403, tc.code)
		}
	}
	b.with(b.Token(t, b.Owner.AccountID, "member", "read")).get(users).is(200)
}

// tokenAs puts a token into the store that acts for a user, even one that the user could not make.
func (b *sandbox) tokenAs(userID, role, permission string) string {
	b.t.Helper()
	made, err := b.Accounts.CreateToken(b.t.Context(), core.Actor{AccountID: b.Owner.AccountID, UserID: userID, Role: "owner", Permissions: []string{"admin"}},
		accounts.CreateTokenIn{Permissions: &[]string{permission}})
	if err != nil {
		b.t.Fatalf("%s: %v", role, err)
	}
	return made.Value
}

// resetForm posts the form of a reset link.
func (b *sandbox) sendReset(form url.Values, header ...string) *reply {
	b.t.Helper()
	return b.with("").do("POST", "/reset", form.Encode(), append([]string{"Content-Type", "application/x-www-form-urlencoded"}, header...)...)
}

func (b *sandbox) resetToken(email string) string {
	b.t.Helper()
	link := b.post(users+"/invite", map[string]any{"email": email}).is(200).text("reset_link")
	token, ok := strings.CutPrefix(link, b.Core.Config.BaseURL+"/reset?token=")
	if !ok || len(token) < 40 {
		b.t.Fatalf("reset_link %q", link)
	}
	return token
}

func TestResetLinkWorksOnce(t *testing.T) {
	b := newSandbox(t, nil)
	token := b.resetToken("ann@team.test")
	stranger := b.with("")
	for range 2 { // looking uses nothing up
		r := stranger.get("/reset?token=" + token).is(200)
		csp := r.header.Get("Content-Security-Policy")
		if want := "default-src 'none'; style-src '" + styleHash(string(r.raw)) + "'; form-action 'self'"; !strings.HasPrefix(csp, want) || strings.Contains(csp, "unsafe") || r.header.Get("Referrer-Policy") != "same-origin" ||
			r.header.Get("Cache-Control") != "no-store" || r.header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("headers %v", r.header)
		}
		if page := string(r.raw); !strings.Contains(page, "ann@team.test") || !strings.Contains(page, token) || strings.Contains(page, "<script") || strings.Contains(page, " style=") {
			t.Errorf("page %s", page)
		}
	}
	stranger.do("HEAD", "/reset?token="+token, nil).is(200)
	for _, wrong := range []struct {
		want string
		form url.Values
	}{
		{"must have 8 to 128 characters", url.Values{"token": {token}, "password": {"short"}}},
		{"must have 8 to 128 characters", url.Values{"token": {token}}},
		{"do not match", url.Values{"token": {token}, "password": {"correct horse"}, "again": {"correct hose"}}},
	} {
		if page := string(b.sendReset(wrong.form).is(400).raw); !strings.Contains(page, wrong.want) || !strings.Contains(page, token) {
			t.Errorf("page %s", page)
		}
	}
	good := url.Values{"token": {token}, "password": {"correct <horse>"}, "again": {"correct <horse>"}}
	b.sendReset(good, "Sec-Fetch-Site", "cross-site").is(403)
	b.sendReset(good, "Origin", "https://evil.test").is(403)
	stranger.do("POST", "/reset", good.Encode(), "Content-Type", "text/plain").is(415)
	stranger.do("PUT", "/reset", "x").is(405)
	b.sendReset(url.Values{"token": {token}, "password": {strings.Repeat("x", 20<<10)}}).is(400)
	b.get(users).has("users.1.status", "invited")
	if r := b.sendReset(good, "Sec-Fetch-Site", "same-origin", "Origin", b.url).is(200); !strings.Contains(string(r.raw), "Your password is set") {
		t.Errorf("page %s", r.raw)
	}
	b.get(users).has("users.1.status", "active")
	b.sendReset(good).is(404)
	stranger.get("/reset?token=" + token).is(404)
	stranger.get("/reset").is(404)
}

// TestDeadLinksAreBounded counts dead links like bad tokens.
func TestDeadLinksAreBounded(t *testing.T) {
	b := newSandbox(t, nil)
	now := time.Date(2026, 11, 2, 10, 0, 20, 0, time.UTC)
	b.server.now = func() time.Time { return now }
	stranger := b.with("")
	stranger.get("/reset?token=x").is(404)
	stranger.get("/export/x").fails(404, "not_found")
	if n := b.server.badTokens.requestsThisMinute("127.0.0.1", now); n != 2 {
		t.Errorf("counted %d, want 2", n)
	}
	for range badTokensPerMinute {
		b.server.badTokens.count("127.0.0.1", now)
	}
	stranger.get("/export/x").fails(429, "rate_limited")
	if r := stranger.get("/reset?token=x").is(http.StatusTooManyRequests); r.header.Get("Retry-After") != "40" {
		t.Errorf("headers %v", r.header)
	}
}

func TestTokens(t *testing.T) {
	b := newSandbox(t, nil)
	r := b.post("/v1/auth/tokens", `{"name":"CI","permissions":["read","purchase"],"expires_in_days":30,"kind":"mcp"}`).is(201)
	r.has("name", "CI", "permissions", "[read purchase]", "kind", "mcp", "last_used_at", "<nil>", "last_used_ip", "<nil>", "token_prefix", r.text("token")[:12])
	if v := r.text("token"); len(v) != 50 || !strings.HasPrefix(v, "mst_") {
		t.Errorf("token %q", v)
	}
	b.post("/v1/auth/tokens", nil).is(201).has("permissions", "[read write]", "kind", "api", "expires_at", "<nil>", "name", "")
	all := b.get("/v1/auth/tokens").is(200).has("count", "3")
	if strings.Contains(string(all.raw), r.text("token")) || strings.Contains(string(all.raw), `"token":`) {
		t.Error("the list shows a token's value")
	}
	b.remove("/v1/auth/tokens/"+r.text("id")).is(200).has("id", r.text("id"))
	b.remove("/v1/auth/tokens/"+r.text("id")).fails(404, "not_found")
	b.get("/v1/auth/tokens").has("count", "2")
	for _, body := range []string{
		`{"permissions":[]}`, `{"permissions":["root"]}`, `{"kind":"session"}`, `{"kind":"x"}`, `{"expires_in_days":0}`, `{"expires_in_days":3651}`,
		`{"expires_in_days":1,"expires_at":"2100-01-01T00:00:00Z"}`, `{"expires_at":"2020-01-01T00:00:00Z"}`, `{"expires_at":"soon"}`,
		`{"name":"` + strings.Repeat("x", 101) + `"}`, `{"name":"a\u0000b"}`, `{"name":7}`,
	} {
		b.post("/v1/auth/tokens", body).fails(400, "validation_error")
	}
	b.post("/v1/auth/tokens", `{"expires_at":"2100-01-01T01:00:00+01:00","expires_in_days":null}`).is(201).has("expires_at", "2100-01-01T00:00:00.000Z")
}

func TestTokensOfRoles(t *testing.T) {
	b := newSandbox(t, nil)
	member := b.with(b.Token(t, b.Owner.AccountID, "member", "read", "write"))
	admin := b.with(b.Token(t, b.Owner.AccountID, "admin", "admin"))
	writer := b.with(b.Token(t, b.Owner.AccountID, "admin", "write"))
	owners := b.get("/v1/auth/tokens").has("count", "4").list("data", "id")[3]
	admin.get("/v1/auth/tokens").has("count", "3") // all but the owner's
	own := member.get("/v1/auth/tokens").has("count", "1").text("data.0.id")
	member.post("/v1/auth/tokens", `{"permissions":["purchase"]}`).fails(403, "forbidden_role")
	writer.post("/v1/auth/tokens", `{"permissions":["admin"]}`).fails(403, "insufficient_scope")
	member.remove("/v1/auth/tokens/"+owners).fails(404, "not_found")
	admin.remove("/v1/auth/tokens/"+owners).fails(404, "not_found")
	writer.remove("/v1/auth/tokens/"+own).fails(403, "insufficient_scope")
	b.with(b.Account(t, "other@example.test").Token).remove("/v1/auth/tokens/"+own).fails(404, "not_found")
	made := member.post("/v1/auth/tokens", `{"permissions":["read"]}`).is(201)
	b.with(made.text("token")).remove("/v1/auth/tokens/"+made.text("id")).fails(403, "insufficient_scope")
	admin.remove("/v1/auth/tokens/" + own).is(200)
	member.get("/v1/account").fails(401, "token_revoked")
}

func TestLastUseOfATokenIsNoted(t *testing.T) {
	b := newSandbox(t, nil)
	b.get("/v1/account").is(200)
	b.get("/v1/auth/tokens").is(200).has("data.0.last_used_at", "<nil>", "data.0.last_used_ip", "<nil>") // no request costs a write
	b.FlushUses(t)
	r := b.get("/v1/auth/tokens").is(200).has("data.0.last_used_ip", "127.0.0.1")
	if at := fmt.Sprint(r.text("data.0.last_used_at")); at == "<nil>" {
		t.Error("last_used_at is null")
	}
}

// TestPasswordsNeedAdmin: a token that may only write sets no password, its own user's neither; in
// a session one's own takes the present one; and a session with a password that a token has set is
// no person's until its user has chosen one in it.
func TestPasswordsNeedAdmin(t *testing.T) {
	b := newSandbox(t, nil)
	id := b.post("/v1/account/users/invite", `{"email":"adi@team.test","password":"from a token","role":"admin"}`).is(200).text("id")
	path := "/v1/account/users/" + id
	web := b.browser()
	web.ask("POST", "/session", map[string]string{"email": "adi@team.test", "password": "from a token"}).is(200).has("choose_password", "true")
	token := web.ask("POST", "/v1/auth/tokens", map[string]any{"permissions": []string{"read", "write"}}).is(201).text("token")
	b.with(token).patch(path, `{"password":"by a writing token"}`).fails(403, "insufficient_scope")
	b.with(token).patch(path, `{"first_name":"Adi"}`).is(200)

	web.ask("POST", "/v1/approvals/apr_x/approve", map[string]string{"content_hash": "x"}).fails(403, "person_required")
	web.ask("POST", "/session/passkeys/options", map[string]string{"password": "from a token"}).fails(403, "person_required")
	web.ask("PATCH", path, map[string]string{"password": "of my own choice"}).fails(400, "validation_error")
	web.ask("PATCH", path, map[string]string{"password": "of my own choice", "current_password": "wrong horse"}).fails(403, "wrong_password")
	web.ask("PATCH", path, map[string]string{"password": "of my own choice", "current_password": "from a token"}).is(200)
	web.ask("GET", "/session", nil).is(200).has("choose_password", "false")
	web.ask("POST", "/v1/approvals/apr_x/approve", map[string]string{"content_hash": "x"}).fails(404, "not_found")

	b.patch(path, `{"password":"a token again"}`).is(200)
	web.ask("GET", "/session", nil).is(401)
	web.ask("POST", "/session", map[string]string{"email": "adi@team.test", "password": "a token again"}).is(200).has("choose_password", "true")
	web.ask("PATCH", "/session/profile", map[string]string{"password": "of my own choice", "current_password": "a token again"}).is(200).has("choose_password", "false")
}
