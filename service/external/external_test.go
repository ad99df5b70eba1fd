package external_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/pull/pulltest"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/external"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// TestLogInThatIsHungUpOnIsOnesOwn: a server that closes the connection instead of refusing a
// password still answers other mailboxes.
func TestLogInThatIsHungUpOnIsOnesOwn(t *testing.T) {
	o := servicetest.NewOutpost(t, &servicetest.Host{})
	o.IMAP.Change(func() {
		o.IMAP.Manners = func(_, verb string, c net.Conn, _ io.Writer) bool {
			if verb == "AUTHENTICATE" {
				c.Close()
			}
			return verb == "AUTHENTICATE"
		}
	})
	var mb *store.Mailbox
	o.Update(func(tx *store.Tx) (err error) { mb, err = store.Mailboxes.Get(tx, o.Mailbox.ID); return err })
	if _, err := o.Svc.External.Connect(t.Context(), mb); err == nil {
		t.Fatal("it is logged in")
	}
	if until := o.Svc.External.DownUntil(mb.ID); !until.IsZero() {
		t.Errorf("the server is left alone until %s", until)
	}
}

// TestNobodyIdlesUnwanted: an IDLE session ends when the universal inbox is switched off or its
// account is suspended, and a sync that began before does not start one.
func TestNobodyIdlesUnwanted(t *testing.T) {
	o := servicetest.NewOutpost(t, &servicetest.Host{})
	ctx := t.Context()
	o.Svc.External.OpenIdles(ctx)
	inbox := func(on bool) {
		t.Helper()
		if _, err := o.Svc.External.SetUniversalInbox(ctx, servicetest.Actor(o.Account), external.UniversalInboxIn{Enabled: &on}); err != nil {
			t.Fatal(err)
		}
	}
	status := func(to string) {
		t.Helper()
		if _, err := o.Svc.Accounts.SetAccountStatus(ctx, accounts.AccountIn{Account: o.Account.AccountID, Status: to}); err != nil {
			t.Fatal(err)
		}
	}
	var mb *store.Mailbox
	o.Update(func(tx *store.Tx) (err error) { mb, err = store.Mailboxes.Get(tx, o.Mailbox.ID); return err })
	idles := func() bool {
		t.Helper()
		session, err := o.Svc.External.Connect(ctx, mb)
		if err != nil {
			t.Fatal(err)
		}
		kept := o.Svc.External.IdleOn(mb, &store.RemoteBox{MailboxID: mb.ID}, session)
		if !kept {
			session.Close()
		}
		return kept
	}
	for _, end := range []struct{ off, on func() }{
		{func() { inbox(false) }, func() { inbox(true) }},
		{func() { status("suspended") }, func() { status("active") }},
	} {
		end.on()
		if !idles() {
			t.Fatal("the session does not wait for mail")
		}
		end.off()
		o.Until("the session has ended", func() bool { return !o.Svc.External.Idles(mb.ID) })
		if idles() || o.Svc.External.Idles(mb.ID) {
			t.Error("a session waits for mail that nobody wants")
		}
		end.on()
	}
}

// TestRefreshOfManyExternalMailboxes: some syncs are planned in the request and the others by one
// job, for all requests.
func TestRefreshOfManyExternalMailboxes(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	const n = 230
	d := i.AddDomain(i.Account, "ext.test", func(d *store.Domain) { d.DNSProvider = "external" })
	for k := range n {
		i.AddMailbox(d, fmt.Sprintf("box%d", k), func(mb *store.Mailbox) {
			mb.Type, mb.External = "external", &store.External{IMAP: store.Server{Host: "imap.ext.test", Port: 993}}
		})
	}
	i.Update(func(tx *store.Tx) error {
		for mb := range store.Mailboxes.All(tx) {
			if err := store.RemoteBoxes.Put(tx, &store.RemoteBox{MailboxID: mb.ID, AccountID: mb.AccountID, Done: true}); err != nil {
				return err
			}
		}
		a, err := store.Accounts.Get(tx, i.Account.AccountID)
		if err != nil {
			return err
		}
		a.UniversalInbox = true
		return store.Accounts.Put(tx, a)
	})
	count := func() (polls int, rest []*store.Job) {
		if err := i.St.View(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				switch j.Kind {
				case external.KindInboxPoll:
					polls++
				case external.KindExternals:
					rest = append(rest, j)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return polls, rest
	}
	for range 20 {
		out, err := i.Svc.External.RefreshInbox(context.Background(), servicetest.Actor(i.Account))
		if err != nil {
			t.Fatal(err)
		}
		if want := "New mail of 230 external mailboxes is being fetched; mail of hosted mailboxes appears as it arrives."; out.Message != want {
			t.Fatalf("%q", out.Message)
		}
	}
	polls, rest := count()
	if polls != external.ExternalsAtATime || len(rest) != 1 {
		t.Fatalf("20 requests have %d mailboxes looked at, and add %d jobs for the others", polls, len(rest))
	}
	if _, err := i.Svc.External.PlanRemainingSyncs(context.Background(), rest[0]); err != nil {
		t.Fatal(err)
	}
	polls, _ = count()
	if polls != n {
		t.Errorf("%d of %d mailboxes are looked at in the end", polls, n)
	}
}

// TestPasswordsCrossNoNetworkAsPlainText: servers without TLS must be at private addresses that the
// operator allows; a sandbox is less strict.
func TestPasswordsCrossNoNetworkAsPlainText(t *testing.T) {
	for name, c := range map[string]struct {
		sandbox, private bool
		host             string
		refused          bool
	}{
		"production":                       {false, false, "imap.away.test", true},
		"production, private":              {false, false, "10.0.0.1", true},
		"production, allowed":              {false, true, "10.0.0.1", false},
		"production, allowed, by name":     {false, true, "imap.away.test", false},
		"production, allowed, but public":  {false, true, "8.8.8.8", true},
		"production, allowed, public IPv6": {false, true, "2600::1", true},
		"sandbox":                          {true, true, "8.8.8.8", false},
	} {
		i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}, Sandbox: c.sandbox})
		i.Svc.Core.Config.AllowPrivate = c.private
		i.AddDomain(i.Account, "away.test", func(d *store.Domain) { d.DNSProvider = store.DomainProviderExternal })
		for field, security := range map[string][2]string{"imap": {"none", "tls"}, "smtp": {"tls", "none"}, "": {"starttls", "tls"}} {
			_, err := i.Svc.Mailboxes.CreateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.CreateEmailUserIn{
				Email: "me" + field + "@away.test", Type: "external",
				IMAP: &mailboxes.MailServerLogin{Host: c.host, Port: 1, Security: security[0], Username: "me", Password: "p"},
				SMTP: &mailboxes.MailServerLogin{Host: c.host, Port: 1, Security: security[1], Username: "me", Password: "p"},
			})
			want := c.refused && field != ""
			if (err != nil) != want || want && (!servicetest.HasCode(err, "validation_error") || !strings.Contains(err.Error(), "allow_private_destinations")) {
				t.Errorf("%s, %s: %v", name, field, err)
			}
		}
	}
}

// TestOldMailboxesWithoutTLSSaySo: a mailbox that was created before this rule, or whose host name
// leads to a public address, never sends its password.
func TestOldMailboxesWithoutTLSSaySo(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var dialled atomic.Int32
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			conn.Close()
		}
	}()
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "relay"}})
	i.AddDomain(i.Account, "away.test", func(d *store.Domain) { d.DNSProvider = store.DomainProviderExternal })
	login := &mailboxes.MailServerLogin{Host: "127.0.0.1", Port: server.Addr().(*net.TCPAddr).Port, Security: "none", Username: "me", Password: "p"}
	made, err := i.Svc.Mailboxes.CreateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.CreateEmailUserIn{Email: "me@away.test", Type: "external", IMAP: login, SMTP: login})
	if err != nil {
		t.Fatal(err)
	}
	i.Svc.Core.Config.AllowPrivate = false // what the operator has decided since
	i.Reopen()
	i.Run()
	i.Update(func(tx *store.Tx) error {
		a, err := store.Accounts.Get(tx, i.Account.AccountID)
		if err != nil {
			return err
		}
		a.UniversalInbox = true
		if err := store.Accounts.Put(tx, a); err != nil {
			return err
		}
		mb, err := store.Mailboxes.Get(tx, made.ID)
		if err != nil {
			return err
		}
		return i.Svc.External.AddSync(tx, mb, "")
	})
	end, text := time.Now().Add(20*time.Second), ""
	for text == "" && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
		_ = i.St.View(func(tx *store.Tx) error {
			mb, err := store.Mailboxes.Get(tx, made.ID)
			text = mb.ErrorText
			return err
		})
	}
	mb := &store.Mailbox{ID: made.ID, AccountID: i.Account.AccountID}
	i.MustSend(mb, submit.SendEmailIn{To: submit.Texts{"x@far.test"}, Subject: "s"})
	if row := i.Becomes("x@far.test", store.OutgoingBounced); !strings.Contains(row.LastResponse, "allow_private_destinations") {
		t.Errorf("row %+v", row)
	}
	if !strings.Contains(text, "allow_private_destinations") || dialled.Load() != 0 {
		t.Errorf("the mailbox says %q; %d connections", text, dialled.Load())
	}
}

// TestSuspendedAccountFetchesNothing: neither a requested sync nor one in the background logs in
// for a suspended account; both continue after it is resumed.
func TestSuspendedAccountFetchesNothing(t *testing.T) {
	i := servicetest.Install(t, core.Config{Sandbox: true, Settings: core.Settings{Outbound: "capture"}})
	remote := pulltest.Serve(t, nil)
	ctx := context.Background()
	who := core.Actor{AccountID: i.Account.AccountID, UserID: i.Account.UserID, Role: "owner", Permissions: []string{"admin"}}
	status := func(to string) {
		t.Helper()
		if _, err := i.Svc.Accounts.SetAccountStatus(ctx, accounts.AccountIn{Account: i.Account.AccountID, Status: to}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := i.Svc.Domains.ConnectDomains(ctx, who, domains.ConnectDomainsIn{Domains: []string{"away.test"}, External: true}); err != nil {
		t.Fatal(err)
	}
	on := true
	if _, err := i.Svc.External.SetUniversalInbox(ctx, who, external.UniversalInboxIn{Enabled: &on}); err != nil {
		t.Fatal(err)
	}
	made, err := i.Svc.Mailboxes.CreateEmailUser(ctx, who, mailboxes.CreateEmailUserIn{
		Email: "me@away.test", Type: "external",
		IMAP: &mailboxes.MailServerLogin{Host: "127.0.0.1", Port: remote.Port, Security: "none", Username: "me", Password: "secret"},
	})
	if err != nil {
		t.Fatal(err)
	}
	lastSync := func() (at time.Time) {
		i.Update(func(tx *store.Tx) error {
			mb, err := store.Mailboxes.Get(tx, made.UserID)
			if err == nil {
				at = mb.LastSyncAt
			}
			return err
		})
		return at
	}
	jobsOf := func(kind string) (n int) {
		i.Update(func(tx *store.Tx) error {
			n = 0
			for j := range store.Jobs.All(tx) {
				if j.Kind == kind && !j.Ended() {
					n++
				}
			}
			return nil
		})
		return n
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	status("suspended")
	i.Run()
	eventually("the look neither waits nor ends", func() bool {
		n := 0
		i.Update(func(tx *store.Tx) error {
			n = 0
			for j := range store.Jobs.All(tx) {
				if j.Kind == external.KindInboxSync && (j.Ended() || j.State == store.JobQueued && j.Due.Sub(tx.Now()) > 50*time.Minute) {
					n++
				}
			}
			return nil
		})
		return n == 1 || !lastSync().IsZero()
	})
	if !lastSync().IsZero() {
		t.Fatal("the mailbox of a suspended account was looked at")
	}
	status("active")
	eventually("nobody looks after resume", func() bool { return !lastSync().IsZero() })
	eventually("no look waits for its time", func() (waits bool) { // one at work would end by itself
		i.Update(func(tx *store.Tx) error {
			j, err := store.JobByKey.Read(tx, store.JobKey(external.KindInboxPoll, made.UserID))
			waits = err == nil && j.State == store.JobQueued && j.Due.Sub(tx.Now()) > 10*time.Second
			return nil
		})
		return waits
	})
	status("suspended")
	eventually("no look waits", func() bool { // the next one by the clock, now
		err := i.St.Update(func(tx *store.Tx) error {
			j, err := store.JobByKey.Get(tx, store.JobKey(external.KindInboxPoll, made.UserID))
			if err != nil {
				return err
			}
			return i.Svc.Core.Queue.Wake(tx, j.ID, time.Time{})
		})
		return err == nil
	})
	eventually("the look by the clock goes on", func() bool { return jobsOf(external.KindInboxPoll) == 0 })
	status("active")
	eventually("no look is planned after resume", func() bool { return jobsOf(external.KindInboxPoll) == 1 })
}
