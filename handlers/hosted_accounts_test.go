package handlers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/signin"
)

// hostedShape is an account as its operator sees it.
const hostedShape = `account_id name owner_email status(active|suspended|deleting) plan(startup|enterprise)
	limits{domains|null,email_users|null,mailboxes_per_domain|null,team_users|null,recipients_per_account_per_day|null,storage_bytes|null}
	used{domains,email_users,team_users,recipients_today,storage_bytes} created_at delete_at|null`

// TestHostedAccounts: the operator makes, lists and changes accounts, and their owners sign in.
func TestHostedAccounts(t *testing.T) {
	b := newSandbox(t, nil)
	web := b.browser().signIn()
	made := web.ask("POST", "/v1/accounts", `{"name":"Far & Co","owner_email":"Far@Else.test","limits":{"domains":3,"team_users":null}}`).is(201)
	made.like(hostedShape+" reset_link").has("name", "Far & Co", "owner_email", "far@else.test", "status", "active", "plan", "startup", "limits.domains", "3", "limits.team_users", "<nil>",
		"used.team_users", "1")
	given := web.ask("POST", "/v1/accounts", `{"name":"Given","owner_email":"given@else.test","owner_password":"correct horse","plan":"enterprise"}`).is(201).
		like(hostedShape).has("plan", "enterprise")
	path := "/v1/accounts/" + made.text("account_id")

	// Its owner chooses a password by the link, and sees the limit.
	_, token, _ := strings.Cut(made.text("reset_link"), "token=")
	owner := b.browser()
	owner.ask("POST", "/session/welcome", map[string]string{"token": token, "password": "a good one"}).is(200).has("user.email", "far@else.test", "operator", "false", "account.name", "Far & Co")
	owner.ask("GET", "/v1/account", nil).is(200).has("domains_limit", "3", "team_users_limit", "25", "name", "Far & Co")
	b.browser().ask("POST", "/session", map[string]string{"email": "given@else.test", "password": "correct horse"}).is(200).has("choose_password", "true")

	// The list and its filters.
	b.get("/v1/accounts").is(200).like("data[{"+hostedShape+"}] "+pageShape).has("pagination.count", "3", "data.0.name", "Given", "data.2.owner_email", "owner@example.test")
	for query, want := range map[string]string{"q=FAR": "1", "q=else.test": "2", "q=%26+co": "1", "q=none": "0", "status=active": "3", "status=deleting": "0", "q=given&status=suspended": "0"} {
		if got := b.get("/v1/accounts?" + query).is(200).text("pagination.count"); got != want {
			t.Errorf("%s: %s accounts, want %s", query, got, want)
		}
	}
	b.get("/v1/accounts?status=none").fails(400, "validation_error")

	// Changes: what is left out stays, null takes a limit back.
	web.ask("PATCH", path, `{"limits":{"team_users":1}}`).is(200).like(hostedShape).has("limits.domains", "3", "limits.team_users", "1")
	owner.ask("POST", users+"/invite", `{"email":"one@else.test","password":"correct horse"}`).fails(403, "user_limit_reached")
	web.ask("PATCH", path, `{"name":"Far","plan":"enterprise","limits":{"domains":null,"team_users":0}}`).is(200).has("name", "Far", "plan", "enterprise", "limits.domains", "<nil>", "limits.team_users", "0")
	owner.ask("GET", "/v1/account", nil).is(200).has("domains_limit", "500", "plan", "enterprise")
	owner.ask("POST", users+"/invite", `{"email":"one@else.test","password":"correct horse"}`).is(200)
	web.ask("PATCH", path, `{"status":"suspended"}`).is(200).has("status", "suspended")
	owner.ask("GET", "/v1/account", nil).fails(403, "account_suspended")
	web.ask("PATCH", path, `{"status":"active"}`).is(200).has("status", "active")
	owner.ask("GET", "/v1/account", nil).is(200)

	for _, c := range []struct{ method, path, body, code, field string }{
		{"POST", "/v1/accounts", `{"name":"x","owner_email":"given@else.test"}`, "email_already_exists", ""},
		{"POST", "/v1/accounts", `{"name":"x","owner_email":"one@else.test"}`, "email_already_exists", ""},
		{"POST", "/v1/accounts", `{"owner_email":"new@else.test"}`, "validation_error", "name"},
		{"POST", "/v1/accounts", `{"name":"a\nb","owner_email":"new@else.test"}`, "validation_error", "name"},
		{"POST", "/v1/accounts", `{"name":"x","owner_email":"new"}`, "validation_error", "owner_email"},
		{"POST", "/v1/accounts", `{"name":"x","owner_email":"new@else.test","owner_password":"short"}`, "validation_error", "owner_password"},
		{"POST", "/v1/accounts", `{"name":"x","owner_email":"new@else.test","plan":"large"}`, "validation_error", "plan"},
		{"POST", "/v1/accounts", `{"name":"x","owner_email":"new@else.test","limits":{"domains":-1}}`, "validation_error", "limits.domains"},
		{"POST", "/v1/accounts", `{"name":"x","owner_email":"new@else.test","limits":{"storage_bytes":"many"}}`, "validation_error", "limits"},
		{"PATCH", path, `{}`, "nothing_to_update", ""},
		{"PATCH", path, `{"status":"deleting"}`, "validation_error", "status"},
		{"PATCH", path, `{"limits":{"email_users":1e99}}`, "validation_error", "limits"},
		{"PATCH", "/v1/accounts/" + b.Owner.AccountID, `{"status":"suspended"}`, "owner_protected", ""},
		{"DELETE", "/v1/accounts/" + b.Owner.AccountID + "?confirm=owner@example.test", "", "owner_protected", ""},
		{"DELETE", path, "", "validation_error", "confirm"},
		{"DELETE", path + "?confirm=far", "", "validation_error", "confirm"},
		{"POST", "/v1/accounts/" + b.Owner.AccountID + "/sign-in-link", "", "owner_protected", ""},
		{"GET", path + "/usage?from=yesterday", "", "validation_error", "from"},
		{"GET", path + "/usage?from=2026-02-03&to=2026-02-02", "", "validation_error", "to"},
	} {
		r := web.ask(c.method, c.path, c.body)
		if code := r.text("error.code"); code != c.code || c.field != "" && !strings.HasPrefix(r.text("error.details.0.field"), c.field) {
			t.Errorf("%s %s %s: %s", c.method, c.path, c.body, r.raw)
		}
	}
	b.get("/v1/accounts/"+given.text("account_id")).is(200).has("name", "Given")
	b.get(path+"/usage").is(200).like("data[{date,sent,received,bounced,complained,storage_bytes,mailboxes,domains}] count").has("count", "1", "data.0.date", b.Core.Now().UTC().Format(time.DateOnly), "data.0.domains", "0")

	// Both logs have what was done. Only the first account's log has who it was.
	b.get("/v1/audit?action=update_account_by_id").is(200).has("data.0.actor.type", "user", "data.0.actor.name", "owner@example.test", "data.0.target.id", made.text("account_id"), "data.0.fields", "[status]")
	log := owner.ask("GET", "/v1/audit", nil).is(200)
	if strings.Contains(string(log.raw), "owner@example.test") || strings.Contains(string(log.raw), b.Owner.UserID) {
		t.Errorf("the account's own log names a user of another account: %s", log.raw)
	}
	owner.ask("GET", "/v1/audit?action=create_account", nil).is(200).has("pagination.count", "1", "data.0.actor.type", "operator", "data.0.ip", "<nil>")
}

// operatorsOperations returns the operations that are for the operator alone.
func (b *sandbox) operatorsOperations() (all []api.Operation) {
	for _, o := range b.server.ops {
		if o.Operator || o.OperatorNow {
			all = append(all, o)
		}
	}
	return all
}

// TestAccountsAreTheOperators: every operation of the operator is 403 for all others, whomever it
// is about. Changes need a person who has just signed in, or the socket. None of them is a tool.
func TestAccountsAreTheOperators(t *testing.T) {
	b := newSandbox(t, nil)
	other := b.Account(t, "other@example.test")
	third := b.Account(t, "third@example.test")
	b.invite("plain@team.test", "admin")
	b.invite("runs@team.test", "admin")
	b.browser().signIn().ask("PATCH", users+"/"+b.get(users).is(200).text("users.2.id"), `{"operator":true}`).is(200).has("operator", "true", "email", "runs@team.test")
	sign := func(email string) *browser {
		in := b.browser()
		in.ask("POST", "/session", map[string]string{"email": email, "password": "correct horse"}).is(200)
		return in
	}
	strangers := map[string]func(method, path string, body any, header ...string) *reply{
		"another account's token": b.with(other.Token).do, "another account's owner": sign("other@example.test").ask,
		"an admin's token": b.tokenOf("plain@team.test", "admin").do, "an admin": sign("plain@team.test").ask,
		"a member's token": b.with(b.Token(t, b.Owner.AccountID, "member", "write")).do, "a mailbox": func() *browser { b.box("ann"); return b.browser().signInTo("ann@boxes.test", "correct horse") }().ask,
		"a bound token": b.with(b.post("/v1/auth/tokens", `{"permissions":["admin"],"policy":{"taint":true}}`).is(201).text("token")).do,
	}
	operator, owner := sign("owner@example.test"), b.tokenOf("owner@example.test", "admin")
	parameter := regexp.MustCompile(`\{\w+\}`)
	all := b.operatorsOperations()
	if len(all) < 8 {
		t.Fatalf("%d operations", len(all))
	}
	for _, o := range all {
		if !o.Tool.NoTool || o.OpenToBound() || slices.Contains(o.Roles, "member") || (o.Method == "GET") == o.OperatorNow && o.Name != "get_health" {
			t.Errorf("%s: %+v", o.Name, o.May)
		}
		for _, id := range []string{other.AccountID, third.AccountID, b.Owner.AccountID, "acc_none"} {
			path := parameter.ReplaceAllString(o.Path, id)
			for who, ask := range strangers {
				if r := ask(o.Method, path, "{}"); r.status != 403 || strings.Contains(string(r.raw), "third@") {
					t.Errorf("%s of %s by %s: %d %s", o.Name, id, who, r.status, r.raw)
				}
			}
		}
		if o.OperatorNow {
			owner.do(o.Method, parameter.ReplaceAllString(o.Path, other.AccountID), "{}").fails(403, "person_required")
		}
		if o.Group == "Accounts" && strings.Contains(o.Path, "{account_id}") {
			operator.ask(o.Method, parameter.ReplaceAllString(o.Path, "acc_none")+"?confirm=x", `{"name":"x"}`).fails(404, "not_found")
		}
	}
	runs := sign("runs@team.test")
	runs.ask("PATCH", "/v1/accounts/"+other.AccountID, `{"name":"Other"}`).fails(403, "person_required") // the password is not of their own choice
	runs.ask("PATCH", "/session/profile", map[string]string{"password": "of my own choice", "current_password": "correct horse"}).is(200)
	runs.ask("GET", "/v1/accounts/"+other.AccountID, nil).is(200)
	runs.ask("PATCH", "/v1/accounts/"+other.AccountID, `{"name":"Other"}`).is(200)
	socket := func(account, method, path, body string) int {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if account != "" {
			r.Header.Set("X-Mailstead-Account", account)
		}
		return Do(b.server.Local(), r).StatusCode
	}
	if got := socket("", "PATCH", "/v1/accounts/"+other.AccountID, `{"name":"By command"}`); got != 200 {
		t.Errorf("over the socket: %d", got)
	}
	if got := socket(other.AccountID, "PATCH", "/v1/accounts/"+third.AccountID, `{"name":"No"}`); got != 403 {
		t.Errorf("over the socket as another account: %d", got)
	}
	b.pass(core.SignInFresh + time.Second)
	for _, o := range all {
		if r := operator.ask(o.Method, parameter.ReplaceAllString(o.Path, other.AccountID), "{}"); o.OperatorNow {
			r.fails(401, "sign_in_again")
		}
	}
	b.get("/v1/accounts/"+other.AccountID).is(200).has("name", "By command", "status", "active")
	operator.ask("GET", "/v1/accounts", nil).is(200).has("pagination.count", "3")
}

// TestOperatorsOfTheTeam: the owner alone makes an admin of the first account an operator; whoever
// becomes a member is none any more; and sessions that are open follow at once.
func TestOperatorsOfTheTeam(t *testing.T) {
	b := newSandbox(t, nil)
	admin, peer, member := b.invite("admin@team.test", "admin"), b.invite("peer@team.test", "admin"), b.invite("member@team.test", "member")
	on, off := `{"operator":true}`, `{"operator":false}`
	for _, id := range []string{admin, peer, member} {
		b.tokenOf("admin@team.test", "admin").patch(users+"/"+id, on).fails(403, "forbidden_role")
	}
	b.tokenOf("member@team.test", "write").patch(users+"/"+member, on).fails(403, "forbidden_role")
	b.tokenOf("member@team.test", "write").patch(users+"/"+peer, on).fails(403, "insufficient_scope")
	b.patch(users+"/"+admin, on).fails(403, "person_required") // a token of the owner
	owner := b.browser().signIn()
	owner.ask("PATCH", users+"/"+member, on).fails(400, "validation_error").has("error.details.0.field", "operator")
	owner.ask("PATCH", users+"/"+admin, `{"role":"member","operator":true}`).fails(400, "validation_error")
	owner.ask("PATCH", users+"/"+b.Owner.UserID, on).fails(403, "owner_protected")
	b.Account(t, "other@example.test")
	other := b.browser().signInTo("other@example.test", "correct horse")
	theirs := other.ask("POST", users+"/invite", `{"email":"their@else.test","role":"admin","password":"correct horse"}`).is(200).text("id")
	other.ask("PATCH", users+"/"+theirs, on).fails(400, "validation_error").has("error.details.0.field", "operator")
	other.ask("PATCH", users+"/"+admin, on).fails(403, "user_not_in_account")

	web := b.browser()
	web.ask("POST", "/session", map[string]string{"email": "admin@team.test", "password": "correct horse"}).is(200).has("operator", "false")
	sees := func(may bool, why string) {
		t.Helper()
		web.ask("GET", "/session", nil).is(200).has("operator", fmt.Sprint(may))
		if r := web.ask("GET", "/v1/accounts", nil); (r.status == 200) != may {
			t.Errorf("%s: %d %s", why, r.status, r.raw)
		}
		b.get(users).is(200).has("users.1.email", "admin@team.test")
	}
	sees(false, "an admin")
	owner.ask("PATCH", users+"/"+admin, on).is(200).has("operator", "true")
	sees(true, "an operator")
	for _, change := range []string{`{"password":"battery staple"}`, `{"email":"mine@team.test"}`} { // they would let a token be an operator
		b.patch(users+"/"+admin, change).fails(403, "person_required")
		b.tokenOf("admin@team.test", "admin").patch(users+"/"+admin, change).is(403)
	}
	b.patch(users+"/"+admin, `{"first_name":"Ann"}`).is(200)
	open := listenBy(t, http.DefaultClient, b.url, "Cookie", web.cookie)
	b.patch(users+"/"+admin, off).is(200).has("operator", "false")
	open.ends("the user is no operator any more")
	sees(false, "an operator of before")
	owner.ask("PATCH", users+"/"+admin, on).is(200)
	b.patch(users+"/"+admin, `{"role":"member"}`).is(200).has("operator", "false", "role", "member")
	web.ask("GET", "/v1/accounts", nil).fails(403, "forbidden_role")
	b.patch(users+"/"+admin, `{"role":"admin"}`).is(200).has("operator", "false")
	sees(false, "who was a member meanwhile")
	b.patch(users+"/"+admin, `{"password":"battery staple"}`).is(200) // of no operator
	b.pass(16 * time.Minute)
	owner.ask("PATCH", users+"/"+admin, on).fails(401, "sign_in_again")
}

// linkOf returns the path of a link to sign in to an account.
func (b *browser) linkOf(accountID string) string {
	b.t.Helper()
	r := b.ask("POST", "/v1/accounts/"+accountID+"/sign-in-link", nil).is(200).like("url expires_at")
	path, ok := strings.CutPrefix(r.text("url"), "http://127.0.0.1")
	if !ok || !strings.HasPrefix(path, "/sign-in-link/"+accountID+".") {
		b.t.Fatalf("the link is %s", r.raw)
	}
	return path
}

// open opens a link to sign in.
func (b *browser) open(path string) *reply {
	b.t.Helper()
	r := b.ask("GET", path, nil, "Sec-Fetch-Site", "none")
	if r.status == http.StatusSeeOther && (r.header.Get("Location") != "/" || b.cookie == "" || len(r.raw) > 0) {
		b.t.Errorf("the link answers %v %s", r.header, r.raw)
	}
	return r
}

// TestSignInLinks: a link signs in once, for 15 minutes after it was made. The account's log and a
// letter tell of it; what the letter says is tested in package signin.
func TestSignInLinks(t *testing.T) {
	client := http.DefaultClient
	follow := client.CheckRedirect
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(func() { client.CheckRedirect = follow })
	b := newSandbox(t, nil)
	other := b.Account(t, "other@example.test")
	owner := b.browser()
	owner.ask("POST", "/session", map[string]string{"email": "other@example.test", "password": "correct horse"}).is(200)
	web := b.browser().signIn()

	link := web.linkOf(other.AccountID)
	b.with("").do("HEAD", link, nil).is(405)
	b.with("").do("POST", link, nil).is(405)
	b.browser().open(link+"x").fails(404, "not_found")
	b.browser().open("/sign-in-link/"+other.AccountID+".").fails(404, "not_found")
	b.browser().open("/sign-in-link/"+b.Owner.AccountID+"."+strings.SplitN(link, ".", 2)[1]).fails(404, "not_found")
	in := b.browser()
	in.open(link).is(303)
	b.browser().open(link).fails(404, "not_found")
	in.ask("GET", "/session", nil).is(200).like(sessionShape).has("by_operator", "true", "operator", "false", "user.email", "other@example.test", "account.id", other.AccountID, "permissions", "[read write]")
	in.ask("PATCH", "/v1/account", `{"name":"Helped"}`).is(200)
	in.ask("POST", "/v1/domains/connect", `{"domains":["helped.test"]}`).is(200)
	owner.ask("GET", "/session/list", nil).is(200).like(ownSessionsShape).has("count", "2", "data.0.by_operator", "true", "data.0.ip", "", "data.0.user_agent", "", "data.1.by_operator", "false")

	// The log of the account, and that of the first one.
	owner.ask("GET", "/v1/audit", nil).is(200).has("data.0.action", "connect_domains", "data.0.actor.type", "operator", "data.0.actor.name", "operator", "data.0.actor.id", "<nil>", "data.0.ip", "<nil>",
		"data.1.action", "update_account", "data.1.actor.type", "operator", "data.2.action", "login", "data.2.actor.type", "operator", "data.3.action", "create_sign_in_link", "data.3.actor.type", "operator", "data.3.via", "dashboard")
	b.get("/v1/audit").is(200).has("data.0.action", "connect_domains", "data.0.actor.type", "user", "data.0.actor.id", b.Owner.UserID, "data.0.actor.name", "owner@example.test",
		"data.1.target.id", other.AccountID, "data.2.action", "login", "data.3.action", "create_sign_in_link", "data.3.target.id", other.AccountID)
	if got := b.Letters(t, "other@example.test"); len(got) != 1 || !strings.Contains(got[0], "can sign in to your account") {
		t.Errorf("letters: %q", got)
	}

	// A later link replaces one that was not used. Each ends 15 minutes after it was made.
	first, late := web.linkOf(other.AccountID), web.linkOf(other.AccountID)
	b.browser().open(first).fails(404, "not_found")
	b.pass(14 * time.Minute)
	in.ask("GET", "/v1/account", nil).is(200)
	last := b.browser()
	last.open(late).is(303)
	last.ask("GET", "/v1/account", nil).is(200)
	b.pass(61 * time.Second)
	in.ask("GET", "/v1/account", nil).fails(401, "unauthorized")
	last.ask("GET", "/v1/account", nil).fails(401, "unauthorized")
	owner.ask("GET", "/v1/account", nil).is(200).has("name", "Helped")
	web = b.browser().signIn()
	old := web.linkOf(other.AccountID)
	b.pass(15*time.Minute + time.Second)
	b.browser().open(old).fails(404, "not_found")

	// Whoever is no operator any more has no session; nobody signs in to a suspended account.
	admin := b.invite("runs@team.test", "admin")
	b.browser().signIn().ask("PATCH", users+"/"+admin, `{"operator":true}`).is(200)
	runs := b.browser()
	runs.ask("POST", "/session", map[string]string{"email": "runs@team.test", "password": "correct horse"}).is(200)
	runs.ask("POST", "/v1/accounts/"+other.AccountID+"/sign-in-link", nil).fails(403, "person_required") // the password is not of their own choice
	runs.ask("PATCH", "/session/profile", map[string]string{"password": "of my own choice", "current_password": "correct horse"}).is(200)
	theirs := b.browser()
	theirs.open(runs.linkOf(other.AccountID)).is(303)
	unused := runs.linkOf(other.AccountID)
	theirs.ask("GET", "/v1/account", nil).is(200)
	b.patch(users+"/"+admin, `{"operator":false}`).is(200)
	theirs.ask("GET", "/v1/account", nil).fails(401, "unauthorized")
	b.browser().open(unused).fails(401, "unauthorized")
	web = b.browser().signIn()
	again := web.linkOf(other.AccountID)
	web.ask("PATCH", "/v1/accounts/"+other.AccountID, `{"status":"suspended"}`).is(200)
	b.browser().open(again).fails(403, "account_suspended")
	web.ask("POST", "/v1/accounts/"+other.AccountID+"/sign-in-link", nil).fails(403, "account_suspended")
}

// TestSettingsForbidSignInLinks: with sign_in_links = false none is made, and none works.
func TestSettingsForbidSignInLinks(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.NoSignInLinks = true })
	other := b.Account(t, "other@example.test")
	b.browser().signIn().ask("POST", "/v1/accounts/"+other.AccountID+"/sign-in-link", nil).fails(403, "forbidden_role")
	b.browser().open("/sign-in-link/"+other.AccountID+".x").fails(403, "forbidden_role")
	if got := b.Letters(t, "other@example.test"); len(got) != 0 {
		t.Errorf("letters: %q", got)
	}
}

// TestNoLinkWithoutALetter: when the account's owner has been told too often today, there is no
// link, and no row of the log.
func TestNoLinkWithoutALetter(t *testing.T) {
	b := newSandbox(t, nil)
	other := b.Account(t, "other@example.test")
	web := b.browser().signIn()
	path := "/v1/accounts/" + other.AccountID + "/sign-in-link"
	for range 30 {
		web.ask("POST", path, nil).is(200)
	}
	web.ask("POST", path, nil).fails(429, "rate_limited")
	b.get("/v1/audit?action=create_sign_in_link&limit=100").is(200).has("pagination.count", "30")
	if got := b.Letters(t, "other@example.test"); len(got) != 30 {
		t.Errorf("%d letters", len(got))
	}
}

// accessOperations are the operations that make, show or change access. accessFields are the fields
// that do so in other operations.
const accessOperations = `list_tokens create_token delete_token clear_token_taint
	list_team_users invite_team_user update_team_user delete_team_user
	list_credentials create_credential delete_credential clear_credential_taint list_smtp_credentials create_smtp_credential delete_smtp_credential clear_smtp_credential_taint
	list_dns_credentials create_dns_credential update_dns_credential delete_dns_credential
	create_email_user create_email_users_bulk create_inbox create_recovery_link update_me change_my_password
	create_webhook get_webhook_secret rotate_webhook_secret create_export export_messages
	list_approvals get_approval get_approval_raw approve_message reject_message`

var accessFields = map[string]string{
	"update_email_user": "password recovery_email send_policy", "connect_domains": "edge_api_token", "setup_domain": "edge_api_token users template_id",
}

// secretField matches names of fields that hold or decide access.
var secretField = regexp.MustCompile(`password|secret|^token$|_token$|recovery_email|send_policy|reset_link|download_url`)

// notAccess are operations with such fields that are about other servers, or show no value.
var notAccess = map[string]string{
	"import_messages": "the password of a mailbox elsewhere", "get_account": "the token of the caller", "update_account": "the token of the caller",
	"list_email_users": "send_policy is shown", "get_email_user": "send_policy is shown", "list_domain_email_users": "send_policy is shown", "get_me": "send_policy is shown",
	"list_requests": "the name of a token", "get_request": "the name of a token",
	"list_webhooks": "the end of a secret", "get_webhook": "the end of a secret", "update_webhook": "the end of a secret",
}

// TestLinkedSessionsHaveNoAccess goes over every row of the table, and every path below /session:
// what makes, shows or changes access is 403 in a session that began with a link, and nothing else.
func TestLinkedSessionsHaveNoAccess(t *testing.T) {
	b := newSandbox(t, nil)
	other := b.Account(t, "other@example.test")
	link := b.browser().signIn().linkOf(other.AccountID)
	session, err := b.Signin.UseSignInLink(t.Context(), signin.Visitor{IP: "192.0.2.9"}, strings.TrimPrefix(link, "/sign-in-link/"))
	if err != nil {
		t.Fatal(err)
	}
	in := b.browser()
	in.cookie = "mailstead=" + session.Cookie
	b.Inbox.EndWaiting()
	parameter := regexp.MustCompile(`\{\w+\}`)
	access := strings.Fields(accessOperations)
	for _, o := range b.server.ops {
		if o.Access != slices.Contains(access, o.Name) || o.AccessFields != accessFields[o.Name] {
			t.Errorf("%s: access %v, fields %q", o.Name, o.Access, o.AccessFields)
		}
		r := in.ask(o.Method, parameter.ReplaceAllString(o.Path, "none"), nil)
		linked := r.status == 403 && strings.Contains(r.text("error.message"), "signed in to this account with a link")
		if linked != o.Access {
			t.Errorf("%s, access %v: %d %s", o.Name, o.Access, r.status, r.raw)
		}
		if (o.Operator || o.OperatorNow) && r.status != 403 {
			t.Errorf("%s: %d %s", o.Name, r.status, r.raw)
		}
		// A new operation with a secret in its body or answer is one of access, or named above.
		if _, known := notAccess[o.Name]; !o.Access && !known && !o.Operator && !o.OperatorNow {
			for _, kind := range []reflect.Type{o.Call.In, o.Call.Out} {
				for _, name := range fieldNamesIn(kind, map[reflect.Type]bool{}) {
					if secretField.MatchString(name) && o.AccessFields == "" {
						t.Errorf("%s has the field %s: is it about access?", o.Name, name)
					}
				}
			}
		}
	}
	for _, c := range [][3]string{
		{"PATCH", "/v1/email-users/none", `{"password":"correct horse"}`}, {"PATCH", "/v1/email-users/none", `{"recovery_email":null}`}, {"PATCH", "/v1/email-users/none", `{"send_policy":null}`},
		{"POST", "/v1/domains/connect", `{"domains":["x.test"],"edge_api_token":"x"}`}, {"POST", "/v1/domains/connect", `{"domains":["x.test"],"cloudflare_api_token":"x"}`},
		{"POST", "/v1/domains/setup", `{"domain":"x.test","edge_api_token":"x"}`}, {"POST", "/v1/domains/setup", `{"domain":"x.test","users":[{"username":"a"}]}`},
		{"POST", "/v1/domains/setup", `{"domain":"x.test","template_id":"x"}`},
	} {
		in.ask(c[0], c[1], c[2]).fails(403, "forbidden_role")
	}
	in.ask("PATCH", "/v1/email-users/none", `{"name":"Ann"}`).fails(404, "not_found")

	shown := []string{"GET /session", "GET /session/here", "DELETE /session", "GET " + streamPath, "GET " + viewPath, "HEAD " + viewPath, "GET " + attachmentPath}
	for path, rows := range b.server.sessionRoutes() {
		for method, row := range rows {
			if row.anonymous || slices.Contains(shown, method+" "+path) {
				continue
			}
			in.ask(method, parameter.ReplaceAllString(path, "none"), "{}").fails(403, "forbidden_role")
		}
	}
	in.ask("DELETE", "/session?everywhere=true", nil).fails(403, "forbidden_role")

	// The owner's second factor is not shown, and a link to exported mail neither.
	owner, step := b.browser(), appStep()
	owner.ask("POST", "/session", map[string]string{"email": "other@example.test", "password": "correct horse"}).is(200)
	secret := owner.ask("POST", "/session/totp", map[string]string{"password": "correct horse"}).is(200).text("secret")
	owner.ask("POST", "/session/totp/confirm", map[string]string{"code": appCode(t, secret, step)}).is(200)
	owner.ask("GET", "/session", nil).is(200).has("user.totp_enabled", "true")
	job := b.AddEndedJob(t, other.AccountID, "export_messages", `{"url":"https://far.test/export/x"}`)
	session, err = b.Signin.UseSignInLink(t.Context(), signin.Visitor{IP: "192.0.2.9"}, strings.TrimPrefix(b.browser().signIn().linkOf(other.AccountID), "/sign-in-link/"))
	if err != nil {
		t.Fatal(err)
	}
	in.cookie = "mailstead=" + session.Cookie
	in.ask("GET", "/session", nil).is(200).has("user.totp_enabled", "false", "user.recovery_codes_left", "0", "security.totp_enabled", "false")
	in.ask("GET", "/v1/jobs?type=export_messages", nil).is(200).has("pagination.count", "0")
	in.ask("GET", "/v1/jobs/"+job, nil).fails(404, "not_found")
	b.with(other.Token).get("/v1/jobs/" + job).is(200)
	in.ask("DELETE", "/session", nil).is(200)
	in.ask("GET", "/v1/account", nil).fails(401, "unauthorized")
}

// fieldNamesIn returns the names of all JSON fields in a type, at any depth.
func fieldNamesIn(t reflect.Type, seen map[reflect.Type]bool) (names []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return nil
	}
	seen[t] = true
	for i := range t.NumField() {
		f := t.Field(i)
		if name := openapi.JSONName(f); name != "" {
			names = append(names, name)
		}
		names = append(names, fieldNamesIn(f.Type, seen)...)
	}
	return names
}

// TestLimitsHoldUnderConcurrentCreation: each limit of an account, with many requests at once.
func TestLimitsHoldUnderConcurrentCreation(t *testing.T) {
	b := newSandbox(t, nil)
	web := b.browser().signIn()
	id := b.Owner.AccountID
	web.ask("PATCH", "/v1/accounts/"+id, `{"limits":{"domains":4,"email_users":6,"mailboxes_per_domain":5,"team_users":4,"recipients_per_account_per_day":7}}`).is(200)
	ann := b.box("ann")
	b.Domain(t, id, "second.test", "builtin", "complete")
	for what, c := range map[string]struct {
		path string
		body func(n int) string
		code string
		want int
	}{
		"domains":    {"/v1/domains/connect", func(n int) string { return fmt.Sprintf(`{"domains":["d%d.test"]}`, n) }, "domain_limit_exceeded", 2},
		"team users": {users + "/invite", func(n int) string { return fmt.Sprintf(`{"email":"u%d@team.test"}`, n) }, "user_limit_reached", 3},
		"mailboxes":  {"/v1/email-users", func(n int) string { return fmt.Sprintf(`{"email":"m%d@boxes.test"}`, n) }, "email_user_limit_exceeded", 4},
		"recipients": {"/v1/email-users/" + ann + "/inbox/send", func(n int) string { return fmt.Sprintf(`{"to":"r%d@far.test","subject":"s","text":"t"}`, n) }, "daily_send_limit_reached", 7},
	} {
		var made atomic.Int32
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				switch r := b.post(c.path, c.body(n)); {
				case r.status < 300:
					made.Add(1)
				case r.text("error.code") != c.code:
					t.Errorf("%s: %d %s", what, r.status, r.raw)
				}
			})
		}
		all.Wait()
		if int(made.Load()) != c.want {
			t.Errorf("%s: %d were made, want %d", what, made.Load(), c.want)
		}
	}
	b.post("/v1/email-users", `{"email":"x@second.test"}`).is(201) // the sixth
	b.post("/v1/email-users", `{"email":"y@second.test"}`).fails(403, "email_user_limit_exceeded")
	b.post("/v1/email-users/bulk", `{"domain":"second.test","users":[{"username":"z"}]}`).is(200).has("created", "0", "errors.0.code", "email_user_limit_exceeded")
	b.post("/v1/inboxes", `{"domain":"second.test","username":"short"}`).fails(403, "email_user_limit_exceeded")
	b.post("/v1/domains/setup", `{"domain":"set.test"}`).fails(403, "domain_limit_exceeded")
	b.get("/v1/accounts/"+id).is(200).has("used.domains", "4", "used.email_users", "6", "used.team_users", "4", "used.recipients_today", "7")
	b.get("/v1/account/usage").is(200).has("domains.limit", "4", "email_users.limit", "6", "team_users.limit", "4")
	other := b.with(b.Account(t, "other@example.test").Token) // which the limits are not of
	other.get("/v1/account").is(200).has("domains_limit", "500", "email_users_limit", "<nil>")
}

// TestFullStorageClosesEveryDoor: past storage_bytes of the account, mail is refused at each door
// of the API and of SMTP; what is deleted makes room again. The doors of IMAP are in package imapd.
func TestFullStorageClosesEveryDoor(t *testing.T) {
	b := newSandbox(t, nil)
	web := b.browser().signIn()
	ann, path := b.box("ann"), "/v1/accounts/"+b.Owner.AccountID
	b.box("bob")
	letter := "From: far@far.test\nTo: ann@boxes.test\nSubject: one\n\nhello\n"
	b.Put(t, "ann@boxes.test", letter, mail{})
	stored := b.get(path).is(200).text("used.storage_bytes")
	web.ask("PATCH", path, `{"limits":{"storage_bytes":`+stored+`}}`).is(200).has("limits.storage_bytes", stored)
	b.get("/v1/account/usage").is(200).has("storage.limit_bytes", stored, "storage.used_bytes", stored)

	box := "/v1/email-users/" + ann
	later := func() string { return b.Core.Now().Add(time.Hour).UTC().Format(time.RFC3339) }
	full := func(why string, r *reply) {
		t.Helper()
		if r.status != 507 || r.text("error.code") != "quota_exceeded" || !strings.Contains(r.text("error.message"), "account") {
			t.Errorf("%s: %d %s", why, r.status, r.raw)
		}
	}
	doors := func() {
		t.Helper()
		full("a draft", b.post(box+"/drafts", `{"subject":"s","text":"t"}`))
		full("a message with its copy", b.post(box+"/inbox/send", `{"to":"x@far.test","subject":"s","text":"t"}`))
		full("a scheduled message", b.post(box+"/inbox/send", `{"to":"x@far.test","subject":"s","text":"t","send_at":"`+later()+`"}`))
		full("an upload", b.do("POST", box+"/import", "From a@far.test Mon Nov  2 10:00:00 2026\nSubject: one\n\nHello\n", "Content-Type", "application/mbox"))
		for _, to := range []string{"ann@boxes.test", "bob@boxes.test", "ann@boxes.test,bob@boxes.test"} {
			if smtp := core.AsSMTPError(b.Arrive(t, "far@far.test", to, letter)); smtp.Code != 452 || smtp.Enhanced != "4.2.2" {
				t.Errorf("mail to %s: %v", to, smtp)
			}
		}
	}
	doors()
	b.get(box+"/inbox").is(200).has("pagination.count", "1")
	if got := b.get("/v1/messages").is(200).text("pagination.count"); got != "0" {
		t.Errorf("%s messages left", got)
	}
	other := b.Account(t, "other@example.test")
	b.Domain(t, other.AccountID, "other.test", "builtin", "complete")
	b.with(other.Token).post("/v1/email-users", `{"email":"cat@other.test"}`).is(201)
	if err := b.Arrive(t, "far@far.test", "cat@other.test", letter); err != nil {
		t.Errorf("another account: %v", err)
	}

	// A scheduled message that was taken before leaves, without a copy.
	web.ask("PATCH", path, `{"limits":{"storage_bytes":null}}`).is(200)
	b.post(box+"/inbox/send", `{"to":"later@far.test","subject":"later","text":"t","send_at":"`+later()+`"}`).is(200)
	web.ask("PATCH", path, `{"limits":{"storage_bytes":1}}`).is(200)
	b.pass(2 * time.Hour)
	b.until("/v1/messages", "data.0.status", "captured")
	b.get(box+"/inbox?folder=sent").is(200).has("pagination.count", "0")
	doors()

	// Room again.
	web = b.browser().signIn()
	web.ask("PATCH", path, `{"limits":{"storage_bytes":1000000}}`).is(200)
	b.post(box+"/drafts", `{"subject":"s","text":"t"}`).is(201)
	b.post(box+"/inbox/send", `{"to":"x@far.test","subject":"s","text":"t"}`).is(200)
	if err := b.Arrive(t, "far@far.test", "ann@boxes.test", letter); err != nil {
		t.Error(err)
	}
}

// TestDeletionWaitsAndIsUndone: an account that is to be deleted is suspended and its owner told;
// active keeps it; after seven days it is gone, by a job that the operator alone sees.
func TestDeletionWaitsAndIsUndone(t *testing.T) {
	b := newSandbox(t, nil)
	admin := b.with(b.Token(t, b.Owner.AccountID, "admin", "admin"))
	other := b.Account(t, "other@example.test")
	b.Domain(t, other.AccountID, "other.test", "builtin", "complete")
	theirs := b.with(other.Token)
	theirs.post("/v1/email-users", `{"email":"cat@other.test"}`).is(201)
	path := "/v1/accounts/" + other.AccountID
	ask := path + "?confirm=other@example.test"

	web := b.browser().signIn()
	r := web.ask("DELETE", ask, nil).is(202).like(hostedShape+" names[]").has("status", "deleting", "names", "[other.test]")
	at, err := time.Parse(time.RFC3339, r.text("delete_at"))
	if days := at.Sub(b.Core.Now()).Hours() / 24; err != nil || days < 6.99 || days > 7 {
		t.Errorf("it is deleted in %v days, %v", days, err)
	}
	theirs.get("/v1/account").fails(403, "account_suspended")
	if smtp := core.AsSMTPError(b.Arrive(t, "far@far.test", "cat@other.test", "Subject: s\n\nx\n")); smtp.Code != 550 {
		t.Errorf("mail to it: %v", smtp)
	}
	b.get("/v1/accounts?status=deleting").is(200).has("pagination.count", "1", "data.0.account_id", other.AccountID)
	b.get("/v1/accounts?status=suspended").is(200).has("pagination.count", "0")
	job := b.get("/v1/jobs?type=account_delete").is(200).has("pagination.count", "1", "data.0.status", "queued", "data.0.resource.id", other.AccountID, "data.0.next_attempt_at", r.text("delete_at")).text("data.0.id")
	admin.get("/v1/jobs?type=account_delete").is(200).has("pagination.count", "0")
	admin.get("/v1/jobs/"+job).fails(404, "not_found")
	if got := b.Letters(t, "other@example.test"); len(got) != 1 || !strings.Contains(got[0], "will be deleted") {
		t.Errorf("letters: %q", got)
	}

	// Asked again it changes nothing; it cannot be suspended beside that.
	web.ask("DELETE", ask, nil).is(202).has("delete_at", r.text("delete_at"))
	web.ask("PATCH", path, `{"status":"suspended"}`).fails(400, "validation_error")
	if got := b.Letters(t, "other@example.test"); len(got) != 1 {
		t.Errorf("letters: %q", got)
	}

	// Kept.
	web.ask("PATCH", path, `{"status":"active"}`).is(200).has("status", "active", "delete_at", "<nil>")
	theirs.get("/v1/account").is(200)
	b.get("/v1/jobs/"+job).is(200).has("status", "cancelled")
	b.pass(8 * 24 * time.Hour)
	theirs.get("/v1/account").is(200)

	// Deleted, not before its time.
	web = b.browser().signIn()
	web.ask("DELETE", ask, nil).is(202)
	b.pass(7*24*time.Hour - time.Minute)
	theirs.get("/v1/account").fails(403, "account_suspended")
	b.get(path).is(200).has("status", "deleting")
	b.pass(2 * time.Minute)
	for end := time.Now().Add(30 * time.Second); b.get(path).status != 404; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the account is still there")
		}
	}
	theirs.get("/v1/account").fails(401, "unauthorized")
	b.until("/v1/jobs?type=account_delete", "data.0.status", "completed")
	b.get("/v1/audit?action=delete_account").is(200).has("pagination.count", "2", "data.0.target.id", other.AccountID)
	b.Account(t, "other@example.test")

	// The command deletes at once what waits.
	third := b.Account(t, "third@example.test")
	web = b.browser().signIn()
	web.ask("DELETE", "/v1/accounts/"+third.AccountID+"?confirm=third@example.test", nil).is(202)
	waits := b.get("/v1/jobs?type=account_delete").is(200).text("data.0.id")
	out, err := b.Accounts.DeleteAccount(t.Context(), accounts.AccountIn{Account: third.AccountID})
	if err != nil || out.JobID != waits {
		t.Fatalf("%+v, %v, want the job %s", out, err, waits)
	}
	b.until("/v1/jobs/"+waits, "status", "completed")
	b.get("/v1/accounts/"+third.AccountID).fails(404, "not_found")
}
