package api

import (
	"bytes"
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/store"
)

// manyWaiting is how many messages wait when something is deleted.
func manyWaiting(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("MAILSTEAD_WAITING"), "60"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A waitingRow is a row of the sending log, with all that says why it waits.
type waitingRow struct {
	Recipient, Status string
	LastResponse      *string    `json:"last_response"`
	NextAttemptAt     *time.Time `json:"next_attempt_at"`
}

// sendingLog reads every page of the sending log.
func sendingLog(i *rig.Instance) (out []waitingRow) {
	i.T.Helper()
	for cursor, more := "", true; more; more = cursor != "" {
		var page struct {
			Data       []waitingRow
			Pagination struct{ Cursor *string }
		}
		i.Want(200, "GET", "/v1/messages?limit=100&cursor="+url.QueryEscape(cursor), nil, &page)
		out = append(out, page.Data...)
		cursor = ""
		if page.Pagination.Cursor != nil {
			cursor = *page.Pagination.Cursor
		}
	}
	return out
}

// wantExplained wants that within a minute each of n messages is sent, bounced or cancelled, or
// its row says why it waits and until when, in a way that is ok.
func wantExplained(i *rig.Instance, n int, ok func(status, why string) bool) {
	i.T.Helper()
	began := time.Now()
	for {
		rows, became, bad := sendingLog(i), map[string]int{}, 0
		for _, r := range rows {
			what := r.Status
			if r.Status == "queued" || r.Status == "deferred" {
				why := ""
				if r.LastResponse != nil && r.NextAttemptAt != nil {
					why = *r.LastResponse
				}
				what += ": " + why
				if why == "" || !ok(r.Status, why) {
					bad++
				}
			} else if !ok(r.Status, "") {
				bad++
			}
			became[what]++
		}
		took := time.Since(began).Round(100 * time.Millisecond)
		switch {
		case len(rows) != n:
			i.T.Fatalf("%d rows, want %d", len(rows), n)
		case bad == 0:
			i.T.Logf("%d messages after %v: %v", n, took, became)
			return
		case took > time.Minute:
			i.T.Fatalf("%d of %d messages say nothing after %v: %v", bad, n, took, became)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// TestDeletedWithMailWaiting: a relay, a domain, a mailbox or a key is deleted while many messages
// wait. Within a minute each is sent, bounced or cancelled, or its row says why it waits.
func TestDeletedWithMailWaiting(t *testing.T) {
	t.Parallel()
	n := manyWaiting(t)
	t.Logf("%d messages wait each time", n)
	begin := func(t *testing.T, relays ...*watchedSMTP) (i *rig.Instance, domain, box string) {
		t.Helper()
		config := rig.GenerousLimits
		for k, r := range relays {
			config += r.relay(fmt.Sprint("r", k+1))
		}
		i = rig.Start(t, config, "--outbound", "relay")
		domain = i.AddDomain("example.test")
		return i, domain, i.AddMailbox("ann@example.test", "correct horse")
	}
	refusing := func(t *testing.T) *watchedSMTP {
		f := newWatchedSMTP(t, 0)
		f.is(0, "451 4.3.0 not now")
		return f
	}
	// silent is a relay that takes connections and never says a word, so that few are tried.
	silent := func(t *testing.T) *watchedSMTP {
		f := newWatchedSMTP(t, 0)
		f.is(time.Hour, "")
		return f
	}

	t.Run("relay", func(t *testing.T) {
		dead, good := refusing(t), newWatchedSMTP(t, 0)
		i, _, ann := begin(t, dead, good)
		chosen := i.AddDomain("chosen.test")
		i.Want(200, "PATCH", "/v1/domains/"+chosen, map[string]any{"relay": "r1"}, nil)
		carl := i.AddMailbox("carl@chosen.test", "battery staple")
		sendMany(i, ann, "any", n/2)
		sendMany(i, carl, "chosen", n-n/2)
		wantExplained(i, n, func(status, _ string) bool { return status == "deferred" })
		i.Kill()
		if err := os.WriteFile(filepath.Join(i.Dir, "mailstead.toml"), []byte(rig.GenerousLimits+good.relay("r2")), 0o600); err != nil {
			t.Fatal(err)
		}
		i.Start()
		wantExplained(i, n, func(status, why string) bool {
			return status == "relayed" || strings.Contains(why, "relay r1") || strings.HasPrefix(why, "not tried yet")
		})
		i.Until("all that may go has gone", func() bool { return len(good.messages()) == n/2 })
		for to, k := range good.messages() {
			if k != 1 || strings.HasPrefix(to, "chosen") {
				t.Errorf("%s got %d messages through the other relay", to, k)
			}
		}
	})
	t.Run("domain", func(t *testing.T) {
		i, domain, ann := begin(t, silent(t))
		sendMany(i, ann, "x", n)
		i.Want(202, "DELETE", "/v1/domains/"+domain, nil, nil)
		wantExplained(i, n, func(status, why string) bool {
			return status == "cancelled" || strings.HasPrefix(why, "being delivered at this moment")
		})
		i.Kill() // the relay would have it wait
		i.Check()
	})
	t.Run("mailbox", func(t *testing.T) {
		i, _, ann := begin(t, refusing(t))
		sendMany(i, ann, "x", n)
		i.Want(200, "DELETE", "/v1/email-users/"+ann, nil, nil)
		wantExplained(i, n, func(status, why string) bool { return status != "queued" || why != "" })
		i.Check()
	})
	t.Run("key", func(t *testing.T) {
		relay := silent(t)
		i, domain, ann := begin(t, relay)
		sendMany(i, ann, "x", n)
		i.Kill()
		breakKeys(i, domain)
		i.Start()
		wantExplained(i, n, func(_, why string) bool {
			return strings.Contains(why, "DKIM") || strings.HasPrefix(why, "not tried yet")
		})
		log, err := os.ReadFile(i.Log.Name())
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(log, []byte("sign outgoing mail")); lines == 0 || lines > 5 {
			t.Errorf("the log says so %d times", lines)
		}
		i.Kill()
		i.Check()
	})
}

// breakKeys damages what is sealed of a stopped instance's domain.
func breakKeys(i *rig.Instance, id string) {
	i.T.Helper()
	st, err := store.Open(i.Dir, store.Options{})
	if err != nil {
		i.T.Fatal(err)
	}
	defer st.Close()
	err = st.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, id)
		if err != nil {
			return err
		}
		for k := range d.DKIM {
			d.DKIM[k].Sealed[len(d.DKIM[k].Sealed)-1] ^= 1
		}
		return store.Domains.Put(tx, d)
	})
	if err != nil {
		i.T.Fatal(err)
	}
}
