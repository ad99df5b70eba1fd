package handlers

import (
	"fmt"
	"strings"
	"testing"
)

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
