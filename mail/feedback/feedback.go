// Package feedback reads the notices about bounces and complaints that relays send over HTTPS. Each
// provider has its own format and its own way to authenticate. The package does not know which
// messages were sent, nor what a caller does with a notice.
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

// MaxBody is the maximum size in bytes of a request body that callers pass to a Reader. SNS sends
// at most 256 KiB, SendGrid 768 KiB.
const MaxBody = 1 << 20

// maxNotices is the maximum number of notices that are read from one request. No provider sends
// more.
const maxNotices = 2000

// Errors that Reader.Read wraps. Any other error means that the provider could not be reached, so
// the same request may be accepted later.
var (
	// ErrForged is wrapped for a request without proof that it comes from the provider.
	ErrForged = errors.New("the notice is not proven to come from the relay")
	// ErrMalformed is wrapped for a request that cannot be parsed.
	ErrMalformed = errors.New("the notice of the relay cannot be parsed")
)

// A Request is an HTTP request to the webhook address that is configured at the relay.
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

// Types of a bounce: permanent, temporary or unknown.
const (
	Hard         = "hard"
	Soft         = "soft"
	Undetermined = "undetermined"
)

// A Notice reports that a message to one recipient bounced, or that the recipient complained about
// it. The relay had accepted the message before.
type Notice struct {
	Kind      string // Bounced or Complained
	Recipient string // address, as the provider gives it

	// Which message it was, as far as the provider says.
	ProviderID string // the provider's id of the message, as in its reply to DATA
	MessageID  string // the message's Message-ID, with brackets
	Tag        string // value of the message's metadata header field, see PostmarkTag
	Sender     string // address of the sender
	Subject    string

	// Fields of a bounce.
	Type       string // Hard, Soft or Undetermined
	Subtype    string // reason in terms of RFC 3463 or of the provider, lower case; "" if unknown
	Status     string // status code of RFC 3463; "" if unknown
	Diagnostic string
	RemoteMTA  string
	Suppress   bool // the provider itself does not send to the address any more

	// Fields of a complaint.
	FeedbackType string
	UserAgent    string
	ArrivedAt    time.Time // when the message arrived at the recipient's host; zero if unknown
}

// A Reader authenticates and parses the notices of one relay. It is safe for concurrent use. A
// notice that the relay repeats is returned again, so callers must handle duplicates.
type Reader interface {
	Read(ctx context.Context, r Request) ([]Notice, error)
}

// Maximum lengths of texts in a Notice, in bytes.
const (
	maxText    = 1000
	maxAddress = 254
	maxID      = 998
)

// shortLine returns s as one line of at most most bytes.
func shortLine(s string, most int) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// bareAddress returns the bare address from a text such as "Name <a@b>".
func bareAddress(text string) string {
	if a, err := mail.ParseAddress(text); err == nil {
		return shortLine(a.Address, maxAddress)
	}
	return shortLine(strings.Trim(text, "<> "), maxAddress)
}

// bracketedID returns a message id in angle brackets, "" if text is empty.
func bracketedID(text string) string {
	text = strings.Trim(shortLine(text, maxID), "<> ")
	if text == "" {
		return ""
	}
	return "<" + text + ">"
}

// bounceTypeOf returns the type of a bounce for its status: Hard for 5.x, Soft for 4.x, otherwise
// Undetermined.
func bounceTypeOf(status string) string {
	switch {
	case strings.HasPrefix(status, "5."):
		return Hard
	case strings.HasPrefix(status, "4."):
		return Soft
	}
	return Undetermined
}

// decodeJSON parses JSON. Its errors wrap ErrMalformed.
func decodeJSON(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

const (
	mailgunMaxAge = 24 * time.Hour // maximum age of a notice; Mailgun retries for 8 hours
	maxTokens     = 8192
)

// Mailgun reads the webhooks of Mailgun. Each has an HMAC over a timestamp and a token, with the
// account's signing key. The HMAC does not cover the body, so a token is accepted only together
// with the body that it first came with.
type Mailgun struct {
	secret string
	now    func() time.Time

	mu         sync.Mutex
	bodies     map[string][sha256.Size]byte // hash of the body by token
	tokenOrder []string
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
	if err := decodeJSON(r.Body, &n); err != nil {
		return nil, err
	}
	if err := m.verify(&n, r.Body); err != nil {
		return nil, err
	}
	e := n.Event
	out := Notice{
		Recipient: bareAddress(e.Recipient), MessageID: bracketedID(e.Message.Headers.MessageID), Sender: bareAddress(e.Message.Headers.From),
		Subject: shortLine(e.Message.Headers.Subject, maxText),
	}
	switch {
	case e.Event == "complained":
		out.Kind, out.FeedbackType = Complained, "abuse"
	case e.Event == "failed" && e.Severity == "permanent":
		out.Kind = Bounced
		n.describeBounce(&out)
	default: // other failures are temporary, and Mailgun retries
		return nil, nil
	}
	return []Notice{out}, nil
}

// describeBounce sets the type, reason and status of a bounce.
func (n *mailgunNotice) describeBounce(out *Notice) {
	d := n.Event.Delivery
	out.Diagnostic = shortLine(d.Message, maxText)
	if out.Diagnostic == "" {
		out.Diagnostic = shortLine(d.Description, maxText)
	}
	out.Status, out.RemoteMTA = shortLine(d.Enhanced, 16), shortLine(d.Host, maxAddress)
	out.Type = bounceTypeOf(out.Status)
	if out.Type == Undetermined && d.Code >= 400 && d.Code < 600 {
		out.Type = bounceTypeOf(strconv.Itoa(int(math.Floor(d.Code/100))) + ".")
	}
	switch reason := n.Event.Reason; {
	case reason == "old": // Mailgun gave up after too many attempts
		out.Type, out.Subtype = Soft, "expired"
	case strings.HasPrefix(reason, "suppress-"):
		out.Type, out.Subtype, out.Suppress = Hard, "suppressed", true
	case reason == "bounce" && out.Status == "":
		out.Suppress = out.Type == Hard // Mailgun itself then suppresses the address
	}
}

// verify returns an error that wraps ErrForged unless the notice is signed and recent.
func (m *Mailgun) verify(n *mailgunNotice, body []byte) error {
	s := n.Signature
	seconds, err := strconv.ParseInt(s.Timestamp, 10, 64)
	if err != nil || s.Token == "" || len(s.Token) > 200 {
		return fmt.Errorf("%w: it has no valid timestamp or token", ErrForged)
	}
	mac := hmac.New(sha256.New, []byte(m.secret))
	mac.Write([]byte(s.Timestamp + s.Token))
	if got, err := hex.DecodeString(s.Signature); err != nil || !hmac.Equal(got, mac.Sum(nil)) {
		return fmt.Errorf("%w: its signature is not valid", ErrForged)
	}
	if age := m.now().Sub(time.Unix(seconds, 0)); age > mailgunMaxAge || age < -mailgunMaxAge {
		return fmt.Errorf("%w: its timestamp is more than 24 hours away", ErrForged)
	}
	return m.checkToken(s.Token, sha256.Sum256(body))
}

// checkToken returns an error if the token was already used with another body.
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
	if len(m.tokenOrder) == maxTokens {
		delete(m.bodies, m.tokenOrder[0])
		m.tokenOrder = append(m.tokenOrder[:0], m.tokenOrder[1:]...)
	}
	m.bodies[token] = body
	m.tokenOrder = append(m.tokenOrder, token)
	return nil
}

// PostmarkTag is a header field of messages whose value Postmark returns in its notices, where it
// becomes Notice.Tag. Without it a notice could not be matched, since Postmark's notices have
// neither the Message-ID nor the id from the SMTP reply.
const PostmarkTag = "X-PM-Metadata-" + postmarkKey

const postmarkKey = "mailstead-id"

// Postmark reads the webhooks of Postmark, which are not signed. They have a secret instead: in
// Basic authentication as the password or as "user:password", in the header field X-Webhook-Secret,
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
	Inactive    bool // Postmark itself does not send to the address any more
	Metadata    map[string]any
}

// Read implements Reader.
func (p *Postmark) Read(_ context.Context, r Request) ([]Notice, error) {
	if !p.hasSecret(r) {
		return nil, fmt.Errorf("%w: it does not contain the configured secret", ErrForged)
	}
	var n postmarkNotice
	if err := decodeJSON(r.Body, &n); err != nil {
		return nil, err
	}
	out := Notice{Recipient: bareAddress(n.Email), Sender: bareAddress(n.From), Subject: shortLine(n.Subject, maxText)}
	for key, value := range n.Metadata {
		if text, ok := value.(string); ok && strings.EqualFold(key, postmarkKey) {
			out.Tag = shortLine(text, maxAddress)
		}
	}
	switch {
	case n.RecordType == "SpamComplaint" || n.Type == "SpamComplaint":
		out.Kind, out.FeedbackType = Complained, "abuse"
		return []Notice{out}, nil
	case n.RecordType != "" && n.RecordType != "Bounce":
		return nil, nil
	}
	out.Kind, out.Diagnostic = Bounced, shortLine(n.Details, maxText)
	if out.Diagnostic == "" {
		out.Diagnostic = shortLine(n.Description, maxText)
	}
	if !out.setPostmarkType(n.Type) {
		return nil, nil
	}
	out.Suppress = out.Suppress || n.Inactive && out.Type == Hard
	return []Notice{out}, nil
}

// setPostmarkType sets the type of a bounce by the name that Postmark has for it. It returns false
// if the notice is about something else, since Postmark also reports automatic replies and the like
// as bounces.
func (n *Notice) setPostmarkType(name string) (isBounce bool) {
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
	default: // not bounces: Transient, which Postmark retries, AutoResponder, Subscribe, AddressChange and others
		return false
	}
	return true
}

// hasSecret reports whether the request has the secret in one of the possible places. It compares
// them all in constant time.
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

// Header fields of a signed event webhook.
const (
	sendGridSignature = "X-Twilio-Email-Event-Webhook-Signature"
	sendGridTimestamp = "X-Twilio-Email-Event-Webhook-Timestamp"
)

// SendGrid reads the event webhook of SendGrid. It is signed by ECDSA over the timestamp and the
// body.
type SendGrid struct {
	key *ecdsa.PublicKey
}

// NewSendGrid returns a reader for a verification key, which is base64 of DER, as SendGrid shows
// it, or PEM.
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
		return nil, errors.New("webhook_secret is not SendGrid's verification key: it is not an ECDSA key")
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
	if err := decodeJSON(r.Body, &events); err != nil {
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

// verify returns an error that wraps ErrForged unless the request is signed.
func (s *SendGrid) verify(r Request) error {
	signature, err := base64.StdEncoding.DecodeString(r.Header.Get(sendGridSignature))
	if err != nil {
		return fmt.Errorf("%w: its signature is not base64", ErrForged)
	}
	sum := sha256.New()
	sum.Write([]byte(r.Header.Get(sendGridTimestamp)))
	sum.Write(r.Body)
	if !ecdsa.VerifyASN1(s.key, sum.Sum(nil), signature) {
		return fmt.Errorf("%w: its signature is not valid", ErrForged)
	}
	return nil
}

// notice converts an event, and returns false if it is neither a bounce nor a complaint.
func (e *sendGridEvent) notice() (_ Notice, ok bool) {
	n := Notice{Recipient: bareAddress(e.Email), MessageID: bracketedID(e.SMTPID), Diagnostic: shortLine(e.Reason, maxText)}
	n.Status = shortLine(strings.Trim(string(e.Status), `"`), 16)
	if strings.Count(n.Status, ".") != 2 {
		n.Status = ""
	}
	switch e.Event {
	case "spamreport":
		n.Kind, n.FeedbackType, n.Diagnostic = Complained, "abuse", ""
	case "bounce":
		n.Kind, n.Type = Bounced, bounceTypeOf(n.Status)
		if e.Type == "blocked" { // SendGrid continues to send to the address
			n.Type = Soft
		} else if n.Type == Undetermined {
			n.Type, n.Suppress = Hard, true
		}
	case "dropped": // SendGrid did not try to deliver the message
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
