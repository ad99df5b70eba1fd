package mailboxes_test

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

// At most three links a day go to a recovery address, also after mails that confirm it.
func TestRecoveryMailsOfADay(t *testing.T) {
	now := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	r := &store.Recovery{Asked: []time.Time{now, now, now}}
	for n, want := range []bool{true, true, true, false, false} {
		if got := mailboxes.MayMailRecovery(r, now.Add(time.Duration(n)*time.Hour)); got != want {
			t.Errorf("letter %d: %v", n+1, got)
		}
	}
	if !mailboxes.MayMailRecovery(r, now.Add(24*time.Hour)) {
		t.Error("the day after the first")
	}
	if mailboxes.MayMailRecovery(r, now.Add(24*time.Hour+time.Minute)) {
		t.Error("and no more")
	}
}
