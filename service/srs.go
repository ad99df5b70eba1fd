package service

import (
	"crypto/hmac"
	"encoding/base32"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
)

// A forward goes out with a return path in the forwarding domain, so that SPF passes, from which a bounce finds its way
// back to the first sender (the Sender Rewriting Scheme, form SRS0): SRS0=mac=day=domain=local. The MAC makes that no
// open relay: we send back only to senders that we rewrote ourselves.
const (
	srsPrefix = "srs0="
	srsValid  = 21 // days
	srsDays   = 1 << 10
	maxLocal  = 64 // RFC 5321 section 4.5.3.1.1
)

// srsForward rewrites a sender into the domain. A sender whose new local part would be too long stays as it is, as do
// the null sender and one of the domain itself.
func (s *Service) srsForward(sender, domain string) string {
	local, from, ok := msg.SplitEmail(sender)
	if !ok || from == domain {
		return sender
	}
	day := srsDay(s.now())
	text := "SRS0=" + s.srsMAC(day, from, local, domain) + "=" + day + "=" + from + "=" + local
	if len(text) > maxLocal {
		return sender
	}
	return text + "@" + domain
}

// srsReverse gives the first sender behind a local part of the domain that srsForward made in the last three weeks.
func (s *Service) srsReverse(local, domain string) (sender string, ok bool) {
	if len(local) < len(srsPrefix) || !strings.EqualFold(local[:len(srsPrefix)], srsPrefix) {
		return "", false
	}
	parts := strings.SplitN(strings.ToLower(local[len(srsPrefix):]), "=", 4)
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

// srsMAC is in lower case, and over lower case, since addresses come back in any.
func (s *Service) srsMAC(parts ...string) string {
	mac := s.keys.mac("srs", strings.ToLower(strings.Join(parts, "\x00")))
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
		if srsDay(s.now().AddDate(0, 0, -age)) == day {
			return true
		}
	}
	return false
}
