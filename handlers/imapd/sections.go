package imapd

import (
	"bytes"
	"io"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/mail/msg"
)

// A messageSource is a message whose sections are read. It has the structure that was parsed on
// arrival, and the bytes.
type messageSource struct {
	root *msg.Part
	blob interface {
		io.ReaderAt
		Size() int64
	}
	// Counts bytes that are read or decoded but not sent. It returns an error at the limit.
	// nil: there is no limit.
	countUnsent func(n int64) error
	headers     int                 // how many headers were read to select fields from them
	sizes       map[*msg.Part]int64 // sizes of decoded parts, in bytes
}

// Clients fetch some header fields of every message in a large folder. So the bytes of the first
// uncountedHeaders headers of a message do not count as unsent, if they have at most
// uncountedHeaderSize bytes.
const (
	uncountedHeaders    = 4
	uncountedHeaderSize = 64 << 10
)

// addUnsent counts n bytes that are read or decoded but not sent. It returns an error if they are
// too many.
func (s *messageSource) addUnsent(n int64) error {
	if s.countUnsent == nil {
		return nil
	}
	return s.countUnsent(n)
}

// A decodedRange is a range of a part's decoded content: n bytes, beginning at the offset from.
type decodedRange struct {
	from, n int64
	content []byte
}

// sectionAnswers returns the answers for all sections; ranges are those of BINARY sections with a
// range. Everything that can fail is done before it returns, so that the command can still be
// refused.
func (s *messageSource) sectionAnswers(items *fetchItems) (ranges, others []sectionAnswer, err error) {
	decoded, err := s.decodeParts(items)
	if err != nil {
		return nil, nil, err
	}
	for i := range items.sections {
		section := &items.sections[i]
		r, err := s.sectionContent(&section.FetchItemBodySection)
		if err != nil {
			return nil, nil, err
		}
		off, n := clampRange(section.Partial, r.Size())
		others = append(others, sectionAnswer{label: section.label, r: nulReplacer{io.NewSectionReader(r, off, n)}, size: n})
	}
	held := int64(0) // bytes of the ranges so far
	for i := range items.binaries {
		section := &items.binaries[i]
		c, err := s.binaryContent(section.Part)
		if err != nil {
			return nil, nil, err
		}
		if section.Partial == nil {
			others = append(others, sectionAnswer{section.label, c.open(), c.size, true})
			continue
		}
		off, n := clampRange(section.Partial, c.size)
		held += n
		if held > maxRangeBytes {
			return nil, nil, errRangesTooLarge
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
		ranges = append(ranges, sectionAnswer{section.label, r, n, true})
	}
	for _, size := range items.binarySizes {
		c, err := s.binaryContent(size.part)
		if err != nil {
			return nil, nil, err
		}
		others = append(others, sectionAnswer{label: size.label, size: c.size})
	}
	return ranges, others, nil
}

// skip returns r without its first n bytes. If it must read them, they count as unsent.
func (s *messageSource) skip(r io.Reader, n int64) (io.Reader, error) {
	if seeker, ok := r.(io.Seeker); ok {
		_, err := seeker.Seek(n, io.SeekStart)
		return r, err
	}
	if err := s.addUnsent(n); err != nil {
		return nil, err
	}
	_, err := io.CopyN(io.Discard, r, n)
	return r, err
}

// maxRangeBytes is the maximum number of bytes of all ranges of BINARY sections in one answer.
const maxRangeBytes = 1 << 20

// errRangesTooLarge is the answer to a FETCH of more than maxRangeBytes bytes of ranges.
var errRangesTooLarge = wire.No(imap.ResponseCodeLimit, "Ask for at most 1 MiB of BINARY ranges at a time")

// decodeParts decodes the encoded parts for which BINARY sections ask for a range or for the size.
// It decodes each part once, however many sections there are. It does not decode parts without an
// encoding, whose ranges are read from the message itself.
func (s *messageSource) decodeParts(items *fetchItems) (map[*binarySection]*decodedRange, error) {
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

// isEncoded reports whether a part has a transfer encoding that must be decoded.
func isEncoded(p *msg.Part) bool { return p.Encoding == "base64" || p.Encoding == "quoted-printable" }

// decodePart decodes a part once. It fills the ranges and stores the decoded size.
func (s *messageSource) decodePart(part *msg.Part, ranges []*decodedRange) error {
	r, buf := msg.Open(s.blob, part), make([]byte, 32<<10)
	kept := 0
	for at := int64(0); ; {
		n, err := r.Read(buf)
		for _, w := range ranges {
			lo, hi := max(w.from-at, 0), min(w.n, maxRangeBytes+1)+w.from-at
			if lo < min(hi, int64(n)) {
				w.content = append(w.content, buf[lo:min(hi, int64(n))]...)
				kept += int(min(hi, int64(n)) - lo)
			}
		}
		at += int64(n)
		switch {
		case kept > maxRangeBytes:
			return errRangesTooLarge
		case err == io.EOF:
			if s.sizes == nil {
				s.sizes = map[*msg.Part]int64{}
			}
			s.sizes[part] = at
			return nil
		case err != nil:
			return err
		}
		if err := s.addUnsent(int64(n)); err != nil {
			return err
		}
	}
}

// sectionContent returns the content of BODY[…]. It is empty if the message does not have the
// section.
func (s *messageSource) sectionContent(item *imap.FetchItemBodySection) (*io.SectionReader, error) {
	part := findPart(s.root, item.Part)
	if len(item.Part) > 0 && part != nil && (item.Specifier == imap.PartSpecifierHeader || item.Specifier == imap.PartSpecifierText) {
		part = innerMessage(part)
	}
	if part == nil {
		return s.bytesBetween(0, 0), nil
	}
	if len(item.HeaderFields)+len(item.HeaderFieldsNot) > 0 {
		size := part.BodyOffset - part.HeaderOffset
		if s.headers++; s.headers > uncountedHeaders || size > uncountedHeaderSize {
			if err := s.addUnsent(size); err != nil {
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
		return s.bytesBetween(part.HeaderOffset, part.BodyOffset), nil
	case item.Specifier == imap.PartSpecifierNone && len(item.Part) == 0:
		return s.bytesBetween(0, s.blob.Size()), nil
	}
	return s.bytesBetween(part.BodyOffset, part.End), nil
}

// bytesBetween returns the bytes of the message between two offsets.
func (s *messageSource) bytesBetween(from, to int64) *io.SectionReader {
	return io.NewSectionReader(s.blob, from, max(to-from, 0))
}

// fieldsOf returns the header fields with the names, or all but those if except is true.
func fieldsOf(r io.ReaderAt, part *msg.Part, names []string, except bool) (*io.SectionReader, error) {
	fields, err := msg.HeaderFields(r, part, names, except)
	return io.NewSectionReader(bytes.NewReader(fields), 0, int64(len(fields))), err
}

// findPart returns the part with a number such as 2.1 (RFC 9051 section 6.4.5.1). It returns nil if
// there is no such part. The empty number is the message itself.
func findPart(root *msg.Part, path []int) *msg.Part {
	// at is the part found so far. message is true if at is a whole message. In a message that is
	// not multipart, number 1 is the message's only part.
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
		case !message || n != 1:
			return nil
		}
		message = false
	}
	return at
}

// innerMessage returns the message in a message/rfc822 part. It returns nil for other parts.
func innerMessage(part *msg.Part) *msg.Part {
	if part.IsMessage() && len(part.Children) == 1 {
		return part.Children[0]
	}
	return nil
}

// clampRange returns offset and length of a range such as <0.1024>, limited to the size of the
// content. If p is nil, it is the whole content.
func clampRange(p *imap.SectionPartial, size int64) (off, n int64) {
	if p == nil {
		return 0, size
	}
	off = min(p.Offset, size)
	return off, min(p.Size, size-off)
}

// A decodedPart is the content of a part without its transfer encoding.
type decodedPart struct {
	open func() io.Reader
	size int64 // in bytes
}

// binaryContent returns the content of BINARY[…] (RFC 3516). The content is empty if the message
// does not have the part.
func (s *messageSource) binaryContent(path []int) (decodedPart, error) {
	part := findPart(s.root, path)
	switch {
	case part == nil:
		return decodedPart{open: func() io.Reader { return bytes.NewReader(nil) }}, nil
	case len(path) == 0:
		return decodedPart{func() io.Reader { return s.bytesBetween(0, s.blob.Size()) }, s.blob.Size()}, nil
	}
	open := func() io.Reader { return msg.Open(s.blob, part) }
	switch part.Encoding {
	case "7bit", "8bit", "binary":
		return decodedPart{open, part.Size()}, nil
	case "base64", "quoted-printable":
		if n, ok := s.sizes[part]; ok {
			return decodedPart{open, n}, nil
		}
		// The size of a literal must be exact. The decoded size that the structure tells is wrong
		// if the encoding has faults.
		n, err := io.Copy(io.Discard, open())
		return decodedPart{open, n}, err
	}
	return decodedPart{}, wire.No(imap.ResponseCodeUnknownCTE, "The part's transfer encoding is not known")
}

// A sectionAnswer is what an answer has for one section: its bytes, or only its size.
type sectionAnswer struct {
	label  string
	r      io.Reader // nil: only the size is sent
	size   int64     // in bytes
	binary bool      // sent as a literal8
}

// nulReplacer replaces each NUL by 0x80. A literal must not contain NUL (RFC 9051 section 4.3.1),
// and only BINARY can send a literal8 (RFC 3516 section 4.2). Sizes and offsets do not change.
type nulReplacer struct{ r io.Reader }

func (w nulReplacer) Read(p []byte) (int, error) {
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
