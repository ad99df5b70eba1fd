package accounts_test

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
)

// TestFailedLoginsHaveARowAMinute: one row for each minute, address and account, with a count, and
// only so many a day. The address of nobody is in no log.
func TestFailedLoginsHaveARowAMinute(t *testing.T) {
	c := newSessionCase(t)
	owner := c.here(t)
	who := core.Actor{AccountID: owner.Account.ID, UserID: owner.UserID, Role: "owner", Permissions: []string{"admin"}}
	password := "battery staple"
	if _, err := c.Accounts.InviteTeamUser(t.Context(), who, accounts.InviteTeamUserIn{Email: "ida@example.test", Password: &password}); err != nil {
		t.Fatal(err)
	}
	fails := func(ip, email string, times int) {
		t.Helper()
		for range times {
			if _, err := c.signIn(ip, email, "wrong horse"); err == nil {
				t.Fatal("a wrong password signs in")
			}
		}
	}
	want := func(what string, counts ...int) []accounts.AuditRow {
		t.Helper()
		page, err := c.Accounts.ListAudit(t.Context(), who, accounts.ListAuditIn{Action: "login_failed"})
		if err != nil {
			t.Fatal(err)
		}
		got := []int{}
		for _, row := range page.Data {
			got = append(got, row.Count)
		}
		if len(got) != len(counts) {
			t.Fatalf("%s: counts %v, want %v", what, got, counts)
		}
		for i := range got {
			if got[i] != counts[i] {
				t.Errorf("%s: counts %v, want %v", what, got, counts)
			}
		}
		return page.Data
	}

	fails("192.0.2.9", "owner@example.test", 2)
	want("two in a minute", 2)
	fails("192.0.2.9", "owner@example.test", 1)
	fails("192.0.2.9", "nobody@example.test", 1)
	row := want("one more in that minute", 3)[0]
	if row.IP == nil || *row.IP != "192.0.2.9" || row.Target == nil || row.Target.Name != "owner@example.test" || row.Actor.Type != "user" || row.Via != "dashboard" {
		t.Errorf("the row is %+v", row)
	}
	fails("192.0.2.10", "ida@example.test", 1)
	fails("192.0.2.10", "owner@example.test", 1)
	row = want("two users from one address", 2, 3)[0]
	if row.Target != nil || row.Actor.ID != nil || row.Actor.Name != "several users" {
		t.Errorf("the row of two users is %+v", row)
	}
	c.now = c.now.Add(time.Minute)
	fails("192.0.2.9", "owner@example.test", 1)
	want("in the next minute", 1, 2, 3)

	c.Accounts.SetFailedRows(4)
	fails("192.0.2.11", "owner@example.test", 1)
	want("the last row of the day", 1, 1, 2, 3)
	fails("192.0.2.12", "owner@example.test", 1)
	fails("192.0.2.11", "owner@example.test", 1)
	want("a row more than there may be", 2, 1, 2, 3)
	c.now = c.now.Add(24 * time.Hour)
	fails("192.0.2.12", "owner@example.test", 1)
	want("on the next day", 1, 2, 1, 2, 3)
}
