package feedback

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	mailgunFor = 24 * time.Hour // a notice may be late: Mailgun tries for 8 hours
	keptTokens = 8192
)

// Mailgun reads the webhooks of Mailgun, signed by an HMAC over a time and a token with the
// account's signing key. That signature does not cover what they say: so a token counts with the
// body that it first came with alone.
type Mailgun struct {
	secret string
	now    func() time.Time

	mu     sync.Mutex
	bodies map[string][sha256.Size]byte // by token
	order  []string
}

// NewMailgun makes a reader for a signing key.
func NewMailgun(secret string, now func() time.Time) *Mailgun {
	return &Mailgun{secret: secret, now: now, bodies: map[string][sha256.Size]byte{}}
}

type mailgunNotice struct {
	Signature struct {
		Timestamp string `json:"timestamp"`
		Token     string `json:"token"`
		Signature string `json:"signature"`
	} `json:"signature"`
	Event struct {
		Event     string `json:"event"`
		Severity  string `json:"severity"`
		Reason    string `json:"reason"`
		Recipient string `json:"recipient"`
		Envelope  struct {
			Sender string `json:"sender"`
		} `json:"envelope"`
		Message struct {
			Headers struct {
				MessageID string `json:"message-id"`
				From      string `json:"from"`
				Subject   string `json:"subject"`
			} `json:"headers"`
		} `json:"message"`
		Delivery struct {
			Code        float64 `json:"code"`
			Enhanced    string  `json:"enhanced-code"`
			Message     string  `json:"message"`
			Description string  `json:"description"`
			Host        string  `json:"mx-host"`
		} `json:"delivery-status"`
	} `json:"event-data"`
}

// Read implements Reader.
func (m *Mailgun) Read(_ context.Context, r Request) ([]Notice, error) {
	var n mailgunNotice
	if err := decode(r.Body, &n); err != nil {
		return nil, err
	}
	if err := m.verify(&n, r.Body); err != nil {
		return nil, err
	}
	e := n.Event
	out := Notice{
		Recipient: address(e.Recipient), MessageID: messageID(e.Message.Headers.MessageID), Sender: address(e.Message.Headers.From),
		Subject: clip(e.Message.Headers.Subject, maxText),
	}
	switch {
	case e.Event == "complained":
		out.Kind, out.FeedbackType = Complained, "abuse"
	case e.Event == "failed" && e.Severity == "permanent":
		out.Kind = Bounced
		n.describe(&out)
	default: // a temporary failure is tried again by Mailgun itself
		return nil, nil
	}
	return []Notice{out}, nil
}

func (n *mailgunNotice) describe(out *Notice) {
	d := n.Event.Delivery
	out.Diagnostic = clip(d.Message, maxText)
	if out.Diagnostic == "" {
		out.Diagnostic = clip(d.Description, maxText)
	}
	out.Status, out.RemoteMTA = clip(d.Enhanced, 16), clip(d.Host, maxAddress)
	out.Type = typeOf(out.Status)
	if out.Type == Undetermined && d.Code >= 400 && d.Code < 600 {
		out.Type = typeOf(strconv.Itoa(int(math.Floor(d.Code/100))) + ".")
	}
	switch reason := n.Event.Reason; {
	case reason == "old": // given up after too many tries
		out.Type, out.Subtype = Soft, "expired"
	case strings.HasPrefix(reason, "suppress-"):
		out.Type, out.Subtype, out.Suppress = Hard, "suppressed", true
	case reason == "bounce" && out.Status == "":
		out.Suppress = out.Type == Hard // Mailgun keeps such addresses itself
	}
}

func (m *Mailgun) verify(n *mailgunNotice, body []byte) error {
	s := n.Signature
	seconds, err := strconv.ParseInt(s.Timestamp, 10, 64)
	if err != nil || s.Token == "" || len(s.Token) > 200 {
		return fmt.Errorf("%w: it has no time or token", ErrForged)
	}
	mac := hmac.New(sha256.New, []byte(m.secret))
	mac.Write([]byte(s.Timestamp + s.Token))
	if got, err := hex.DecodeString(s.Signature); err != nil || !hmac.Equal(got, mac.Sum(nil)) {
		return fmt.Errorf("%w: the signature does not verify", ErrForged)
	}
	if age := m.now().Sub(time.Unix(seconds, 0)); age > mailgunFor || age < -mailgunFor {
		return fmt.Errorf("%w: it is out of date", ErrForged)
	}
	return m.once(s.Token, sha256.Sum256(body))
}

// once refuses a token that has come with another body.
func (m *Mailgun) once(token string, body [sha256.Size]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	first, known := m.bodies[token]
	if known && first != body {
		return fmt.Errorf("%w: its token was used for another", ErrForged)
	}
	if known {
		return nil
	}
	if len(m.order) == keptTokens {
		delete(m.bodies, m.order[0])
		m.order = append(m.order[:0], m.order[1:]...)
	}
	m.bodies[token] = body
	m.order = append(m.order, token)
	return nil
}
