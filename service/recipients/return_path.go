package recipients

import (
	"crypto/hmac"
	"encoding/base32"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/recordid"
)

// Each row of the sending log has two addresses of its own, in the sending domain. b-id-mac is the
// return path of its message, so that a bounce identifies the message by the address alone.
// u-id-mac takes mail that unsubscribes the recipient. The MAC prevents forged addresses. The
// addresses are in lower case, since they may come back in any case.
const (
	BounceAddress      = "b"
	UnsubscribeAddress = "u"

	BouncesAcceptedFor = 30 * 24 * time.Hour // counted from when the message was queued; a bounce takes two weeks at most

	RowIDLen   = 26
	rowMACLen  = 16
	rowPathLen = 2 + RowIDLen + 1 + rowMACLen
	maxPathLen = 254 // RFC 5321 section 4.5.3.1.3
)

// RowAddress returns the address of this kind for a row of the sending log; "" if the address would
// be too long because of the domain's name.
func (s *Service) RowAddress(kind string, row *store.Outgoing) string {
	address := s.RowLocal(kind, row.ID, row.Domain) + "@" + row.Domain
	if len(address) > maxPathLen {
		return ""
	}
	return address
}

// RowLocal returns the local part of a row's address: the kind, the id of the row, and a MAC over
// both and the domain.
func (s *Service) RowLocal(kind, id, domain string) string {
	id = strings.TrimPrefix(id, "msg_")
	return rowLocalText(kind, id, s.Keys.Mac("row address", kind, id, domain))
}

func rowLocalText(kind, id string, mac []byte) string {
	return kind + "-" + id + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(mac[:rowMACLen*5/8]))
}

// IsRowLocal reports whether text is the result of RowLocal, under the current or an earlier master
// key.
func (s *Service) IsRowLocal(text, kind, id, domain string) bool {
	id = strings.TrimPrefix(id, "msg_")
	same := func(mac []byte) bool { return hmac.Equal([]byte(text), []byte(rowLocalText(kind, id, mac))) }
	return s.Keys.MatchesMac(same, "row address", kind, id, domain)
}

// ReadRowLocal returns the kind and the id of the row in the local part of an address of the
// domain. kind is "" if the local part does not have the form of a row's address. id is "" if this
// server did not make the address.
func (s *Service) ReadRowLocal(local, domain string) (kind, id string) {
	local = strings.ToLower(local)
	if len(local) != rowPathLen || local[1] != '-' || local[2+RowIDLen] != '-' {
		return "", ""
	}
	kind, id = local[:1], "msg_"+local[2:2+RowIDLen]
	if kind != BounceAddress && kind != UnsubscribeAddress || !recordid.Is("msg", id) {
		return "", ""
	}
	if !s.IsRowLocal(local, kind, id, domain) {
		return kind, ""
	}
	return kind, id
}

// BouncedRowID returns the id of the row of the sending log whose return path is the address; "" if
// this server did not make the address.
func (s *Service) BouncedRowID(address string) string {
	local, domain, _ := msg.SplitEmail(strings.Trim(address, "<> "))
	kind, id := s.ReadRowLocal(local, strings.ToLower(domain))
	if kind != BounceAddress {
		return ""
	}
	return id
}

// rowDestination returns the destination of mail to an address of a row. The server reads the mail,
// and the sending mailbox gets it if it is meant for people. It returns nil and no error if local
// is not the local part of such an address.
func (s *Service) rowDestination(tx *store.Tx, d *store.Domain, local string) (*Destination, error) {
	kind, id := s.ReadRowLocal(local, d.Name)
	if kind == "" {
		return nil, nil
	}
	row, err := store.Outgoings.Get(tx, id)
	if err != nil && !core.IsGone(err) {
		return nil, err
	}
	if err != nil || kind == BounceAddress && tx.Now().Sub(row.Began()) > BouncesAcceptedFor {
		return nil, core.SMTPErrorf(550, "5.1.1", "User unknown, or the address has expired")
	}
	to := &Destination{Domain: d, Row: row, RowKind: kind}
	mb, err := core.LiveMailbox(tx, row.MailboxID)
	if mb != nil {
		to.Mailbox, to.Forward, to.Only = mb, mb.ForwardTo, mb.ForwardOnly && mb.ForwardTo != ""
	}
	return to, err
}

// A forward is sent with a return path in the forwarding domain, so that SPF passes. By the Sender
// Rewriting Scheme, a bounce to this path finds its way back to the first sender:
// SRS0=mac=day=domain=local. If another forwarder has already rewritten the path, it becomes
// SRS1=mac=forwarder=rest, where rest begins with the separator of that forwarder. A bounce then
// goes back to that forwarder, which knows the first sender, so that the path does not grow with
// each forwarder. The MAC keeps this server from being an open relay: it sends back only to senders
// that it rewrote itself.
const (
	srsFirst = "srs0"
	srsAgain = "srs1"
	SRSValid = 21      // days
	srsDays  = 1 << 10 // days after which the values of SRSDay repeat
	MaxLocal = 64      // RFC 5321 section 4.5.3.1.1
)

// SRSForward rewrites a sender to an address in the domain. It returns three kinds of senders
// unchanged: the null sender, a sender of the domain itself, and one whose new local part would be
// too long.
func (s *Service) SRSForward(sender, domain string) string {
	local, from, ok := msg.SplitEmail(sender)
	if !ok || from == domain {
		return sender
	}
	day := SRSDay(s.Now())
	text := "SRS0=" + s.srsMAC(day, from, local, domain) + "=" + day + "=" + from + "=" + local
	if hop, rest, ok := splitSRS(local, from); ok {
		text = "SRS1=" + s.srsMAC(hop, rest, domain) + "=" + hop + "=" + rest
	}
	if len(text) > MaxLocal {
		return sender
	}
	return text + "@" + domain
}

// splitSRS splits a return path that a forwarder has rewritten. hop is the domain of the forwarder
// that knows the first sender, and rest is the text after the word SRS0. ok is false if no
// forwarder has rewritten the path.
func splitSRS(local, from string) (hop, rest string, ok bool) {
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

// srsWord splits the word SRS0 or SRS1 off a local part, and returns it in lower case. One of = + -
// must follow it.
func srsWord(local string) (word, rest string) {
	if len(local) <= len(srsFirst) || !strings.ContainsRune("=+-", rune(local[len(srsFirst)])) {
		return "", ""
	}
	return strings.ToLower(local[:len(srsFirst)]), local[len(srsFirst):]
}

// SRSReverse returns the address that a bounce goes back to, for a local part that SRSForward made.
// For SRS0 that is the original sender, for SRSValid days. For SRS1 it is the address of the
// earlier forwarder, which checks the time itself. ok is false if this server did not make the
// local part, or if it has expired.
func (s *Service) SRSReverse(local, domain string) (sender string, ok bool) {
	var err error
	switch word, text := srsWord(local); word {
	case srsFirst:
		parts := strings.SplitN(strings.ToLower(text[1:]), "=", 4)
		if len(parts) != 4 {
			return "", false
		}
		mac, day, from, to := parts[0], parts[1], parts[2], parts[3]
		if !s.isSRSMAC(mac, day, from, to, domain) || !s.isFreshSRSDay(day) {
			return "", false
		}
		sender, err = msg.NormalizeEmail(to + "@" + from)
	case srsAgain:
		mac, _, _ := strings.Cut(strings.ToLower(text[1:]), "=")
		hop, rest, ok := splitSRS(local, "")
		if !ok || !s.isSRSMAC(mac, hop, rest, domain) {
			return "", false
		}
		sender, err = msg.NormalizeEmail("SRS0" + rest + "@" + hop)
	default:
		return "", false
	}
	return sender, err == nil
}

// srsMAC returns a MAC in lower case over the parts in lower case, since addresses may come back in
// any case.
func (s *Service) srsMAC(parts ...string) string {
	return srsText(s.Keys.Mac("srs", strings.ToLower(strings.Join(parts, "\x00"))))
}

func srsText(mac []byte) string { return strings.ToLower(base32.StdEncoding.EncodeToString(mac[:5])) }

// isSRSMAC reports whether text is the result of srsMAC, under the current or an earlier master
// key.
func (s *Service) isSRSMAC(text string, parts ...string) bool {
	same := func(mac []byte) bool { return hmac.Equal([]byte(text), []byte(srsText(mac))) }
	return s.Keys.MatchesMac(same, "srs", strings.ToLower(strings.Join(parts, "\x00")))
}

const srsDigits = "abcdefghijklmnopqrstuvwxyz234567"

// SRSDay returns the day of a time as two characters. They repeat after 1024 days.
func SRSDay(t time.Time) string {
	day := t.Unix() / (24 * 60 * 60) % srsDays
	return string([]byte{srsDigits[day>>5], srsDigits[day&31]})
}

func (s *Service) isFreshSRSDay(day string) bool {
	for age := range SRSValid + 1 {
		if SRSDay(s.Now().AddDate(0, 0, -age)) == day {
			return true
		}
	}
	return false
}

// RelayTag is the kind for RowLocal of a tag, which is not an address: we add it to a message for a
// relay, whose notices then name the row by it.
const RelayTag = "t"
