package servicetest

import (
	"context"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/pull/pulltest"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/store"
)

// An Outpost is an installation with an external mailbox.
type Outpost struct {
	*Installation
	Mailbox *store.Mailbox
	IMAP    *pulltest.Server
	SMTP    *Host
	Sent    *pulltest.Folder
}

func NewOutpost(t *testing.T, smtp *Host) *Outpost {
	t.Helper()
	o := &Outpost{Installation: Install(t, core.Config{}), IMAP: pulltest.Serve(t, nil), SMTP: smtp.Start(t), Sent: &pulltest.Folder{Name: "Sent", Attr: `\Sent`}}
	o.IMAP.Change(func() { o.IMAP.Folders = []*pulltest.Folder{o.Sent} })
	o.AddDomain(o.Account, "away.test", func(d *store.Domain) { d.DNSProvider = store.DomainProviderExternal })
	server := func(port int) *mailboxes.MailServerLogin {
		return &mailboxes.MailServerLogin{Host: "127.0.0.1", Port: port, Security: "none", Username: "me", Password: "s3cret"}
	}
	made, err := o.Svc.Mailboxes.CreateEmailUser(context.Background(), Actor(o.Account), mailboxes.CreateEmailUserIn{
		Email: "me@away.test", Type: "external", IMAP: server(o.IMAP.Port), SMTP: server(o.SMTP.Port),
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Mailbox = &store.Mailbox{ID: made.ID, AccountID: o.Account.AccountID}
	return o
}

// Copies counts the messages that wait to be copied to the external mailbox.
func (o *Outpost) Copies() (n int) {
	o.T.Helper()
	err := o.St.View(func(tx *store.Tx) error {
		for range store.RemoteCopies.All(tx) {
			n++
		}
		return nil
	})
	if err != nil {
		o.T.Fatal(err)
	}
	return n
}

func (o *Outpost) Until(what string, ok func() bool) {
	o.T.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			o.T.Fatalf("waited too long until %s", what)
		}
	}
}

// Hurry makes all jobs that wait to copy or to mark a message on the external server due now.
func (o *Outpost) Hurry() {
	o.Update(func(tx *store.Tx) error {
		for j := range store.Jobs.All(tx) {
			if j.Kind == outbound.KindRemoteCopy || j.Kind == inbox.KindRemoteAnswer {
				if err := o.Q.Wake(tx, j.ID, tx.Now()); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Filed returns the messages in the external folder of sent mail.
func (o *Outpost) Filed() (out []pulltest.Message) {
	o.IMAP.Change(func() {
		for _, m := range o.Sent.Messages {
			out = append(out, *m)
		}
	})
	return out
}
