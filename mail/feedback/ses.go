package feedback

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // the default of SNS; the origin of the key is checked as well
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"
)

// A sesNotice is the content of an SNS message from SES: a notification about an identity
// (notificationType) or an event of a configuration set (eventType).
type sesNotice struct {
	NotificationType string `json:"notificationType"`
	EventType        string `json:"eventType"`
	Mail             struct {
		MessageID     string `json:"messageId"`
		Source        string `json:"source"`
		CommonHeaders struct {
			MessageID string `json:"messageId"`
			Subject   string `json:"subject"`
		} `json:"commonHeaders"`
	} `json:"mail"`
	Bounce struct {
		Type         string `json:"bounceType"`
		Subtype      string `json:"bounceSubType"`
		ReportingMTA string `json:"reportingMTA"`
		RemoteMTA    string `json:"remoteMtaIp"`
		Recipients   []struct {
			Address    string `json:"emailAddress"`
			Action     string `json:"action"`
			Status     string `json:"status"`
			Diagnostic string `json:"diagnosticCode"`
		} `json:"bouncedRecipients"`
	} `json:"bounce"`
	Complaint struct {
		FeedbackType string `json:"complaintFeedbackType"`
		UserAgent    string `json:"userAgent"`
		Arrived      string `json:"arrivalDate"`
		Recipients   []struct {
			Address string `json:"emailAddress"`
		} `json:"complainedRecipients"`
	} `json:"complaint"`
}

// sesNotices parses the content of an SNS message. It returns no notices for deliveries, and for
// texts that are not about a message, such as the confirmation of a new topic.
func sesNotices(text []byte) ([]Notice, error) {
	if !strings.HasPrefix(strings.TrimSpace(string(text)), "{") {
		return nil, nil // such as "Successfully validated SNS topic for Amazon SES event publishing."
	}
	var n sesNotice
	if err := decodeJSON(text, &n); err != nil {
		return nil, err
	}
	base := Notice{
		ProviderID: shortLine(n.Mail.MessageID, maxID), MessageID: bracketedID(n.Mail.CommonHeaders.MessageID),
		Sender: bareAddress(n.Mail.Source), Subject: n.Mail.CommonHeaders.Subject,
	}
	kind := n.NotificationType
	if kind == "" {
		kind = n.EventType
	}
	switch kind {
	case "Bounce":
		return n.bounces(base), nil
	case "Complaint":
		return n.complaints(base), nil
	}
	return nil, nil
}

func (n *sesNotice) bounces(base Notice) []Notice {
	var out []Notice
	for _, r := range n.Bounce.Recipients[:min(len(n.Bounce.Recipients), maxNotices)] {
		one := base
		one.Kind, one.Recipient = Bounced, bareAddress(r.Address)
		one.Status, one.Diagnostic = shortLine(r.Status, 16), shortLine(withoutType(r.Diagnostic), maxText)
		one.RemoteMTA = shortLine(withoutType(n.Bounce.ReportingMTA), maxAddress)
		switch n.Bounce.Type {
		case "Permanent":
			one.Type = Hard
		case "Transient":
			one.Type = Soft
		default:
			one.Type = Undetermined
		}
		switch n.Bounce.Subtype {
		case "NoEmail":
			one.Subtype, one.Suppress = "no_such_mailbox", true
		case "Suppressed", "OnAccountSuppressionList":
			one.Subtype, one.Suppress = "suppressed", true
		case "MailboxFull":
			one.Subtype = "mailbox_full"
		case "MessageTooLarge":
			one.Subtype = "message_too_large"
		case "ContentRejected", "AttachmentRejected":
			one.Subtype = "content"
		case "General":
			// General may be any permanent failure, whatever reason the other server gave.
			one.Suppress = one.Type == Hard && (one.Status == "" || one.Status == "5.0.0")
		}
		out = append(out, one)
	}
	return out
}

func (n *sesNotice) complaints(base Notice) []Notice {
	var out []Notice
	for _, r := range n.Complaint.Recipients[:min(len(n.Complaint.Recipients), maxNotices)] {
		one := base
		one.Kind, one.Recipient = Complained, bareAddress(r.Address)
		one.FeedbackType, one.UserAgent = shortLine(n.Complaint.FeedbackType, 64), shortLine(n.Complaint.UserAgent, maxText)
		one.ArrivedAt, _ = time.Parse(time.RFC3339, n.Complaint.Arrived) // zero if invalid
		out = append(out, one)
	}
	return out
}

// withoutType removes the type from a value such as "smtp; 550 no" or "dns; host".
func withoutType(s string) string {
	kind, value, ok := strings.Cut(s, ";")
	if !ok || strings.ContainsAny(strings.TrimSpace(kind), " .:") {
		return s
	}
	return strings.TrimSpace(value)
}

const (
	maxCertificate   = 64 << 10 // bytes of a signing certificate
	maxKeys          = 8
	keyLifetime      = 24 * time.Hour
	maxFailedFetches = 10 // failed fetches of certificates within fetchWindow, after which no more are tried
	fetchWindow      = time.Minute
	requestTimeout   = 10 * time.Second
	minKeyBits       = 2048
)

// SES reads the notices of Amazon SES, which come as messages of an SNS topic. It accepts a message
// that names the topic and is signed by a key that the SNS of the topic's region serves over HTTPS.
// It confirms a subscription on the same conditions.
type SES struct {
	topic  string
	origin string // scheme and host of SNS in the topic's region
	http   *http.Client
	now    func() time.Time

	mu     sync.Mutex
	keys   map[string]signingKey
	failed []time.Time // times of recent failed fetches of certificates
}

type signingKey struct {
	public    *rsa.PublicKey
	keptUntil time.Time
}

// NewSES returns a reader for a topic. ask is the transport for fetching certificates and
// confirming subscriptions; it must verify TLS certificates. origin replaces the SNS of the region
// unless it is "". It must be https:// and a host, without a path.
func NewSES(topic, origin string, ask http.RoundTripper, now func() time.Time) (*SES, error) {
	own, err := snsOrigin(topic)
	if err != nil {
		return nil, err
	}
	if origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return nil, fmt.Errorf("sns_url: %q is not of the form https://host", origin)
		}
		own = "https://" + u.Host
	}
	client := &http.Client{Transport: ask, Timeout: requestTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &SES{topic: topic, origin: own, http: client, now: now, keys: map[string]signingKey{}}, nil
}

// snsOrigin returns the URL of SNS in the region of a topic. topic is an ARN:
// arn:partition:sns:region:account:name.
func snsOrigin(topic string) (string, error) {
	parts := strings.Split(topic, ":")
	isName := func(s string) bool {
		return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
	}
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "sns" || !isName(parts[1]) || !isName(parts[3]) || parts[5] == "" {
		return "", fmt.Errorf("topic_arn: %q is not of the form arn:aws:sns:region:account:name", topic)
	}
	host := "sns." + parts[3] + ".amazonaws.com"
	if parts[1] == "aws-cn" {
		host += ".cn"
	}
	return "https://" + host, nil
}

// A snsMessage is the JSON body of a request from SNS.
type snsMessage struct {
	Type, MessageID, TopicArn, Message, Timestamp string
	Subject                                       *string
	Token, SubscribeURL                           string
	SignatureVersion, Signature                   string
	SigningCertURL                                string
}

// Read implements Reader. If the request is a subscription, Read confirms it and returns no
// notices.
func (s *SES) Read(ctx context.Context, r Request) ([]Notice, error) {
	var m snsMessage
	if err := decodeJSON(r.Body, &m); err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(m.TopicArn), []byte(s.topic)) != 1 {
		return nil, fmt.Errorf("%w: it belongs to another SNS topic", ErrForged)
	}
	if err := s.verify(ctx, &m); err != nil {
		return nil, err
	}
	switch m.Type {
	case "Notification":
		return sesNotices([]byte(m.Message))
	case "SubscriptionConfirmation":
		return nil, s.confirm(ctx, m.SubscribeURL)
	case "UnsubscribeConfirmation":
		return nil, nil
	}
	return nil, fmt.Errorf("%w: unknown SNS message type %.40q", ErrMalformed, m.Type)
}

// signedText returns the text over which SNS computes the signature of a message.
func (m *snsMessage) signedText() []byte {
	var b bytes.Buffer
	add := func(name, value string) { fmt.Fprintf(&b, "%s\n%s\n", name, value) }
	add("Message", m.Message)
	add("MessageId", m.MessageID)
	if m.Type == "Notification" {
		if m.Subject != nil {
			add("Subject", *m.Subject)
		}
	} else {
		add("SubscribeURL", m.SubscribeURL)
	}
	add("Timestamp", m.Timestamp)
	if m.Type != "Notification" {
		add("Token", m.Token)
	}
	add("TopicArn", m.TopicArn)
	add("Type", m.Type)
	return b.Bytes()
}

// verify returns an error that wraps ErrForged unless SNS has signed the message.
func (s *SES) verify(ctx context.Context, m *snsMessage) error {
	signature, err := base64.StdEncoding.DecodeString(m.Signature)
	if err != nil {
		return fmt.Errorf("%w: its signature is not base64", ErrForged)
	}
	key, err := s.publicKey(ctx, m.SigningCertURL)
	if err != nil {
		return err
	}
	switch m.SignatureVersion {
	case "1":
		sum := sha1.Sum(m.signedText()) //nolint:gosec // the default of SNS
		err = rsa.VerifyPKCS1v15(key, crypto.SHA1, sum[:], signature)
	case "2":
		sum := sha256.Sum256(m.signedText())
		err = rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature)
	default:
		err = fmt.Errorf("unknown SignatureVersion %q", m.SignatureVersion)
	}
	if err != nil {
		return fmt.Errorf("%w: its signature is not valid", ErrForged)
	}
	return nil
}

// parseSNSURL parses a URL. It reports whether the URL is at the SNS of the topic's region.
func (s *SES) parseSNSURL(address string) (_ *url.URL, atSNS bool) {
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.Fragment != "" || u.Opaque != "" || len(address) > 2048 {
		return nil, false
	}
	return u, u.Scheme+"://"+u.Host == s.origin
}

// publicKey returns the public key of the certificate at a URL. It keeps keys for a day.
func (s *SES) publicKey(ctx context.Context, address string) (*rsa.PublicKey, error) {
	u, ok := s.parseSNSURL(address)
	if !ok || path.Ext(u.Path) != ".pem" || u.RawQuery != "" {
		return nil, fmt.Errorf("%w: its SigningCertURL is not at %s", ErrForged, s.origin)
	}
	now := s.now()
	s.mu.Lock()
	have, known := s.keys[address]
	for len(s.failed) > 0 && now.Sub(s.failed[0]) > fetchWindow {
		s.failed = s.failed[1:]
	}
	tooMany := len(s.failed) >= maxFailedFetches
	s.mu.Unlock()
	if known && now.Before(have.keptUntil) {
		return have.public, nil
	}
	if tooMany {
		return nil, errors.New("fetch signing certificate of SNS: too many fetches failed in the last minute")
	}
	public, until, err := s.fetchKey(ctx, address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = append(s.failed, now)
		return nil, err
	}
	if len(s.keys) >= maxKeys {
		clear(s.keys)
	}
	s.keys[address] = signingKey{public, until}
	return public, nil
}

// fetchKey fetches a certificate from SNS. Since the file has no chain, the certificate is used
// only for its key and dates; the verified TLS connection proves that it comes from SNS.
func (s *SES) fetchKey(ctx context.Context, address string) (*rsa.PublicKey, time.Time, error) {
	text, err := s.get(ctx, address, maxCertificate)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("fetch signing certificate of SNS: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, time.Time{}, fmt.Errorf("%w: its SigningCertURL serves no certificate", ErrForged)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%w: its certificate cannot be read", ErrForged)
	}
	now := s.now()
	public, ok := cert.PublicKey.(*rsa.PublicKey)
	if !ok || public.N.BitLen() < minKeyBits || now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return nil, time.Time{}, fmt.Errorf("%w: its certificate has expired or has no RSA key of at least 2048 bits", ErrForged)
	}
	until := now.Add(keyLifetime)
	if cert.NotAfter.Before(until) {
		until = cert.NotAfter
	}
	return public, until, nil
}

// confirm confirms a subscription by a request to its SubscribeURL.
func (s *SES) confirm(ctx context.Context, address string) error {
	if _, ok := s.parseSNSURL(address); !ok {
		return fmt.Errorf("%w: its SubscribeURL is not at %s", ErrForged, s.origin)
	}
	if _, err := s.get(ctx, address, maxCertificate); err != nil {
		return fmt.Errorf("confirm SNS subscription: %w", err)
	}
	return nil
}

func (s *SES) get(ctx context.Context, address string, most int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("SNS answered %s", resp.Status)
	}
	return text, nil
}
