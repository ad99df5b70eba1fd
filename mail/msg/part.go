package msg

import "time"

// Part is one node of a message's MIME tree (RFC 2045, RFC 2046). A multipart has one
// child or more; a message/rfc822 or message/global part has exactly one child, the
// message inside; every other part is a leaf. Texts are decoded UTF-8.
type Part struct {
	Type, Subtype     string            // lower case; text/plain where none is given, message/rfc822 in a digest
	Params            map[string]string // of Content-Type; names in lower case
	ID                string            // Content-ID with its brackets
	Description       string
	Encoding          string // Content-Transfer-Encoding, lower case; "7bit" where none is given
	Disposition       string // lower case, "" without the field
	DispositionParams map[string]string
	Language          []string
	Location, MD5     string

	// HeaderOffset, BodyOffset and End are offsets from the start of the whole message.
	// The header is [HeaderOffset, BodyOffset) with the empty line, the body [BodyOffset, End).
	HeaderOffset, BodyOffset, End int64

	Lines       int64 // line ends in the body
	DecodedSize int64 // bytes after the transfer encoding is undone; exact when the body keeps to its encoding

	// Envelope is set on the root and on the child of a message/rfc822 part. Such a part,
	// unless it is the root, shares the envelope of its child.
	Envelope *Envelope
	Children []*Part
}

// Envelope holds the header fields that IMAP's ENVELOPE and the message index need
// (RFC 9051 §7.5.2). Sender and ReplyTo are empty when the message has none.
type Envelope struct {
	Date     time.Time // zero when the field is missing or unreadable
	DateText string
	Subject  string

	From, Sender, ReplyTo, To, Cc, Bcc []Address

	InReplyTo  []string // each with its brackets
	MessageID  string   // with its brackets, "" without the field
	References []string // each with its brackets, oldest first
}

// Size returns the length of the body in bytes, as it stands in the message.
func (p *Part) Size() int64 { return p.End - p.BodyOffset }

// MediaType returns "type/subtype" in lower case.
func (p *Part) MediaType() string { return p.Type + "/" + p.Subtype }

// IsMultipart reports whether the part's children are MIME parts divided by a boundary.
func (p *Part) IsMultipart() bool { return p.Type == "multipart" }

// IsMessage reports whether the part is a whole message whose structure is known,
// that is, its Envelope and its one child are set.
func (p *Part) IsMessage() bool {
	return p.Type == "message" && (p.Subtype == "rfc822" || p.Subtype == "global")
}

// filename returns the name that the sender gave, unsafe as it is, or "".
func (p *Part) filename() string {
	if name := p.DispositionParams["filename"]; name != "" {
		return name
	}
	return p.Params["name"]
}
