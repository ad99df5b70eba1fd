package mta

import (
	"cmp"
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
	return rowText(kind, id, s.Keys.Mac("row address", kind, id, domain))
}

func rowText(kind, id string, mac []byte) string {
	return kind + "-" + id + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(mac[:rowMACLen*5/8]))
}

// isRowLocal tells whether rowLocal gives the text, or gave it under another master key.
func (s *Service) isRowLocal(text, kind, id, domain string) bool {
	id = strings.TrimPrefix(id, "msg_")
	same := func(mac []byte) bool { return hmac.Equal([]byte(text), []byte(rowText(kind, id, mac))) }
	return s.Keys.MadeMac(same, "row address", kind, id, domain)
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
	if !s.isRowLocal(local, kind, id, domain) {
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
	if err != nil || kind == bounceAddress && tx.Now().Sub(row.Began()) > bouncesFor {
		return nil, core.SMTPErrorf(550, "5.1.1", "User unknown, or the address has expired")
	}
	to := &destination{domain: d, row: row, rowKind: kind}
	mb, err := core.LiveMailbox(tx, row.MailboxID)
	if mb != nil {
		to.Mailbox, to.Forward, to.only = mb, mb.ForwardTo, mb.ForwardOnly && mb.ForwardTo != ""
	}
	return to, err
}

// returnPath is the sender that a message leaves with on its route.
func (s *Service) returnPath(m *delivery) string {
	switch {
	case m.sub.Forward:
		path := s.srsForward(m.sub.Sender, m.row.Domain)
		if m.sub.ListID != "" && path != "" && path == m.sub.Sender { // a group may be its own sender: its members get no bounces
			path = cmp.Or(s.rowAddress(bounceAddress, m.row), path)
		}
		return path
	case m.sub.Sender == "" || m.route.relay != nil && !m.route.relay.verp:
		return m.sub.Sender
	}
	if path := s.rowAddress(bounceAddress, m.row); path != "" {
		return path
	}
	return m.sub.Sender
}

// A forward goes out with a return path in the forwarding domain, so that SPF passes, from which a
// bounce finds its way back to the first sender (the Sender Rewriting Scheme):
// SRS0=mac=day=domain=local. What another forwarder has rewritten becomes SRS1=mac=forwarder=rest,
// where rest begins with the other's separator: a bounce goes back to that forwarder, who knows the
// first sender, so that paths do not grow with each. The MAC makes that no open relay: we send back
// only to senders that we rewrote ourselves.
const (
	srsFirst = "srs0"
	srsAgain = "srs1"
	srsValid = 21 // days
	srsDays  = 1 << 10
	maxLocal = 64 // RFC 5321 section 4.5.3.1.1
)

// srsForward rewrites a sender into the domain. A sender whose new local part would be too long
// stays as it is, as do the null sender and one of the domain itself.
func (s *Service) srsForward(sender, domain string) string {
	local, from, ok := msg.SplitEmail(sender)
	if !ok || from == domain {
		return sender
	}
	day := srsDay(s.Now())
	text := "SRS0=" + s.srsMAC(day, from, local, domain) + "=" + day + "=" + from + "=" + local
	if hop, rest, ok := srsOf(local, from); ok {
		text = "SRS1=" + s.srsMAC(hop, rest, domain) + "=" + hop + "=" + rest
	}
	if len(text) > maxLocal {
		return sender
	}
	return text + "@" + domain
}

// srsOf takes a path that a forwarder has rewritten apart: which forwarder knows the sender, and
// what it is to be given behind the word SRS0.
func srsOf(local, from string) (hop, rest string, ok bool) {
	switch word, text := srsWord(local); word {
	case srsFirst:
		return from, text, true
	case srsAgain:
		parts := strings.SplitN(text[1:], "=", 3)
		if len(parts) == 3 && parts[2] != "" && strings.ContainsRune("=+-", rune(parts[2][0])) {
			return parts[1], parts[2], true
		}
	}
	return "", "", false
}

// srsWord cuts the word SRS0 or SRS1, in lower case, off a local part; one of = + - must follow.
func srsWord(local string) (word, rest string) {
	if len(local) <= len(srsFirst) || !strings.ContainsRune("=+-", rune(local[len(srsFirst)])) {
		return "", ""
	}
	return strings.ToLower(local[:len(srsFirst)]), local[len(srsFirst):]
}

// srsReverse gives whom a bounce goes back to, behind a local part of the domain that srsForward
// made: the first sender, for three weeks, or the forwarder before us, who looks at the time
// itself.
func (s *Service) srsReverse(local, domain string) (sender string, ok bool) {
	var err error
	switch word, text := srsWord(local); word {
	case srsFirst:
		parts := strings.SplitN(strings.ToLower(text[1:]), "=", 4)
		if len(parts) != 4 {
			return "", false
		}
		mac, day, from, to := parts[0], parts[1], parts[2], parts[3]
		if !s.isSRSMAC(mac, day, from, to, domain) || !s.srsFresh(day) {
			return "", false
		}
		sender, err = msg.NormalizeEmail(to + "@" + from)
	case srsAgain:
		mac, _, _ := strings.Cut(strings.ToLower(text[1:]), "=")
		hop, rest, ok := srsOf(local, "")
		if !ok || !s.isSRSMAC(mac, hop, rest, domain) {
			return "", false
		}
		sender, err = msg.NormalizeEmail("SRS0" + rest + "@" + hop)
	default:
		return "", false
	}
	return sender, err == nil
}

// srsMAC is in lower case, and over lower case, since addresses come back in any.
func (s *Service) srsMAC(parts ...string) string {
	return srsText(s.Keys.Mac("srs", strings.ToLower(strings.Join(parts, "\x00"))))
}

func srsText(mac []byte) string { return strings.ToLower(base32.StdEncoding.EncodeToString(mac[:5])) }

// isSRSMAC tells whether srsMAC gives the text, or gave it under another master key.
func (s *Service) isSRSMAC(text string, parts ...string) bool {
	same := func(mac []byte) bool { return hmac.Equal([]byte(text), []byte(srsText(mac))) }
	return s.Keys.MadeMac(same, "srs", strings.ToLower(strings.Join(parts, "\x00")))
}

const srsDigits = "abcdefghijklmnopqrstuvwxyz234567"

// srsDay is the day in two characters; it comes again after 1024 days.
func srsDay(t time.Time) string {
	day := t.Unix() / (24 * 60 * 60) % srsDays
	return string([]byte{srsDigits[day>>5], srsDigits[day&31]})
}

func (s *Service) srsFresh(day string) bool {
	for age := range srsValid + 1 {
		if srsDay(s.Now().AddDate(0, 0, -age)) == day {
			return true
		}
	}
	return false
}
