package imapd

import (
	"bufio"
	"bytes"
	"fmt"
	"math/bits"
	"mime"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/inbox"
)

// TestAnswersAreThoseOfTheLibrary compares FETCH answers, byte by byte, with what go-imap writes.
func TestAnswersAreThoseOfTheLibrary(t *testing.T) {
	var rows []inbox.MessageRow
	for i, message := range corpus(t) {
		root, err := msg.Scan(bytes.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, inbox.MessageRow{
			UID: uint32(3*i + 1), Flags: inbox.Flags(i % 32), Keywords: [][]string{nil, {"$Forwarded"}, {"a", "Junk"}}[i%3],
			Received: time.Unix(int64(i)*1_234_567, 0).UTC(), Size: int64(len(message)), Structure: root.AppendBinary(nil),
		})
	}
	for i, root := range oddParts() {
		rows = append(rows, inbox.MessageRow{UID: uint32(1000 + i), Received: time.Unix(0, 0).UTC(), Structure: root.AppendBinary(nil)})
	}
	items := [...]struct {
		name string
		set  func(*attributes)
	}{
		{"UID", func(a *attributes) { a.uid = true }},
		{"FLAGS", func(a *attributes) { a.flags = true }},
		{"INTERNALDATE", func(a *attributes) { a.internalDate = true }},
		{"RFC822.SIZE", func(a *attributes) { a.size = true }},
		{"ENVELOPE", func(a *attributes) { a.envelope = true }},
		{"BODY", func(a *attributes) { a.body = true }},
		{"BODYSTRUCTURE", func(a *attributes) { a.bodyStructure = true }},
	}
	var out attributeWriter
	for _, utf8 := range []bool{false, true} {
		c := dialLibrary(t, rows)
		if utf8 {
			c.do("ENABLE UTF8=ACCEPT")
		}
		c.do("SELECT INBOX")
		for set := uint(1); set < 1<<len(items); set++ {
			if n := bits.OnesCount(set); n > 2 && n < len(items) {
				continue // each beside each other one is enough
			}
			var names []string
			shown := attributes{utf8: utf8}
			for i, item := range items {
				if set&(1<<i) != 0 {
					names = append(names, item.name)
					item.set(&shown)
				}
			}
			want := c.do("FETCH 1:* (" + strings.Join(names, " ") + ")")
			out.b = out.b[:0]
			for i := range rows {
				if err := out.writeAnswer(uint32(i+1), &rows[i], shown); err != nil {
					t.Fatal(err)
				}
			}
			// The library has a space between addresses, which no envelope may have.
			out.b, want = bytes.ReplaceAll(out.b, []byte(") ("), []byte(")(")), bytes.ReplaceAll(want, []byte(") ("), []byte(")("))
			if !bytes.Equal(out.b, want) {
				at := 0
				for at < min(len(want), len(out.b)) && want[at] == out.b[at] {
					at++
				}
				t.Fatalf("%v, UTF-8 %v: wrote\n…%.300q\nthe library\n…%.300q", names, utf8, out.b[max(at-40, 0):], want[max(at-40, 0):])
			}
		}
	}
}

// oddParts are structures that the corpus does not have.
func oddParts() (out []*msg.Part) {
	addresses := []msg.Address{{Name: `Q "x" \`, Mailbox: "a b", Host: "example.org"}, {Mailbox: "group"}, {}, {Name: "Zoë", Mailbox: "zoë", Host: "exämple.org"}}
	for i, text := range []string{"", "plain", "tab\there", "line\r\nend", "nul\x00", "quo\"te\\", "Zoë", "bad\xff", "\x7f", strings.Repeat("x", 4096), strings.Repeat("x", 4097)} {
		zone := time.FixedZone("", []int{0, 3600, -5400, -59, 86400, 19800}[i%6])
		e := &msg.Envelope{
			Date: time.Unix(int64(i)*9e8-3e9, 0).In(zone), Subject: text, MessageID: text, InReplyTo: [][]string{{text}, {"<a@b>"}, {"<a@b>", text, "c"}, {">"}, {"<"}}[i%5],
			From: addresses[i%4:], Sender: addresses[:i%3], ReplyTo: addresses[:i%2], To: addresses,
		}
		params := map[string]string{"name": text, text + "k": "v", "zoë": "x", "a": "b"}
		if i%2 == 0 {
			params = map[string]string{"charset": "utf-8"}
		}
		leaf := &msg.Part{Type: "text", Subtype: "plain", Params: params, ID: text, Description: text, Encoding: text, Disposition: text, DispositionParams: params,
			Language: [][]string{nil, {"en"}, {"de", text}}[i%3], Location: text, End: 1<<33 + 5, Lines: 1 << 33, Envelope: e}
		if leaf.Encoding == "" {
			leaf.Encoding = "7bit"
		}
		out = append(out, leaf)
		inner := *leaf
		inner.Envelope = nil
		out = append(out, &msg.Part{Type: "multipart", Subtype: "mixed", Params: params, Encoding: "7bit", End: 1 << 34, Envelope: &msg.Envelope{MessageID: "<>"},
			Children: []*msg.Part{&inner, {Type: "message", Subtype: "rfc822", Encoding: "8bit", End: 1<<33 + 9, Lines: 7, Envelope: e, Children: []*msg.Part{leaf}}}})
	}
	return out
}

// A library is a server of go-imap's alone, which shows rows.
type library struct {
	imapserver.Session
	rows []inbox.MessageRow
}

func (*library) Close() error                              { return nil }
func (*library) Login(string, string) error                { return nil }
func (*library) Poll(*imapserver.UpdateWriter, bool) error { return nil }
func (*library) Select(string, *imap.SelectOptions) (*imap.SelectData, error) {
	return &imap.SelectData{}, nil
}

func (l *library) Fetch(w *imapserver.FetchWriter, _ imap.NumSet, o *imap.FetchOptions) error {
	for i := range l.rows {
		row := &l.rows[i]
		root, err := msg.DecodePart(row.Structure)
		if err != nil {
			return err
		}
		m := w.CreateMessage(uint32(i + 1))
		if o.UID || o.Flags {
			m.WriteUID(imap.UID(row.UID))
		}
		if o.Flags {
			m.WriteFlags(flagsOf(row))
		}
		if o.InternalDate {
			m.WriteInternalDate(row.Received)
		}
		if o.RFC822Size {
			m.WriteRFC822Size(row.Size)
		}
		if o.Envelope {
			m.WriteEnvelope(envelopeOf(root.Envelope))
		}
		if o.BodyStructure != nil {
			m.WriteBodyStructure(structureOf(root))
		}
		if err := m.Close(); err != nil {
			return err
		}
	}
	return nil
}

type libraryClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dialLibrary(t *testing.T, rows []inbox.MessageRow) *libraryClient {
	server := imapserver.New(&imapserver.Options{InsecureAuth: true, NewSession: func(*imapserver.Conn) (imapserver.Session, *imapserver.GreetingData, error) {
		return &library{rows: rows}, nil, nil
	}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &libraryClient{t, conn, bufio.NewReader(conn)}
	c.in.ReadString('\n') // the greeting
	c.do("LOGIN a b")
	return c
}

// do returns the answer to a command, without its last line.
func (c *libraryClient) do(command string) []byte {
	c.t.Helper()
	fmt.Fprintf(c.conn, "tag %s\r\n", command)
	var answer []byte
	for {
		line, err := c.in.ReadBytes('\n')
		if err != nil {
			c.t.Fatal(err)
		}
		if bytes.HasPrefix(line, []byte("tag ")) {
			if !bytes.HasPrefix(line, []byte("tag OK")) {
				c.t.Fatalf("%s: %s", command, line)
			}
			return answer
		}
		answer = append(answer, line...)
	}
}

// envelopeOf writes an envelope in go-imap's form, in which message ids have no brackets.
func envelopeOf(e *msg.Envelope) *imap.Envelope {
	out := &imap.Envelope{
		Date: e.Date, Subject: e.Subject, MessageID: bareID(e.MessageID),
		From: libraryAddresses(e.From), Sender: libraryAddresses(e.Sender), ReplyTo: libraryAddresses(e.ReplyTo),
		To: libraryAddresses(e.To), Cc: libraryAddresses(e.Cc), Bcc: libraryAddresses(e.Bcc),
	}
	for _, id := range e.InReplyTo {
		out.InReplyTo = append(out.InReplyTo, bareID(id))
	}
	return out
}

func bareID(id string) string {
	return strings.TrimSuffix(strings.TrimPrefix(id, "<"), ">")
}

func libraryAddresses(list []msg.Address) []imap.Address {
	if len(list) == 0 {
		return nil
	}
	out := make([]imap.Address, len(list))
	for i, a := range list {
		out[i] = imap.Address{Name: a.Name, Mailbox: a.Mailbox, Host: a.Host}
	}
	return out
}

// structureOf writes a part in go-imap's form, with the extension data that BODYSTRUCTURE has and
// BODY leaves out.
func structureOf(p *msg.Part) imap.BodyStructure {
	if p.IsMultipart() {
		out := &imap.BodyStructureMultiPart{Subtype: p.Subtype, Extended: &imap.BodyStructureMultiPartExt{
			Params: paramsOf(p.Params), Disposition: dispositionOf(p), Language: p.Language, Location: asciiText(p.Location),
		}}
		for _, c := range p.Children {
			out.Children = append(out.Children, structureOf(c))
		}
		return out
	}
	out := &imap.BodyStructureSinglePart{
		Type: p.Type, Subtype: p.Subtype, Params: paramsOf(p.Params), ID: asciiText(p.ID),
		Description: asciiText(p.Description), Encoding: asciiText(p.Encoding), Size: uint32(p.Size()),
		Extended: &imap.BodyStructureSinglePartExt{
			Disposition: dispositionOf(p), Language: p.Language, Location: asciiText(p.Location),
		},
	}
	switch child := innerMessage(p); {
	case child != nil:
		out.MessageRFC822 = &imap.BodyStructureMessageRFC822{
			Envelope: envelopeOf(child.Envelope), BodyStructure: structureOf(child), NumLines: p.Lines,
		}
	case p.Type == "text":
		out.Text = &imap.BodyStructureText{NumLines: p.Lines}
	}
	return out
}

func dispositionOf(p *msg.Part) *imap.BodyStructureDisposition {
	if p.Disposition == "" {
		return nil
	}
	return &imap.BodyStructureDisposition{Value: asciiText(p.Disposition), Params: paramsOf(p.DispositionParams)}
}

// paramsOf writes parameters that are not ASCII as RFC 2231 does, since that is what clients expect
// in a structure.
func paramsOf(params map[string]string) map[string]string {
	plain := true
	for k, v := range params {
		plain = plain && isASCII([]byte(k)) && isASCII([]byte(v))
	}
	if plain {
		return params
	}
	out := make(map[string]string, len(params))
	for k, v := range params {
		if isASCII([]byte(v)) {
			out[asciiText(k)] = v
			continue
		}
		out[asciiText(k)+"*"] = "utf-8''" + string(appendPercentEncoded(nil, []byte(v)))
	}
	return out
}

// asciiText writes a text that is not ASCII as encoded words (RFC 2047).
func asciiText(s string) string {
	if isASCII([]byte(s)) {
		return s
	}
	return mime.QEncoding.Encode("utf-8", s)
}

func flagsOf(row *inbox.MessageRow) []imap.Flag {
	list := slices.Clone(flagLists[row.Flags&31])
	for _, k := range row.Keywords {
		list = append(list, imap.Flag(k))
	}
	return list
}
