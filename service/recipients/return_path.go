package recipients

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
	BounceAddress      = "b"
	UnsubscribeAddress = "u"

	BouncesFor = 30 * 24 * time.Hour // after the message was queued; a bounce takes two weeks at the very most

	RowIDLen   = 26
	rowMACLen  = 16
	rowPathLen = 2 + RowIDLen + 1 + rowMACLen
	maxPath    = 254 // RFC 5321 section 4.5.3.1.3
)

// RowAddress makes an address of the row; "" for a domain that leaves no room for it.
func (s *Service) RowAddress(kind string, row *store.Outgoing) string {
	address := s.RowLocal(kind, row.ID, row.Domain) + "@" + row.Domain
	if len(address) > maxPath {
		return ""
	}
	return address
}

// RowLocal is the local part of an address of a row: its kind, the id of the row, and a MAC over
// both and the domain.
func (s *Service) RowLocal(kind, id, domain string) string {
	id = strings.TrimPrefix(id, "msg_")
	return rowText(kind, id, s.Keys.Mac("row address", kind, id, domain))
}

func rowText(kind, id string, mac []byte) string {
	return kind + "-" + id + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(mac[:rowMACLen*5/8]))
}

// IsRowLocal reports whether rowLocal gives the text, or gave it under another master key.
func (s *Service) IsRowLocal(text, kind, id, domain string) bool {
	id = strings.TrimPrefix(id, "msg_")
	same := func(mac []byte) bool { return hmac.Equal([]byte(text), []byte(rowText(kind, id, mac))) }
	return s.Keys.MadeMac(same, "row address", kind, id, domain)
}

// ReadRowLocal takes a local part of the domain apart. kind is "" for one that has not the form; id
// is "" for one that we did not make.
func (s *Service) ReadRowLocal(local, domain string) (kind, id string) {
	local = strings.ToLower(local)
	if len(local) != rowPathLen || local[1] != '-' || local[2+RowIDLen] != '-' {
		return "", ""
	}
	kind, id = local[:1], "msg_"+local[2:2+RowIDLen]
	if kind != BounceAddress && kind != UnsubscribeAddress || !store.IsID("msg", id) {
		return "", ""
	}
	if !s.IsRowLocal(local, kind, id, domain) {
		return kind, ""
	}
	return kind, id
}

// BouncedRow gives the id of the row whose return path an address is; "" if it is none that we
// made.
func (s *Service) BouncedRow(address string) string {
	local, domain, _ := msg.SplitEmail(strings.Trim(address, "<> "))
	kind, id := s.ReadRowLocal(local, strings.ToLower(domain))
	if kind != BounceAddress {
		return ""
	}
	return id
}

// rowDestination is where mail to an address of a row goes: it is read, and the mailbox that sent
// gets it if it is for people. nil, nil says that the local part is of another kind.
func (s *Service) rowDestination(tx *store.Tx, d *store.Domain, local string) (*Destination, error) {
	kind, id := s.ReadRowLocal(local, d.Name)
	if kind == "" {
		return nil, nil
	}
	row, err := store.Outgoings.Get(tx, id)
	if err != nil && !core.IsGone(err) {
		return nil, err
	}
	if err != nil || kind == BounceAddress && tx.Now().Sub(row.Began()) > BouncesFor {
		return nil, core.SMTPErrorf(550, "5.1.1", "User unknown, or the address has expired")
	}
	to := &Destination{Domain: d, Row: row, RowKind: kind}
	mb, err := core.LiveMailbox(tx, row.MailboxID)
	if mb != nil {
		to.Mailbox, to.Forward, to.Only = mb, mb.ForwardTo, mb.ForwardOnly && mb.ForwardTo != ""
	}
	return to, err
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
	SRSValid = 21 // days
	srsDays  = 1 << 10
	MaxLocal = 64 // RFC 5321 section 4.5.3.1.1
)

// SRSForward rewrites a sender into the domain. A sender whose new local part would be too long
// stays as it is, as do the null sender and one of the domain itself.
func (s *Service) SRSForward(sender, domain string) string {
	local, from, ok := msg.SplitEmail(sender)
	if !ok || from == domain {
		return sender
	}
	day := SRSDay(s.Now())
	text := "SRS0=" + s.srsMAC(day, from, local, domain) + "=" + day + "=" + from + "=" + local
	if hop, rest, ok := srsOf(local, from); ok {
		text = "SRS1=" + s.srsMAC(hop, rest, domain) + "=" + hop + "=" + rest
	}
	if len(text) > MaxLocal {
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

// SRSReverse gives whom a bounce goes back to, behind a local part of the domain that SRSForward
// made: the first sender, for three weeks, or the forwarder before us, who looks at the time
// itself.
func (s *Service) SRSReverse(local, domain string) (sender string, ok bool) {
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

// isSRSMAC reports whether srsMAC gives the text, or gave it under another master key.
func (s *Service) isSRSMAC(text string, parts ...string) bool {
	same := func(mac []byte) bool { return hmac.Equal([]byte(text), []byte(srsText(mac))) }
	return s.Keys.MadeMac(same, "srs", strings.ToLower(strings.Join(parts, "\x00")))
}

const srsDigits = "abcdefghijklmnopqrstuvwxyz234567"

// SRSDay is the day in two characters; it comes again after 1024 days.
func SRSDay(t time.Time) string {
	day := t.Unix() / (24 * 60 * 60) % srsDays
	return string([]byte{srsDigits[day>>5], srsDigits[day&31]})
}

func (s *Service) srsFresh(day string) bool {
	for age := range SRSValid + 1 {
		if SRSDay(s.Now().AddDate(0, 0, -age)) == day {
			return true
		}
	}
	return false
}

// TagAddress is the kind of the name under which a relay tells of a row. It is no address.
const TagAddress = "t"
