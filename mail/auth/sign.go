package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/buffers"
)

// ErrUnsignable is returned by Sign for a message in any of these cases: it has not exactly one
// From field, it begins with a continuation line, it has so many repeated fields that h= would be
// too long, or its header is beyond 1 MiB or 4096 fields.
var ErrUnsignable = errors.New("message cannot be signed")

// maxNamesLength is the maximum length of h= in bytes. The names of all signed fields take about
// 500, if none is repeated.
const maxNamesLength = 900

// SignOptions are the options of Sign.
type SignOptions struct {
	// Keys are the signing keys. Each makes one signature, in this order.
	Keys []Key
	// OmitMessageID leaves Message-ID and Date out of the signature. It is for relays that replace
	// these fields, as Amazon SES does.
	OmitMessageID bool
}

// Names of the signed fields. A field in oversigned is listed in h= once more than it occurs, so
// that adding another one breaks the signature (RFC 6376 section 8.15). Fields in signedIfPresent
// are not oversigned, since relays and lists may rightly add them.
var (
	oversigned = []string{"From", "Reply-To", "Subject", "Date", "To", "Cc", "Message-ID", "In-Reply-To", "References",
		"MIME-Version", "Content-Type", "Content-Transfer-Encoding"}
	signedIfPresent = []string{"Sender", "Content-Disposition", "Content-ID", "Content-Description", "Resent-From",
		"Resent-To", "Resent-Cc", "Resent-Date", "Resent-Message-ID", "List-Id", "List-Help", "List-Unsubscribe",
		"List-Unsubscribe-Post", "List-Subscribe", "List-Post", "List-Owner", "List-Archive", "Auto-Submitted", "Feedback-ID"}
)

// Sign reads a whole message with CRLF line ends and returns its DKIM-Signature fields
// (relaxed/relaxed, SHA-256), one for each key. They are folded and end in CRLF, ready to be
// written before the message. It reads the body once for all keys and does not keep it in memory.
// Errors wrap ErrUnsignable, ErrKey or the read error.
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
		// If the signature field is put before the message, this line would count as its
		// continuation (RFC 5322 section 2.2.3).
		return nil, fmt.Errorf("%w: the header begins with a continuation line", ErrUnsignable)
	}
	if n := len(fieldsNamed(fields, "From")); n != 1 {
		return nil, fmt.Errorf("%w: it has %d From fields instead of one", ErrUnsignable, n)
	}
	names := o.signedNames(fields)
	if n := len(strings.Join(names, ":")); n > maxNamesLength {
		return nil, fmt.Errorf("%w: it has too many repeated fields", ErrUnsignable)
	}
	body, err := hashBody(context.Background(), br, true)
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	lower := strings.Split(strings.ToLower(strings.Join(names, ":")), ":")
	var out []byte
	for _, k := range o.Keys {
		domain, selector, err := k.dnsNames()
		if err != nil {
			return nil, err
		}
		f := newField(foldedField("DKIM-Signature", "v=1", "a="+k.algorithm(), "c=relaxed/relaxed", "d="+domain, "s="+selector,
			"t="+strconv.FormatInt(time.Now().Unix(), 10), "h="+strings.Join(names, ":"), "bh="+base64.StdEncoding.EncodeToString(body), "b="), 1)
		text, ok := signedText(fields, lower, f, true)
		if !ok {
			return nil, fmt.Errorf("%w: %w", ErrUnsignable, errHeader)
		}
		f, err = k.sign(f, text)
		if err != nil {
			return nil, err
		}
		out = append(out, f.raw...)
	}
	return out, nil
}

// signedNames returns the field names for h=.
func (o SignOptions) signedNames(fields []field) (names []string) {
	add := func(name string, more int) {
		if o.OmitMessageID && (name == "Message-ID" || name == "Date") {
			return
		}
		names = append(names, slices.Repeat([]string{name}, len(fieldsNamed(fields, name))+more)...)
	}
	for _, name := range oversigned {
		add(name, 1)
	}
	for _, name := range signedIfPresent {
		add(name, 0)
	}
	return names
}
