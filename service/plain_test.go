package service

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store"
)

// TestPasswordsCrossNoNetworkAsPlainText: servers without TLS are for private addresses that the
// operator allows; a sandbox asks less.
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
		i := install(t, Config{Outbound: "capture", Sandbox: c.sandbox})
		i.svc.Config.AllowPrivate = c.private
		i.addDomain(i.account, "away.test", func(d *store.Domain) { d.DNSProvider = providerExternal })
		for field, security := range map[string][2]string{"imap": {"none", "tls"}, "smtp": {"tls", "none"}, "": {"starttls", "tls"}} {
			_, err := i.svc.CreateEmailUser(context.Background(), actor(i.account), CreateEmailUserIn{
				Email: "me" + field + "@away.test", Type: "external",
				IMAP: &MailServerLogin{Host: c.host, Port: 1, Security: security[0], Username: "me", Password: "p"},
				SMTP: &MailServerLogin{Host: c.host, Port: 1, Security: security[1], Username: "me", Password: "p"},
			})
			want := c.refused && field != ""
			if (err != nil) != want || want && (!hasCode(err, "validation_error") || !strings.Contains(err.Error(), "allow_private_destinations")) {
				t.Errorf("%s, %s: %v", name, field, err)
			}
		}
	}
}

// TestOldMailboxesWithoutTLSSaySo: one that was made before, or whose name leads to a public
// address, sends its password to nobody.
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
	i := install(t, Config{Outbound: "relay"})
	i.addDomain(i.account, "away.test", func(d *store.Domain) { d.DNSProvider = providerExternal })
	login := &MailServerLogin{Host: "127.0.0.1", Port: server.Addr().(*net.TCPAddr).Port, Security: "none", Username: "me", Password: "p"}
	made, err := i.svc.CreateEmailUser(context.Background(), actor(i.account), CreateEmailUserIn{Email: "me@away.test", Type: "external", IMAP: login, SMTP: login})
	if err != nil {
		t.Fatal(err)
	}
	i.svc.Config.AllowPrivate = false // what the operator has decided since
	i.reopen()
	i.run()
	i.update(func(tx *store.Tx) error {
		a, err := store.Accounts.Get(tx, i.account.AccountID)
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
		return i.svc.addSync(tx, mb, "")
	})
	end, text := time.Now().Add(20*time.Second), ""
	for text == "" && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
		_ = i.st.View(func(tx *store.Tx) error {
			mb, err := store.Mailboxes.Get(tx, made.ID)
			text = mb.ErrorText
			return err
		})
	}
	mb := &store.Mailbox{ID: made.ID, AccountID: i.account.AccountID}
	i.mustSend(mb, SendEmailIn{To: Texts{"x@far.test"}, Subject: "s"})
	if row := i.becomes("x@far.test", store.OutgoingBounced); !strings.Contains(row.LastResponse, "allow_private_destinations") {
		t.Errorf("row %+v", row)
	}
	if !strings.Contains(text, "allow_private_destinations") || dialled.Load() != 0 {
		t.Errorf("the mailbox says %q; %d connections", text, dialled.Load())
	}
}

// TestRewrittenPathsTakeReportsAlone: they come from the null sender; anybody else would get past
// us to a stranger.
func TestRewrittenPathsTakeReportsAlone(t *testing.T) {
	i := install(t, Config{Outbound: "capture"})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	path := i.svc.srsForward("victim@far.test", "example.test")
	again := i.svc.srsForward(i.svc.srsForward("victim@far.test", "forwarder.test"), "example.test")
	for _, to := range []string{path, strings.ToLower(path), again} {
		if err := i.arrive("pat@sender.test", to, letterFrom("pat@sender.test")); codeOf(err) != 550 || AsSMTPError(err).Enhanced != "5.7.1" {
			t.Errorf("from a sender to %s: %v", to, err)
		}
	}
	i.mustArrive("", strings.ToLower(path), letterFrom("mailer-daemon@sender.test"))
	i.becomes("victim@far.test", store.OutgoingCaptured)
	other := i.svc.srsForward("second@far.test", "example.test")
	_, err := i.submit(ann, plainMessage, other)
	if err == nil {
		i.becomes(strings.ToLower(other), store.OutgoingBounced)
	}
	if row := i.row("second@far.test"); row.ID != "" {
		t.Errorf("it went on from a mailbox: %+v", row)
	}
	body, err := i.svc.Spool(strings.NewReader(letterFrom("pat@sender.test")))
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	in := Incoming{From: "pat@sender.test", Recipients: []Recipient{{strings.ToLower(other)}}, Body: body}
	if _, err := i.svc.Receive(context.Background(), in); codeOf(err) != 550 {
		t.Errorf("named for one sender, sent by another: %v", err)
	}
}
