// Package feedback reads what relays tell over HTTPS about mail that they took: bounces and
// complaints, in each provider's form and with its own proof of where they come from. It does not
// know which messages were sent, nor what follows from a notice.
package feedback

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/mail"
	"net/url"
	"strings"
	"time"
)

// MaxBody is the most bytes of one request that a Reader is to be given. SNS sends at most 256 KiB,
// SendGrid 768.
const MaxBody = 1 << 20

// maxNotices bounds what is read out of one request; no provider sends more.
const maxNotices = 2000

// Errors of Read. Those that are none of them are of reaching the provider, and the same request
// may be right later.
var (
	// ErrForged is returned for a request that does not prove to come from the provider.
	ErrForged = errors.New("the notice does not prove where it comes from")
	// ErrMalformed is returned for a request that proves where it comes from, or could, and cannot
	// be read.
	ErrMalformed = errors.New("the notice cannot be read")
)

// A Request is what came to the address that a relay was told of.
type Request struct {
	Header http.Header
	Query  url.Values
	Body   []byte
}

// What a Notice can be.
const (
	Bounced    = "bounced"
	Complained = "complained"
)

// What a bounce can be.
const (
	Hard         = "hard"
	Soft         = "soft"
	Undetermined = "undetermined"
)

// A Notice is what became of one message for one recipient, after the relay had taken it.
type Notice struct {
	Kind      string // Bounced or Complained
	Recipient string // address as the provider writes it

	// What the message is known by, as far as the provider tells.
	ProviderID string // the provider's id, as in its answer to DATA
	MessageID  string // the Message-ID that we gave, with brackets
	Tag        string // what our header field Metadata said
	Sender     string // address
	Subject    string

	// Of a bounce.
	Type       string // Hard, Soft, Undetermined
	Subtype    string // in the words of RFC 3463 or the provider's, lower case; "" if it does not say
	Status     string // RFC 3463; ""
	Diagnostic string
	RemoteMTA  string
	Suppress   bool // the provider itself will send nothing more to the address

	// Of a complaint.
	FeedbackType string
	UserAgent    string
	ArrivedAt    time.Time // when the message came to the recipient's host; zero if unknown
}

// A Reader reads the notices of one relay, and is safe for concurrent use. Of what it has seen it
// tells again what comes again: whoever acts on notices must bear that.
type Reader interface {
	Read(ctx context.Context, r Request) ([]Notice, error)
}

// fields cut what others say to what is kept of it.
const (
	maxText    = 1000
	maxAddress = 254
	maxID      = 998
)

func clip(s string, most int) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// address takes the bare address out of "Name <a@b>".
func address(text string) string {
	if a, err := mail.ParseAddress(text); err == nil {
		return clip(a.Address, maxAddress)
	}
	return clip(strings.Trim(text, "<> "), maxAddress)
}

// messageID gives an id with its brackets; "" for none.
func messageID(text string) string {
	if text = strings.Trim(clip(text, maxID), "<> "); text == "" {
		return ""
	}
	return "<" + text + ">"
}

// typeOf tells hard from soft by a status; undetermined for what is none.
func typeOf(status string) string {
	switch {
	case strings.HasPrefix(status, "5."):
		return Hard
	case strings.HasPrefix(status, "4."):
		return Soft
	}
	return Undetermined
}

// decode reads JSON; what it cannot read is ErrMalformed.
func decode(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}
