// Package feedback reads the notices about bounces and complaints that relays send over HTTPS, in
// each provider's format and with its own authentication. It does not know which messages were
// sent, nor what a notice leads to.
package feedback

import (
	"context"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/mail"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// MaxBody is the maximum size in bytes of a request body for a Reader. SNS sends at most 256 KiB,
// SendGrid 768 KiB.
const MaxBody = 1 << 20

// maxNotices is the maximum number of notices read from one request; no provider sends more.
const maxNotices = 2000

// Errors of Reader.Read. Any other error means that the provider could not be reached; the same
// request may be accepted later.
var (
	// ErrForged is returned for a request without proof that it comes from the provider.
	ErrForged = errors.New("the notice has no valid proof of its origin")
	// ErrMalformed is returned for a request that cannot be parsed, and is authentic or could not
	// be checked.
	ErrMalformed = errors.New("the notice cannot be read")
)

// A Request is a request to the webhook address that the relay was configured with.
type Request struct {
	Header http.Header
	Query  url.Values
	Body   []byte
}

// Kinds of a Notice.
const (
	Bounced    = "bounced"
	Complained = "complained"
)

// Types of a bounce.
const (
	Hard         = "hard"
	Soft         = "soft"
	Undetermined = "undetermined"
)

// A Notice reports a bounce or complaint of one recipient of a message that the relay had accepted.
type Notice struct {
	Kind      string // Bounced or Complained
	Recipient string // address as given by the provider

	// Identification of the message, as far as the provider gives it.
	ProviderID string // the provider's id, as in its reply to DATA
	MessageID  string // our Message-ID, with brackets
	Tag        string // the value of our metadata header field, see PostmarkTag
	Sender     string // address
	Subject    string

	// Fields of a bounce.
	Type       string // Hard, Soft, Undetermined
	Subtype    string // in terms of RFC 3463 or of the provider, lower case; "" if unknown
	Status     string // RFC 3463 status; "" if unknown
	Diagnostic string
	RemoteMTA  string
	Suppress   bool // the provider itself no longer sends to the address

	// Fields of a complaint.
	FeedbackType string
	UserAgent    string
	ArrivedAt    time.Time // when the message arrived at the recipient's host; zero if unknown
}

// A Reader parses and authenticates the notices of one relay. It is safe for concurrent use. It
// returns a repeated notice again, so callers must handle duplicates.
type Reader interface {
	Read(ctx context.Context, r Request) ([]Notice, error)
}

// Maximum lengths of texts in a Notice, in bytes.
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

// address returns the bare address of "Name <a@b>".
func address(text string) string {
	if a, err := mail.ParseAddress(text); err == nil {
		return clip(a.Address, maxAddress)
	}
	return clip(strings.Trim(text, "<> "), maxAddress)
}

// messageID returns an id with brackets, "" if text has none.
func messageID(text string) string {
	text = strings.Trim(clip(text, maxID), "<> ")
	if text == "" {
		return ""
	}
	return "<" + text + ">"
}

// typeOf returns the type of a bounce by its status: Hard for 5.x, Soft for 4.x, else Undetermined.
func typeOf(status string) string {
	switch {
	case strings.HasPrefix(status, "5."):
		return Hard
	case strings.HasPrefix(status, "4."):
		return Soft
	}
	return Undetermined
}

// decode parses JSON. Errors wrap ErrMalformed.
func decode(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

const (
	mailgunMaxAge = 24 * time.Hour // maximum age of a notice; Mailgun retries for 8 hours
	keptTokens    = 8192
)

// Mailgun reads the webhooks of Mailgun. They are signed by an HMAC over a timestamp and a token
// with the account's signing key. The signature does not cover the body. So a token is accepted
// only with the body that it first came with.
type Mailgun struct {
	secret string
	now    func() time.Time

	mu     sync.Mutex
	bodies map[string][sha256.Size]byte // by token
	order  []string
}

// NewMailgun returns a reader for a signing key.
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
	default: // Mailgun itself retries after a temporary failure
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
	case reason == "old": // given up after too many attempts
		out.Type, out.Subtype = Soft, "expired"
	case strings.HasPrefix(reason, "suppress-"):
		out.Type, out.Subtype, out.Suppress = Hard, "suppressed", true
	case reason == "bounce" && out.Status == "":
		out.Suppress = out.Type == Hard // Mailgun suppresses such addresses itself
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
	if age := m.now().Sub(time.Unix(seconds, 0)); age > mailgunMaxAge || age < -mailgunMaxAge {
		return fmt.Errorf("%w: its timestamp is more than 24 hours from now", ErrForged)
	}
	return m.checkToken(s.Token, sha256.Sum256(body))
}

// checkToken refuses a token that was already used with another body.
func (m *Mailgun) checkToken(token string, body [sha256.Size]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	first, known := m.bodies[token]
	if known && first != body {
		return fmt.Errorf("%w: its token was already used with another body", ErrForged)
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

// PostmarkTag is a header field with a value that Postmark returns in its notices; it becomes
// Notice.Tag. It is needed because Postmark's notices have neither the Message-ID nor the id from
// its SMTP reply.
const PostmarkTag = "X-PM-Metadata-" + postmarkKey

const postmarkKey = "mailstead-id"

// Postmark reads the webhooks of Postmark, which are not signed. Instead a request has a secret: as
// the password or as "user:password" in Basic authentication, in the header field X-Webhook-Secret,
// or in the query parameter secret.
type Postmark struct {
	secret string
}

// NewPostmark returns a reader for a secret.
func NewPostmark(secret string) *Postmark { return &Postmark{secret} }

type postmarkNotice struct {
	RecordType  string
	Type        string
	Email       string
	From        string
	Subject     string
	Description string
	Details     string
	Inactive    bool // Postmark no longer sends to the address
	Metadata    map[string]any
}

// Read implements Reader.
func (p *Postmark) Read(_ context.Context, r Request) ([]Notice, error) {
	if !p.hasSecret(r) {
		return nil, fmt.Errorf("%w: it does not have the secret", ErrForged)
	}
	var n postmarkNotice
	if err := decode(r.Body, &n); err != nil {
		return nil, err
	}
	out := Notice{Recipient: address(n.Email), Sender: address(n.From), Subject: clip(n.Subject, maxText)}
	for key, value := range n.Metadata {
		if text, ok := value.(string); ok && strings.EqualFold(key, postmarkKey) {
			out.Tag = clip(text, maxAddress)
		}
	}
	switch {
	case n.RecordType == "SpamComplaint" || n.Type == "SpamComplaint":
		out.Kind, out.FeedbackType = Complained, "abuse"
		return []Notice{out}, nil
	case n.RecordType != "" && n.RecordType != "Bounce":
		return nil, nil
	}
	out.Kind, out.Diagnostic = Bounced, clip(n.Details, maxText)
	if out.Diagnostic == "" {
		out.Diagnostic = clip(n.Description, maxText)
	}
	if !out.postmarkType(n.Type) {
		return nil, nil
	}
	out.Suppress = out.Suppress || n.Inactive && out.Type == Hard
	return []Notice{out}, nil
}

// postmarkType sets the type of a bounce by Postmark's name for it. It returns false if the notice
// is not a bounce: Postmark reports other replies as bounces, too.
func (n *Notice) postmarkType(name string) bool {
	switch name {
	case "HardBounce":
		n.Type, n.Suppress = Hard, true
	case "BadEmailAddress":
		n.Type, n.Subtype, n.Suppress = Hard, "address", true
	case "ManuallyDeactivated":
		n.Type, n.Subtype, n.Suppress = Hard, "suppressed", true
	case "SoftBounce":
		n.Type = Soft
	case "DnsError":
		n.Type, n.Subtype = Soft, "network"
	case "Blocked", "SpamNotification", "DMARCPolicy", "VirusNotification":
		n.Type, n.Subtype = Soft, "policy"
	case "Unknown":
		n.Type = Undetermined
	default: // Postmark retries after Transient; AutoResponder, Subscribe, AddressChange and others are no bounces
		return false
	}
	return true
}

// hasSecret reports whether the request has the secret in one of the possible places. It compares
// all of them in constant time.
func (p *Postmark) hasSecret(r Request) bool {
	offers := []string{r.Header.Get("X-Webhook-Secret"), r.Query.Get("secret")}
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if pair, err := base64.StdEncoding.DecodeString(text); err == nil && strings.EqualFold(scheme, "Basic") {
		_, password, _ := strings.Cut(string(pair), ":")
		offers = append(offers, string(pair), password)
	}
	known := 0
	want := sha256.Sum256([]byte(p.secret))
	for _, offer := range offers {
		got := sha256.Sum256([]byte(offer))
		known |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return known == 1 && p.secret != ""
}

// The header fields of a signed event webhook.
const (
	sendGridSignature = "X-Twilio-Email-Event-Webhook-Signature"
	sendGridTimestamp = "X-Twilio-Email-Event-Webhook-Timestamp"
)

// SendGrid reads the event webhook of SendGrid, signed with ECDSA over the time and the body.
type SendGrid struct {
	key *ecdsa.PublicKey
}

// NewSendGrid returns a reader for a verification key: base64 of DER, as SendGrid shows it, or PEM.
func NewSendGrid(key string) (*SendGrid, error) {
	bare := strings.NewReplacer("-----BEGIN PUBLIC KEY-----", "", "-----END PUBLIC KEY-----", "").Replace(key)
	der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(bare), ""))
	if err != nil {
		return nil, errors.New("webhook_secret is not SendGrid's verification key: it is not base64")
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
	Status json.RawMessage `json:"status"` // a string, or in some events a number
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
		if e.Type == "blocked" { // SendGrid continues to send to the address
			n.Type = Soft
		} else if n.Type == Undetermined {
			n.Type, n.Suppress = Hard, true
		}
	case "dropped": // SendGrid did not try to deliver
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
