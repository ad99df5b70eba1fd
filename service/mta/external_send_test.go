package mta_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestExternalMailboxSendsThroughItsOwnServer: to strangers and to mailboxes here alike, with its
// own log-in, unsigned.
func TestExternalMailboxSendsThroughItsOwnServer(t *testing.T) {
	own, relay := (&servicetest.Host{}).Start(t), (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Outbound: "relay", Relays: []core.Relay{relay.Relay("ses")}})
	i.AddMailbox(i.AddDomain(i.Account, "here.test", nil), "bob", nil)
	i.AddDomain(i.Account, "away.test", func(d *store.Domain) { d.DNSProvider = core.ProviderExternal })
	server := func(port int) *mailboxes.MailServerLogin {
		return &mailboxes.MailServerLogin{Host: "127.0.0.1", Port: port, Security: "none", Username: "me", Password: "s3cret"}
	}
	made, err := i.Svc.CreateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.CreateEmailUserIn{
		Email: "me@away.test", Type: "external", IMAP: server(1), SMTP: server(own.Port),
	})
	if err != nil {
		t.Fatal(err)
	}
	mute, err := i.Svc.CreateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.CreateEmailUserIn{Email: "mute@away.test", Type: "external", IMAP: server(1)})
	if err != nil {
		t.Fatal(err)
	}
	i.Run()
	i.MustSend(&store.Mailbox{ID: made.ID, AccountID: i.Account.AccountID}, mta.SendEmailIn{To: mta.Texts{"x@far.test", "bob@here.test"}, Subject: "s"})
	for _, to := range []string{"x@far.test", "bob@here.test"} {
		if row := i.Becomes(to, store.OutgoingRelayed); row.Provider != "127.0.0.1" || row.Transport != core.ViaRelay {
			t.Errorf("%+v", row)
		}
	}
	mails := own.Mails()
	if len(mails) != 2 || len(relay.Mails()) != 0 || mails[0].From != "me@away.test" || strings.Contains(mails[0].Data, "DKIM-Signature") {
		t.Errorf("%d there, %d at the relay: %+v", len(mails), len(relay.Mails()), mails)
	}
	own.Mu.Lock()
	defer own.Mu.Unlock()
	if want := base64.StdEncoding.EncodeToString([]byte("\x00me\x00s3cret")); own.Login != want {
		t.Errorf("log-in %q, want %q", own.Login, want)
	}
	if _, err := i.Send(&store.Mailbox{ID: mute.ID, AccountID: i.Account.AccountID}, mta.SendEmailIn{To: mta.Texts{"x@far.test"}, Subject: "s"}); !servicetest.HasCode(err, "validation_error") {
		t.Errorf("without smtp: %v", err)
	}
}
