package imapd

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/mailstead/mailstead/handlers/imapd/wire"
)

const (
	maxSections   = 100 // sections of one FETCH
	maxFieldNames = 200 // names in one HEADER.FIELDS
)

// fetchItems are the items that a FETCH asks for.
type fetchItems struct {
	attributes
	sections    []bodySection
	binaries    []binarySection
	binarySizes []binarySize
}

// A bodySection is BODY[…], or an older item with the same meaning, such as RFC822.
type bodySection struct {
	imap.FetchItemBodySection
	label string // its name in the answer
}

// A binarySection is BINARY[…] (RFC 3516).
type binarySection struct {
	imap.FetchItemBinarySection
	label string
}

// A binarySize is BINARY.SIZE[…] (RFC 3516).
type binarySize struct {
	part  []int
	label string
}

// isItemNameByte reports whether b can be part of the name of an item.
func isItemNameByte(b byte) bool { return b != '[' && wire.IsAtomByte(b) }

// parse parses what follows the name of an item (RFC 9051 section 9, fetch-att), and adds the item.
func (items *fetchItems) parse(p *wire.Command, name string) {
	section := func(label string, specifier imap.PartSpecifier, peek bool) {
		items.addSection(p, bodySection{imap.FetchItemBodySection{Specifier: specifier, Peek: peek}, label})
	}
	name = strings.ToUpper(name)
	switch name {
	case "MODSEQ", "EMAILID", "THREADID", "SAVEDATE", "PREVIEW":
		items.uid = true // the answer has the UID too
	}
	switch name {
	case "UID":
		items.uid = true
	case "FLAGS":
		items.flags = true
	case "INTERNALDATE":
		items.internalDate = true
	case "RFC822.SIZE":
		items.size = true
	case "ENVELOPE":
		items.envelope = true
	case "BODYSTRUCTURE":
		items.bodyStructure = true
	case "MODSEQ": // RFC 7162 section 3.1.4.2
		items.modSeq = true
	case "EMAILID": // RFC 8474 section 5.3
		items.emailID = true
	case "THREADID":
		items.threadID = true
	case "SAVEDATE": // RFC 8514 section 4.2
		items.saveDate = true
	case "PREVIEW": // RFC 8970; LAZY has no effect, since previews are made on arrival
		items.preview = true
		p.SkipList("LAZY")
	case "RFC822": // RFC 3501 section 6.4.5; RFC822.PEEK is what Outlook sends
		section(name, "", false)
	case "RFC822.PEEK":
		section(name, "", true)
	case "RFC822.HEADER":
		section(name, imap.PartSpecifierHeader, true)
	case "RFC822.TEXT":
		section(name, imap.PartSpecifierText, false)
	case "BODY", "BODY.PEEK":
		if name == "BODY" && !p.Next('[') {
			items.body = true
			return
		}
		s := bodySection{FetchItemBodySection: imap.FetchItemBodySection{Peek: name == "BODY.PEEK"}}
		s.parse(p)
		items.addSection(p, s)
	case "BINARY", "BINARY.PEEK": // RFC 3516
		b := binarySection{FetchItemBinarySection: imap.FetchItemBinarySection{Peek: name == "BINARY.PEEK"}}
		b.Part = parseBinaryPart(p)
		b.Partial = parsePartial(p)
		b.label = "BINARY[" + partNumber(b.Part) + "]" + originOctet(b.Partial)
		items.addBinary(p, b)
	case "BINARY.SIZE":
		part := parseBinaryPart(p)
		label := "BINARY.SIZE[" + partNumber(part) + "]"
		if !slices.ContainsFunc(items.binarySizes, func(b binarySize) bool { return b.label == label }) {
			items.binarySizes = append(items.binarySizes, binarySize{part, label})
			items.checkCount(p)
		}
	default:
		p.Fail(wire.Bad("FETCH does not know that item"))
	}
}

// addSection adds a section, unless the command has already asked for it.
func (items *fetchItems) addSection(p *wire.Command, s bodySection) {
	for i := range items.sections {
		if has := &items.sections[i]; has.label == s.label && samePartial(has.Partial, s.Partial) {
			has.Peek = has.Peek && s.Peek
			return
		}
	}
	items.sections = append(items.sections, s)
	items.checkCount(p)
}

// addBinary adds a BINARY section, unless the command has already asked for it.
func (items *fetchItems) addBinary(p *wire.Command, b binarySection) {
	for i := range items.binaries {
		if has := &items.binaries[i]; has.label == b.label && samePartial(has.Partial, b.Partial) {
			has.Peek = has.Peek && b.Peek
			return
		}
	}
	items.binaries = append(items.binaries, b)
	items.checkCount(p)
}

func samePartial(a, b *imap.SectionPartial) bool { return a == b || a != nil && b != nil && *a == *b }

// checkCount refuses the command if it asks for too many sections.
func (items *fetchItems) checkCount(p *wire.Command) {
	if len(items.sections)+len(items.binaries)+len(items.binarySizes) > maxSections {
		p.Fail(wire.Bad("At most %d sections are fetched at a time", maxSections))
	}
}

// needsBytes reports whether an item needs the bytes of the message.
func (items *fetchItems) needsBytes() bool {
	return len(items.sections)+len(items.binaries)+len(items.binarySizes) > 0
}

// parse parses the part after BODY: […]<…> (RFC 9051 section 9, section).
func (s *bodySection) parse(p *wire.Command) {
	p.Expect('[')
	s.Part = parsePart(p)
	specifier := ""
	if len(s.Part) == 0 {
		specifier = p.PeekWord()
	} else if p.Skip('.') {
		specifier = p.PeekWord()
		if specifier == "" {
			p.Fail(wire.Bad("The number of a part ends with a dot"))
		}
	}
	if specifier != "" {
		p.Atom()
	}
	names := ""
	switch specifier {
	case "", "HEADER", "TEXT":
		s.Specifier = imap.PartSpecifier(specifier)
	case "MIME":
		s.Specifier = imap.PartSpecifierMIME
		if len(s.Part) == 0 {
			p.Fail(wire.Bad("MIME needs a part number"))
		}
	case "HEADER.FIELDS", "HEADER.FIELDS.NOT":
		s.Specifier = imap.PartSpecifierHeader
		p.Space()
		var list, quoted []string
		p.ReadList(func() {
			name := p.AString()
			if printableASCII(name) != name { // RFC 5322 section 2.2
				p.Fail(wire.Bad("The name of a header field is ASCII"))
			}
			list, quoted = append(list, name), append(quoted, wire.Quote(name))
		})
		if len(list) == 0 || len(list) > maxFieldNames {
			p.Fail(wire.Bad("1 to %d header fields are named", maxFieldNames))
		}
		names = " (" + strings.Join(quoted, " ") + ")"
		if specifier == "HEADER.FIELDS" {
			s.HeaderFields = list
		} else {
			s.HeaderFieldsNot = list
		}
	default:
		p.Fail(wire.Bad("FETCH does not know that section"))
	}
	p.Expect(']')
	s.Partial = parsePartial(p)
	dot := ""
	if len(s.Part) > 0 && specifier != "" {
		dot = "."
	}
	s.label = "BODY[" + partNumber(s.Part) + dot + specifier + names + "]" + originOctet(s.Partial)
}

// parsePart parses a part number such as 2.1. It leaves a dot that no number follows.
func parsePart(p *wire.Command) (part []int) {
	for p.NextIsDigit(len(part) > 0) {
		p.Skip('.')
		n := p.Number()
		if n == 0 { // RFC 9051 section 9: nz-number
			p.Fail(wire.Bad("Part numbers begin at 1"))
		}
		part = append(part, int(n))
	}
	return part
}

// parseBinaryPart parses the part number of BINARY: […].
func parseBinaryPart(p *wire.Command) []int {
	p.Expect('[')
	part := parsePart(p)
	p.Expect(']')
	return part
}

// parsePartial parses <offset.size>. It returns nil if there is none.
func parsePartial(p *wire.Command) *imap.SectionPartial {
	if !p.Skip('<') {
		return nil
	}
	partial := new(imap.SectionPartial)
	partial.Offset = p.Number64()
	p.Expect('.')
	partial.Size = p.Number64()
	p.Expect('>')
	return partial
}

// partNumber returns a part number as text, such as 2.1.
func partNumber(part []int) string {
	texts := make([]string, len(part))
	for i, n := range part {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ".")
}

// originOctet returns the origin octet of a partial section, as an answer has it. Clients expect a
// number of 32 bits, so a larger offset is replaced by the largest such number. No message has that
// many bytes, so the section is empty.
func originOctet(p *imap.SectionPartial) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("<%d>", min(p.Offset, math.MaxUint32))
}

// setsSeen reports whether an item sets \Seen.
func (items *fetchItems) setsSeen() bool {
	return slices.ContainsFunc(items.sections, func(s bodySection) bool { return !s.Peek }) ||
		slices.ContainsFunc(items.binaries, func(b binarySection) bool { return !b.Peek })
}
