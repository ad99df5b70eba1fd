package feedback

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
)

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
