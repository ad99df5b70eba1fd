package core_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/signin"
)

// A guessDoor is one protocol through which a password can be tried.
type guessDoor struct {
	name       string
	identities []string // team or mailbox
	try        func(ctx context.Context, b *servicetest.Sandbox, email, password, ip string) error
}

func signInAs(as string) func(context.Context, *servicetest.Sandbox, string, string, string) error {
	return func(ctx context.Context, b *servicetest.Sandbox, email, password, ip string) error {
		_, err := b.Signin.SignIn(ctx, signin.Visitor{IP: ip}, signin.SignInIn{Email: email, Password: password, As: as})
		return err
	}
}

func mailLogin(protocol string, bearer bool) func(context.Context, *servicetest.Sandbox, string, string, string) error {
	return func(ctx context.Context, b *servicetest.Sandbox, email, password, ip string) error {
		_, err := b.Mailboxes.LoginMailbox(ctx, core.MailLogin{Protocol: protocol, Username: email, Password: password, Bearer: bearer, IP: ip})
		return err
	}
}

// overSCRAM sends an invalid proof.
func overSCRAM(ctx context.Context, b *servicetest.Sandbox, email, _, ip string) error {
	s := b.Mailboxes.SCRAM(ctx, core.MailLogin{Protocol: "imap", IP: ip}, false, false, nil, func(_ core.MailboxUser, err error) error { return err })
	challenge, _, err := s.Next([]byte("n,,n=" + email + ",r=nonce"))
	if err != nil {
		return err
	}
	nonce, _, _ := strings.Cut(string(challenge), ",")
	_, _, err = s.Next([]byte("c=biws," + nonce + ",p=" + base64.StdEncoding.EncodeToString(make([]byte, 32))))
	return err
}

// inSession tries the current password in a request that changes it, as an attacker would in an
// open browser.
func inSession(mailbox bool) func(context.Context, *servicetest.Sandbox, string, string, string) error {
	return func(ctx context.Context, b *servicetest.Sandbox, email, password, ip string) error {
		who := core.Actor{Email: email, UserID: "usr_x", TokenKind: "session", Role: "member", IP: ip}
		if mailbox {
			who.MailboxID, who.Role = "eu_x", "mailbox"
		}
		_, err := b.Signin.StartTOTP(ctx, who, signin.PasswordIn{Password: password})
		return err
	}
}

var guessDoors = []guessDoor{
	{"sign-in", []string{"team", "mailbox"}, signInAs("")},
	{"sign-in to the team", []string{"team"}, signInAs("team")},
	{"sign-in to the mailbox", []string{"mailbox"}, signInAs("mailbox")},
	{"IMAP", []string{"mailbox"}, mailLogin("imap", false)},
	{"submission", []string{"mailbox"}, mailLogin("smtp", false)},
	{"OAUTHBEARER", []string{"mailbox"}, mailLogin("imap", true)},
	{"SCRAM", []string{"mailbox"}, overSCRAM},
	{"a team user's session", []string{"team"}, inSession(false)},
	{"a mailbox's session", []string{"mailbox"}, inSession(true)},
}

// TestGuessesOverAllDoorsAreFew: an address is both a team user's and a mailbox's, and passwords
// are tried at it in parallel, over every protocol, from one network or from fifty. In no quarter
// of an hour are more than thirty compared with the password of either. Its owner can log in from
// known networks, and from everywhere while one network guesses. MAILSTEAD_GUESSES sets how many
// are tried.
func TestGuessesOverAllDoorsAreFew(t *testing.T) {
	guesses := 900
	if n, err := strconv.Atoi(os.Getenv("MAILSTEAD_GUESSES")); err == nil {
		guesses = n
	}
	for _, networks := range []int{1, 2, 50} {
		t.Run(fmt.Sprintf("%d networks", networks), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { guessFrom(t, networks, guesses) })
		})
	}
}

func guessFrom(t *testing.T, networks, guesses int) {
	const email, home = "both@boxes.test", "192.0.2.1"
	b := servicetest.New(t, nil)
	b.Core.SlowHashes(50 * time.Millisecond)
	b.Domain(t, b.Owner.AccountID, "boxes.test", "builtin", "complete")
	team, box := "a team password", "a box password"
	if _, err := b.Accounts.InviteTeamUser(t.Context(), actor(b), accounts.InviteTeamUserIn{Email: email, Password: &team}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Mailboxes.CreateEmailUser(t.Context(), actor(b), mailboxes.CreateEmailUserIn{Email: email, Password: &box}); err != nil {
		t.Fatal(err)
	}
	enters := func(ip, when string) {
		t.Helper()
		for door, err := range map[string]error{
			"team": signInAs("team")(t.Context(), b, email, team, ip), "mailbox": signInAs("mailbox")(t.Context(), b, email, box, ip),
			"IMAP": mailLogin("imap", false)(t.Context(), b, email, box, ip),
		} {
			if err != nil {
				t.Errorf("the owner at the door %s from %s %s: %v", door, ip, when, err)
			}
		}
	}
	enters(home, "before all")
	time.Sleep(time.Hour)

	var mu sync.Mutex
	compared := map[string][]time.Time{}
	outcomes := map[string]int{}
	began := time.Now()
	const waves = 10
	var wg sync.WaitGroup
	for wave := range waves {
		for i := range guesses / waves {
			n := wave*guesses/waves + i
			door := guessDoors[n%len(guessDoors)]
			wg.Go(func() {
				err := door.try(t.Context(), b, email, fmt.Sprintf("guess %d", n), fmt.Sprintf("198.51.100.%d", n/len(guessDoors)%networks))
				at := time.Now()
				e, ours := core.AsError(err)
				if !ours {
					t.Errorf("%s: %v", door.name, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				outcomes[e.Code]++
				if !slices.Contains([]string{"unauthorized", "invalid_credentials", "wrong_password"}, e.Code) {
					return
				}
				for _, id := range door.identities {
					compared[id] = append(compared[id], at)
				}
			})
		}
		time.Sleep(7 * time.Minute)
		synctest.Wait()
		enters(home, fmt.Sprintf("after wave %d", wave))
		if networks == 1 {
			enters(fmt.Sprintf("203.0.113.%d", wave), fmt.Sprintf("after wave %d", wave))
		}
	}
	wg.Wait()
	for id, times := range compared {
		slices.SortFunc(times, time.Time.Compare)
		most := 0
		for i, from := range times {
			n := 0
			for _, at := range times[i:] {
				if at.Sub(from) < 15*time.Minute {
					n++
				}
			}
			most = max(most, n)
		}
		t.Logf("%s: %d of %d guesses were compared in %v, at most %d in a quarter of an hour", id, len(times), guesses, time.Since(began), most)
		if most > 30 {
			t.Errorf("%s: %d guesses were compared in a quarter of an hour", id, most)
		}
	}
	if len(compared) != 2 || outcomes["rate_limited"] < guesses/2 {
		t.Errorf("the outcomes: %v", outcomes)
	}
}

// TestWrongPasswordCountsAtBothIdentities: if an address is a team user's and a mailbox's, a guess
// that names neither counts at both, and is refused if one of them is locked.
func TestWrongPasswordCountsAtBothIdentities(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		const email = "ann@boxes.test" // whose mailbox has the password "correct horse"
		team := "a team password"
		if _, err := b.Accounts.InviteTeamUser(t.Context(), actor(b), accounts.InviteTeamUserIn{Email: email, Password: &team}); err != nil {
			t.Fatal(err)
		}
		signIn := func(as, password, ip string) string {
			err := signInAs(as)(t.Context(), b, email, password, ip)
			if err == nil {
				return ""
			}
			e := new(core.Error)
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			return e.Code
		}
		for i := range 16 {
			if code := signIn("", fmt.Sprintf("wrong %d", i), "192.0.2.1"); code != "invalid_credentials" {
				t.Fatalf("guess %d: %q", i, code)
			}
		}
		for _, as := range []string{"", "team", "mailbox"} {
			if code := signIn(as, team, "192.0.2.1"); code != "rate_limited" {
				t.Errorf("as %q after wrong ones: %q", as, code)
			}
		}
		if status, _ := login(t, b, email, "correct horse", "192.0.2.1"); status != "rate_limited" {
			t.Errorf("over IMAP: %q", status)
		}
		for range 16 {
			login(t, b, email, "wrong", "192.0.2.2")
		}
		if code := signIn("", team, "192.0.2.2"); code != "rate_limited" {
			t.Errorf("the team password where the mailbox is shut: %q", code)
		}
		if code := signIn("team", team, "192.0.2.2"); code != "" {
			t.Errorf("where the team user alone is asked for: %q", code)
		}
		page, err := b.Accounts.ListAudit(t.Context(), actor(b), accounts.ListAuditIn{Action: "login_failed"})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, row := range page.Data {
			n += row.Count
			if row.Actor.Name != email {
				t.Errorf("a row names %+v", row.Actor)
			}
		}
		if n != 16 {
			t.Errorf("the audit log has %d wrong passwords at the dashboard, want 16", n)
		}
	})
}

// TestRightPasswordsUseNothingUp: a user who comes from many networks with the right password can
// log in each time.
func TestRightPasswordsUseNothingUp(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		for i := range 3 * core.MaxIdentityFailures {
			if status, took := login(t, b, "ann@boxes.test", "correct horse", fmt.Sprintf("192.0.2.%d", i)); status != "" || took > 0 {
				t.Fatalf("log-in %d: %q after %v", i, status, took)
			}
		}
	})
}
