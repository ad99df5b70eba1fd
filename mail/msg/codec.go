package msg

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/mailstead/mailstead/mail/date"
)

// ErrTree is returned by DecodePart, View.Parts and View.Envelope if the bytes are not a tree that
// AppendBinary wrote.
var ErrTree = errors.New("the stored structure of the message cannot be decoded")

// treeVersion is the first byte of a stored tree.
const treeVersion = 1

// Bits that say which optional fields of a part follow. Type, subtype, offsets and number of lines
// are always stored. The first six bits are for the strings that Part.optionalTexts returns, in
// that order.
const (
	hasID = 1 << iota
	hasDescription
	hasEncoding
	hasDisposition
	hasLocation
	hasMD5
	hasParams
	hasDispositionParams
	hasLanguage
	hasEnvelope
	hasChildren
	hasDecodedSize
)

// optionalTexts returns the strings of a part that may be empty, in the order in which they are
// stored.
func (p *Part) optionalTexts() [6]*string {
	return [6]*string{&p.ID, &p.Description, &p.Encoding, &p.Disposition, &p.Location, &p.MD5}
}

// AppendBinary appends the tree to b in a compact format, which DecodePart reads. The first byte is
// the version of the format, so that stored trees stay readable when the format changes.
func (p *Part) AppendBinary(b []byte) []byte {
	return p.appendTo(append(b, treeVersion), 0, true)
}

// appendTo appends a part, with offsets relative to base, the start of its parent. The envelope is
// written only if isMessage is set. It is not set for a message/rfc822 part that shares the
// envelope of its child, so that the envelope is written once.
func (p *Part) appendTo(b []byte, base int64, isMessage bool) []byte {
	has := p.fieldBits(isMessage)
	b = binary.AppendUvarint(b, has)
	b = appendString(appendString(b, p.Type), p.Subtype)
	for _, n := range [...]int64{p.HeaderOffset - base, p.BodyOffset - p.HeaderOffset, p.Size(), p.Lines} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for i, s := range p.optionalTexts() {
		if has&(1<<i) != 0 {
			b = appendString(b, *s)
		}
	}
	if has&hasParams != 0 {
		b = appendParams(b, p.Params)
	}
	if has&hasDispositionParams != 0 {
		b = appendParams(b, p.DispositionParams)
	}
	if has&hasLanguage != 0 {
		b = appendStrings(b, p.Language)
	}
	if has&hasDecodedSize != 0 {
		b = binary.AppendUvarint(b, uint64(p.DecodedSize))
	}
	if has&hasEnvelope != 0 {
		b = p.Envelope.appendTo(b)
	}
	if has&hasChildren != 0 {
		b = binary.AppendUvarint(b, uint64(len(p.Children)))
		for _, c := range p.Children {
			b = c.appendTo(b, p.HeaderOffset, p.IsMessage())
		}
	}
	return b
}

func (p *Part) fieldBits(isMessage bool) uint64 {
	var has uint64
	for i, s := range p.optionalTexts() {
		if *s != "" {
			has |= 1 << i
		}
	}
	if p.Encoding == defaultEncoding {
		has &^= hasEncoding
	}
	for _, f := range [...]struct {
		bit uint64
		set bool
	}{
		{hasParams, len(p.Params) > 0},
		{hasDispositionParams, len(p.DispositionParams) > 0},
		{hasLanguage, len(p.Language) > 0},
		{hasDecodedSize, p.DecodedSize != p.Size()},
		{hasEnvelope, isMessage && p.Envelope != nil},
		{hasChildren, len(p.Children) > 0},
	} {
		if f.set {
			has |= f.bit
		}
	}
	return has
}

// Bits that say which optional fields of an envelope are set.
const (
	hasDate = 1 << iota
	hasEmptySubject
)

func (e *Envelope) appendTo(b []byte) []byte {
	b = appendString(b, e.DateText)
	has := byte(0)
	if e.EmptySubject {
		has |= hasEmptySubject
	}
	if e.Date.IsZero() {
		b = append(b, has)
	} else {
		_, offset := e.Date.Zone()
		b = binary.AppendVarint(append(b, has|hasDate), e.Date.Unix())
		b = binary.AppendVarint(b, int64(offset))
	}
	b = appendString(b, e.Subject)
	for _, list := range e.addressLists() {
		b = binary.AppendUvarint(b, uint64(len(*list)))
		for _, a := range *list {
			b = appendString(appendString(appendString(b, a.Name), a.Mailbox), a.Host)
		}
	}
	b = appendStrings(b, e.InReplyTo)
	b = appendString(b, e.MessageID)
	return appendStrings(b, e.References)
}

// addressLists returns the address lists of an envelope, in the order in which they are stored.
func (e *Envelope) addressLists() [6]*[]Address {
	return [6]*[]Address{&e.From, &e.Sender, &e.ReplyTo, &e.To, &e.Cc, &e.Bcc}
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

// appendParams appends the parameters sorted by name, so that equal trees are encoded as equal
// bytes.
func appendParams(b []byte, params map[string]string) []byte {
	b = binary.AppendUvarint(b, uint64(len(params)))
	names := slices.AppendSeq(make([]string, 0, 8), maps.Keys(params))
	slices.Sort(names)
	for _, name := range names {
		b = appendString(appendString(b, name), params[name])
	}
	return b
}

// DecodePart decodes a tree that AppendBinary wrote. It returns ErrTree for other bytes, and for
// trees that break the rules in the comment of Part.
func DecodePart(b []byte) (*Part, error) {
	if len(b) == 0 || b[0] != treeVersion {
		return nil, ErrTree
	}
	// All strings of the tree are slices of this one copy.
	d := treeReader{fieldReader: fieldReader[string]{s: string(b[1:])}}
	root := &Part{}
	d.readPart(root, 0, 1, true)
	if d.bad || d.s != "" {
		return nil, ErrTree
	}
	return root, nil
}

// A fieldReader decodes the fields of a stored tree one after another. After an error, bad is set
// and all further fields are zero.
type fieldReader[S string | []byte] struct {
	s   S // the unread rest
	bad bool
}

func (d *fieldReader[S]) fail() { d.s, d.bad = d.s[:0], true }

func (d *fieldReader[S]) readUvarint() uint64 {
	var n uint64
	for i := 0; i < len(d.s) && i < binary.MaxVarintLen64; i++ {
		c := d.s[i]
		n |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			d.s = d.s[i+1:]
			return n
		}
	}
	d.fail()
	return 0
}

func (d *fieldReader[S]) readVarint() int64 {
	n := d.readUvarint()
	return int64(n>>1) ^ -int64(n&1)
}

// readLength reads a length in bytes or an offset within the message.
func (d *fieldReader[S]) readLength() int64 {
	n := d.readUvarint()
	if n > 1<<50 {
		d.fail()
		return 0
	}
	return int64(n)
}

// readCount reads the number of items that follow. It fails if the rest is too short for that many
// items of at least itemSize bytes.
func (d *fieldReader[S]) readCount(itemSize int) int {
	n := d.readUvarint()
	if n > uint64(len(d.s)/itemSize) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *fieldReader[S]) readText() S {
	n := d.readCount(1)
	s := d.s[:n]
	d.s = d.s[n:]
	return s
}

// readDate reads a time in seconds since 1970, and the offset of its zone in seconds east of UTC.
func (d *fieldReader[S]) readDate() (sec int64, offset int) {
	sec, east := d.readVarint(), d.readVarint()
	if east < -24*3600 || east > 24*3600 || sec < -1<<40 || sec > 1<<40 {
		d.fail()
		return 0, 0
	}
	return sec, int(east)
}

// treeReader decodes a stored tree. parts is the number of parts so far.
type treeReader struct {
	fieldReader[string]
	parts int
}

func (d *treeReader) readTexts() []string {
	n := d.readCount(1)
	if n == 0 {
		return nil
	}
	out := make([]string, n)
	for i := range out {
		out[i] = d.readText()
	}
	return out
}

func (d *treeReader) readParams() map[string]string {
	n := d.readCount(2)
	if n == 0 {
		return nil
	}
	out := make(map[string]string, n)
	for range n {
		name := d.readText()
		out[name] = d.readText()
	}
	return out
}

func (d *treeReader) readPart(p *Part, base int64, depth int, isMessage bool) {
	if d.parts++; d.parts > MaxParts || depth > MaxDepth {
		d.fail()
	}
	has := d.readUvarint()
	p.Type, p.Subtype = d.readText(), d.readText()
	p.HeaderOffset = base + d.readLength()
	p.BodyOffset = p.HeaderOffset + d.readLength()
	p.End = p.BodyOffset + d.readLength()
	p.Lines = d.readLength()
	for i, s := range p.optionalTexts() {
		if has&(1<<i) != 0 {
			*s = d.readText()
		}
	}
	if p.Encoding == "" {
		p.Encoding = defaultEncoding
	}
	if has&hasParams != 0 {
		p.Params = d.readParams()
	}
	if has&hasDispositionParams != 0 {
		p.DispositionParams = d.readParams()
	}
	if has&hasLanguage != 0 {
		p.Language = d.readTexts()
	}
	p.DecodedSize = p.Size()
	if has&hasDecodedSize != 0 {
		p.DecodedSize = d.readLength()
	}
	if has&hasEnvelope != 0 {
		p.Envelope = d.readEnvelope()
	}
	if has&hasChildren != 0 {
		d.readChildren(p, depth)
	}
	if (p.Envelope != nil) != isMessage && !p.IsMessage() || !p.hasValidShape() {
		d.fail()
	}
}

func (d *treeReader) readChildren(p *Part, depth int) {
	n := d.readCount(7)
	if n > MaxParts {
		d.fail()
	}
	if n == 0 || d.bad {
		return
	}
	nodes := make([]Part, n)
	p.Children = make([]*Part, n)
	for i := range nodes {
		p.Children[i] = &nodes[i]
		if !d.bad {
			d.readPart(&nodes[i], p.HeaderOffset, depth+1, p.IsMessage())
		}
		if nodes[i].End > p.End {
			d.fail()
		}
	}
	if p.IsMessage() && p.Envelope == nil && n == 1 {
		p.Envelope = nodes[0].Envelope
	}
}

// hasValidShape reports whether the number of children fits the type, as the comment of Part says.
func (p *Part) hasValidShape() bool {
	switch {
	case p.IsMultipart():
		return len(p.Children) > 0
	case p.IsMessage():
		return len(p.Children) == 1 && p.Envelope != nil
	}
	return len(p.Children) == 0
}

func (d *treeReader) readEnvelope() *Envelope {
	e := &Envelope{DateText: d.readText()}
	has := d.readUvarint()
	e.EmptySubject = has&hasEmptySubject != 0
	if has&hasDate != 0 {
		if sec, offset := d.readDate(); !d.bad {
			e.Date = time.Unix(sec, 0).In(date.Location(offset))
		}
	}
	e.Subject = d.readText()
	for _, list := range e.addressLists() {
		n := d.readCount(3)
		if n == 0 {
			continue
		}
		*list = make([]Address, n)
		for i := range *list {
			(*list)[i] = Address{Name: d.readText(), Mailbox: d.readText(), Host: d.readText()}
		}
	}
	e.InReplyTo = d.readTexts()
	e.MessageID = d.readText()
	e.References = d.readTexts()
	return e
}
