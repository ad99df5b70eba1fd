package agents

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	maxNamed        = 100 // entries in one list of a policy
	maxTaintSeconds = 365 * 24 * 3600
)

// A SendPolicy limits what is sent from a mailbox.
type SendPolicy struct {
	// allow: everything; reply_only: only answers, to the people of the message that is answered;
	// approval: only what a person has approved; deny: nothing.
	Send string `json:"send" enum:"allow|reply_only|approval|deny"`
	// Addresses, and @domain for all of a domain, that need no approval and do not count as
	// strangers.
	AllowedRecipients []string `json:"allowed_recipients" max:"100" words:"ours"`
}

// A Policy limits what a token or a credential may send, and says whether reading taints it.
type Policy struct {
	SendPolicy
	TrustedSenders []string `json:"trusted_senders" max:"100" words:"ours"` // Addresses and @domain of senders whose messages do not taint, if verified_domain proves them.
	Taint          bool     `json:"taint"`                                  // Reading what a stranger wrote restricts what may be done from then on.
	// How long a taint lasts after the last such reading; null: until a person ends it. Not with
	// send: allow.
	TaintSeconds *int `json:"taint_seconds" min:"3600" max:"31536000"`
}

// A Tainted says since when, and by which conversation, a token or credential is tainted.
type Tainted struct {
	Since    core.Time `json:"since"`
	UserID   *string   `json:"user_id" words:"ours"`
	ThreadID *string   `json:"thread_id" words:"ours"`
}

// PolicyOut converts a policy for the API.
func PolicyOut(p *store.Policy) Policy {
	out := Policy{SendPolicy: SendPolicyOut(p), TrustedSenders: append([]string{}, p.TrustedSenders...), Taint: p.Taint}
	if p.TaintSeconds > 0 {
		out.TaintSeconds = &p.TaintSeconds
	}
	return out
}

// SendPolicyOut converts the policy of a mailbox for the API.
func SendPolicyOut(p *store.Policy) SendPolicy {
	out := SendPolicy{Send: p.Send, AllowedRecipients: append([]string{}, p.AllowedRecipients...)}
	if out.Send == "" {
		out.Send = store.SendAllow
	}
	return out
}

// TaintedOut converts a taint for the API; nil for none.
func TaintedOut(t *store.Taint) *Tainted {
	if t == nil {
		return nil
	}
	return &Tainted{core.Time{Time: t.Since}, core.OrNull(t.MailboxID), core.OrNull(t.ThreadID)}
}

// Record checks a policy in a request, and converts it for the store. field is its name in errors.
func (p *Policy) Record(field string) (out store.Policy, err error) {
	out, err = p.SendPolicy.Record(field)
	if err != nil {
		return out, err
	}
	out.TrustedSenders, err = named(field+".trusted_senders", p.TrustedSenders)
	if err != nil {
		return out, err
	}
	out.Taint = p.Taint
	if p.TaintSeconds != nil {
		out.TaintSeconds = *p.TaintSeconds
		if out.TaintSeconds < store.MinTaintSeconds || out.TaintSeconds > maxTaintSeconds {
			return out, core.Invalid(field+".taint_seconds", "out_of_range", "must be from %d to %d, or null", store.MinTaintSeconds, maxTaintSeconds)
		}
		if out.Send == "" {
			return out, core.Invalid(field+".taint_seconds", "conflict", "cannot be combined with send: allow, since it would let everything be sent once the time has passed; leave it null")
		}
	}
	return out, nil
}

// Record checks a policy in a request, and converts it for the store. field is its name in errors.
func (p *SendPolicy) Record(field string) (out store.Policy, err error) {
	switch p.Send {
	case "", store.SendAllow:
	case store.SendReplyOnly, store.SendApproval, store.SendDeny:
		out.Send = p.Send
	default:
		return out, core.Invalid(field+".send", "not_allowed", "must be one of allow, reply_only, approval, deny")
	}
	out.AllowedRecipients, err = named(field+".allowed_recipients", p.AllowedRecipients)
	return out, err
}

// CheckOwnWords returns an error if a token or credential is to speak for the account and the actor
// is not an owner or admin who is signed in.
func CheckOwnWords(who core.Actor, own bool) error {
	if own && !(who.IsPerson() && who.Manages()) {
		return core.Errorf("person_required", "Only a person may let a program speak for the account: an owner or admin, signed in to the dashboard.")
	}
	return nil
}

// named returns addresses and @domains in normalized form, without duplicates.
func named(field string, list []string) (out []string, err error) {
	if len(list) > maxNamed {
		return nil, core.Invalid(field, "too_many_items", "must have at most %d entries", maxNamed)
	}
	for _, text := range list {
		text = strings.TrimSpace(text)
		domain, all := strings.CutPrefix(text, "@")
		one, err := msg.NormalizeEmail(text)
		if all {
			one, err = msg.NormalizeDomain(domain)
			one = "@" + one
		}
		if err != nil {
			return nil, core.Invalid(field, "invalid", "%.80q is no address, and no domain such as @example.com", text)
		}
		if !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out, nil
}
