package msg

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/mail/idn"
)

// ErrAddress is wrapped by every error about an address that a person typed. The text
// says what is wrong with it and names it.
var ErrAddress = errors.New("invalid email address")

// Limits of RFC 5321 §4.5.3.1, in octets. The path of 256 has two angle brackets.
const (
	maxLocal = 64
	maxEmail = 254
)

// SplitEmail divides an address at its last @. It answers false if either side is empty.
func SplitEmail(s string) (local, domain string, ok bool) {
	at := strings.LastIndexByte(s, '@')
	if at <= 0 || at == len(s)-1 {
		return "", "", false
	}
	return s[:at], s[at+1:], true
}

// NormalizeEmail returns the one form of an address that records are kept and compared
// by: lower case, the domain in ASCII (IDNA), Unicode in NFC. Errors wrap ErrAddress.
func NormalizeEmail(s string) (string, error) {
	local, domain, ok := SplitEmail(s)
	if !ok {
		return "", fmt.Errorf("%w %q: it must be of the form name@domain", ErrAddress, cut(s, 80))
	}
	if err := checkLocal(local); err != nil {
		return "", fmt.Errorf("%w %q: %w", ErrAddress, cut(s, 80), err)
	}
	domain, err := NormalizeDomain(domain)
	if err != nil {
		return "", fmt.Errorf("%w %q: %w", ErrAddress, cut(s, 80), err)
	}
	local = norm.NFC.String(strings.ToLower(local))
	if len(local) > maxLocal || len(local)+1+len(domain) > maxEmail {
		return "", fmt.Errorf("%w %q: longer than %d bytes, or %d before the @", ErrAddress, cut(s, 80), maxEmail, maxLocal)
	}
	return local + "@" + domain, nil
}

func checkLocal(local string) error {
	if !utf8.ValidString(local) || strings.ContainsFunc(local, unicode.IsControl) {
		return errors.New("it has control characters or broken UTF-8")
	}
	if n := len(local); n >= 2 && local[0] == '"' && local[n-1] == '"' {
		if inner := local[1 : n-1]; quoteString(unescape(inner)) == local {
			return nil
		}
		return errors.New("the quotes before the @ do not pair")
	}
	if !isDotAtom(local) || strings.ContainsFunc(local, unicode.IsSpace) {
		return errors.New("it has characters before the @ that need quotes, or a dot too many")
	}
	return nil
}

// NormalizeDomain returns a mail domain as idn.Address does, or an address literal such as
// [192.0.2.1] as it is.
func NormalizeDomain(domain string) (string, error) {
	if strings.HasPrefix(domain, "[") {
		text := strings.TrimSuffix(strings.TrimPrefix(domain, "["), "]")
		addr, err := netip.ParseAddr(strings.TrimPrefix(text, "IPv6:"))
		if err != nil || len(text)+2 != len(domain) || addr.Zone() != "" {
			return "", errors.New("the address in brackets is no IP address")
		}
		return domain, nil
	}
	return idn.Address(domain)
}

// ParseAddress reads one address as a person types it: "a@b" or "Name <a@b>". Unlike
// what is read out of messages it must be right. Errors wrap ErrAddress.
func ParseAddress(s string) (Address, error) {
	list, err := ParseAddressList(s)
	if err != nil {
		return Address{}, err
	}
	if len(list) != 1 {
		return Address{}, fmt.Errorf("%w %q: %d addresses where one is wanted", ErrAddress, cut(s, 80), len(list))
	}
	return list[0], nil
}

// ParseAddressList reads addresses divided by commas, as ParseAddress does each. It
// refuses groups, and more than MaxAddresses.
func ParseAddressList(s string) ([]Address, error) {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, isControl) {
		return nil, fmt.Errorf("%w %q: it has control characters or broken UTF-8", ErrAddress, cut(s, 80))
	}
	r := addressReader{s: s, limit: MaxAddresses + 1}
	r.run()
	switch {
	case len(r.out) == 0:
		return nil, fmt.Errorf("%w %q: it is empty", ErrAddress, cut(s, 80))
	case r.faulty:
		return nil, fmt.Errorf("%w %q: its quotes, brackets or dots are not in order", ErrAddress, cut(s, 80))
	case len(r.out) > MaxAddresses:
		return nil, fmt.Errorf("%w list: more than %d", ErrAddress, MaxAddresses)
	}
	for i := range r.out {
		if err := r.out[i].check(); err != nil {
			return nil, err
		}
	}
	return r.out, nil
}

// check refuses what could not be written to, and puts the domain in its one form.
func (a *Address) check() error {
	if a.IsGroupMarker() {
		return fmt.Errorf("%w %q: groups are not taken", ErrAddress, a.Mailbox)
	}
	shown := a.Mailbox
	if shown == "" {
		shown = a.Name
	}
	if a.Host == MissingHost || a.Mailbox == "" {
		return fmt.Errorf("%w %q: it must be of the form name@domain", ErrAddress, shown)
	}
	email, err := NormalizeEmail(a.Email())
	if err != nil {
		return err
	}
	_, a.Host, _ = SplitEmail(email)
	return nil
}
