package imapd

import (
	"bytes"
	"io"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/mail/msg"
)

// A source is a message from which sections are read: its structure, as parsed on arrival, and its
// bytes.
type source struct {
	root *msg.Part
	blob interface {
		io.ReaderAt
		Size() int64
	}
	// Counts bytes read or decoded but not sent; nil: they are not counted.
	spend   func(n int64) error
	headers int                 // how many headers were searched for some of their fields
	sizes   map[*msg.Part]int64 // decoded sizes of parts
}

// The first freeHeaders headers of a message, each of at most freeHeader bytes, are not counted
// when some of their fields are fetched: clients do that for every message of a large folder.
const (
	freeHeaders = 4
	freeHeader  = 64 << 10
)

// pay counts bytes that are read or decoded and not sent; it returns an error at the limit.
func (s *source) pay(n int64) error {
	if s.spend == nil {
		return nil
	}
	return s.spend(n)
}

// A decodedRange is a range of a part's decoded content.
type decodedRange struct {
	from, n int64
	content []byte
}

// contents returns the contents of all sections, the ranges of BINARY sections apart. Everything
// that can fail is done before it returns, so that the command can still be refused.
func (s *source) contents(items *fetchItems) (ranges, others []content, err error) {
	decoded, err := s.decode(items)
	if err != nil {
		return nil, nil, err
	}
	for i := range items.sections {
		section := &items.sections[i]
		r, err := s.section(&section.FetchItemBodySection)
		if err != nil {
			return nil, nil, err
		}
		off, n := partial(section.Partial, r.Size())
		others = append(others, content{label: section.label, r: withoutNUL{io.NewSectionReader(r, off, n)}, size: n})
	}
	held := int64(0) // bytes of ranges
	for i := range items.binaries {
		section := &items.binaries[i]
		c, err := s.binary(section.Part)
		if err != nil {
			return nil, nil, err
		}
		if section.Partial == nil {
			others = append(others, content{section.label, c.open(), c.size, true})
			continue
		}
		off, n := partial(section.Partial, c.size)
		held += n
		if held > maxRange {
			return nil, nil, errRanges
		}
		r := io.Reader(nil)
		if found := decoded[section]; found != nil {
			r = bytes.NewReader(found.content)
		} else {
			r, err = s.skip(c.open(), off)
			if err != nil {
				return nil, nil, err
			}
		}
		ranges = append(ranges, content{section.label, r, n, true})
	}
	for _, size := range items.binarySizes {
		c, err := s.binary(size.part)
		if err != nil {
			return nil, nil, err
		}
		others = append(others, content{label: size.label, size: c.size})
	}
	return ranges, others, nil
}

// skip returns r without its first n bytes, which count as read if they must be.
func (s *source) skip(r io.Reader, n int64) (io.Reader, error) {
	if seeker, ok := r.(io.Seeker); ok {
		_, err := seeker.Seek(n, io.SeekStart)
		return r, err
	}
	if err := s.pay(n); err != nil {
		return nil, err
	}
	_, err := io.CopyN(io.Discard, r, n)
	return r, err
}

const maxRange = 1 << 20 // bytes of all ranges of BINARY sections in one answer

var errRanges = wire.No(imap.ResponseCodeLimit, "Ask for at most 1 MiB of BINARY ranges at a time")

// decode decodes each encoded part of which BINARY sections request ranges or the size. It decodes
// each part only once, however many sections there are. A range of a part without an encoding is
// read from the message itself.
func (s *source) decode(items *fetchItems) (map[*binarySection]*decodedRange, error) {
	ranges := map[*binarySection]*decodedRange{}
	parts := map[*msg.Part][]*decodedRange{}
	var order []*msg.Part
	note := func(path []int, of *decodedRange) bool {
		part := findPart(s.root, path)
		if part == nil || len(path) == 0 || !isEncoded(part) {
			return false
		}
		if _, ok := parts[part]; !ok {
			order = append(order, part)
		}
		parts[part] = append(parts[part], of)
		return true
	}
	for i := range items.binaries {
		section := &items.binaries[i]
		if section.Partial != nil {
			of := &decodedRange{from: section.Partial.Offset, n: section.Partial.Size}
			if note(section.Part, of) {
				ranges[section] = of
			}
		}
	}
	for _, size := range items.binarySizes {
		note(size.part, &decodedRange{})
	}
	for _, part := range order {
		if err := s.decodePart(part, parts[part]); err != nil {
			return nil, err
		}
	}
	return ranges, nil
}

// isEncoded reports whether a part must be decoded before its content is known.
func isEncoded(p *msg.Part) bool { return p.Encoding == "base64" || p.Encoding == "quoted-printable" }

func (s *source) decodePart(part *msg.Part, windows []*decodedRange) error {
	r, buf := msg.Open(s.blob, part), make([]byte, 32<<10)
	kept := 0
	for at := int64(0); ; {
		n, err := r.Read(buf)
		for _, w := range windows {
			lo, hi := max(w.from-at, 0), min(w.n, maxRange+1)+w.from-at
			if lo < min(hi, int64(n)) {
				w.content = append(w.content, buf[lo:min(hi, int64(n))]...)
				kept += int(min(hi, int64(n)) - lo)
			}
		}
		at += int64(n)
		switch {
		case kept > maxRange:
			return errRanges
		case err == io.EOF:
			if s.sizes == nil {
				s.sizes = map[*msg.Part]int64{}
			}
			s.sizes[part] = at
			return nil
		case err != nil:
			return err
		}
		if err := s.pay(int64(n)); err != nil {
			return err
		}
	}
}

// section returns the content of BODY[…]. It is empty if the message does not have the section.
func (s *source) section(item *imap.FetchItemBodySection) (*io.SectionReader, error) {
	part := findPart(s.root, item.Part)
	if len(item.Part) > 0 && part != nil && (item.Specifier == imap.PartSpecifierHeader || item.Specifier == imap.PartSpecifierText) {
		part = innerMessage(part)
	}
	if part == nil {
		return s.slice(0, 0), nil
	}
	if len(item.HeaderFields)+len(item.HeaderFieldsNot) > 0 {
		size := part.BodyOffset - part.HeaderOffset
		if s.headers++; s.headers > freeHeaders || size > freeHeader {
			if err := s.pay(size); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case len(item.HeaderFields) > 0:
		return fieldsOf(s.blob, part, item.HeaderFields, false)
	case len(item.HeaderFieldsNot) > 0:
		return fieldsOf(s.blob, part, item.HeaderFieldsNot, true)
	case item.Specifier == imap.PartSpecifierHeader || item.Specifier == imap.PartSpecifierMIME:
		return s.slice(part.HeaderOffset, part.BodyOffset), nil
	case item.Specifier == imap.PartSpecifierNone && len(item.Part) == 0:
		return s.slice(0, s.blob.Size()), nil
	}
	return s.slice(part.BodyOffset, part.End), nil
}

func (s *source) slice(from, to int64) *io.SectionReader {
	return io.NewSectionReader(s.blob, from, max(to-from, 0))
}

func fieldsOf(r io.ReaderAt, part *msg.Part, names []string, except bool) (*io.SectionReader, error) {
	fields, err := msg.HeaderFields(r, part, names, except)
	return io.NewSectionReader(bytes.NewReader(fields), 0, int64(len(fields))), err
}

// findPart returns the part with a number such as 2.1 (RFC 9051 section 6.4.5.1), nil if there is
// none. The empty path is the message itself.
func findPart(root *msg.Part, path []int) *msg.Part {
	// If message is set, the next number counts the parts of the message at, else of the part at.
	at, message := root, true
	for _, n := range path {
		if inner := innerMessage(at); !message && inner != nil {
			at, message = inner, true
		}
		switch {
		case at.IsMultipart():
			if n < 1 || n > len(at.Children) {
				return nil
			}
			at = at.Children[n-1]
		case !message || n != 1: // a message of a single part has it as number 1
			return nil
		}
		message = false
	}
	return at
}

// innerMessage returns the message in a message/rfc822 part, nil for other parts.
func innerMessage(part *msg.Part) *msg.Part {
	if part.IsMessage() && len(part.Children) == 1 {
		return part.Children[0]
	}
	return nil
}

// partial limits a range such as <0.1024> to the size of the content.
func partial(p *imap.SectionPartial, size int64) (off, n int64) {
	if p == nil {
		return 0, size
	}
	off = min(p.Offset, size)
	return off, min(p.Size, size-off)
}

// decoded is the content of a part without its transfer encoding, and its size in bytes.
type decoded struct {
	open func() io.Reader
	size int64
}

// binary returns the content of BINARY[…] (RFC 3516).
func (s *source) binary(path []int) (decoded, error) {
	part := findPart(s.root, path)
	switch {
	case part == nil:
		return decoded{open: func() io.Reader { return bytes.NewReader(nil) }}, nil
	case len(path) == 0:
		return decoded{func() io.Reader { return s.slice(0, s.blob.Size()) }, s.blob.Size()}, nil
	}
	open := func() io.Reader { return msg.Open(s.blob, part) }
	switch part.Encoding {
	case "7bit", "8bit", "binary":
		return decoded{open, part.Size()}, nil
	case "base64", "quoted-printable":
		if n, ok := s.sizes[part]; ok {
			return decoded{open, n}, nil
		}
		// The size in the structure is right only for a flawless encoding, and the size of a
		// literal must be exact.
		n, err := io.Copy(io.Discard, open())
		return decoded{open, n}, err
	}
	return decoded{}, wire.No(imap.ResponseCodeUnknownCTE, "The part's transfer encoding is not known")
}

// A content is the content of a section, or its size alone.
type content struct {
	label  string
	r      io.Reader // nil: only the size is shown
	size   int64     // in bytes
	binary bool
}

// withoutNUL replaces each NUL by 0x80: a literal must not contain NUL (RFC 9051 section 4.3.1),
// and only BINARY has a literal8 (RFC 3516 section 4.2). Sizes and offsets do not change.
type withoutNUL struct{ r io.Reader }

func (w withoutNUL) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	for i := 0; i < n; {
		at := bytes.IndexByte(p[i:n], 0)
		if at < 0 {
			break
		}
		i += at
		p[i] = 0x80
	}
	return n, err
}
