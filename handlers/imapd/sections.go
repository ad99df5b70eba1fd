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
	maxSections   = 100 // of one FETCH
	maxFieldNames = 200 // in one HEADER.FIELDS
)

// A source is a message that sections are taken from: its structure, which was found when it came,
// and its bytes.
type source struct {
	root *msg.Part
	blob interface {
		io.ReaderAt
		Size() int64
	}
	spend   func(n int64) error // counts what is read or decoded and not sent; nil: nothing does
	headers int                 // that were read for some of their fields
	sizes   map[*msg.Part]int64 // of parts that were decoded
	windows map[*imap.FetchItemBinarySection]*window
}

// What clients ask of each message of a large folder is not counted: some fields of a header of
// usual size.
const (
	freeHeaders = 4
	freeHeader  = 64 << 10
)

// pay counts bytes that are read or decoded and not sent.
func (s *source) pay(n int64) error {
	if s.spend == nil {
		return nil
	}
	return s.spend(n)
}

// A window is a range of a part's decoded content.
type window struct {
	from, n int64
	content []byte
}

// decode decodes each part once, from which BINARY sections ask for ranges or for the size, however
// many of them there are.
func (s *source) decode(o *imap.FetchOptions) error {
	parts := map[*msg.Part][]*window{}
	var order []*msg.Part
	note := func(path []int, of *window) {
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
			of := &window{from: section.Partial.Offset, n: section.Partial.Size}
			if s.windows == nil {
				s.windows = map[*imap.FetchItemBinarySection]*window{}
			}
			s.windows[section] = of
			note(section.Part, of)
		}
	}
	for _, section := range o.BinarySectionSize {
		note(section.Part, &window{})
	}
	for _, part := range order {
		if err := s.decodePart(part, parts[part]); err != nil {
			return err
		}
	}
	for section := range s.windows {
		if part := findPart(s.root, section.Part); part == nil || parts[part] == nil {
			delete(s.windows, section) // it is read where it lies
		}
	}
	return nil
}

// isEncoded reports whether a part must be decoded to know what it has.
func isEncoded(p *msg.Part) bool { return p.Encoding == "base64" || p.Encoding == "quoted-printable" }

func (s *source) decodePart(part *msg.Part, windows []*window) error {
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

// withoutRepeats leaves one of each section that is asked for more than once.
func withoutRepeats(o *imap.FetchOptions) {
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

// checkSections refuses what go-imap's parser lets through.
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

// errNoPart answers a part number of 0 (RFC 9051 section 9: nz-number).
var errNoPart = badCommand("Part numbers begin at 1")

// section finds what BODY[…] asks for. A section that the message does not have is empty.
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

// findPart walks down to the part of a number such as 2.1 (RFC 9051 section 6.4.5.1); no number is
// the message itself. nil says that there is no such part.
func findPart(root *msg.Part, path []int) *msg.Part {
	at, message := root, true // message: a number counts the parts of the message at; else of the part at
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
		case !message || n != 1: // a message of one part has that as number 1
			return nil
		}
		message = false
	}
	return at
}

// innerMessage is the message in a message/rfc822 part, nil for other parts.
func innerMessage(part *msg.Part) *msg.Part {
	if part.IsMessage() && len(part.Children) == 1 {
		return part.Children[0]
	}
	return nil
}

// partial cuts a range such as <0.1024> to what is there.
func partial(p *imap.SectionPartial, size int64) (off, n int64) {
	if p == nil {
		return 0, size
	}
	off = min(p.Offset, size)
	return off, min(p.Size, size-off)
}

// decoded is the content of a part without its transfer encoding, and how long that is.
type decoded struct {
	open func() io.Reader
	size int64
}

// binary finds what BINARY[…] asks for (RFC 3516).
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
		// The size that the structure has is exact only where the encoding is flawless, and a
		// literal must be exact.
		n, err := io.Copy(io.Discard, open())
		return decoded{open, n}, err
	}
	return decoded{}, refused(imap.ResponseCodeUnknownCTE, "The part's transfer encoding is not known")
}
