// Package classify distinguishes junk mail from wanted mail by the words and properties of a
// message. It uses the counts that an account was trained with, and a small start set of counts for
// all accounts. It does not know accounts, folders or where counts are stored.
package classify

import (
	"bytes"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/buffers"
	"github.com/mailstead/mailstead/mail/msg"
)

// Limits on what is read of one message, which bound the time.
const (
	maxTokens    = 1500
	maxWords     = 1300     // tokens from texts; the rest is for links and facts
	maxText      = 32 << 10 // bytes of text, without markup
	maxRaw       = 48 << 10 // encoded bytes of all texts
	maxConverted = 8 << 10  // bytes of text in a charset that is slow to convert
	minPiece     = 2 << 10  // bytes that each text may have, even if there are many
	maxHeader    = 32 << 10
	maxFields    = 200
	maxParts     = 100
	maxHosts     = 30
	maxLinks     = 300
	maxSums      = 20
	maxMarkup    = 6000 // tags and entities
)

// A Token represents a feature of a message, such as a word of its subject. It is a hash of the
// feature's kind and text, and never 0. Tokens are stored, so the hash function must not change.
type Token uint64

// Evidence is what the server knows about an arriving message, besides its content.
type Evidence struct {
	SPF, DKIM, DMARC string // pass, fail, none, softfail, neutral, temperror, permerror, or "" for unknown
	WrittenTo        bool   // the account wrote to the author before, and DMARC passed
}

// A Reading holds the distinct tokens of one message, in order of appearance.
type Reading struct {
	tokens []Token
	refs   []ref  // the position of each token's text
	text   []byte // the concatenated texts of all tokens
}

type ref struct {
	at   uint32
	n    uint8
	kind kind
}

// Tokens returns the tokens for training, at most 1 500. The caller must not change the slice.
func (r *Reading) Tokens() []Token { return r.tokens }

// Common returns the tokens that are not specific to an account: it leaves out names, addresses and
// hosts. said are the tokens of the visible and the hidden text, sent are the tokens about how the
// message was made and sent.
func (r *Reading) Common() (said, sent []Token) {
	for i, t := range r.tokens {
		switch use := kinds[r.refs[i].kind].use; {
		case use == content || use == transport && slices.Contains(contentFacts, string(r.textOf(i))):
			said = append(said, t)
		case use == transport:
			sent = append(sent, t)
		}
	}
	return said, sent
}

// A kind is the kind of a token's text. It is part of the hash, so the numbers must not change.
type kind uint8

const (
	kindWord kind = iota + 1
	kindSubject
	kindPhrase
	kindLong
	kindNumber
	kindMoney
	kindSender
	kindDomain
	kindName
	kindEnding
	kindHost
	kindSite
	kindLinkEnding
	kindFact
	kindEvidence
	kindAttachment
	kindType
	kindMailer
	kindList
	kindField
)

// hash mixes eight bytes at a time by a 128-bit multiplication.
func hash(k kind, text []byte) Token {
	h := uint64(k)*0x9e3779b97f4a7c15 ^ uint64(len(text))
	for {
		var word uint64
		n := min(len(text), 8)
		for i, c := range text[:n] {
			word |= uint64(c) << (8 * i)
		}
		hi, lo := bits.Mul64(h^word^0xa0761d6478bd642f, 0xe7037ed1a0b428db)
		h = hi ^ lo
		text = text[n:]
		if len(text) == 0 {
			break
		}
	}
	return Token(max(h, 1))
}

// A reader collects the tokens of one message.
type reader struct {
	Reading
	src  io.ReaderAt
	seed uint64       // random, so that nobody can choose words that collide in seen
	seen [4096]uint16 // hash table with open addressing; entries are indexes of tokens plus 1

	textLeft, rawLeft int
	partsLeft         int
	textsLeft         int // text parts not yet read
	markupLeft        int
	links, hosts      int // links, and distinct hosts of the first links
	moneySums         int // sums of money
	words             int // words in texts
	images            int
	attachments       int
	hasText, hasHTML  bool
	exclaims          bool // there are consecutive exclamation marks
	invisible         bool // words contain invisible characters
	comments          bool // words contain HTML comments
	hides             bool // some text is hidden, or too small to read
	forms             bool
	userLinks         bool // a link has a user name before its host
}

// Read returns the tokens of a message. root is its tree from msg.Scan. It returns an error only if
// r fails.
func Read(r io.ReaderAt, root *msg.Part, e Evidence) (*Reading, error) {
	s := &reader{src: r, seed: rand.Uint64() | 1, textLeft: maxText, rawLeft: maxRaw, markupLeft: maxMarkup}
	s.tokens = make([]Token, 0, 256)
	s.refs = make([]ref, 0, 256)
	s.text = make([]byte, 0, 2048)
	buf := buffers.Bytes()
	defer buffers.FreeBytes(buf)
	buf.Grow(maxRaw)
	work := buf.AvailableBuffer()[:maxRaw]

	s.evidence(e)
	s.partsLeft = maxParts
	s.countTexts(root)
	s.partsLeft = maxParts
	if err := s.header(root, work); err != nil {
		return nil, err
	}
	s.envelope(root.Envelope)
	if err := s.part(root, work); err != nil {
		return nil, err
	}
	s.facts()
	return &s.Reading, nil
}

// add adds a token if it is new and there is room. It reports whether it added the token.
func (s *reader) add(k kind, text []byte) bool {
	t := hash(k, text)
	hi, lo := bits.Mul64(uint64(t), s.seed)
	at := (hi ^ lo) % uint64(len(s.seen))
	for ; s.seen[at] != 0; at = (at + 1) % uint64(len(s.seen)) {
		if s.tokens[s.seen[at]-1] == t {
			return false
		}
	}
	if len(s.tokens) == maxTokens || len(s.tokens) >= maxWords && k <= kindMoney {
		return false
	}
	s.tokens = append(s.tokens, t)
	s.seen[at] = uint16(len(s.tokens))
	n := min(len(text), 120)
	s.refs = append(s.refs, ref{uint32(len(s.text)), uint8(n), k})
	s.text = append(s.text, text[:n]...)
	return true
}

// facts adds the facts that are known only after the whole message has been read.
func (s *reader) facts() {
	for _, of := range [...]struct {
		is   bool
		text string
	}{
		{s.hasHTML && !s.hasText, "has HTML only"},
		{!s.hasHTML, "has no HTML"},
		{s.words == 0, "has no words"},
		{s.words > 0 && s.words < 12, "has few words"},
		{s.words < 12 && s.images > 0, "has an image in place of text"},
		{s.attachments > 0, "has attachments"},
		{s.hosts == 0, "has no links"},
		{s.hosts == 1, "has links to one place"},
		{s.hosts > 8, "has links to many places"},
		{s.exclaims, "has several exclamation marks in a row"},
		{s.invisible, "has invisible characters in words"},
		{s.comments, "has comments in words"},
		{s.hides, "hides text"},
		{s.forms, "has a form"},
		{s.userLinks, "has a link with a user name in it"},
	} {
		if of.is {
			s.addText(kindFact, of.text)
		}
	}
}

func (s *reader) addText(k kind, text string) { s.add(k, []byte(text)) }

func (s *reader) fact(text string) { s.addText(kindFact, text) }

func (s *reader) evidence(e Evidence) {
	for _, of := range [...]struct{ name, result string }{{"SPF", e.SPF}, {"DKIM", e.DKIM}, {"DMARC", e.DMARC}} {
		switch of.result {
		case "pass", "fail", "none", "softfail", "neutral", "temperror", "permerror":
			s.addText(kindEvidence, of.name+" "+of.result)
		}
	}
	if e.WrittenTo {
		s.addText(kindEvidence, writtenTo)
	}
}

// header adds the tokens that need the raw header.
func (s *reader) header(root *msg.Part, work []byte) error {
	block := work[:min(root.BodyOffset-root.HeaderOffset, maxHeader)]
	if n, err := s.src.ReadAt(block, root.HeaderOffset); n < len(block) {
		return fmt.Errorf("read header at %d: %w", root.HeaderOffset, err)
	}
	received, listed := 0, false
	var name [40]byte
	for range maxFields {
		if len(block) == 0 {
			break
		}
		line := block
		if i := bytes.IndexByte(block, '\n'); i >= 0 {
			line = block[:i]
		}
		block = block[min(len(line)+1, len(block)):]
		colon := bytes.IndexByte(line, ':')
		if colon < 1 || colon > len(name) || line[0] == ' ' || line[0] == '\t' {
			continue
		}
		n := 0
		for _, c := range bytes.TrimRight(line[:colon], " \t") {
			if c <= ' ' || c >= 0x7f {
				n = 0
				break
			}
			name[n] = lower(c)
			n++
		}
		value := bytes.TrimSpace(line[colon+1:])
		switch string(name[:n]) {
		case "", "from", "to", "subject", "date", "delivered-to", "return-path", "authentication-results", "received-spf", "message-id",
			"mime-version", "content-type", "content-transfer-encoding", "dkim-signature", "cc", "x-original-to", "envelope-to":
			// Most messages have these fields, and their values are read elsewhere.
		case "received":
			received++
		case "x-mailer", "user-agent":
			s.split(value[:min(len(value), 60)], kindMailer)
		case "list-id":
			if i := bytes.IndexByte(value, '<'); i >= 0 {
				value = bytes.TrimRight(value[i+1:], "> \t\r")
			}
			s.add(kindList, appendLower(nil, value[:min(len(value), 100)]))
			listed = true
		case "list-unsubscribe", "list-post":
			listed = true
			s.add(kindField, name[:n])
		case "precedence":
			s.fact("is marked as " + string(appendLower(nil, value[:min(len(value), 8)])))
		default:
			s.add(kindField, name[:n])
		}
	}
	if listed {
		s.fact("came through a list")
	}
	switch {
	case received > 8:
		s.fact("passed more than eight servers")
	case received > 4:
		s.fact("passed more than four servers")
	}
	return nil
}

// envelope adds the tokens of author, recipients, subject and the other envelope fields.
func (s *reader) envelope(env *msg.Envelope) {
	if env == nil {
		env = &msg.Envelope{}
	}
	var host string
	if len(env.From) == 0 {
		s.fact("names no author")
	}
	for _, a := range env.From[:min(len(env.From), 3)] {
		if a.IsGroupMarker() {
			continue
		}
		host = strings.ToLower(a.Host)
		s.addText(kindSender, senderText(a.Mailbox, host))
		s.domain(short(host, 100))
		name := short(a.Name, 200)
		s.split([]byte(name), kindName)
		switch {
		case name == "":
			s.fact("has an author without a name")
		case strings.Contains(name, "@"):
			s.fact("has an author whose name is an address")
		}
		digits := 0
		for _, c := range []byte(short(a.Mailbox, 64)) {
			if c >= '0' && c <= '9' {
				digits++
			}
		}
		if digits > 3 {
			s.fact("has an author with many digits in the address")
		}
	}
	if len(env.ReplyTo) > 0 && host != "" && !strings.EqualFold(env.ReplyTo[0].Host, host) {
		s.fact("wants answers at another domain")
	}
	switch {
	case env.DateText == "":
		s.fact("has no date")
	case env.Date.IsZero():
		s.fact("has an unreadable date")
	}
	if env.MessageID == "" {
		s.fact("has no Message-ID")
	} else if host != "" && !strings.Contains(strings.ToLower(env.MessageID), registrable(host)) {
		s.fact("has a Message-ID of another domain")
	}
	switch n := len(env.To) + len(env.Cc); {
	case n == 0 || len(env.To) > 0 && env.To[0].IsGroupMarker():
		s.fact("names no recipient")
	case n > 10:
		s.fact("has many recipients")
	}
	answers := len(env.InReplyTo)+len(env.References) > 0
	if answers {
		s.fact("answers another message")
	}
	subject := short(env.Subject, 400)
	if subject == "" {
		s.fact("has no subject")
	}
	if head := short(subject, 4); !answers && (strings.EqualFold(head, "re: ") || strings.EqualFold(head, "aw: ")) {
		s.fact("looks like an answer but is none")
	}
	if len(subject) > 8 && strings.ToUpper(subject) == subject && strings.ToLower(subject) != subject {
		s.fact("has a subject in capitals")
	}
	s.split([]byte(subject), kindSubject)
}

func senderText(mailbox, host string) string {
	return short(strings.ToLower(mailbox), 64) + "@" + short(strings.ToLower(host), 100)
}

// SenderToken returns the token of an author's address.
func SenderToken(mailbox, host string) Token {
	return hash(kindSender, []byte(senderText(mailbox, host)))
}

// countTexts counts the text parts, among which the limits are divided.
func (s *reader) countTexts(p *msg.Part) {
	if s.partsLeft--; s.partsLeft < 0 {
		return
	}
	if isText(p) {
		s.textsLeft++
	}
	for _, c := range p.Children {
		s.countTexts(c)
	}
}

func isText(p *msg.Part) bool {
	return p.Type == "text" && len(p.Children) == 0 && p.Disposition != "attachment"
}

// part adds the tokens of a part and its children.
func (s *reader) part(p *msg.Part, work []byte) error {
	if s.partsLeft--; s.partsLeft < 0 {
		return nil
	}
	name := p.DispositionParams["filename"]
	if name == "" {
		name = p.Params["name"]
	}
	name = short(name, 200)
	if name != "" {
		s.attachment(strings.ToLower(strings.TrimRight(name, " .")))
	}
	if p.Disposition == "attachment" || name != "" && p.Type != "image" {
		s.attachments++
	}
	if p.Type == "image" {
		s.images++
	}
	s.addText(kindType, short(p.Type, 40)+"/"+short(p.Subtype, 60))
	if isText(p) {
		if charset := p.Params["charset"]; charset != "" {
			s.addText(kindType, short(strings.ToLower(charset), 40))
		}
		if p.Subtype == "html" {
			s.hasHTML = true
		} else {
			s.hasText = true
		}
		return s.readText(p, work)
	}
	for _, c := range p.Children {
		if err := s.part(c, work); err != nil {
			return err
		}
	}
	return nil
}

// attachment adds the extension of a file name, and whether the name has two extensions.
func (s *reader) attachment(name string) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 || len(name)-dot > 8 {
		return
	}
	s.addText(kindAttachment, name[dot:])
	if before := strings.LastIndexByte(name[:dot], '.'); before >= 0 && dot-before > 3 && dot-before < 6 && len(name)-dot < 5 {
		s.fact("has a file with two endings")
	}
}

// domain adds the domain of an author, its registrable domain, and its top-level domain.
func (s *reader) domain(host string) {
	s.addText(kindDomain, host)
	if of := registrable(host); of != host {
		s.addText(kindDomain, of)
	}
	if i := strings.LastIndexByte(host, '.'); i >= 0 {
		s.addText(kindEnding, host[i:])
	}
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func appendLower(b, text []byte) []byte {
	for _, c := range text {
		b = append(b, lower(c))
	}
	return b
}

func short(s string, most int) string { return s[:min(len(s), most)] }
