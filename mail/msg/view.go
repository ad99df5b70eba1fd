package msg

// A View decodes a stored tree without copying: its texts are slices of the encoded bytes, so they
// are valid only as long as these. A View can be used again, and then allocates almost nothing.
type View struct {
	in        fieldReader[[]byte]
	parts     []PartView
	params    []ParamView
	addresses []AddressView
	texts     [][]byte
	envelopes []EnvelopeView
	encoding  []byte // default encoding, for parts without one
}

// A PartView is a Part that a View has decoded. In the list of parts it is followed by its
// children, each followed by its own children.
type PartView struct {
	Type, Subtype                 []byte
	ID, Description, Encoding     []byte
	Disposition, Location, MD5    []byte
	Params, DispositionParams     []ParamView // sorted by name
	Language                      [][]byte
	HeaderOffset, BodyOffset, End int64
	Lines, DecodedSize            int64
	Envelope                      *EnvelopeView
	Children                      int
}

// Size returns the length of the body in bytes, still encoded.
func (p *PartView) Size() int64 { return p.End - p.BodyOffset }

// IsMultipart is like Part.IsMultipart.
func (p *PartView) IsMultipart() bool { return string(p.Type) == "multipart" }

// IsMessage is like Part.IsMessage.
func (p *PartView) IsMessage() bool {
	return string(p.Type) == "message" && (string(p.Subtype) == "rfc822" || string(p.Subtype) == "global")
}

// A ParamView is one parameter of a part.
type ParamView struct{ Name, Value []byte }

// An EnvelopeView is an Envelope that a View has decoded.
type EnvelopeView struct {
	Date struct { // the Date field; Known is false if it is missing or unreadable
		Known  bool
		Unix   int64 // seconds since 1970
		Offset int   // offset of the zone, in seconds east of UTC
	}
	DateText, Subject, MessageID       []byte
	EmptySubject                       bool
	From, Sender, ReplyTo, To, Cc, Bcc []AddressView
	InReplyTo, References              [][]byte
}

// An AddressView is an Address that a View has decoded.
type AddressView struct{ Name, Mailbox, Host []byte }

// IsGroupMarker is like Address.IsGroupMarker.
func (a *AddressView) IsGroupMarker() bool { return len(a.Host) == 0 }

// AppendEmail appends the address to b in the form of Address.Email.
func (a *AddressView) AppendEmail(b []byte) []byte {
	switch {
	case len(a.Host) == 0 || len(a.Mailbox) == 0:
		return b
	case string(a.Host) == MissingHost:
		return append(b, a.Mailbox...)
	case !isDotAtom(a.Mailbox):
		return append(b, Address{Mailbox: string(a.Mailbox), Host: string(a.Host)}.Email()...)
	}
	return append(append(append(b, a.Mailbox...), '@'), a.Host...)
}

// AppendText appends the name and address to b in the form of Address.String.
func (a *AddressView) AppendText(b []byte) []byte {
	switch {
	case len(a.Name) == 0:
		return a.AppendEmail(b)
	case len(a.Host) == 0 || len(a.Mailbox) == 0:
		return append(b, a.Name...)
	case !isPlainPhrase(a.Name):
		b = append(b, quoteString(string(a.Name))...)
	default:
		b = append(b, a.Name...)
	}
	return append(a.AppendEmail(append(b, " <"...)), '>')
}

// AppendAttachments appends the attachments of a message to list, like Attachments, but with Part
// nil. parts is the result of View.Parts. The texts of an Attachment are copies.
func AppendAttachments(list []Attachment, parts []PartView) []Attachment {
	before := len(list)
	walkContentViews(parts, nil, nil, false, func(p, parent *PartView, child []PartView, in *branchView) {
		kind, of := p.kindsOf(parent)
		if !isAttachment(kind, of) || isReadable(kind) && in.bodyWithFilename() == p {
			return
		}
		subject := ""
		if p.IsMessage() {
			subject = string(child[0].Envelope.Subject)
		}
		mediaType := string(p.Type) + "/" + string(p.Subtype)
		list = append(list, newAttachment(len(list)-before, string(kind.Filename), subject, mediaType, string(p.ID), p.DecodedSize))
	})
	return list
}

func (p *PartView) kindsOf(parent *PartView) (partKind[[]byte], *partKind[[]byte]) {
	if parent == nil {
		return p.kind(), nil
	}
	of := parent.kind()
	return p.kind(), &of
}

func (p *PartView) kind() partKind[[]byte] {
	name := paramOf(p.DispositionParams, "filename")
	if len(name) == 0 {
		name = paramOf(p.Params, "name")
	}
	return partKind[[]byte]{p.Type, p.Subtype, p.Disposition, name}
}

// paramOf returns the last parameter with the name, as DecodePart would.
func paramOf(list []ParamView, name string) (value []byte) {
	for i := range list {
		if string(list[i].Name) == name {
			value = list[i].Value
		}
	}
	return value
}

// walkContentViews does what walkContent does, for parts[0] and its children, which follow it in
// parts. It returns the parts after them. If inside is set, parts[0] is within an attached message
// and is not visited.
func walkContentViews(parts []PartView, parent *PartView, in *branchView, inside bool, visit func(p, parent *PartView, children []PartView, in *branchView)) []PartView {
	p, rest := &parts[0], parts[1:]
	multi := p.IsMultipart()
	if multi && !inside && (parent == nil || string(parent.Subtype) == "alternative") {
		in = &branchView{parts: parts}
	}
	if !multi {
		if !inside {
			visit(p, parent, rest, in)
		}
		inside = true
	}
	for range p.Children {
		rest = walkContentViews(rest, p, in, inside, visit)
	}
	return rest
}

// A branchView is a branch in the form of a View. parts[0] is its top.
type branchView struct {
	parts        []PartView
	searched     bool
	withFilename *PartView
}

// bodyWithFilename is like branch.bodyWithFilename.
func (b *branchView) bodyWithFilename() *PartView {
	switch {
	case b == nil:
		return nil
	case b.searched:
		return b.withFilename
	}
	b.searched = true
	var search filenameSearch[*PartView]
	walkContentViews(b.parts, &PartView{}, nil, false, func(p, parent *PartView, _ []PartView, _ *branchView) {
		kind, of := p.kindsOf(parent)
		examinePart(&search, p, kind, of)
	})
	b.withFilename = search.result()
	return b.withFilename
}

// Clear removes all references to the decoded bytes, so that these may be changed or freed.
func (v *View) Clear() {
	v.in.s = nil
	clear(v.parts[:cap(v.parts)])
	clear(v.params[:cap(v.params)])
	clear(v.addresses[:cap(v.addresses)])
	clear(v.texts[:cap(v.texts)])
	clear(v.envelopes[:cap(v.envelopes)])
}

// start prepares the view to decode the tree in b.
func (v *View) start(b []byte) error {
	if len(b) == 0 || b[0] != treeVersion {
		return ErrTree
	}
	v.in = fieldReader[[]byte]{s: b[1:]}
	v.encoding = append(v.encoding[:0], defaultEncoding...)
	v.parts, v.params, v.addresses, v.texts, v.envelopes = v.parts[:0], v.params[:0], v.addresses[:0], v.texts[:0], v.envelopes[:0]
	return nil
}

// Envelope decodes only the envelope of the message. It does not notice errors in the bytes after
// the envelope.
func (v *View) Envelope(b []byte) (*EnvelopeView, error) {
	if err := v.start(b); err != nil {
		return nil, err
	}
	v.parts = append(v.parts, PartView{})
	p := &v.parts[0]
	v.readPart(p, 0)
	switch {
	case v.in.bad:
		return nil, ErrTree
	case p.Envelope != nil:
		return p.Envelope, nil
	}
	parts, err := v.Parts(b) // the message shares the envelope of its child
	if err != nil {
		return nil, err
	}
	return parts[0].Envelope, nil
}

// Parts decodes the whole tree. The list begins with the root, and each part precedes its children.
func (v *View) Parts(b []byte) ([]PartView, error) {
	if err := v.start(b); err != nil {
		return nil, err
	}
	v.readTree(0, 1, true)
	if v.in.bad || len(v.in.s) > 0 {
		return nil, ErrTree
	}
	return v.parts, nil
}

// readTree decodes a part and its children. It makes the same checks as DecodePart.
func (v *View) readTree(base int64, depth int, isMessage bool) {
	if len(v.parts) == MaxParts || depth > MaxDepth {
		v.in.fail()
	}
	at := len(v.parts)
	v.parts = append(v.parts, PartView{})
	p := &v.parts[at] // valid until a child is appended
	v.readPart(p, base)
	children, end, headerOffset := p.Children, p.End, p.HeaderOffset
	isMultipart, holdsMessage := p.IsMultipart(), p.IsMessage()
	for range children {
		child := len(v.parts)
		v.readTree(headerOffset, depth+1, holdsMessage)
		if v.parts[child].End > end {
			v.in.fail()
		}
		if v.in.bad {
			return
		}
	}
	p = &v.parts[at]
	if holdsMessage && p.Envelope == nil && children == 1 {
		p.Envelope = v.parts[at+1].Envelope
	}
	switch {
	case isMultipart && children == 0,
		holdsMessage && (children != 1 || p.Envelope == nil),
		!isMultipart && !holdsMessage && children > 0,
		!holdsMessage && (p.Envelope != nil) != isMessage:
		v.in.fail()
	}
}

// readPart decodes a part without its children.
func (v *View) readPart(p *PartView, base int64) {
	d := &v.in
	has := d.readUvarint()
	p.Type, p.Subtype = d.readText(), d.readText()
	p.HeaderOffset = base + d.readLength()
	p.BodyOffset = p.HeaderOffset + d.readLength()
	p.End = p.BodyOffset + d.readLength()
	p.Lines = d.readLength()
	for i, s := range [...]*[]byte{&p.ID, &p.Description, &p.Encoding, &p.Disposition, &p.Location, &p.MD5} {
		if has&(1<<i) != 0 {
			*s = d.readText()
		}
	}
	if len(p.Encoding) == 0 {
		p.Encoding = v.encoding
	}
	if has&hasParams != 0 {
		p.Params = v.readParams()
	}
	if has&hasDispositionParams != 0 {
		p.DispositionParams = v.readParams()
	}
	if has&hasLanguage != 0 {
		p.Language = v.readTexts()
	}
	p.DecodedSize = p.Size()
	if has&hasDecodedSize != 0 {
		p.DecodedSize = d.readLength()
	}
	if has&hasEnvelope != 0 {
		p.Envelope = v.readEnvelope()
	}
	if has&hasChildren != 0 {
		p.Children = d.readCount(7)
		if p.Children > MaxParts {
			d.fail()
		}
	}
}

func (v *View) readParams() []ParamView {
	from := len(v.params)
	for range v.in.readCount(2) {
		v.params = append(v.params, ParamView{v.in.readText(), v.in.readText()})
	}
	return v.params[from:]
}

func (v *View) readTexts() [][]byte {
	from := len(v.texts)
	for range v.in.readCount(1) {
		v.texts = append(v.texts, v.in.readText())
	}
	return v.texts[from:]
}

func (v *View) readAddresses() []AddressView {
	from := len(v.addresses)
	for range v.in.readCount(3) {
		v.addresses = append(v.addresses, AddressView{v.in.readText(), v.in.readText(), v.in.readText()})
	}
	return v.addresses[from:]
}

func (v *View) readEnvelope() *EnvelopeView {
	v.envelopes = append(v.envelopes, EnvelopeView{})
	e := &v.envelopes[len(v.envelopes)-1]
	e.DateText = v.in.readText()
	has := v.in.readUvarint()
	e.EmptySubject = has&hasEmptySubject != 0
	if has&hasDate != 0 {
		e.Date.Known = true
		e.Date.Unix, e.Date.Offset = v.in.readDate()
	}
	e.Subject = v.in.readText()
	for _, list := range [...]*[]AddressView{&e.From, &e.Sender, &e.ReplyTo, &e.To, &e.Cc, &e.Bcc} {
		*list = v.readAddresses()
	}
	e.InReplyTo = v.readTexts()
	e.MessageID = v.in.readText()
	e.References = v.readTexts()
	return e
}
