package accounts_test

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestFailedLoginsHaveARowAMinute: there is one row for each minute, IP address and account, with a
// count, and a limited number of rows a day. An unknown address is not logged.
func TestFailedLoginsHaveARowAMinute(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	c, who := servicetest.NewClocked(t, func() time.Time { return now })
	users := map[string]store.AuditActor{
		"owner": {Type: store.AuditActorUser, ID: who.UserID, Name: who.Email}, "ida": {Type: store.AuditActorUser, ID: "usr_ida", Name: "ida@example.test"}, "nobody": {},
	}
	fails := func(ip, user string, times int) {
		for range times {
			c.Accounts.RecordFailedLogin(users[user], who.AccountID, ip, "")
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

	fails("192.0.2.9", "owner", 2)
	want("two in a minute", 2)
	fails("192.0.2.9", "owner", 1)
	fails("192.0.2.9", "nobody", 1)
	row := want("one more in that minute", 3)[0]
	if row.IP == nil || *row.IP != "192.0.2.9" || row.Target == nil || row.Target.Name != who.Email || row.Actor.Type != "user" || row.Via != "dashboard" {
		t.Errorf("the row is %+v", row)
	}
	fails("192.0.2.10", "ida", 1)
	fails("192.0.2.10", "owner", 1)
	row = want("two users from one address", 2, 3)[0]
	if row.Target != nil || row.Actor.ID != nil || row.Actor.Name != "several users" {
		t.Errorf("the row of two users is %+v", row)
	}
	now = now.Add(time.Minute)
	fails("192.0.2.9", "owner", 1)
	want("in the next minute", 1, 2, 3)

	c.Accounts.SetFailedRows(4)
	fails("192.0.2.11", "owner", 1)
	want("the last row of the day", 1, 1, 2, 3)
	fails("192.0.2.12", "owner", 1)
	fails("192.0.2.11", "owner", 1)
	want("a row more than there may be", 2, 1, 2, 3)
	now = now.Add(24 * time.Hour)
	fails("192.0.2.12", "owner", 1)
	want("on the next day", 1, 2, 1, 2, 3)
}
