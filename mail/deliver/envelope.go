package deliver

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/mtasts"
)

// Envelope holds the SMTP parameters of a message and its requirements for TLS. Addresses have no
// angle brackets. Their domains may be in Unicode; they are sent as A-labels.
type Envelope struct {
	From     string // "" is the null reverse path
	To       string
	SMTPUTF8 bool // the header has UTF-8; for a host without SMTPUTF8 this is a permanent failure (RFC 6531)
	// EightBit says that the content has bytes over 127. For a host without 8BITMIME this is a
	// permanent failure, since recoding the content here would break its signatures (RFC 6152
	// section 3).
	EightBit bool
	// Parameters of RFC 3461, which are sent only to a host that offers DSN. EnvelopeID and the
	// address in ORCPT ("rfc822;user@example.com") are plain text; they are sent as xtext. Notify
	// is "NEVER" or some of "SUCCESS,FAILURE,DELAY". Ret is "FULL" or "HDRS". Invalid values are
	// not sent.
	EnvelopeID, Notify, Ret, ORCPT string
	// STS is the MTA-STS policy of the recipient's domain (RFC 8461), nil if there is none. Direct
	// enforces it.
	STS *mtasts.Policy
	// TLSOptional makes Direct ignore DANE and STS. It is for mail that reports failures of these
	// (RFC 8460 section 3).
	TLSOptional bool
	// RequireTLS allows only hosts that offer REQUIRETLS and have a valid certificate and a proven
	// name (RFC 8689). DNSSEC or STS proves a name. The recipient's domain itself and a relay that
	// the operator configured need no proof. If no host qualifies, the result is Permanent with
	// 5.7.30.
	RequireTLS bool
	// VerifyTLS allows only hosts with a valid certificate for their name. If there is none, the
	// result is Temporary.
	VerifyTLS bool
}

// Message is the content to deliver. Size is its exact length in bytes, 0 if unknown; content of
// another length is not delivered. Open is called once for each attempt.
type Message struct {
	Size int64
	Open func() (io.ReadCloser, error)
	// HandOver is called before each DATA or first BDAT command; it may be nil. If it returns an
	// error, the attempt ends as a temporary failure. done is called once the host has replied or
	// the connection has failed.
	HandOver func() (done func(), err error)
}

// handOver calls HandOver if it is set.
func (m Message) handOver() (done func(), f *failure) {
	if m.HandOver == nil {
		return func() {}, nil
	}
	done, err := m.HandOver()
	if err != nil {
		return nil, &failure{stage: stageData, err: err, enhanced: "4.3.0", localError: true}
	}
	return done, nil
}

var (
	errAddress   = errors.New("the address is not valid in SMTP")
	errNeedsUTF8 = errors.New("the message needs SMTPUTF8, which the host does not offer")
	errNeeds8Bit = errors.New("the message has bytes beyond ASCII and needs 8BITMIME, which the host does not offer")
	errTooBig    = errors.New("the message is larger than the host accepts")
	errWrongSize = errors.New("the message does not have the declared size")
)

const maxAddress = 320 // RFC 5321 §4.5.3.1: 64 + "@" + 255

// inSMTPForm returns e as it is sent by SMTP: with domains in ASCII, and with SMTPUTF8 if an
// address needs it.
func (e Envelope) inSMTPForm() (Envelope, *failure) {
	var err error
	e.To, err = asciiAddress(e.To)
	if err == nil && e.To == "" {
		err = errAddress
	}
	if err != nil {
		return e, unroutableFailure("5.1.3", fmt.Errorf("recipient %q: %w", printableLine(e.To, 100), err))
	}
	e.From, err = asciiAddress(e.From)
	if err != nil {
		return e, &failure{stage: stageMail, status: Permanent, enhanced: "5.1.7", err: fmt.Errorf("sender %q: %w", printableLine(e.From, 100), err)}
	}
	e.SMTPUTF8 = e.SMTPUTF8 || !isASCII(e.From+e.To)
	return e, nil
}

// asciiAddress returns an address with its domain in ASCII. It returns an error if SMTP cannot
// carry the address.
func asciiAddress(addr string) (string, error) {
	if at := strings.LastIndexByte(addr, '@'); at >= 0 && !isASCII(addr[at:]) {
		domain, ok := idn.Host(addr[at+1:])
		if !ok {
			return addr, fmt.Errorf("%q is not a domain name", printableLine(addr[at+1:], 100))
		}
		addr = addr[:at+1] + domain
	}
	if !isSafePath(addr) {
		return addr, errAddress
	}
	return addr, nil
}

// isSafePath reports whether addr is safe between angle brackets, so that no host can misread it as
// the end of the path or of the line.
func isSafePath(addr string) bool {
	if len(addr) > maxAddress || !utf8.ValidString(addr) {
		return false
	}
	quoted, escaped := false, false
	for _, r := range addr {
		switch {
		case r < ' ' || r == 0x7f:
			return false
		case escaped:
			escaped = false
		case quoted && r == '\\':
			escaped = true
		case r == '"':
			quoted = !quoted
		case !quoted && strings.ContainsRune(" <>\\", r):
			return false
		}
	}
	return !quoted && !escaped
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// mailLine returns the MAIL command with the parameters that the host supports.
func (e Envelope) mailLine(x extensions, size int64) string {
	line := "MAIL FROM:<" + e.From + ">"
	if x.size && size > 0 {
		line += fmt.Sprintf(" SIZE=%d", size) // RFC 1870
	}
	if x.eightBit && (e.EightBit || e.SMTPUTF8) {
		line += " BODY=8BITMIME" // RFC 6152
	}
	if e.SMTPUTF8 {
		line += " SMTPUTF8"
	}
	if e.RequireTLS {
		line += " REQUIRETLS" // RFC 8689
	}
	if x.dsn && (e.Ret == "FULL" || e.Ret == "HDRS") {
		line += " RET=" + e.Ret
	}
	if x.dsn && e.EnvelopeID != "" && len(e.EnvelopeID) <= 100 && isASCII(e.EnvelopeID) {
		line += " ENVID=" + xtext(e.EnvelopeID)
	}
	return line
}

// rcptLine returns the RCPT command with the parameters that the host supports.
func (e Envelope) rcptLine(x extensions) string {
	line := "RCPT TO:<" + e.To + ">"
	if x.dsn && isNotifyValue(e.Notify) {
		line += " NOTIFY=" + e.Notify
	}
	kind, addr, ok := strings.Cut(e.ORCPT, ";")
	if x.dsn && ok && strings.EqualFold(kind, "rfc822") && len(addr) <= maxAddress && isASCII(addr) {
		line += " ORCPT=rfc822;" + xtext(addr)
	}
	return line
}

func isNotifyValue(s string) bool {
	if s == "NEVER" {
		return true
	}
	for word := range strings.SplitSeq(s, ",") {
		if word != "SUCCESS" && word != "FAILURE" && word != "DELAY" {
			return false
		}
	}
	return true
}

// xtext encodes ASCII text as xtext for a parameter (RFC 3461 §4).
func xtext(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '+' || c == '=' {
			fmt.Fprintf(&b, "+%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
