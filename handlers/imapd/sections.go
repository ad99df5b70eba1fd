package imapd

import (
	"bytes"
	"io"
	"reflect"
	"slices"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/mail/msg"
)

const (
	maxSections   = 100 // in one FETCH
	maxFieldNames = 200 // in one HEADER.FIELDS
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
	windows map[*imap.FetchItemBinarySection]*decodedRange
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

// decode decodes each encoded part of which BINARY sections request ranges or the size. It decodes
// each part only once, however many sections there are.
func (s *source) decode(o *imap.FetchOptions) error {
	parts := map[*msg.Part][]*decodedRange{}
	var order []*msg.Part
	note := func(path []int, of *decodedRange) {
		part := findPart(s.root, path)
		if part == nil || len(path) == 0 || !isEncoded(part) {
			return
		}
		if _, ok := parts[part]; !ok {
			order = append(order, part)
		}
		parts[part] = append(parts[part], of)
	}
	for _, section := range o.BinarySection {
		if section.Partial != nil {
			of := &decodedRange{from: section.Partial.Offset, n: section.Partial.Size}
			if s.windows == nil {
				s.windows = map[*imap.FetchItemBinarySection]*decodedRange{}
			}
			s.windows[section] = of
			note(section.Part, of)
		}
	}
	for _, section := range o.BinarySectionSize {
		note(section.Part, &decodedRange{})
	}
	for _, part := range order {
		if err := s.decodePart(part, parts[part]); err != nil {
			return err
		}
	}
	for section := range s.windows {
		if part := findPart(s.root, section.Part); part == nil || parts[part] == nil {
			delete(s.windows, section) // the range is read from the message itself
		}
	}
	return nil
}

// isEncoded reports whether a part must be decoded before its content is known.
func isEncoded(p *msg.Part) bool { return p.Encoding == "base64" || p.Encoding == "quoted-printable" }

func (s *source) decodePart(part *msg.Part, windows []*decodedRange) error {
	r, buf := msg.Open(s.blob, part), make([]byte, outBuffer)
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

// removeRepeats removes repeated sections from the options.
func removeRepeats(o *imap.FetchOptions) {
	o.BodySection = distinct(o.BodySection)
	o.BinarySection = distinct(o.BinarySection)
	o.BinarySectionSize = distinct(o.BinarySectionSize)
}

func distinct[T any](list []*T) []*T {
	if len(list) < 2 {
		return list
	}
	var out []*T
	for _, item := range list {
		if !slices.ContainsFunc(out, func(other *T) bool { return reflect.DeepEqual(item, other) }) {
			out = append(out, item)
		}
	}
	return out
}

// checkSections refuses invalid requests that go-imap's parser accepts.
func checkSections(o *imap.FetchOptions) error {
	if len(o.BodySection)+len(o.BinarySection)+len(o.BinarySectionSize) > maxSections {
		return badCommand("At most %d sections are fetched at a time", maxSections)
	}
	for _, s := range o.BodySection {
		if s.Specifier == imap.PartSpecifierMIME && len(s.Part) == 0 {
			return badCommand("MIME needs a part number")
		}
		if len(s.HeaderFields)+len(s.HeaderFieldsNot) > maxFieldNames {
			return badCommand("At most %d header fields are named", maxFieldNames)
		}
		if slices.Contains(s.Part, 0) {
			return errNoPart
		}
	}
	for _, s := range o.BinarySection {
		if slices.Contains(s.Part, 0) {
			return errNoPart
		}
	}
	for _, s := range o.BinarySectionSize {
		if slices.Contains(s.Part, 0) {
			return errNoPart
		}
	}
	return nil
}

// errNoPart is the reply to part number 0 (RFC 9051 section 9: nz-number).
var errNoPart = badCommand("Part numbers begin at 1")

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
	return decoded{}, refusal(imap.ResponseCodeUnknownCTE, "The part's transfer encoding is not known")
}
