package mta

import (
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// routeOf is route for a row of the sending log: what a mailbox that lives elsewhere sends goes
// through its own server, to mailboxes here, too, unless this installation sends nothing out.
func (s *Service) routeOf(tx *store.Tx, d *store.Domain, row *store.Outgoing) (route, error) {
	r, err := s.route(tx, d, row.MailboxID, row.Recipient)
	if err != nil || d == nil || d.DNSProvider != core.ProviderExternal {
		return r, err
	}
	if s.Config.Outbound == core.ViaCapture {
		if d.Claim != store.ClaimProven { // in whose name nobody here may be written to
			r = route{transport: core.ViaCapture}
		}
		return r, nil
	}
	mb, err := store.Mailboxes.Get(tx, row.MailboxID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (mb.External == nil || mb.External.SMTP == nil) {
		return route{transport: core.ViaRelay}, nil // nobody is left to send it
	}
	if err != nil {
		return route{}, err
	}
	own, err := s.ownServer(mb)
	return route{transport: core.ViaRelay, relay: own, own: true}, err
}

// ownServer is the server that an external mailbox sends through, as a relay that keeps
// Message-IDs.
func (s *Service) ownServer(mb *store.Mailbox) (*relay, error) {
	at := mb.External.SMTP
	password, err := s.Keys.Open(core.ServerPlace(mb.ID, "smtp"), at.PasswordSealed)
	if err != nil {
		return nil, fmt.Errorf("smtp password of %s: %w", mb.Email, err)
	}
	return newRelay(core.Relay{
		Name: at.Host, Kind: "custom", Host: at.Host, Port: at.Port, TLS: at.Security, Username: at.Username, Password: string(password),
		ReturnPath: "sender", // it takes no other
	})
}
