package auth

import (
	"errors"
	"io"
	"net/netip"
)

// Result is the result of one authentication method, with the names of RFC 8601 section 2.7. It is
// Neutral, with a reason, where that RFC has "policy".
type Result string

// Request is one received message with its envelope.
type Request struct {
	// IP is the address of the SMTP client.
	IP netip.Addr
	// Helo is the name that the client gave with EHLO or HELO.
	Helo string
	// MailFrom is the reverse-path without angle brackets; "" is the null sender.
	MailFrom string
	// AuthservID is our host name, which is the authserv-id in Verdict.Header (RFC 8601 section
	// 2.2).
	AuthservID string
	// Message is the message as received, with CRLF line ends. Size is its length in bytes.
	Message io.ReaderAt
	Size    int64
	// HeaderFrom are the addresses (local@domain) of the From field that the caller displays to
	// people. Verify also reads the field itself, since other programs may display other addresses.
	HeaderFrom []string
}

// Signature is the result of one DKIM-Signature field.
type Signature struct {
	// Domain and Selector are d= and s= in lower-case A-labels; "" if they are no DNS names.
	Domain, Selector string
	Result           Result
	// Reason says in a few printable ASCII words why Result is not pass. It is "" if Result is
	// pass.
	Reason string
	// Aligned reports whether Domain is aligned with the From domain (RFC 9989 section 4.4.1). If
	// Result is not pass, it reports whether the two domains are equal.
	Aligned bool
	// Covers reports whether the signature passes, signs every field that readers are shown, and
	// none of these fields is repeated. The fields are From, Subject, To, Cc, Reply-To, Sender,
	// Date, Message-ID, In-Reply-To, References, MIME-Version, Content-* and List-*.
	Covers bool

	signed    []string // h=, in lower case
	algorithm string   // a= if it is a plain token, otherwise ""
	hint      string   // the first characters of b=, which tell signatures apart (RFC 6008)
}

// Verdict holds the results of authenticating a message.
type Verdict struct {
	// SPF is the result for SPFDomain: the domain of the reverse-path, or of HELO if the
	// reverse-path is null.
	SPF        Result
	SPFDomain  string
	SPFHelo    bool // SPFDomain is that of HELO
	SPFAligned bool // SPFDomain is aligned with the From domain; see Signature.Aligned
	// SPFOwn reports whether SPF passes by ip4, ip6, a or mx in a record of the organisational
	// domain of SPFDomain. If so, the client is a host of that organisation, and not a shared host
	// through which others send as well.
	SPFOwn bool
	// Repeated is the lower-case name of a field that readers are shown and that occurs more than
	// once; "" if there is none.
	Repeated string
	// DKIM is pass if any signature passes, otherwise the most significant result of the
	// signatures.
	DKIM       Result
	Signatures []Signature
	DMARC      Result
	// Policy is what the From domain asks receivers to do, with sp=, np= and t= applied:
	// dmarc.PolicyNone, PolicyQuarantine or PolicyReject. It is "" if DMARC passes or does not
	// apply to the message.
	Policy string
	// TooManyAuthors reports that Policy is reject because the author fields name more domains than
	// are looked up.
	TooManyAuthors bool
	// Tested reports that Policy is milder than the published one because of t=y.
	Tested bool
	// Former is the DMARC result by the older RFC 7489, with the public suffix list and without
	// pct=. It is for information only.
	Former Judgment
	// Published is the DMARC record that applies; nil if there is none or if it cannot be read.
	Published *PublishedRecord
	// FromDomain is the From domain that decided the DMARC result; "" if there is none.
	FromDomain     string
	org            string // organisational domain of FromDomain; "" if it was not looked up
	severalAuthors bool   // the authors have more than one domain
	// ARC is the result of the ARC chain.
	ARC Chain
	// Header is the whole Authentication-Results field, folded and with its final CRLF, ready to be
	// written before the message.
	Header string
}

// The results that a verdict can have.
const (
	Pass      Result = "pass"
	Fail      Result = "fail"
	SoftFail  Result = "softfail"
	Neutral   Result = "neutral"
	None      Result = "none"
	TempError Result = "temperror"
	PermError Result = "permerror"
)

// ErrAuthservID is returned by Verify and StripResults if the authserv-id in the request is not a
// host name.
var ErrAuthservID = errors.New("authserv-id is not a host name")
