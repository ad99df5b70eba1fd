// Package feedback reads what relays tell over HTTPS about mail that they took: bounces and
// complaints, in each provider's form and with its own proof of where they come from. It does not
// know which messages were sent, nor what follows from a notice.
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
	text = strings.Trim(clip(text, maxID), "<> ")
	if text == "" {
		return ""
	}
	return "<" + text + ">"
}

// typeOf tells hard from soft bounces by the status; undetermined where there is none.
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

// PostmarkTag is the header field whose value Postmark gives back as a Notice's Tag: it tells of a
// message neither the Message-ID nor what it answered when it took it.
const PostmarkTag = "X-PM-Metadata-" + postmarkKey

const postmarkKey = "mailstead-id"

// Postmark reads the webhooks of Postmark. It signs nothing: the secret comes as the password of
// Basic authentication, as "user:password", in the header field X-Webhook-Secret, or as secret=
// behind the address.
type Postmark struct {
	secret string
}

// NewPostmark makes a reader for a secret.
func NewPostmark(secret string) *Postmark { return &Postmark{secret} }

type postmarkNotice struct {
	RecordType  string
	Type        string
	Email       string
	From        string
	Subject     string
	Description string
	Details     string
	Inactive    bool // Postmark sends nothing more there
	Metadata    map[string]any
}

// Read implements Reader.
func (p *Postmark) Read(_ context.Context, r Request) ([]Notice, error) {
	if !p.knows(r) {
		return nil, fmt.Errorf("%w: it does not bear the secret", ErrForged)
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

// postmarkType tells hard from soft by Postmark's names, and whether it is a bounce: Postmark calls
// so many other answers.
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
	default: // Transient is tried again; AutoResponder, Subscribe, AddressChange and others are none
		return false
	}
	return true
}

// knows looks for the secret in each place, and at all of them whatever it finds.
func (p *Postmark) knows(r Request) bool {
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
