package imapd

import (
	"bytes"
	"errors"
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

// Fetch answers FETCH (RFC 9051 section 6.4.5). It reads a batch of messages from the store and
// then writes the replies, so that no transaction waits for a slow client.
func (ss *session) Fetch(w *imapserver.FetchWriter, set imap.NumSet, options *imap.FetchOptions) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if err := checkSections(options); err != nil {
		return err
	}
	removeRepeats(options)
	uids := ss.selected.view.uidsOf(set, ss.selected.saved)
	f := &fetch{session: ss, w: w, options: options, shown: ss.attributesOf(options), unsent: ss.server.MaxUnsent}
	if err := ss.taintByFetch(uids, options, &f.shown); err != nil {
		return ss.replyError(err)
	}
	if ss.extensions.vanished {
		if err := ss.writeVanishedOf(set); err != nil {
			return ss.replyError(err)
		}
	}
	var err error
	if needsBlob(options) {
		f.shown.uid = f.shown.uid || hasBinaryRange(options)
		err = f.sections(uids)
	} else {
		err = f.attributes(uids)
	}
	if err == nil && ss.extensions.changedSince == 0 && f.found < len(uids) {
		ss.patchExpungeIssued(set)
	}
	return ss.replyError(err)
}

// attributes answers a FETCH that needs only the rows of messages; it writes each reply within the
// store's transaction, without copying the row.
func (f *fetch) attributes(uids []uint32) error {
	ss := f.session
	q := f.shown.rows(ss.extensions.changedSince)
	var out attributeWriter
	for len(uids) > 0 {
		var failed error
		var keywords [][]string
		rest, err := ss.server.Service.Inbox.EachRow(ss.conn.ctx, ss.user, ss.selected.folder, uids, q, func(row *inbox.MessageRow) bool {
			if failed = out.answer(f.seq(row.UID), row, f.shown); failed != nil {
				return false
			}
			f.found++
			if f.shown.flags && len(row.Keywords) > 0 {
				keywords = append(keywords, row.Keywords)
			}
			return len(out.b) < fetchBuffer
		})
		out.view.Clear()
		if err != nil {
			return err
		}
		ss.writeNewKeywords(slices.Values(keywords))
		if err := ss.conn.writeAnswers(out.b); err != nil || failed != nil {
			return errors.Join(failed, err)
		}
		uids, out.b = rest, out.b[:0]
	}
	return nil
}

// sections answers a FETCH of sections of the messages, together with items from their rows.
func (f *fetch) sections(uids []uint32) error {
	ss := f.session
	var damaged []string // UIDs
	marks := !ss.selected.readOnly && marksSeen(f.options)
	q := f.shown.rows(ss.extensions.changedSince)
	q.Structure = true
	for len(uids) > 0 {
		rows, rest, err := ss.server.Service.Inbox.MessageRows(ss.conn.ctx, ss.user, ss.selected.folder, uids, q)
		if err != nil {
			return ss.replyError(err)
		}
		uids, f.found = rest, f.found+len(rows)
		seen := map[uint32]inbox.MessageRow{}
		if marks {
			seen, err = ss.markSeen(rows)
			if err != nil {
				return ss.replyError(err)
			}
		}
		if f.options.Flags || len(seen) > 0 {
			ss.writeNewKeywords(keywordsOf(rows))
		}
		for i := range rows {
			err := f.message(&rows[i], seen)
			if inbox.IsDamaged(err) { // the other messages are sent
				ss.server.Log.Error("FETCH left out a message that is damaged on the disk", "mailbox", ss.user.Email, "folder", ss.selected.folder, "uid", rows[i].UID, "error", err)
				damaged = append(damaged, strconv.Itoa(int(rows[i].UID)))
				continue
			}
			if err != nil {
				return ss.replyError(err)
			}
		}
	}
	if len(damaged) > 0 {
		return &imap.Error{Type: imap.StatusResponseTypeNo, Code: imap.ResponseCodeCorruption,
			Text: "Messages that are damaged on the server's disk were left out: UID " + strings.Join(damaged[:min(len(damaged), 20)], ", ")}
	}
	return nil
}

func needsBlob(o *imap.FetchOptions) bool {
	return len(o.BodySection)+len(o.BinarySection)+len(o.BinarySectionSize) > 0
}

func hasBinaryRange(o *imap.FetchOptions) bool {
	return slices.ContainsFunc(o.BinarySection, func(s *imap.FetchItemBinarySection) bool { return s.Partial != nil })
}

// marksSeen reports whether an item of the FETCH sets \Seen.
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

// markSeen sets \Seen on the rows without it, and returns the changed rows by UID. It leaves out
// messages that cannot be read, since the client does not get them.
func (ss *session) markSeen(rows []inbox.MessageRow) (map[uint32]inbox.MessageRow, error) {
	var unseen []uint32
	for _, row := range rows {
		if row.Flags&inbox.FlagSeen != 0 {
			continue
		}
		blob, err := ss.server.Service.Inbox.OpenMessage(ss.conn.ctx, ss.user, ss.selected.folder, row.UID)
		if err != nil {
			continue // f.message reports the error
		}
		blob.Close()
		unseen = append(unseen, row.UID)
	}
	if len(unseen) == 0 {
		return nil, nil
	}
	changed, err := ss.server.Service.Inbox.ChangeFlags(ss.conn.ctx, ss.user, ss.selected.folder, unseen,
		inbox.FlagChange{Op: inbox.AddFlags, Flags: inbox.FlagSeen})
	if err != nil {
		return nil, err
	}
	ss.selected.recordOwnChanges(changed)
	out := make(map[uint32]inbox.MessageRow, len(changed))
	for _, row := range changed {
		out[row.UID] = row
	}
	return out, nil
}

// fetchBuffer is the size in bytes of the replies at which a batch ends.
const fetchBuffer = 64 << 10

// A fetch is the state of one FETCH command.
type fetch struct {
	session *session
	w       *imapserver.FetchWriter
	options *imap.FetchOptions
	shown   attributes
	out     attributeWriter
	last    uint32 // the sequence number of the previous message
	found   int    // how many of the messages exist
	unsent  int64  // bytes that may still be read or decoded without being sent
}

// spend counts bytes that are read or decoded and not sent; it returns an error at the limit.
func (f *fetch) spend(n int64) error {
	f.unsent -= n
	if f.unsent < 0 {
		return refusal(imap.ResponseCodeLimit, "This asks for too much decoding; ask for fewer messages or parts")
	}
	return nil
}

// seq returns the sequence number of a message.
func (f *fetch) seq(uid uint32) uint32 {
	f.last = f.session.selected.view.seqAfter(f.last, uid)
	return f.last
}

// message writes the FETCH reply of one message, with the sections of its body that were asked for.
// seen has, by UID, the rows of the messages that this command has marked \Seen.
func (f *fetch) message(row *inbox.MessageRow, seen map[uint32]inbox.MessageRow) error {
	ss := f.session
	root, err := msg.DecodePart(row.Structure)
	if err != nil {
		return err
	}
	blob, err := ss.server.Service.Inbox.OpenMessage(ss.conn.ctx, ss.user, ss.selected.folder, row.UID)
	if inbox.IsNotFound(err) {
		return nil // deleted since its row was read
	}
	if err != nil {
		return err
	}
	defer blob.Close()
	items, ranges, err := f.items(&source{root: root, blob: blob, spend: f.spend})
	if err != nil {
		return err
	}
	shown := f.shown
	if now, ok := seen[row.UID]; ok {
		now.Structure, now.EmailID, now.ThreadID, now.Preview = row.Structure, row.EmailID, row.ThreadID, row.Preview
		row = &now
		shown.modSeq = shown.modSeq || !shown.flags && ss.condStore
		shown.flags = true
	}
	seq := f.seq(row.UID)
	f.out.b = append(f.out.b[:0], ranges...)
	if err := f.out.items(row, shown); err != nil {
		return err
	}
	if len(items) == 0 {
		f.out.end()
		return ss.conn.writeAnswers(fmt.Appendf(nil, "* %d FETCH (%s", seq, f.out.b))
	}
	if len(f.out.b) > 0 {
		ss.conn.patchFetch(string(f.out.b))
	}
	m := f.w.CreateMessage(seq)
	defer m.Close() // it holds a lock of go-imap
	for _, i := range items {
		if err := i.write(m); err != nil {
			ss.conn.abort(err) // a part of the reply was sent
			return err
		}
	}
	return m.Close()
}

// An item is a part of a reply that is read from the message. Its size is known before the reply
// begins.
type item interface {
	write(m *imapserver.FetchResponseWriter) error
}

// items prepares all items of a message before anything of the reply is written, so that the
// command can still be refused. ranges are the ranges of BINARY sections, as text of the reply.
func (f *fetch) items(s *source) (out []item, ranges []byte, err error) {
	if err := s.decode(f.options); err != nil {
		return nil, nil, err
	}
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
			continue
		}
		ranges, err = appendRange(ranges, section, c, s.windows[section])
		if err != nil {
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

const maxRange = 1 << 20 // bytes of all ranges of BINARY sections in one reply

var errRanges = refusal(imap.ResponseCodeLimit, "Ask for at most 1 MiB of BINARY ranges at a time")

// appendRange appends a range of a BINARY section with its origin octet (RFC 3516 section 4.2),
// which go-imap leaves out. found is the range as source.decode has decoded it, nil for a part
// without an encoding.
func appendRange(to []byte, section *imap.FetchItemBinarySection, c decoded, found *decodedRange) ([]byte, error) {
	off, n := partial(section.Partial, c.size)
	if int64(len(to))+n > maxRange {
		return nil, errRanges
	}
	var path []string
	for _, number := range section.Part {
		path = append(path, strconv.Itoa(number))
	}
	to = fmt.Appendf(to, "BINARY[%s]<%d> ~{%d}\r\n", strings.Join(path, "."), section.Partial.Offset, n)
	if found != nil {
		return append(append(to, found.content...), ' '), nil
	}
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

// onlyWriter hides ReadFrom, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }
