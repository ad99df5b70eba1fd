// Package classify tells junk mail from wanted mail by the words and properties of a message. It
// uses the counts from an account's training, and a small start set of counts for all accounts. It
// does not know accounts, folders or where counts are stored.
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

// Limits on how much of one message is read. They bound the time.
const (
	maxTokens    = 1500
	maxWords     = 1300     // tokens from texts, so that there is room for those of links and facts
	maxText      = 32 << 10 // bytes of text, without markup
	maxRaw       = 48 << 10 // encoded bytes of all texts together
	maxConverted = 8 << 10  // bytes of text in a charset that is slow to convert
	minPiece     = 2 << 10  // bytes that are read of each text, however many texts there are
	maxHeader    = 32 << 10
	maxFields    = 200
	maxParts     = 100
	maxHosts     = 30
	maxLinks     = 300
	maxSums      = 20
	maxMarkup    = 6000 // tags and entities
)

// A Token stands for one feature of a message, such as a word in its subject. It is a hash of the
// feature's kind and text, and never 0. Tokens are stored, so the hash function must not change.
type Token uint64

// Evidence is what the server knows about an arriving message beside its content.
type Evidence struct {
	SPF, DKIM, DMARC string // pass, fail, none, softfail, neutral, temperror or permerror; "" if unknown
	WrittenTo        bool   // the account has written to the author before, and DMARC passed
}

// A Reading holds the tokens of one message, each once, in order of appearance.
type Reading struct {
	tokens []Token
	refs   []tokenRef // where the text of each token is
	text   []byte     // the texts of all tokens, one after the other
}

type tokenRef struct {
	at   uint32
	n    uint8
	kind featureKind
}

// Tokens returns the tokens for training, at most 1500. The caller must not change the slice.
func (r *Reading) Tokens() []Token { return r.tokens }

// CommonTokens returns the tokens that mean the same for all accounts, so no names, addresses and
// hosts. said are the tokens of the visible and hidden text. sent are the tokens about how the
// message was made and sent.
func (r *Reading) CommonTokens() (said, sent []Token) {
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

// A featureKind says which kind of feature a token stands for. It is part of the hash, so the
// numbers must not change.
type featureKind uint8

const (
	kindWord featureKind = iota + 1
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

// hash returns the token for a feature. It mixes eight bytes at a time by a 128-bit multiplication.
func hash(k featureKind, text []byte) Token {
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
	seen [4096]uint16 // hash table with open addressing; an entry is the index of a token plus 1, 0 if free

	textLeft, rawLeft int
	partsLeft         int
	textsLeft         int // text parts that are not yet read
	markupLeft        int
	links, hosts      int // number of links; number of distinct hosts, of the first links only
	moneySums         int // number of sums of money
	words             int // number of words in texts
	images            int
	attachments       int
	hasText, hasHTML  bool
	hasExclamations   bool // there are several exclamation marks in a row
	invisible         bool // there are invisible characters in words
	comments          bool // there are HTML comments in words
	hidesText         bool // some text is hidden, or too small to read
	hasForm           bool
	userLinks         bool // a link has a user name before its host
}

// Read returns the tokens of a message. root is its tree from msg.Scan. It returns an error only if
// r fails.
func Read(r io.ReaderAt, root *msg.Part, e Evidence) (*Reading, error) {
	s := &reader{src: r, seed: rand.Uint64() | 1, textLeft: maxText, rawLeft: maxRaw, markupLeft: maxMarkup}
	s.tokens = make([]Token, 0, 256)
	s.refs = make([]tokenRef, 0, 256)
	s.text = make([]byte, 0, 2048)
	buf := buffers.Bytes()
	defer buffers.FreeBytes(buf)
	buf.Grow(maxRaw)
	work := buf.AvailableBuffer()[:maxRaw]

	s.addEvidence(e)
	s.partsLeft = maxParts
	s.countTexts(root)
	s.partsLeft = maxParts
	if err := s.addHeader(root, work); err != nil {
		return nil, err
	}
	s.addEnvelope(root.Envelope)
	if err := s.addPart(root, work); err != nil {
		return nil, err
	}
	s.addFacts()
	return &s.Reading, nil
}

// add adds a token if it is new and the limits permit. It reports whether it did.
func (s *reader) add(k featureKind, text []byte) (added bool) {
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
	s.refs = append(s.refs, tokenRef{uint32(len(s.text)), uint8(n), k})
	s.text = append(s.text, text[:n]...)
	return true
}

// addFacts adds the facts that are known only at the end of the message.
func (s *reader) addFacts() {
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
		{s.hasExclamations, "has several exclamation marks in a row"},
		{s.invisible, "has invisible characters in words"},
		{s.comments, "has comments in words"},
		{s.hidesText, "hides text"},
		{s.hasForm, "has a form"},
		{s.userLinks, "has a link with a user name in it"},
	} {
		if of.is {
			s.addText(kindFact, of.text)
		}
	}
}

func (s *reader) addText(k featureKind, text string) { s.add(k, []byte(text)) }

func (s *reader) addFact(text string) { s.addText(kindFact, text) }

// addEvidence adds what the server knows about the message.
func (s *reader) addEvidence(e Evidence) {
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

// addHeader adds the tokens for which the raw header is needed.
func (s *reader) addHeader(root *msg.Part, work []byte) error {
	block := work[:min(root.BodyOffset-root.HeaderOffset, maxHeader)]
	if n, err := s.src.ReadAt(block, root.HeaderOffset); n < len(block) {
		return fmt.Errorf("read header at offset %d: %w", root.HeaderOffset, err)
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
			// Most messages have these fields, and their values are read in other places.
		case "received":
			received++
		case "x-mailer", "user-agent":
			s.addWords(value[:min(len(value), 60)], kindMailer)
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
			s.addFact("is marked as " + string(appendLower(nil, value[:min(len(value), 8)])))
		default:
			s.add(kindField, name[:n])
		}
	}
	if listed {
		s.addFact("came through a list")
	}
	switch {
	case received > 8:
		s.addFact("passed more than eight servers")
	case received > 4:
		s.addFact("passed more than four servers")
	}
	return nil
}

// addEnvelope adds the tokens of author, recipients, subject and the other envelope fields.
func (s *reader) addEnvelope(env *msg.Envelope) {
	if env == nil {
		env = &msg.Envelope{}
	}
	var host string
	if len(env.From) == 0 {
		s.addFact("names no author")
	}
	for _, a := range env.From[:min(len(env.From), 3)] {
		if a.IsGroupMarker() {
			continue
		}
		host = strings.ToLower(a.Host)
		s.addText(kindSender, senderText(a.Mailbox, host))
		s.addDomain(truncated(host, 100))
		name := truncated(a.Name, 200)
		s.addWords([]byte(name), kindName)
		switch {
		case name == "":
			s.addFact("has an author without a name")
		case strings.Contains(name, "@"):
			s.addFact("has an author whose name is an address")
		}
		digits := 0
		for _, c := range []byte(truncated(a.Mailbox, 64)) {
			if c >= '0' && c <= '9' {
				digits++
			}
		}
		if digits > 3 {
			s.addFact("has an author with many digits in the address")
		}
	}
	if len(env.ReplyTo) > 0 && host != "" && !strings.EqualFold(env.ReplyTo[0].Host, host) {
		s.addFact("wants answers at another domain")
	}
	switch {
	case env.DateText == "":
		s.addFact("has no date")
	case env.Date.IsZero():
		s.addFact("has an unreadable date")
	}
	if env.MessageID == "" {
		s.addFact("has no Message-ID")
	} else if host != "" && !strings.Contains(strings.ToLower(env.MessageID), registrableDomain(host)) {
		s.addFact("has a Message-ID of another domain")
	}
	switch n := len(env.To) + len(env.Cc); {
	case n == 0 || len(env.To) > 0 && env.To[0].IsGroupMarker():
		s.addFact("names no recipient")
	case n > 10:
		s.addFact("has many recipients")
	}
	answers := len(env.InReplyTo)+len(env.References) > 0
	if answers {
		s.addFact("answers another message")
	}
	subject := truncated(env.Subject, 400)
	if subject == "" {
		s.addFact("has no subject")
	}
	if head := truncated(subject, 4); !answers && (strings.EqualFold(head, "re: ") || strings.EqualFold(head, "aw: ")) {
		s.addFact("looks like an answer but is none")
	}
	if len(subject) > 8 && strings.ToUpper(subject) == subject && strings.ToLower(subject) != subject {
		s.addFact("has a subject in capitals")
	}
	s.addWords([]byte(subject), kindSubject)
}

func senderText(mailbox, host string) string {
	return truncated(strings.ToLower(mailbox), 64) + "@" + truncated(strings.ToLower(host), 100)
}

// SenderToken returns the token of an author's address.
func SenderToken(mailbox, host string) Token {
	return hash(kindSender, []byte(senderText(mailbox, host)))
}

// countTexts counts the text parts, which share the limits.
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

// addPart adds the tokens of a part and of its children.
func (s *reader) addPart(p *msg.Part, work []byte) error {
	if s.partsLeft--; s.partsLeft < 0 {
		return nil
	}
	name := p.DispositionParams["filename"]
	if name == "" {
		name = p.Params["name"]
	}
	name = truncated(name, 200)
	if name != "" {
		s.addAttachment(strings.ToLower(strings.TrimRight(name, " .")))
	}
	if p.Disposition == "attachment" || name != "" && p.Type != "image" {
		s.attachments++
	}
	if p.Type == "image" {
		s.images++
	}
	s.addText(kindType, truncated(p.Type, 40)+"/"+truncated(p.Subtype, 60))
	if isText(p) {
		if charset := p.Params["charset"]; charset != "" {
			s.addText(kindType, truncated(strings.ToLower(charset), 40))
		}
		if p.Subtype == "html" {
			s.hasHTML = true
		} else {
			s.hasText = true
		}
		return s.readText(p, work)
	}
	for _, c := range p.Children {
		if err := s.addPart(c, work); err != nil {
			return err
		}
	}
	return nil
}

// addAttachment adds the extension of a file name. If the name has two extensions, it adds that
// fact.
func (s *reader) addAttachment(name string) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 || len(name)-dot > 8 {
		return
	}
	s.addText(kindAttachment, name[dot:])
	if before := strings.LastIndexByte(name[:dot], '.'); before >= 0 && dot-before > 3 && dot-before < 6 && len(name)-dot < 5 {
		s.addFact("has a file with two endings")
	}
}

// addDomain adds the domain of an author, its registrable domain and its top-level domain.
func (s *reader) addDomain(host string) {
	s.addText(kindDomain, host)
	if of := registrableDomain(host); of != host {
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

// truncated returns the first most bytes of s.
func truncated(s string, most int) string { return s[:min(len(s), most)] }
