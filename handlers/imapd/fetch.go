package imapd

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/inbox"
)

// Fetch answers FETCH (RFC 9051 section 6.4.5): batch by batch is read from the store and then
// written, so that no transaction waits for a slow client.
func (ss *session) Fetch(w *imapserver.FetchWriter, set imap.NumSet, options *imap.FetchOptions) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if err := checkSections(options); err != nil {
		return err
	}
	sel := ss.selected
	options.UID = options.UID || hasBinaryRange(options) // something must follow it in the answer
	f := &fetch{session: ss, w: w, options: options, structure: needsStructure(options), blobs: needsBlob(options)}
	marks := !sel.readOnly && marksSeen(options)
	for uids := sel.view.uidsOf(set, sel.saved); len(uids) > 0; {
		rows, rest, err := ss.server.Service.MessageRows(ss.conn.ctx, ss.user, sel.folder, uids,
			inbox.RowQuery{Structure: f.structure, ChangedSince: ss.extensions.changedSince})
		if err != nil {
			return ss.replyError(err)
		}
		uids = rest
		seen := map[uint32]inbox.MessageRow{}
		if marks {
			if seen, err = ss.markSeen(rows); err != nil {
				return ss.replyError(err)
			}
		}
		if options.Flags || len(seen) > 0 {
			ss.writeNewKeywords(rows)
		}
		for i := range rows {
			if err := f.message(&rows[i], seen); err != nil {
				return ss.replyError(err)
			}
		}
	}
	return nil
}

func needsStructure(o *imap.FetchOptions) bool {
	return o.Envelope || o.BodyStructure != nil || needsBlob(o)
}

func needsBlob(o *imap.FetchOptions) bool {
	return len(o.BodySection)+len(o.BinarySection)+len(o.BinarySectionSize) > 0
}

func hasBinaryRange(o *imap.FetchOptions) bool {
	return slices.ContainsFunc(o.BinarySection, func(s *imap.FetchItemBinarySection) bool { return s.Partial != nil })
}

// marksSeen tells whether any item sets \Seen.
func marksSeen(o *imap.FetchOptions) bool {
	for _, s := range o.BodySection {
		if !s.Peek {
			return true
		}
	}
	for _, s := range o.BinarySection {
		if !s.Peek {
			return true
		}
	}
	return false
}

// markSeen sets \Seen where it is missing, and gives the rows that this has changed.
func (ss *session) markSeen(rows []inbox.MessageRow) (map[uint32]inbox.MessageRow, error) {
	var unseen []uint32
	for _, row := range rows {
		if row.Flags&inbox.FlagSeen == 0 {
			unseen = append(unseen, row.UID)
		}
	}
	if len(unseen) == 0 {
		return nil, nil
	}
	changed, err := ss.server.Service.ChangeFlags(ss.conn.ctx, ss.user, ss.selected.folder, unseen,
		inbox.FlagChange{Op: inbox.AddFlags, Flags: inbox.FlagSeen})
	if err != nil {
		return nil, err
	}
	ss.selected.noteOwnChanges(changed)
	out := make(map[uint32]inbox.MessageRow, len(changed))
	for _, row := range changed {
		out[row.UID] = row
	}
	return out, nil
}

// A fetch is one FETCH command.
type fetch struct {
	session   *session
	w         *imapserver.FetchWriter
	options   *imap.FetchOptions
	structure bool
	blobs     bool
}

// message writes the answer for one message. seen has the rows that the command itself has marked.
func (f *fetch) message(row *inbox.MessageRow, seen map[uint32]inbox.MessageRow) error {
	sel := f.session.selected
	var s source
	if f.structure {
		root, err := msg.DecodePart(row.Structure)
		if err != nil {
			return err
		}
		s.root = root
	}
	if f.blobs {
		blob, err := f.session.server.Service.OpenMessage(f.session.conn.ctx, f.session.user, sel.folder, row.UID)
		if inbox.IsNotFound(err) {
			return nil // deleted while we were reading
		}
		if err != nil {
			return err
		}
		defer blob.Close()
		s.blob = blob
	}
	items, ranges, err := f.items(&s)
	if err != nil {
		return err
	}
	showFlags := f.options.Flags
	if now, ok := seen[row.UID]; ok {
		row, showFlags = &now, true
	}
	first := string(ranges)
	if f.session.extensions.modSeq || showFlags && !f.options.Flags && f.session.condStore {
		first += modSeqItem(row.ModSeq)
	}
	if first != "" {
		f.session.conn.patchFetch(first)
	}
	m := f.w.CreateMessage(sel.view.seq(row.UID))
	defer m.Close() // it holds a lock of go-imap's, whatever comes of the answer
	f.writeAttributes(m, row, &s, showFlags)
	for _, i := range items {
		if err := i.write(m); err != nil {
			f.session.conn.abort(err) // half an answer has gone out
			return err
		}
	}
	return m.Close()
}

func (f *fetch) writeAttributes(m *imapserver.FetchResponseWriter, row *inbox.MessageRow, s *source, flags bool) {
	o := f.options
	if o.UID || flags {
		m.WriteUID(imap.UID(row.UID))
	}
	if flags {
		m.WriteFlags(flagsOf(row))
	}
	if o.InternalDate {
		m.WriteInternalDate(row.Received)
	}
	if o.RFC822Size {
		m.WriteRFC822Size(row.Size)
	}
	if o.Envelope {
		m.WriteEnvelope(envelopeOf(s.root.Envelope))
	}
	if o.BodyStructure != nil {
		m.WriteBodyStructure(structureOf(s.root))
	}
}

// An item is one part of an answer that is read from the message; its size is known before the
// answer begins.
type item interface {
	write(m *imapserver.FetchResponseWriter) error
}

// items finds those of a message before any of its answer is written, so that what cannot be had is
// refused in time. ranges are the ranges of BINARY sections as they stand in the answer.
func (f *fetch) items(s *source) (out []item, ranges []byte, err error) {
	for _, section := range f.options.BodySection {
		r, err := s.section(section)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, bodyItem{section, r})
	}
	for _, section := range f.options.BinarySection {
		c, err := s.binary(section.Part)
		if err != nil {
			return nil, nil, err
		}
		if section.Partial == nil {
			out = append(out, binaryItem{section, c})
		} else if ranges, err = appendRange(ranges, section, c); err != nil {
			return nil, nil, err
		}
	}
	for _, section := range f.options.BinarySectionSize {
		c, err := s.binary(section.Part)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, sizeItem{section, c.size})
	}
	return out, ranges, nil
}

const maxRange = 1 << 20 // bytes of all ranges of BINARY sections in one answer

// appendRange adds a range of a BINARY section with the place where it begins (RFC 3516 section
// 4.2), which go-imap leaves out.
func appendRange(to []byte, section *imap.FetchItemBinarySection, c decoded) ([]byte, error) {
	off, n := partial(section.Partial, c.size)
	if int64(len(to))+n > maxRange {
		return nil, refused(imap.ResponseCodeLimit, "Ask for at most 1 MiB of BINARY ranges at a time")
	}
	var path []string
	for _, number := range section.Part {
		path = append(path, strconv.Itoa(number))
	}
	to = fmt.Appendf(to, "BINARY[%s]<%d> ~{%d}\r\n", strings.Join(path, "."), section.Partial.Offset, n)
	r := c.open()
	if _, err := io.CopyN(io.Discard, r, off); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(r, n))
	if err == nil && int64(len(content)) != n {
		err = io.ErrUnexpectedEOF
	}
	return append(append(to, content...), ' '), err
}

type bodyItem struct {
	section *imap.FetchItemBodySection
	r       *io.SectionReader
}

func (i bodyItem) write(m *imapserver.FetchResponseWriter) error {
	off, n := partial(i.section.Partial, i.r.Size())
	return stream(m.WriteBodySection(i.section, n), withoutNUL{io.NewSectionReader(i.r, off, n)}, n)
}

type binaryItem struct {
	section *imap.FetchItemBinarySection
	content decoded
}

func (i binaryItem) write(m *imapserver.FetchResponseWriter) error {
	n := i.content.size
	return stream(m.WriteBinarySection(i.section, n), i.content.open(), n)
}

type sizeItem struct {
	section *imap.FetchItemBinarySectionSize
	size    int64
}

func (i sizeItem) write(m *imapserver.FetchResponseWriter) error {
	m.WriteBinarySectionSize(i.section, uint32(i.size))
	return nil
}

// stream writes n bytes as the content of a literal.
func stream(w io.WriteCloser, r io.Reader, n int64) error {
	buf := make([]byte, min(n+1, outBuffer))
	if _, err := io.CopyBuffer(onlyWriter{w}, io.LimitReader(r, n), buf); err != nil {
		return err
	}
	return w.Close()
}

// withoutNUL has 0x80 in the place of each NUL: a literal has none (RFC 9051 section 4.3.1), and
// only BINARY has a literal8 (RFC 3516 section 4.2). Sizes and offsets stay true.
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

// onlyWriter keeps io.CopyBuffer to the buffer that it was given.
type onlyWriter struct{ io.Writer }
