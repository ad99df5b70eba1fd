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

// Envelope is what SMTP is told about a message beside its content, and what is asked of the way.
// Addresses are without angle brackets; their domains may be in Unicode and go out as A-labels.
type Envelope struct {
	From     string // "" is the null reverse path
	To       string
	SMTPUTF8 bool // the header has UTF-8: a host without SMTPUTF8 is refused for good (RFC 6531)
	// EightBit says that the content has bytes over 127: a host without 8BITMIME is refused for
	// good. Recoding it here would break signatures (RFC 6152 section 3).
	EightBit bool
	// The parameters of RFC 3461, sent only to a host that offers DSN. EnvelopeID and the address
	// in ORCPT ("rfc822;user@example.com") are plain text, xtext is made here; Notify is "NEVER" or
	// some of "SUCCESS,FAILURE,DELAY"; Ret is "FULL" or "HDRS". A value that cannot be sent is left
	// out.
	EnvelopeID, Notify, Ret, ORCPT string
	// STS is the MTA-STS policy of To's domain (RFC 8461), which Direct applies; nil if there is
	// none.
	STS *mtasts.Policy
	// TLSOptional has Direct heed neither DANE nor STS, for a report on their failure must arrive
	// (RFC 8460 section 3).
	TLSOptional bool
	// RequireTLS has the message go only to a host that offers REQUIRETLS, whose certificate is
	// valid, and whose name is proven: by DNSSEC, by STS, because the domain has no MX, or because
	// the operator named it (RFC 8689). Others get nothing: Permanent with 5.7.30.
	RequireTLS bool
	// VerifyTLS has it go only to a host with a valid certificate for its name; else it is
	// Temporary.
	VerifyTLS bool
}

// Message is the content. Size is its exact length in bytes, 0 if it is not known: a message that
// turns out shorter or longer is not completed. Open may be called more than once, one call for
// each host tried.
type Message struct {
	Size int64
	Open func() (io.ReadCloser, error)
	// HandOver, unless nil, is asked before each host is told to take the content, by DATA or BDAT.
	// An error ends the attempt, which is then a temporary failure. done is called once the host
	// has answered, or will not.
	HandOver func() (done func(), err error)
}

// handOver asks whether a host may be told to take the content.
func (m Message) handOver() (done func(), f *failure) {
	if m.HandOver == nil {
		return func() {}, nil
	}
	done, err := m.HandOver()
	if err != nil {
		return nil, &failure{stage: stageData, err: err, enhanced: "4.3.0", local: true}
	}
	return done, nil
}

var (
	errAddress   = errors.New("not an address that SMTP can carry")
	errNeedsUTF8 = errors.New("the message needs SMTPUTF8, which the host does not offer")
	errNeeds8Bit = errors.New("the message has bytes beyond ASCII and needs 8BITMIME, which the host does not offer")
	errTooBig    = errors.New("the message is larger than the host takes")
	errWrongSize = errors.New("the message is not as long as it was said to be")
)

const maxAddress = 320 // RFC 5321 §4.5.3.1: 64 + "@" + 255

// prepare returns e ready for SMTP: domains in ASCII, SMTPUTF8 set where an address needs it.
func (e Envelope) prepare() (Envelope, *failure) {
	var err error
	e.To, err = asciiAddress(e.To)
	if err == nil && e.To == "" {
		err = errAddress
	}
	if err != nil {
		return e, unroutable("5.1.3", fmt.Errorf("recipient %q: %w", bounded(e.To, 100), err))
	}
	e.From, err = asciiAddress(e.From)
	if err != nil {
		return e, &failure{stage: stageMail, status: Permanent, enhanced: "5.1.7", err: fmt.Errorf("sender %q: %w", bounded(e.From, 100), err)}
	}
	e.SMTPUTF8 = e.SMTPUTF8 || !isASCII(e.From+e.To)
	return e, nil
}

func asciiAddress(addr string) (string, error) {
	if at := strings.LastIndexByte(addr, '@'); at >= 0 && !isASCII(addr[at:]) {
		domain, ok := idn.Host(addr[at+1:])
		if !ok {
			return addr, fmt.Errorf("%q is not a domain name", bounded(addr[at+1:], 100))
		}
		addr = addr[:at+1] + domain
	}
	if !isPath(addr) {
		return addr, errAddress
	}
	return addr, nil
}

// isPath reports whether addr can stand between angle brackets without being taken for anything
// else.
func isPath(addr string) bool {
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

// mailLine is the MAIL command with the parameters that the host understands.
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

// rcptLine is the RCPT command with the parameters that the host understands.
func (e Envelope) rcptLine(x extensions) string {
	line := "RCPT TO:<" + e.To + ">"
	if x.dsn && isNotify(e.Notify) {
		line += " NOTIFY=" + e.Notify
	}
	kind, addr, ok := strings.Cut(e.ORCPT, ";")
	if x.dsn && ok && strings.EqualFold(kind, "rfc822") && len(addr) <= maxAddress && isASCII(addr) {
		line += " ORCPT=rfc822;" + xtext(addr)
	}
	return line
}

func isNotify(s string) bool {
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

// xtext encodes ASCII for a parameter (RFC 3461 §4).
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
