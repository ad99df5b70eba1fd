package core_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// withMailboxes runs a test in a bubble with mailboxes ann and bob, whose passwords are "password".
func withMailboxes(t *testing.T, test func(t *testing.T, b *servicetest.Sandbox)) {
	synctest.Test(t, func(t *testing.T) {
		b := servicetest.New(t, nil)
		b.Domain(t, b.Owner.AccountID, "boxes.test", "builtin", "complete")
		password := "password"
		who := actor(b)
		for _, name := range []string{"ann", "bob"} {
			_, err := b.CreateEmailUser(t.Context(), who, mailboxes.CreateEmailUserIn{Username: name, Domain: "boxes.test", Password: &password})
			if err != nil {
				t.Fatal(err)
			}
		}
		test(t, b)
	})
}

func actor(b *servicetest.Sandbox) core.Actor {
	return core.Actor{AccountID: b.Owner.AccountID, AccountNum: 1, UserID: b.Owner.UserID, Role: "owner", Permissions: []string{"admin"}}
}

// login gives the status of a log-in, 200 for a right one, and how long it took.
func login(t *testing.T, b *servicetest.Sandbox, email, password, ip string) (string, time.Duration) {
	t.Helper()
	start := time.Now()
	_, err := b.LoginMailbox(t.Context(), email, password, ip)
	took := time.Since(start)
	if err == nil {
		return "", took
	}
	e, ok := core.AsError(err)
	if !ok {
		t.Fatal(err)
	}
	return e.Code, took
}

func TestLoginMailbox(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		u, err := b.LoginMailbox(t.Context(), "Ann@Boxes.test", "password", "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		if u.Email != "ann@boxes.test" || u.AccountID != b.Owner.AccountID || u.AccountNum != 1 || u.Mailbox != 1 || u.IP != "192.0.2.1" {
			t.Errorf("logged in as %+v", u)
		}
		first := lastLogin(t, b, u.MailboxID)
		time.Sleep(59 * time.Second)
		login(t, b, "ann@boxes.test", "password", "192.0.2.1")
		if got := lastLogin(t, b, u.MailboxID); first.IsZero() || !got.Equal(first) {
			t.Errorf("last log-in is %v, then %v within the minute", first, got)
		}
		time.Sleep(time.Second)
		login(t, b, "ann@boxes.test", "password", "192.0.2.1")
		if got := lastLogin(t, b, u.MailboxID); !got.After(first) {
			t.Errorf("last log-in is still %v", got)
		}
		for _, email := range []string{"ann@boxes.test", "nobody@boxes.test", "no address", ""} {
			if status, _ := login(t, b, email, "wrong", "192.0.2.1"); status != "unauthorized" {
				t.Errorf("%q: %q", email, status)
			}
		}
	})
}

func lastLogin(t *testing.T, b *servicetest.Sandbox, id string) (at time.Time) {
	t.Helper()
	err := b.Store.View(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, id)
		at = mb.LastLoginAt
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestWrongPasswordsAreSlowedThenRefused follows one network at one mailbox; everybody else is
// untouched.
func TestWrongPasswordsAreSlowedThenRefused(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		for i := range 20 {
			status, took := login(t, b, "ann@boxes.test", fmt.Sprintf("wrong %d", i), "192.0.2.1")
			want := time.Duration(0)
			if i >= 5 {
				want = min(time.Second<<(i-5), 8*time.Second)
			}
			if status != "unauthorized" || took != want {
				t.Errorf("wrong password %d: %q after %v, want %v", i, status, took, want)
			}
		}
		for _, tc := range []struct {
			email, ip string
			want      string
		}{
			{"ann@boxes.test", "192.0.2.1", "rate_limited"},
			{"ann@boxes.test", "192.0.2.2", ""},
			{"bob@boxes.test", "192.0.2.1", ""},
		} {
			if status, took := login(t, b, tc.email, "password", tc.ip); status != tc.want || took != 0 {
				t.Errorf("%s from %s: %q after %v, want %q", tc.email, tc.ip, status, took, tc.want)
			}
		}
		time.Sleep(31 * time.Minute)
		if status, _ := login(t, b, "ann@boxes.test", "password", "192.0.2.1"); status != "" {
			t.Errorf("half an hour later: %q", status)
		}
	})
}

// TestManyGuessesAtOnceAreNoFaster sends them side by side, as a guesser would who wants to pass
// before being counted.
func TestManyGuessesAtOnceAreNoFaster(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		var mu sync.Mutex
		looked := 0
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				if status, _ := login(t, b, "ann@boxes.test", fmt.Sprintf("wrong %d", i), "192.0.2.1"); status == "unauthorized" {
					mu.Lock()
					looked++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if looked != 20 {
			t.Errorf("%d guesses were looked at, want 20", looked)
		}
	})
}

func TestManyRightLoginsAtOnce(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if status, took := login(t, b, "ann@boxes.test", "password", "192.0.2.1"); status != "" || took != 0 {
					t.Errorf("%q after %v", status, took)
				}
			})
		}
		wg.Wait()
	})
}

// TestGuessesOverMailboxesRefuseTheNetwork leaves those alone who have logged in from there before.
func TestGuessesOverMailboxesRefuseTheNetwork(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		const inside = "2001:db8::1:0:0:7"
		if status, _ := login(t, b, "ann@boxes.test", "password", inside); status != "" {
			t.Fatal(status)
		}
		for i := range 100 {
			login(t, b, fmt.Sprintf("u%d@boxes.test", i), "wrong", fmt.Sprintf("2001:db8::1:0:0:%x", i))
		}
		if status, _ := login(t, b, "bob@boxes.test", "password", "2001:db8::1:9:9:9"); status != "rate_limited" {
			t.Errorf("from the same /64: %q", status)
		}
		if status, _ := login(t, b, "ann@boxes.test", "password", inside); status != "" {
			t.Errorf("known there: %q", status)
		}
		if status, _ := login(t, b, "bob@boxes.test", "password", "2001:db8:0:1::1"); status != "" {
			t.Errorf("from another /64: %q", status)
		}
	})
}

func TestSlowedLoginEndsWithItsContext(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		for range 8 {
			login(t, b, "ann@boxes.test", "wrong", "192.0.2.1")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.LoginMailbox(ctx, "ann@boxes.test", "password", "192.0.2.1"); err == nil || ctx.Err() == nil {
			t.Errorf("log-in: %v", err)
		}
	})
}
