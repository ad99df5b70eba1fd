package mta

import (
	"crypto/hmac"
	"encoding/base32"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A row of the sending log has addresses of its own, in the domain that sent: b-id-mac is the
// return path that its message leaves with, so that whatever comes back is known by that alone, and
// u-id-mac takes its recipient off the list. The MAC makes them nobody else's to invent. They are
// in lower case, since addresses come back in any.
const (
	bounceAddress      = "b"
	unsubscribeAddress = "u"

	bouncesFor = 30 * 24 * time.Hour // after the message was queued; a bounce takes two weeks at the very most

	rowIDLen   = 26
	rowMACLen  = 16
	rowPathLen = 2 + rowIDLen + 1 + rowMACLen
	maxPath    = 254 // RFC 5321 section 4.5.3.1.3
)

// rowAddress makes an address of the row; "" for a domain that leaves no room for it.
func (s *Service) rowAddress(kind string, row *store.Outgoing) string {
	address := s.rowLocal(kind, row.ID, row.Domain) + "@" + row.Domain
	if len(address) > maxPath {
		return ""
	}
	return address
}

func (s *Service) rowLocal(kind, id, domain string) string {
	id = strings.TrimPrefix(id, "msg_")
	mac := s.Keys.Mac("row address", kind, id, domain)
	return kind + "-" + id + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(mac[:rowMACLen*5/8]))
}

// readRowLocal takes a local part of the domain apart. kind is "" for one that has not the form; id
// is "" for one that we did not make.
func (s *Service) readRowLocal(local, domain string) (kind, id string) {
	local = strings.ToLower(local)
	if len(local) != rowPathLen || local[1] != '-' || local[2+rowIDLen] != '-' {
		return "", ""
	}
	kind, id = local[:1], "msg_"+local[2:2+rowIDLen]
	if kind != bounceAddress && kind != unsubscribeAddress || !store.IsID("msg", id) {
		return "", ""
	}
	if !hmac.Equal([]byte(local), []byte(s.rowLocal(kind, id, domain))) {
		return kind, ""
	}
	return kind, id
}

// bouncedRow gives the id of the row whose return path an address is; "" if it is none that we
// made.
func (s *Service) bouncedRow(address string) string {
	local, domain, _ := msg.SplitEmail(strings.Trim(address, "<> "))
	kind, id := s.readRowLocal(local, strings.ToLower(domain))
	if kind != bounceAddress {
		return ""
	}
	return id
}

// rowDestination is where mail to an address of a row goes: it is read, and the mailbox that sent
// gets it if it is for people. nil, nil says that the local part is of another kind.
func (s *Service) rowDestination(tx *store.Tx, d *store.Domain, local string) (*destination, error) {
	kind, id := s.readRowLocal(local, d.Name)
	if kind == "" {
		return nil, nil
	}
	row, err := store.Outgoings.Get(tx, id)
	if err != nil && !core.IsGone(err) {
		return nil, err
	}
	if err != nil || kind == bounceAddress && tx.Now().Sub(row.QueuedAt) > bouncesFor {
		return nil, core.SMTPErrorf(550, "5.1.1", "User unknown, or the address has expired")
	}
	to := &destination{domain: d, row: row, rowKind: kind}
	mb, err := core.LiveMailbox(tx, row.MailboxID)
	if mb != nil {
		to.Mailbox, to.Forward = mb, mb.ForwardTo
	}
	return to, err
}

// returnPath is the sender that a message leaves with on its route.
func (s *Service) returnPath(m *mailing) string {
	switch {
	case m.sub.Forward:
		return s.srsForward(m.sub.Sender, m.row.Domain)
	case m.sub.Sender == "" || m.route.relay != nil && !m.route.relay.verp:
		return m.sub.Sender
	}
	if path := s.rowAddress(bounceAddress, m.row); path != "" {
		return path
	}
	return m.sub.Sender
}
