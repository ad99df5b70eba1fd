package feedback

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// The header fields of a signed event webhook.
const (
	sendGridSignature = "X-Twilio-Email-Event-Webhook-Signature"
	sendGridTimestamp = "X-Twilio-Email-Event-Webhook-Timestamp"
)

// SendGrid reads the event webhook of SendGrid, signed with ECDSA over the time and the body.
type SendGrid struct {
	key *ecdsa.PublicKey
}

// NewSendGrid makes a reader for a verification key: base64 of DER, as SendGrid shows it, or the
// same as PEM.
func NewSendGrid(key string) (*SendGrid, error) {
	bare := strings.NewReplacer("-----BEGIN PUBLIC KEY-----", "", "-----END PUBLIC KEY-----", "").Replace(key)
	der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(bare), ""))
	if err != nil {
		return nil, errors.New("webhook_secret is not SendGrid's verification key: it is no base64")
	}
	public, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("webhook_secret is not SendGrid's verification key: %w", err)
	}
	ec, ok := public.(*ecdsa.PublicKey)
	if !ok {
		return nil, errors.New("webhook_secret is not SendGrid's verification key: it is of another kind")
	}
	return &SendGrid{ec}, nil
}

type sendGridEvent struct {
	Email  string          `json:"email"`
	Event  string          `json:"event"`
	Type   string          `json:"type"`
	SMTPID string          `json:"smtp-id"`
	Reason string          `json:"reason"`
	Status json.RawMessage `json:"status"` // a text, or a number in some events
}

// Read implements Reader.
func (s *SendGrid) Read(_ context.Context, r Request) ([]Notice, error) {
	if err := s.verify(r); err != nil {
		return nil, err
	}
	var events []sendGridEvent
	if err := decode(r.Body, &events); err != nil {
		return nil, err
	}
	var out []Notice
	for _, e := range events[:min(len(events), maxNotices)] {
		if n, ok := e.notice(); ok {
			out = append(out, n)
		}
	}
	return out, nil
}

func (s *SendGrid) verify(r Request) error {
	signature, err := base64.StdEncoding.DecodeString(r.Header.Get(sendGridSignature))
	if err != nil {
		return fmt.Errorf("%w: the signature is not base64", ErrForged)
	}
	sum := sha256.New()
	sum.Write([]byte(r.Header.Get(sendGridTimestamp)))
	sum.Write(r.Body)
	if !ecdsa.VerifyASN1(s.key, sum.Sum(nil), signature) {
		return fmt.Errorf("%w: the signature does not verify", ErrForged)
	}
	return nil
}

func (e *sendGridEvent) notice() (Notice, bool) {
	n := Notice{Recipient: address(e.Email), MessageID: messageID(e.SMTPID), Diagnostic: clip(e.Reason, maxText)}
	n.Status = clip(strings.Trim(string(e.Status), `"`), 16)
	if strings.Count(n.Status, ".") != 2 {
		n.Status = ""
	}
	switch e.Event {
	case "spamreport":
		n.Kind, n.FeedbackType, n.Diagnostic = Complained, "abuse", ""
	case "bounce":
		n.Kind, n.Type = Bounced, typeOf(n.Status)
		if e.Type == "blocked" { // SendGrid goes on sending there
			n.Type = Soft
		} else if n.Type == Undetermined {
			n.Type, n.Suppress = Hard, true
		}
	case "dropped": // SendGrid did not try
		n.Kind, n.Type, n.Subtype = Bounced, Undetermined, "suppressed"
		switch strings.ToLower(e.Reason) {
		case "bounced address", "invalid", "spam reporting address", "unsubscribed address":
			n.Type, n.Suppress = Hard, true
		}
	default:
		return n, false
	}
	return n, true
}
