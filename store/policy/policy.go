// Package policy has the rules on what may be sent by whom, and what the holders of tokens and
// credentials have read. It does not know who sends, nor where either is kept.
package policy

import (
	"slices"
	"time"
)

// Values of Policy.Send: what the holder of the token, credential or mailbox may send.
const (
	SendAllow     = "allow"
	SendReplyOnly = "reply_only" // replies to the participants of the answered message
	SendApproval  = "approval"   // only what a person has approved
	SendDeny      = "deny"
)

// A Policy restricts what may be sent with a token or a credential, or from a mailbox: to whom, and
// whether a person must approve it. If Taint is set, whoever holds the token, credential or mailbox
// becomes tainted by reading text of strangers (see Reading). A tainted holder may write only to
// addresses that took part in every message that it has read. This ends after TaintSeconds, or when
// a person clears the taint. The zero Policy restricts nothing.
type Policy struct {
	Send              string   `json:",omitempty"` // one of the Send… constants; "": allow
	AllowedRecipients []string `json:",omitempty"` // lower-case addresses, or @domain for all addresses of a domain; empty: everybody
	TrustedSenders    []string `json:",omitempty"` // in the same form; not used for a mailbox
	Taint             bool     `json:",omitempty"` // not used for a mailbox
	TaintSeconds      int      `json:",omitempty"` // how long a taint lasts; 0: until a person clears it
}

// IsDefault reports whether a policy restricts nothing.
func (p *Policy) IsDefault() bool {
	return (p.Send == "" || p.Send == SendAllow) && len(p.AllowedRecipients) == 0 && len(p.TrustedSenders) == 0 && !p.Taint && p.TaintSeconds == 0
}

// ContainsAddress reports whether a list of addresses and @domains contains an address or its
// domain.
func ContainsAddress(list []string, email, domain string) bool {
	return slices.Contains(list, email) || slices.Contains(list, "@"+domain)
}

// A Reading records what the holder of a token or a credential has read: since the token or
// credential was made, or since a person cleared the record. It is kept only if the Policy has
// Taint.
type Reading struct {
	// People are the addresses that took part in every message that was read. It is empty if there
	// is no such address or none is known. Its length is limited; addresses past the limit are left
	// out.
	People []string  `json:",omitempty"`
	Last   time.Time `json:",omitzero"`  // when a message was last read; only kept if a taint under the policy expires
	Taint  *Taint    `json:",omitempty"` // nil: no message that was read contained text of a stranger
}

// A Taint records the first message with text of a stranger that the holder has read.
type Taint struct {
	Since     time.Time
	Last      time.Time // when text of a stranger was last read
	MailboxID string    `json:",omitempty"` // the only mailbox that may send; "": not known
	ThreadID  string    `json:",omitempty"` // "": not known, or several
	Folder    string    `json:",omitempty"` // IMAP name
	UID       uint32    `json:",omitempty"`
}

// MinTaintSeconds is the shortest time for which a taint lasts.
const MinTaintSeconds = 3600

// TaintDuration returns how long a taint lasts after the last reading. 0: until a person clears it.
func (p *Policy) TaintDuration() time.Duration {
	if p.TaintSeconds <= 0 || p.Send == "" || p.Send == SendAllow { // some rows of an older release have TaintSeconds without a limit on sending
		return 0
	}
	return time.Duration(max(p.TaintSeconds, MinTaintSeconds)) * time.Second
}

// InForce returns the reading if it is still in force at the time now, otherwise nil. A reading
// with a taint expires with the taint. A reading without one expires TaintDuration after the last
// message was read.
func (r *Reading) InForce(p *Policy, now time.Time) *Reading {
	if r == nil || !p.Taint {
		return nil
	}
	last := r.Last
	if r.Taint != nil {
		last = r.Taint.Last
	}
	if d := p.TaintDuration(); d > 0 && !last.IsZero() && !now.Before(last.Add(d)) {
		return nil
	}
	return r
}

// TaintInForce returns the taint that is in force at the time now, or nil.
func (r *Reading) TaintInForce(p *Policy, now time.Time) *Taint {
	r = r.InForce(p, now)
	if r == nil {
		return nil
	}
	return r.Taint
}
