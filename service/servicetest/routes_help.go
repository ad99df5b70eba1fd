package servicetest

import (
	"context"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// RelayNamed returns the configuration of a relay at the host, with a name.
func (h *Host) RelayNamed(name, kind string) core.Relay {
	r := h.Relay(kind)
	r.Name = name
	return r
}

// ChooseRelays sets the relay of a domain and of a mailbox, if they are given.
func (i *Installation) ChooseRelays(t *testing.T, d *store.Domain, domain core.Opt[string], mb *store.Mailbox, mailbox core.Opt[string]) {
	t.Helper()
	if domain.Set {
		if _, err := i.Svc.Domains.UpdateDomain(context.Background(), Actor(i.Account), domains.UpdateDomainIn{DomainID: d.ID, Relay: domain}); err != nil {
			t.Fatal(err)
		}
	}
	if mailbox.Set {
		if _, err := i.Svc.Mailboxes.UpdateEmailUser(context.Background(), Actor(i.Account), mailboxes.UpdateEmailUserIn{UserID: mb.ID, Relay: mailbox}); err != nil {
			t.Fatal(err)
		}
	}
}

// SendWithDSN sends a message that requests DSNs (RFC 3461).
func (i *Installation) SendWithDSN(mb *store.Mailbox, to, notify, ret string) {
	i.T.Helper()
	sp := i.Spool(PlainMessage)
	defer sp.Close()
	user := core.MailboxUser{AccountID: mb.AccountID, MailboxID: mb.ID, Email: mb.Email}
	in := submit.Submission{From: mb.Email, Body: sp, EnvelopeID: "env-1", Ret: ret, To: []outbound.Rcpt{{Address: to, Notify: notify, ORCPT: "rfc822;asked@far.test"}}}
	if _, err := i.Svc.Submit.Submit(context.Background(), user, in); err != nil {
		i.T.Fatal(err)
	}
}
