package main

import (
	"encoding/json"
	"testing"
)

// TestDomainClaim: the operator decides whose a disputed domain is, through the socket and on the
// stopped store.
func TestDomainClaim(t *testing.T) {
	t.Parallel()
	a := newInstance(t, "")
	b := a.neighbour()
	connect := func(i *instance) (id string) {
		var out struct {
			Domains []struct {
				DomainID string `json:"domain_id"`
				Status   string
			}
		}
		i.want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"both.test"}}, &out)
		if out.Domains[0].Status != "created" {
			t.Fatalf("%+v", out)
		}
		return out.Domains[0].DomainID
	}
	mine, theirs := connect(a), connect(b)
	account := func(i *instance) string {
		var out struct{ ID string }
		i.want(200, "GET", "/v1/account", nil, &out)
		return out.ID
	}
	first, second := account(a), account(b)
	claim := func(id string, args ...string) {
		t.Helper()
		out, code := mailstead(t, append([]string{"domain", "claim", "--data", a.dir}, args...)...)
		var got struct {
			DomainID string `json:"domain_id"`
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.DomainID != id {
			t.Errorf("%v: %d %v %s", args, code, err, out)
		}
	}
	state := func(i *instance, id string) (status, code string) {
		var d struct {
			Status string
			Error  *struct{ Code string }
		}
		i.want(200, "GET", "/v1/domains/"+id, nil, &d)
		if d.Error != nil {
			code = d.Error.Code
		}
		return d.Status, code
	}
	claim(theirs, "--account", second, "both.test", "--json")
	if status, code := state(a, mine); status != "error" || code != "domain_claimed_elsewhere" {
		t.Errorf("the loser is %s %s", status, code)
	}
	if status, code := state(b, theirs); status != "pending_ns" || code != "" {
		t.Errorf("the winner is %s %s", status, code)
	}
	for want, args := range map[int][]string{2: {"both.test"}, 1: {"--account", first, "none.test"}} {
		if out, code := mailstead(t, append([]string{"domain", "claim", "--data", a.dir}, args...)...); code != want {
			t.Errorf("%v: exit %d, want %d: %s", args, code, want, out)
		}
	}
	a.stop()
	claim(mine, "--json", "--account", "owner@example.org", "both.test")
}
