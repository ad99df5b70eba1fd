package auth

import (
	"errors"
	"io"
	"net/netip"
)

// Result is the outcome of one method, in the words of RFC 8601 section 2.7. The value "policy" of
// that RFC is written as neutral with a reason.
type Result string

// Request is one message that has arrived, with its envelope.
type Request struct {
	// IP is the address of the SMTP client.
	IP netip.Addr
	// Helo is the name the client gave with EHLO or HELO.
	Helo string
	// MailFrom is the reverse-path without angle brackets; empty for the null sender.
	MailFrom string
	// AuthservID is our host name, the authserv-id of the header field that is made (RFC 8601
	// section 2.2).
	AuthservID string
	// Message is the message as received, with CRLF line ends, Size bytes long.
	Message io.ReaderAt
	Size    int64
	// HeaderFrom has the addresses (local@domain) of the From header field, as the caller shows
	// them to people. Verify reads the field itself as well: what other programs show counts, too.
	HeaderFrom []string
}

// Signature is the outcome of one DKIM-Signature field, in the order of the message.
type Signature struct {
	// Domain and Selector are d= and s= in lower-case A-labels; empty when they are no DNS names.
	Domain, Selector string
	Result           Result
	// Reason says in a few printable ASCII words why Result is not pass; empty with pass.
	Reason string
	// Aligned reports whether Domain is aligned with the From domain (RFC 9989 section 4.4.1). Of
	// one that does not pass it tells only whether they are the same.
	Aligned bool
	// Covers reports whether it passes and signs every field that readers are given, each of which
	// the message has once at most: From, Subject, To, Cc, Reply-To, Sender, Date, Message-ID,
	// In-Reply-To, References, MIME-Version, Content-* and List-*.
	Covers bool

	signed    []string // h=, lower-case
	algorithm string   // a=, when it is a plain token
	hint      string   // the first characters of b= (RFC 6008)
}

// Verdict is what is known of a message's origin.
type Verdict struct {
	// SPF is the result for SPFDomain: the domain of the reverse-path, or of HELO for the null
	// sender.
	SPF        Result
	SPFDomain  string
	SPFHelo    bool // SPFDomain is that of HELO
	SPFAligned bool // SPFDomain is aligned with the From domain; as Signature.Aligned
	// SPFOwn tells that SPF passes by ip4, ip6, a or mx in a record of the organisational domain of
	// SPFDomain: the client is a host of its own, and not one that strangers send through, too.
	SPFOwn bool
	// Repeated is the lower-case name of a field that readers are given, and that stands more often
	// than once; empty without one.
	Repeated string
	// DKIM is pass when any signature passes, otherwise the result of the most telling one.
	DKIM       Result
	Signatures []Signature
	DMARC      Result
	// Policy is what the receiver should do for DMARC, after sp=, np= and t=: dmarc.PolicyNone,
	// PolicyQuarantine or PolicyReject; empty when DMARC passes or says nothing about the message.
	Policy string
	// TooManyAuthors tells that Policy is reject since the From field, or what programs may
	// take for one, names more domains than can be asked.
	TooManyAuthors bool
	// Tested tells that Policy is milder than what is published, for t=y.
	Tested bool
	// Former is what DMARC said before RFC 9989: by RFC 7489 and the public suffix list, without
	// sampling by pct=. It decides nothing.
	Former Judgment
	// Published is the record that applies; nil where there is none, or none that can be read.
	Published *Published
	// FromDomain is the domain that DMARC was judged for; empty without one.
	FromDomain     string
	org            string // its organisational domain, where that was asked for
	severalAuthors bool   // of more than one domain
	// ARC is what those who have forwarded the message say that they saw, if that can be trusted to
	// be theirs.
	ARC Chain
	// Header is the whole Authentication-Results field with its final CRLF, folded, ready to be put
	// before the message.
	Header string
}

// The results that a verdict can bear.
const (
	Pass      Result = "pass"
	Fail      Result = "fail"
	SoftFail  Result = "softfail"
	Neutral   Result = "neutral"
	None      Result = "none"
	TempError Result = "temperror"
	PermError Result = "permerror"
)

// ErrAuthservID is returned by Verify and StripResults when the authserv-id they are given is no
// host name.
var ErrAuthservID = errors.New("authserv-id is not a host name")
