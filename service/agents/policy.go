package agents

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	maxPolicyEntries = 100             // entries in each list of a policy
	maxTaintSeconds  = 365 * 24 * 3600 // a year
)

// A SendPolicy limits which messages may be sent from a mailbox.
type SendPolicy struct {
	// allow: everything; reply_only: only answers, to the people of the message that is answered;
	// approval: only what a person has approved; deny: nothing.
	Send string `json:"send" enum:"allow|reply_only|approval|deny" log:"true"`
	// Addresses, and @domain for all of a domain, that need no approval and do not count as
	// strangers.
	AllowedRecipients []string `json:"allowed_recipients" max:"100" words:"ours"`
}

// A Policy limits which messages may be sent with a token or credential, and says whether reading
// taints it.
type Policy struct {
	SendPolicy
	TrustedSenders []string `json:"trusted_senders" max:"100" words:"ours"` // Addresses and @domain of senders whose messages do not taint, if verified_domain proves them.
	Taint          bool     `json:"taint" log:"true"`                       // Reading what a stranger wrote restricts what may be done from then on.
	// How long a taint lasts after the last such reading; null: until a person ends it. Not with
	// send: allow.
	TaintSeconds *int `json:"taint_seconds" min:"3600" max:"31536000" log:"true"`
}

// A Tainted says since when a token or credential is tainted, and by which conversation.
type Tainted struct {
	Since    core.Time `json:"since"`
	UserID   *string   `json:"user_id" words:"ours"`
	ThreadID *string   `json:"thread_id" words:"ours"`
}

// PolicyOut returns a policy in the form of the API.
func PolicyOut(p *store.Policy) Policy {
	out := Policy{SendPolicy: SendPolicyOut(p), TrustedSenders: append([]string{}, p.TrustedSenders...), Taint: p.Taint}
	if p.TaintSeconds > 0 {
		out.TaintSeconds = &p.TaintSeconds
	}
	return out
}

// SendPolicyOut returns the policy of a mailbox in the form of the API.
func SendPolicyOut(p *store.Policy) SendPolicy {
	out := SendPolicy{Send: p.Send, AllowedRecipients: append([]string{}, p.AllowedRecipients...)}
	if out.Send == "" {
		out.Send = store.SendAllow
	}
	return out
}

// TaintedOut returns a taint in the form of the API; nil if t is nil.
func TaintedOut(t *store.Taint) *Tainted {
	if t == nil {
		return nil
	}
	return &Tainted{core.Time{Time: t.Since}, core.OrNull(t.MailboxID), core.OrNull(t.ThreadID)}
}

// StoredForm validates the policy in a request and returns it in the form in which it is stored.
// field is the name of the policy in error texts.
func (p *Policy) StoredForm(field string) (out store.Policy, err error) {
	out, err = p.SendPolicy.StoredForm(field)
	if err != nil {
		return out, err
	}
	out.TrustedSenders, err = normalizeNames(field+".trusted_senders", p.TrustedSenders)
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

// StoredForm validates the policy in a request and returns it in the form in which it is stored.
// field is the name of the policy in error texts.
func (p *SendPolicy) StoredForm(field string) (out store.Policy, err error) {
	switch p.Send {
	case "", store.SendAllow:
	case store.SendReplyOnly, store.SendApproval, store.SendDeny:
		out.Send = p.Send
	default:
		return out, core.Invalid(field+".send", "not_allowed", "must be one of allow, reply_only, approval, deny")
	}
	out.AllowedRecipients, err = normalizeNames(field+".allowed_recipients", p.AllowedRecipients)
	return out, err
}

// CheckOwnWords returns an error if own is true but the actor may not decide that. own means that a
// token or credential may write in the name of the account. Only an owner or admin who is signed in
// may decide it.
func CheckOwnWords(who core.Actor, own bool) error {
	if own && !(who.IsPerson() && who.Manages()) {
		return core.Errorf("person_required", "Only a person may let a program speak for the account: an owner or admin, signed in to the dashboard.")
	}
	return nil
}

// normalizeNames validates and normalizes a list of addresses and @domains. It removes duplicates.
func normalizeNames(field string, list []string) (out []string, err error) {
	if len(list) > maxPolicyEntries {
		return nil, core.Invalid(field, "too_many_items", "must have at most %d entries", maxPolicyEntries)
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
