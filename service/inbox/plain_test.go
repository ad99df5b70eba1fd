package inbox_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
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
		i := servicetest.Install(t, core.Config{Outbound: "capture", Sandbox: c.sandbox})
		i.Svc.Config.AllowPrivate = c.private
		i.AddDomain(i.Account, "away.test", func(d *store.Domain) { d.DNSProvider = core.ProviderExternal })
		for field, security := range map[string][2]string{"imap": {"none", "tls"}, "smtp": {"tls", "none"}, "": {"starttls", "tls"}} {
			_, err := i.Svc.CreateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.CreateEmailUserIn{
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
	i := servicetest.Install(t, core.Config{Outbound: "relay"})
	i.AddDomain(i.Account, "away.test", func(d *store.Domain) { d.DNSProvider = core.ProviderExternal })
	login := &mailboxes.MailServerLogin{Host: "127.0.0.1", Port: server.Addr().(*net.TCPAddr).Port, Security: "none", Username: "me", Password: "p"}
	made, err := i.Svc.CreateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.CreateEmailUserIn{Email: "me@away.test", Type: "external", IMAP: login, SMTP: login})
	if err != nil {
		t.Fatal(err)
	}
	i.Svc.Config.AllowPrivate = false // what the operator has decided since
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
		return i.Svc.AddSync(tx, mb, "")
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
	i.MustSend(mb, mta.SendEmailIn{To: mta.Texts{"x@far.test"}, Subject: "s"})
	if row := i.Becomes("x@far.test", store.OutgoingBounced); !strings.Contains(row.LastResponse, "allow_private_destinations") {
		t.Errorf("row %+v", row)
	}
	if !strings.Contains(text, "allow_private_destinations") || dialled.Load() != 0 {
		t.Errorf("the mailbox says %q; %d connections", text, dialled.Load())
	}
}
