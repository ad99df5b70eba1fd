package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/emersion/go-msgauth/dkim"

	"github.com/mailstead/mailstead/internal/buffers"
	"github.com/mailstead/mailstead/mail/idn"
)

// ErrUnsignable is returned by Sign for a message whose header is beyond 1 MiB or 4096 fields, that
// does not have exactly one From field, that repeats fields so often that their names fill a line,
// or whose body has more than 64 KiB of line ends in a row.
var ErrUnsignable = errors.New("message cannot be signed")

// maxNames bounds h= in bytes. The library writes it without a fold, and a line holds 998 (RFC 5322
// section 2.1.1); all names that are signed, once each and oversigned, take about 500.
const maxNames = 900

// SignOptions says how Sign signs.
type SignOptions struct {
	// Keys each give one signature, in this order.
	Keys []Key
	// OmitMessageID keeps Message-ID and Date out of the signature, for relays that replace them
	// (Amazon SES writes both anew).
	OmitMessageID bool
}

// oversigned fields are named once more than they occur, so that one that is added later breaks the
// signature (RFC 6376 section 8.15). Those that relays and lists may add in good faith are signed
// only where they are.
var (
	oversigned = []string{"From", "Reply-To", "Subject", "Date", "To", "Cc", "Message-ID", "In-Reply-To", "References",
		"MIME-Version", "Content-Type", "Content-Transfer-Encoding"}
	signedIfPresent = []string{"Sender", "Content-Disposition", "Content-ID", "Content-Description", "Resent-From",
		"Resent-To", "Resent-Cc", "Resent-Date", "Resent-Message-ID", "List-Id", "List-Help", "List-Unsubscribe",
		"List-Unsubscribe-Post", "List-Subscribe", "List-Post", "List-Owner", "List-Archive", "Auto-Submitted", "Feedback-ID"}
)

// Sign reads a message with CRLF line ends to its end and returns its DKIM-Signature fields
// (relaxed/relaxed, SHA-256), one per key, folded and with CRLF, to be put before it as they are.
// It reads the body once for all keys and keeps none of it. Errors wrap ErrUnsignable, ErrKey or
// what reading met.
func Sign(message io.Reader, o SignOptions) ([]byte, error) {
	br := buffers.Reader(message)
	defer buffers.FreeReader(br)
	fields, err := readHeader(br)
	if errors.Is(err, errHeader) {
		return nil, fmt.Errorf("%w: %w", ErrUnsignable, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	if len(fields) > 0 && strings.ContainsAny(fields[0].raw[:1], " \t") {
		// Behind the signature this line would continue the signature (RFC 5322 section 2.2.3).
		return nil, fmt.Errorf("%w: the header begins with a continuation line", ErrUnsignable)
	}
	if n := len(named(fields, "From")); n != 1 {
		return nil, fmt.Errorf("%w: %d From fields", ErrUnsignable, n)
	}
	names, header := signedPart(fields, o.OmitMessageID)
	if n := len(strings.Join(names, ":")); n > maxNames {
		return nil, fmt.Errorf("%w: too many repeated fields", ErrUnsignable)
	}
	var signers []*dkim.Signer
	for _, k := range o.Keys {
		s, err := newSigner(k, names)
		if err != nil {
			closeAll(signers)
			return nil, err
		}
		signers = append(signers, s)
	}
	if err := feed(signers, header, br); err != nil {
		return nil, err
	}
	var out []byte
	for _, s := range signers {
		out = append(out, s.Signature()...)
	}
	return out, nil
}

// signedPart returns the names for h= and the fields that they stand for, which are all that a
// signer needs to see.
func signedPart(fields []field, omitMessageID bool) (names []string, header string) {
	var b strings.Builder
	add := func(name string, more int) {
		if omitMessageID && (name == "Message-ID" || name == "Date") {
			return
		}
		present := named(fields, name)
		names = append(names, slices.Repeat([]string{name}, len(present)+more)...)
		for _, f := range present {
			b.WriteString(f.unfolded())
		}
	}
	for _, name := range oversigned {
		add(name, 1)
	}
	for _, name := range signedIfPresent {
		add(name, 0)
	}
	b.WriteString("\r\n")
	return names, b.String()
}

func newSigner(k Key, names []string) (*dkim.Signer, error) {
	domain, isDomain := idn.Host(k.Domain)
	selector, isSelector := idn.Host(k.Selector)
	if !isDomain || !isSelector || k.Signer == nil || !canSign(k.Signer) {
		return nil, fmt.Errorf("%w: %s._domainkey.%s", ErrKey, k.Selector, k.Domain)
	}
	s, err := dkim.NewSigner(&dkim.SignOptions{
		Domain: domain, Selector: selector, Signer: k.Signer, HeaderKeys: names,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
	})
	if err != nil {
		return nil, fmt.Errorf("sign as %s._domainkey.%s: %w", k.Selector, k.Domain, err)
	}
	return s, nil
}

// feed writes header and body to all signers and closes them, whatever happens: an open one leaves
// a goroutine behind.
func feed(signers []*dkim.Signer, header string, body io.Reader) error {
	writers := make([]io.Writer, len(signers))
	for i, s := range signers {
		writers[i] = s
	}
	var run emptyRun
	_, err := buffers.Copy(io.MultiWriter(append(writers, &run)...), io.MultiReader(strings.NewReader(header), body))
	closed := closeAll(signers)
	switch {
	case errors.Is(err, errEmptyRun):
		return fmt.Errorf("%w: %w", ErrUnsignable, err)
	case err != nil:
		return fmt.Errorf("sign message: %w", err)
	case closed != nil:
		return fmt.Errorf("sign message: %w", closed)
	}
	return nil
}

func closeAll(signers []*dkim.Signer) error {
	var errs []error
	for _, s := range signers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// maxEmptyRun bounds the bytes of line ends without text between them. The library that signs keeps
// such a run in memory until the next text, which costs the square of it.
const maxEmptyRun = 64 << 10

// errEmptyRun ends the reading of a body that has too many line ends in a row.
var errEmptyRun = errors.New("too many empty lines in a row")

// emptyRun refuses, with errEmptyRun, a body that has more than maxEmptyRun bytes of line ends with
// nothing but white space between them. It is the number of those seen last.
type emptyRun int

func (run *emptyRun) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		text := bytes.IndexFunc(rest, func(r rune) bool { return !isFold(r) })
		if text < 0 {
			text = len(rest)
		}
		if *run += emptyRun(text); *run > maxEmptyRun {
			return 0, errEmptyRun
		}
		if text == len(rest) {
			break
		}
		*run = 0
		next := bytes.IndexByte(rest[text:], '\n')
		if next < 0 {
			break
		}
		rest = rest[text+next:]
	}
	return len(p), nil
}
