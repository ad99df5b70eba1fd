package store

import (
	"slices"
	"time"
)

// What a Policy allows its holder to send.
const (
	SendAllow     = "allow"
	SendReplyOnly = "reply_only" // replies to the participants of the answered message
	SendApproval  = "approval"   // only what a person has approved
	SendDeny      = "deny"
)

// A Policy restricts what may be sent with a token or a credential, or from a mailbox: to whom, and
// whether a person must approve it. With Taint, its holder becomes tainted by reading what
// strangers wrote (see Reading). A tainted holder may write only to addresses that took part in
// every message that it has read, until TaintSeconds have passed or a person clears the taint. The
// zero Policy restricts nothing.
type Policy struct {
	Send              string   `json:",omitempty"` // one of the Send… constants; "": allow
	AllowedRecipients []string `json:",omitempty"` // lower-case addresses, and @domain for all addresses of a domain
	TrustedSenders    []string `json:",omitempty"` // in the same form; not used for a mailbox
	Taint             bool     `json:",omitempty"` // not used for a mailbox
	TaintSeconds      int      `json:",omitempty"` // how long a taint lasts; 0: until a person clears it
}

// IsDefault reports whether a policy restricts nothing.
func (p *Policy) IsDefault() bool {
	return (p.Send == "" || p.Send == SendAllow) && len(p.AllowedRecipients) == 0 && len(p.TrustedSenders) == 0 && !p.Taint && p.TaintSeconds == 0
}

// Names reports whether a list of addresses and @domains contains an address.
func Names(list []string, email, domain string) bool {
	return slices.Contains(list, email) || slices.Contains(list, "@"+domain)
}

// A Reading records what the holder of a token or a credential has read since it was made or
// cleared. It is kept only if the Policy has Taint.
type Reading struct {
	// People are the addresses that took part in every message that was read. It is empty if there
	// is no such address or none is known. Its length is limited; addresses past the limit are left
	// out.
	People []string  `json:",omitempty"`
	Last   time.Time `json:",omitzero"`  // when a message was last read; kept if the policy's taint expires
	Taint  *Taint    `json:",omitempty"` // nil: it contained no words of a stranger
}

// A Taint records the first message that contained words of a stranger.
type Taint struct {
	Since     time.Time
	Last      time.Time // when words of a stranger were last read
	MailboxID string    `json:",omitempty"` // the only mailbox that may send; "": not known
	ThreadID  string    `json:",omitempty"` // "": not known, or several
	Folder    string    `json:",omitempty"` // IMAP name
	UID       uint32    `json:",omitempty"`
}

// MinTaintSeconds is the shortest time that a taint lasts.
const MinTaintSeconds = 3600

// TaintLasts returns how long a taint lasts after the last reading; 0: until a person clears it.
func (p *Policy) TaintLasts() time.Duration {
	if p.TaintSeconds <= 0 || p.Send == "" || p.Send == SendAllow { //  some rows of an older release have TaintSeconds without a limit on sending
		return 0
	}
	return time.Duration(max(p.TaintSeconds, MinTaintSeconds)) * time.Second
}

// Lasting returns the reading if it is still in force at a time, else nil. It expires as a whole:
// with its taint, or, without a taint, as long after the last message was read.
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

// Tainted returns the taint that is in force at a time, or nil.
func (r *Reading) Tainted(p *Policy, now time.Time) *Taint {
	r = r.Lasting(p, now)
	if r == nil {
		return nil
	}
	return r.Taint
}
