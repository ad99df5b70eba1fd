package health_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/store"
)

// TestAlerts: the owner of the first account is notified once when a check turns bad, once when it
// becomes worse, and once when it is ok; for shaky checks only after a second run.
func TestAlerts(t *testing.T) {
	h := newPublicHost(t)
	h.Core.ChangeSettings(func(c *core.Settings) { c.AlertURL = "http://alerts.test/" })
	owner, err := h.Accounts.CreateAccount(t.Context(), accounts.NewAccount{OwnerEmail: "owner@example.org", First: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Health.Backups.Backup(t.Context(), false, true); err != nil {
		t.Fatal(err)
	}
	told := 0
	// look runs the checks and returns the new alerts as "code status"; it counts messages and
	// posts.
	look := func() string {
		t.Helper()
		h.now = h.now.Add(6 * time.Minute)
		h.Health.LookAndTell(t.Context())
		var out []string
		letters, jobs := 0, map[string]int{}
		err := h.Core.Store.View(func(tx *store.Tx) error {
			for e := range store.Events.All(tx) {
				if e.Type != events.EventHostAlert || e.AccountID != owner.AccountID {
					continue
				}
				var a health.Alert
				if err := json.Unmarshal(e.Data, &a); err != nil {
					return err
				}
				out = append(out, a.Code+" "+a.Status)
			}
			for j := range store.Jobs.All(tx) {
				jobs[j.Kind]++
				letters += strings.Count(string(j.Args), `"subject":`) // of alerts that wait together
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if letters != len(out) || jobs["alert"] > 1 || jobs["alert_post"] != len(out) {
			t.Errorf("%d alerts, %d letters, and jobs %v", len(out), letters, jobs)
		}
		fresh := out[told:]
		told = len(out)
		return strings.Join(fresh, ", ")
	}
	is := func(want string) {
		t.Helper()
		if got := look(); got != want {
			t.Errorf("told: %q, want %q", got, want)
		}
	}
	is("")
	disk := func(free int64) {
		h.free = free
		time.Sleep(30 * time.Millisecond) // until the store checks the disk again
	}
	disk(9 << 30)
	is("disk_space warning")
	is("")
	disk(100 << 30)
	drill := func(problems int) {
		d := &store.BackupDrill{ID: store.BackupDrillID, EndedAt: h.now, Decrypted: true, Problems: problems}
		if err := h.Core.Store.Update(func(tx *store.Tx) error { return store.BackupDrills.Put(tx, d) }); err != nil {
			t.Fatal(err)
		}
	}
	drill(2)
	is("disk_space ok, backup_drill error")
	is("")
	drill(0)
	h.world.Tell("PTR", "127.0.0.1")
	is("backup_drill ok")
	h.world.Tell("PTR", "127.0.0.1", "mail.example.test.")
	is("") // it was ok before it was reported
	h.world.Tell("PTR", "127.0.0.1")
	is("")
	is("ptr error")
	is("")
	h.world.Tell("PTR", "127.0.0.1", "mail.example.test.")
	is("ptr ok")
}
