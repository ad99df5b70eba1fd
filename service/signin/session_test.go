package signin_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/signin"
	"github.com/mailstead/mailstead/store"
)

// A sessionCase is a service with a clock, and its owner, whose password is "correct horse".
type sessionCase struct {
	*service.Service
	now time.Time
}

func newSessionCase(t *testing.T) *sessionCase {
	t.Helper()
	c := &sessionCase{now: time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)}
	c.Service, _ = servicetest.NewClocked(t, func() time.Time { return c.now })
	c.Core.Config.Hostname = "mail.example.com"
	if _, err := c.Accounts.ResetPassword(t.Context(), accounts.ResetPasswordIn{User: "owner@example.test", Password: "correct horse"}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *sessionCase) signIn(ip, email, password string) (*signin.SignedIn, error) {
	return c.Signin.SignIn(context.Background(), signin.Visitor{IP: ip, UserAgent: "test"}, signin.SignInIn{Email: email, Password: password})
}

// here signs the owner in.
func (c *sessionCase) here(t *testing.T) *signin.SignedIn {
	t.Helper()
	in, err := c.signIn("192.0.2.1", "owner@example.test", "correct horse")
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func (c *sessionCase) stands(in *signin.SignedIn) bool {
	_, err := c.Signin.AuthenticateSession(context.Background(), in.Cookie, "192.0.2.1")
	return err == nil
}

// noteUses writes the recorded uses of sessions, as the end of accounts.Run does.
func (c *sessionCase) noteUses(t *testing.T) {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Accounts.Run(ended); err != nil {
		t.Fatal(err)
	}
}

func TestSessionsEnd(t *testing.T) {
	c := newSessionCase(t)
	idle, busy := c.here(t), c.here(t)
	began := c.now
	for day := range 30 {
		c.now = began.Add(time.Duration(day) * 24 * time.Hour)
		if !c.stands(busy) {
			t.Fatalf("in use it ended on day %d", day)
		}
		c.noteUses(t)
		if day == 6 {
			c.now = began.Add(accounts.SessionIdle - time.Second)
			who := core.Actor{TokenID: c.tokenOf(t, idle), Role: "owner", Operator: true}
			if err := c.Accounts.CheckActor(t.Context(), who); err != nil {
				t.Errorf("a second before the week is over: %v", err)
			}
			c.now = began.Add(accounts.SessionIdle)
			if err := c.Accounts.CheckActor(t.Context(), who); code(err) != "unauthorized" || c.stands(idle) {
				t.Errorf("after an idle week: %v", err)
			}
		}
	}
	c.now = began.Add(accounts.SessionLife - time.Second)
	if !c.stands(busy) {
		t.Error("it ended before its thirty days")
	}
	c.now = began.Add(accounts.SessionLife)
	if c.stands(busy) {
		t.Error("it outlived its thirty days")
	}
	if _, err := c.Prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if n := c.sessions(t); n != 0 {
		t.Errorf("%d sessions are left after pruning", n)
	}
}

func (c *sessionCase) tokenOf(t *testing.T, in *signin.SignedIn) (id string) {
	t.Helper()
	err := c.Core.Store.View(func(tx *store.Tx) error {
		token, err := signin.SessionByCookie(tx, in.Cookie)
		if err == nil {
			id = token.ID
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (c *sessionCase) sessions(t *testing.T) (n int) {
	t.Helper()
	err := c.Core.Store.View(func(tx *store.Tx) error {
		n = store.SessionsByTime.Count(tx, "", 0)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAUserHasABoundedNumberOfSessions(t *testing.T) {
	c := newSessionCase(t)
	first := c.here(t)
	for range signin.SessionsMost - 1 {
		c.now = c.now.Add(time.Second)
		c.here(t)
	}
	if !c.stands(first) {
		t.Fatal("the first one ended too early")
	}
	if last := c.here(t); c.stands(first) || !c.stands(last) || c.sessions(t) != signin.SessionsMost {
		t.Errorf("%d sessions, the first one stands: %t", c.sessions(t), c.stands(first))
	}
}

func TestWhatIsKeptOfASession(t *testing.T) {
	c := newSessionCase(t)
	in := c.here(t)
	err := c.Core.Store.View(func(tx *store.Tx) error {
		token, err := signin.SessionByCookie(tx, in.Cookie)
		if err != nil {
			return err
		}
		if strings.Contains(fmt.Sprintf("%+v", token), in.Cookie) || token.UserAgent != "test" || token.LastUsedIP != "192.0.2.1" {
			t.Errorf("kept is %+v", token)
		}
		u, err := store.Users.Get(tx, token.UserID)
		if err == nil && !u.LastLoginAt.Equal(c.now) {
			t.Errorf("last log-in %v, want %v", u.LastLoginAt, c.now)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestASuspendedAccountHasNoSessions(t *testing.T) {
	c := newSessionCase(t)
	in := c.here(t)
	servicetest.Update(t, c.Service, func(tx *store.Tx) error {
		a, err := core.FindAccount(tx, "")
		if err != nil {
			return err
		}
		a.Status = "suspended"
		return store.Accounts.Put(tx, a)
	})
	if c.stands(in) {
		t.Error("its session stands")
	}
	if _, err := c.signIn("192.0.2.1", "owner@example.test", "correct horse"); code(err) != "account_suspended" {
		t.Errorf("signing in: %v", err)
	}
}

// TestSignInIsThrottled: after some wrong passwords from anywhere, sign-ins are refused for half an
// hour, except from networks from which the user has signed in before. A network that guesses for
// many users is shut out.
func TestSignInIsThrottled(t *testing.T) {
	c := newSessionCase(t)
	c.here(t)
	for i := range core.MaxIdentityFailures {
		_, _ = c.signIn(fmt.Sprintf("198.51.100.%d", i), "owner@example.test", "wrong horse")
	}
	if _, err := c.signIn("203.0.113.9", "owner@example.test", "correct horse"); code(err) != "rate_limited" {
		t.Errorf("from a strange network: %v", err)
	}
	c.here(t)
	for i := range core.MaxNetworkFailures {
		_, _ = c.signIn("203.0.113.8", fmt.Sprintf("x%d@example.test", i), "wrong horse")
	}
	_, err := c.signIn("203.0.113.8", "nobody@example.test", "x")
	if e, ours := core.AsError(err); !ours || e.Code != "rate_limited" || e.RetryAfter == 0 {
		t.Errorf("from a network that guesses: %v", err)
	}
	c.now = c.now.Add(core.AttemptWindow + time.Second)
	if _, err := c.signIn("203.0.113.8", "owner@example.test", "correct horse"); err != nil {
		t.Errorf("after half an hour: %v", err)
	}
}

func TestUnknownAndWrongAreTheSame(t *testing.T) {
	c := newSessionCase(t)
	c.Core.Logins.Time, c.Core.Logins.Memory = 3, 12*1024 // what users have
	if _, err := c.Accounts.ResetPassword(t.Context(), accounts.ResetPasswordIn{User: "owner@example.test", Password: "correct horse"}); err != nil {
		t.Fatal(err)
	}
	_, unknown := c.signIn("192.0.2.1", "nobody@example.test", "correct horse")
	_, wrong := c.signIn("192.0.2.1", "owner@example.test", "wrong horse")
	_, odd := c.signIn("192.0.2.1", "no address", "wrong horse")
	if code(wrong) != "invalid_credentials" || unknown.Error() != wrong.Error() || odd.Error() != wrong.Error() {
		t.Errorf("unknown: %v\nwrong: %v\nodd: %v", unknown, wrong, odd)
	}
	took := map[string]time.Duration{}
	for i := range 8 { // in turns, and the shortest counts, since the machine may be busy
		for _, email := range []string{"nobody@example.test", "owner@example.test"} {
			began := time.Now()
			if _, err := c.signIn(fmt.Sprintf("198.51.100.%d", i), email, "wrong horse"); code(err) != "invalid_credentials" {
				t.Fatal(err)
			}
			if d := time.Since(began); took[email] == 0 || d < took[email] {
				took[email] = d
			}
		}
	}
	if a, b := took["nobody@example.test"], took["owner@example.test"]; a > 3*b || b > 3*a {
		t.Errorf("unknown takes %v, wrong %v", a, b)
	}
}
