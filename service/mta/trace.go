package mta

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Trace makes the Received field (RFC 5321 section 4.4) of a message that a client hands us, and
// the name that the message has in it. forWhom is "" where the field must not tell. Of a user who
// has logged in it says neither the address nor what the user's machine calls itself, which are
// nobody's business outside.
func (s *Service) Trace(c Client, forWhom string) (field []byte, id string) {
	now := s.Now()
	id = s.Store.NewID("rcv")
	var b strings.Builder
	b.WriteString("Received: ")
	if !c.Authenticated {
		fmt.Fprintf(&b, "from %s (%s)\r\n\t", heloWord(c.Helo), addressLiteral(c.IP))
	}
	fmt.Fprintf(&b, "by %s", s.Hostname())
	if c.TLS != "" {
		fmt.Fprintf(&b, " (%s)", c.TLS)
	}
	fmt.Fprintf(&b, "\r\n\twith %s id %s", protocol(c), id)
	if forWhom != "" {
		fmt.Fprintf(&b, "\r\n\tfor <%s>", forWhom)
	}
	fmt.Fprintf(&b, ";\r\n\t%s\r\n", now.Format(time.RFC1123Z))
	return []byte(b.String()), id
}

// heloWord keeps of what a client calls itself what cannot be mistaken for anything else in the
// field.
func heloWord(helo string) string {
	word := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r > 0x7f && r != 0xfffd, strings.ContainsRune(".-_[]:", r):
			return r
		}
		return -1
	}, helo)
	if word == "" {
		return "unknown"
	}
	return strings.ToValidUTF8(word[:min(len(word), 255)], "")
}

// addressLiteral writes an address as RFC 5321 section 4.1.3 has it.
func addressLiteral(ip netip.Addr) string {
	switch {
	case !ip.IsValid():
		return "unknown"
	case ip.Is4():
		return "[" + ip.String() + "]"
	}
	return "[IPv6:" + ip.String() + "]"
}

// protocol is the word of RFC 3848 and RFC 6531 section 4.3.
func protocol(c Client) string {
	if !c.Extended {
		return "SMTP"
	}
	word := "ESMTP"
	if c.UTF8 {
		word = "UTF8SMTP"
	}
	if c.TLS != "" {
		word += "S"
	}
	if c.Authenticated {
		word += "A"
	}
	return word
}
