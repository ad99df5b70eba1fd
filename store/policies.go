package store

import (
	"slices"
	"time"
)

// What a Policy lets its holder send.
const (
	SendAllow     = "allow"
	SendReplyOnly = "reply_only" // answers, to the people of the message that is answered
	SendApproval  = "approval"   // what a person has approved
	SendDeny      = "deny"
)

// A Policy bounds what may be sent with a token or a credential, or from a mailbox: to whom, and
// whether a person has to approve it. With Taint, its holder is tainted by reading what strangers
// wrote (see Reading): it may then write only to the people of every message that it has read,
// until TaintSeconds are over or a person ends that. The zero Policy bounds nothing.
type Policy struct {
	Send              string   `json:",omitempty"` // one of the Send… constants; "": allow
	AllowedRecipients []string `json:",omitempty"` // addresses, and @domain for all of a domain; lower-case
	TrustedSenders    []string `json:",omitempty"` // the same; not of a mailbox
	Taint             bool     `json:",omitempty"` // not of a mailbox
	TaintSeconds      int      `json:",omitempty"` // how long a taint lasts; 0: until a person clears it
}

// IsDefault tells whether a policy bounds nothing.
func (p *Policy) IsDefault() bool {
	return (p.Send == "" || p.Send == SendAllow) && len(p.AllowedRecipients) == 0 && len(p.TrustedSenders) == 0 && !p.Taint && p.TaintSeconds == 0
}

// Names tells whether a list of addresses and domains has an address.
func Names(list []string, email, domain string) bool {
	return slices.Contains(list, email) || slices.Contains(list, "@"+domain)
}

// A Reading is what the holder of a token or a credential has read since it was made or cleared. It
// is kept only for those whose Policy taints.
type Reading struct {
	// People are the addresses that are among the people of every message which was read; none
	// where that is nobody, or not known. It has bounds, past which it holds fewer of them.
	People []string  `json:",omitempty"`
	Last   time.Time `json:",omitzero"`  // when a message was last read; kept where the policy's taint ends by itself
	Taint  *Taint    `json:",omitempty"` // nil: no words of a stranger were among it
}

// A Taint says which message brought the first words of a stranger.
type Taint struct {
	Since     time.Time
	Last      time.Time // when such words were last read
	MailboxID string    `json:",omitempty"` // the only one that may be sent from; "": nobody knows
	ThreadID  string    `json:",omitempty"` // "": nobody knows, or there are several
	Folder    string    `json:",omitempty"` // IMAP name
	UID       uint32    `json:",omitempty"`
}

// MinTaintSeconds is the least time that a taint lasts.
const MinTaintSeconds = 3600

// TaintLasts is how long after the last reading a taint lasts; 0: until a person clears it.
func (p *Policy) TaintLasts() time.Duration {
	if p.TaintSeconds <= 0 || p.Send == "" || p.Send == SendAllow { // some of an older release have both
		return 0
	}
	return time.Duration(max(p.TaintSeconds, MinTaintSeconds)) * time.Second
}

// Lasting gives what counts of a reading at a time: it ends, whole, with its taint, or where there
// is none as long after the last message; nil if nothing counts.
func (r *Reading) Lasting(p *Policy, now time.Time) *Reading {
	if r == nil || !p.Taint {
		return nil
	}
	last := r.Last
	if r.Taint != nil {
		last = r.Taint.Last
	}
	if d := p.TaintLasts(); d > 0 && !last.IsZero() && !now.Before(last.Add(d)) {
		return nil
	}
	return r
}

// Tainted gives the taint of a reading that lasts at a time; nil if there is none.
func (r *Reading) Tainted(p *Policy, now time.Time) *Taint {
	r = r.Lasting(p, now)
	if r == nil {
		return nil
	}
	return r.Taint
}
