package handlers

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Fields of the answers about the host, as the contract writes them.
const (
	checkShape  = "code status(ok|warning|error|skipped) subject message mend|null"
	healthShape = `status(ok|warning|error) hostname checked_at checks[{` + checkShape + `}] version role(single|primary|standby) started_at
		store{bytes,free_bytes,messages,read_only} queue{depth,oldest_seconds|null}
		backup{target|null,last_success_at|null,age_seconds|null,verified|null,error|null,first_restorable_at|null}
		objects|null standby|null certificate{names[],expires_at}|null`
	backupsShape = "data[{id,kind(full|incremental),at,number,bytes,verified}] first_at|null last_at|null count"
)

// shaped compares the fields of an answer with a shape.
func (r *reply) shaped(text string) *reply {
	r.t.Helper()
	for _, problem := range compare("", r.json, parseShape(text)) {
		r.t.Errorf("%s: %.500s", problem, r.raw)
	}
	return r
}

// hostOperations are the operations on the host: method, path, and whether a token may call them.
var hostOperations = []struct {
	method, path string
	token        bool
}{
	{"GET", "/v1/health", true},
	{"POST", "/v1/health/check", false},
	{"GET", "/v1/backups", true},
	{"POST", "/v1/backups", false},
	{"POST", "/v1/backups/drill", false},
}

// TestWhoMayLookAfterTheHost: the operator alone, and changes want a person who has just signed in,
// or the socket.
func TestWhoMayLookAfterTheHost(t *testing.T) {
	b := newSandbox(t, nil)
	b.AddBackups(t)
	other := b.Account(t, "other@example.test")
	ann := b.box("ann")
	limited := b.post("/v1/auth/tokens", `{"mailboxes":["`+ann+`"]}`).is(201).text("token")
	bound := b.post("/v1/auth/tokens", `{"policy":{"taint":true}}`).is(201).text("token")
	read := b.post("/v1/auth/tokens", `{"permissions":["read"]}`).is(201).text("token")
	admin := b.Token(t, b.Owner.AccountID, "admin", "admin")
	foreign := b.browser()
	foreign.ask("POST", "/session", map[string]string{"email": "other@example.test", "password": "correct horse"}).is(200)
	web := b.browser().signIn()
	for _, o := range hostOperations {
		for name, token := range map[string]string{
			"the owner of another account": other.Token, "an admin": admin, "a member": b.Token(t, b.Owner.AccountID, "member", "admin"),
			"a limited token": limited, "a bound token": bound,
		} {
			if r := b.with(token).do(o.method, o.path, nil); r.status != 403 || r.text("error.code") != "forbidden_role" {
				t.Errorf("%s %s by %s: %d %s", o.method, o.path, name, r.status, r.raw)
			}
		}
		foreign.ask(o.method, o.path, nil).fails(403, "forbidden_role")
		if o.token {
			b.with(read).do(o.method, o.path, nil).is(200)
			b.do(o.method, o.path, nil).is(200)
			web.ask(o.method, o.path, nil).is(200)
			continue
		}
		b.with(read).do(o.method, o.path, nil).fails(403, "insufficient_scope")
		b.do(o.method, o.path, nil).fails(403, "person_required")
	}

	// An admin whom the owner allows it is an operator, until the owner takes it back.
	id := b.with(admin).get("/v1/account").is(200).text("user.id")
	web.ask("PATCH", "/v1/account/users/"+id, `{"operator":true}`).is(200)
	b.with(admin).get("/v1/backups").is(200)
	b.with(admin).post("/v1/backups", nil).fails(403, "person_required")
	web.ask("PATCH", "/v1/account/users/"+id, `{"operator":false}`).is(200)
	b.with(admin).get("/v1/backups").fails(403, "forbidden_role")

	b.pass(16 * time.Minute)
	for _, o := range hostOperations {
		if o.token {
			web.ask(o.method, o.path, nil).is(200)
		} else {
			web.ask(o.method, o.path, nil).fails(401, "sign_in_again")
		}
	}
	r := httptest.NewRequest("POST", "/v1/backups", nil)
	if resp := Do(b.server.Local(), r); resp.StatusCode != http.StatusAccepted {
		t.Errorf("over the socket: %d", resp.StatusCode)
	}
	r = httptest.NewRequest("POST", "/v1/backups", nil)
	r.Header.Set("X-Mailstead-Account", other.AccountID)
	if resp := Do(b.server.Local(), r); resp.StatusCode != http.StatusForbidden {
		t.Errorf("over the socket, for another account: %d", resp.StatusCode)
	}
}

// TestBackupsOverTheAPI: a person makes a backup and a drill. Both are in the audit log, once.
func TestBackupsOverTheAPI(t *testing.T) {
	b := newSandbox(t, nil)
	web := b.browser().signIn()
	web.ask("POST", "/v1/backups", nil).fails(503, "not_configured")
	web.ask("POST", "/v1/backups/drill", nil).fails(503, "not_configured")
	b.get("/v1/backups").is(200).has("count", "0", "first_at", "<nil>", "last_at", "<nil>")
	b.AddBackups(t)
	web.ask("POST", "/v1/backups/drill", nil).fails(404, "not_found")
	_, _, last := b.rowsAfter("")
	for _, o := range []struct{ path, operation, kind string }{{"/v1/backups", "create_backup", "backup"}, {"/v1/backups/drill", "drill_backup", "backup_drill"}} {
		made := web.ask("POST", o.path, nil).is(202).shaped(jobShape).has("type", o.kind, "resource.type", "host", "created_by", b.Owner.UserID)
		job := made.text("job_id")
		if made.header.Get("Location") != "/v1/jobs/"+job {
			t.Errorf("%s leads to %q", o.operation, made.header.Get("Location"))
		}
		b.until("/v1/jobs/"+job, "status", "completed").has("attempts", "1", "error", "<nil>")
		rows, n, newest := b.rowsAfter(last)
		rows.has("data.0.action", o.operation, "data.0.via", "dashboard", "data.0.actor.name", "owner@example.test",
			"data.0.target.type", "job", "data.0.target.id", job, "data.0.target.name", o.kind, "data.0.request_id", made.header.Get("X-Request-Id"))
		if n != 1 {
			t.Errorf("%s has %d rows: %s", o.operation, n, rows.raw)
		}
		last = newest
	}
	b.get("/v1/jobs?type=backup").is(200).has("data.0.result.kind", "full", "data.0.result.verified", "true")
	b.get("/v1/jobs?type=backup_drill").is(200).has("data.0.result.ok", "true", "data.0.result.decrypted", "true", "data.0.result.problems", "[]")
	b.get("/v1/backups").is(200).shaped(backupsShape).has("count", "1")
	b.get("/v1/health").is(200).shaped(healthShape)
	web.ask("POST", "/v1/health/check", nil).is(200).shaped(healthShape)
	web.ask("POST", "/v1/health/check", `{"code":"backup"}`).is(200).shaped(healthShape)
	r := web.ask("POST", "/v1/health/check", `{"code":"backups"}`).fails(400, "validation_error").has("error.details.0.field", "code")
	if !strings.Contains(r.text("error.message"), "backup_drill") {
		t.Errorf("what may be checked is not named: %s", r.raw)
	}
	if rows, n, _ := b.rowsAfter(last); n != 0 {
		t.Errorf("%d rows of what changed nothing: %s", n, rows.raw)
	}
}
