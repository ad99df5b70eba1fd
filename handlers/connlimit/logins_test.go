package connlimit

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// logIn logs a connection in, which must be possible.
func (p *fixture) logIn(slot *Slot, g *Logins, mailbox, account string) {
	p.t.Helper()
	if refusal := slot.LogIn(g, Login{"imap", mailbox, account}); refusal != "" {
		p.t.Fatalf("%s of %s: %s", mailbox, account, refusal)
	}
}

// refuseLogin wants a log-in to be refused with a sentence.
func (p *fixture) refuseLogin(slot *Slot, g *Logins, mailbox, account, want string) {
	p.t.Helper()
	if refusal := slot.LogIn(g, Login{"imap", mailbox, account}); refusal != want {
		p.t.Fatalf("%s of %s: %q, want %q", mailbox, account, refusal, want)
	}
}

// TestAddressesCountUntilLogIn has one address log in as often as it likes, and have as many
// connections before log-in as its limit says.
func TestAddressesCountUntilLogIn(t *testing.T) {
	within(t, Limits{All: 100, PerAddress: 2, PerNetwork: 3}, func(p *fixture) {
		g := NewLogins(0)
		var all []*Slot
		for i := range 20 {
			all = append(all, p.acquire("192.0.2.1"))
			p.logIn(all[i], g, fmt.Sprint("mailbox ", i), "acc_1")
		}
		p.acquire("192.0.2.1")
		p.acquire("192.0.2.1")
		p.refuse("192.0.2.1")
		p.acquire("192.0.2.2")
		p.refuse("192.0.2.3")
		all[0].Release()
		p.refuse("192.0.2.1") // what has logged in does not count, so neither does its end
		if p.all != 22 || p.loggedIn != 19 || p.accounts["acc_1"] != 19 {
			t.Errorf("%d connections, %d logged in, %v", p.all, p.loggedIn, p.accounts)
		}
		for _, slot := range all {
			slot.Release()
		}
		if p.loggedIn != 0 || len(p.accounts) != 0 || len(g.mailboxes) != 0 || len(g.accounts) != 0 {
			t.Errorf("remains: %d, %v, %v, %v", p.loggedIn, p.accounts, g.mailboxes, g.accounts)
		}
	})
}

func TestListenersCountForThemselves(t *testing.T) {
	within(t, Limits{All: 3, PerAddress: 1}, func(p *fixture) {
		for i, listener := range []string{"imap", "imaps", "imap", "imaps"} {
			if got := p.AcquireOn(listener, from("192.0.2.1"), nil) != nil; got != (i < 2) {
				t.Errorf("connection %d: %v", i, got)
			}
		}
		p.acquire("192.0.2.2")
		p.refuse("192.0.2.3") // the total is of all listeners
	})
}

// TestLimitsOfMailboxesAndAccounts has two servers of one protocol, and one of another, that share
// their Logins.
func TestLimitsOfMailboxesAndAccounts(t *testing.T) {
	within(t, Limits{PerMailbox: 2, Exempt: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, func(p *fixture) {
		g := NewLogins(4)
		second := &fixture{Limiter: New("second", Limits{PerMailbox: 2}, p.Limiter.log), t: t}
		defer second.Close()
		first := p.acquire("192.0.2.1")
		p.logIn(first, g, "usr_1", "acc_1")
		second.logIn(second.acquire("192.0.2.1"), g, "usr_1", "acc_1")
		third := p.acquire("192.0.2.1")
		p.refuseLogin(third, g, "usr_1", "acc_1", "This mailbox has 2 connections already")
		if refusal := second.acquire("192.0.2.1").LogIn(g, Login{"smtp", "usr_1", "acc_1"}); refusal != "" {
			t.Errorf("over another protocol: %s", refusal)
		}
		p.logIn(third, g, "usr_2", "acc_1")
		fifth := p.acquire("192.0.2.1")
		p.refuseLogin(fifth, g, "usr_2", "acc_1", "This account has 4 connections already")
		p.logIn(fifth, g, "usr_9", "acc_2")
		p.logIn(fifth, g, "usr_3", "acc_2") // takes the place of the log-in before
		first.Release()
		p.logIn(p.acquire("192.0.2.1"), g, "usr_1", "acc_1")
		if g.accounts["acc_1"] != 4 || g.accounts["acc_2"] != 1 || g.mailboxes[mailboxKey{"imap", "usr_9"}] != 0 {
			t.Errorf("%v, %v", g.accounts, g.mailboxes)
		}
	})
}

// TestATenthIsKeptForAccountsWithFew lets one account log in until nine tenths are taken, and then
// others, each a few times.
func TestATenthIsKeptForAccountsWithFew(t *testing.T) {
	within(t, Limits{All: 200}, func(p *fixture) {
		const full = "The server is nearly full, and this account has many connections already"
		g := NewLogins(0)
		first := p.acquire("192.0.2.1")
		p.logIn(first, g, "usr_1", "acc_1")
		for range 179 {
			p.logIn(p.acquire("192.0.2.1"), g, "usr_1", "acc_1")
		}
		waiting := p.acquire("192.0.2.1")
		p.refuseLogin(waiting, g, "usr_1", "acc_1", full)
		for account := range 9 {
			for range 2 { // a hundredth of all places
				p.logIn(p.acquire("198.51.100.1"), g, "usr_2", fmt.Sprint("acc_", 2+account))
			}
		}
		p.refuseLogin(waiting, g, "usr_2", "acc_2", full)
		first.Release()
		p.refuseLogin(waiting, g, "usr_1", "acc_1", full) // the others have taken some of what was not theirs
		p.logIn(waiting, g, "usr_3", "acc_99")
	})
}

// TestLogInsAreNotEvicted fills the server with log-ins from one network: they neither make room
// nor keep other connections from there out.
func TestLogInsAreNotEvicted(t *testing.T) {
	within(t, Limits{All: 8}, func(p *fixture) {
		g := NewLogins(0)
		for i := range 6 {
			slot := p.acquire("192.0.2.1")
			p.logIn(slot, g, fmt.Sprint(i), fmt.Sprint(i))
			slot.Idle()
		}
		first, second := p.acquire("198.51.100.1"), p.acquire("198.51.100.1")
		time.Sleep(time.Hour)
		second.Idle()
		p.acquire("192.0.2.1")
		if p.evicted() != 1 || !first.released {
			t.Error("not the idle connection before log-in was evicted")
		}
		if refusal := first.LogIn(g, Login{"imap", "usr_1", "acc_1"}); refusal == "" || p.loggedIn != 6 {
			t.Errorf("who was evicted logs in: %q", refusal)
		}
	})
}
