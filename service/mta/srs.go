package mta

import (
	"crypto/hmac"
	"encoding/base32"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
)

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
	word, text := srsWord(local)
	if word == srsAgain {
		return s.srsBack(text, domain)
	}
	if word != srsFirst {
		return "", false
	}
	parts := strings.SplitN(strings.ToLower(text[1:]), "=", 4)
	if len(parts) != 4 {
		return "", false
	}
	mac, day, from, to := parts[0], parts[1], parts[2], parts[3]
	if !hmac.Equal([]byte(mac), []byte(s.srsMAC(day, from, to, domain))) || !s.srsFresh(day) {
		return "", false
	}
	sender, err := msg.NormalizeEmail(to + "@" + from)
	return sender, err == nil
}

// srsBack gives the path at the forwarder before us.
func (s *Service) srsBack(text, domain string) (sender string, ok bool) {
	mac, _, _ := strings.Cut(strings.ToLower(text[1:]), "=")
	hop, rest, ok := srsOf(srsAgain+text, "")
	if !ok || !hmac.Equal([]byte(mac), []byte(s.srsMAC(hop, rest, domain))) {
		return "", false
	}
	sender, err := msg.NormalizeEmail("SRS0" + rest + "@" + hop)
	return sender, err == nil
}

// srsMAC is in lower case, and over lower case, since addresses come back in any.
func (s *Service) srsMAC(parts ...string) string {
	mac := s.Keys.Mac("srs", strings.ToLower(strings.Join(parts, "\x00")))
	return strings.ToLower(base32.StdEncoding.EncodeToString(mac[:5]))
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
