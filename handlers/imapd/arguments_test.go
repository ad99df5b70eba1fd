package imapd

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
)

// scripted is a connection on which everything has come at once, and which forgets what is written.
type scripted struct{ *bytes.Reader }

func (scripted) Write(p []byte) (int, error)      { return len(p), nil }
func (scripted) Close() error                     { return nil }
func (scripted) LocalAddr() net.Addr              { return nil }
func (scripted) RemoteAddr() net.Addr             { return nil }
func (scripted) SetDeadline(time.Time) error      { return nil }
func (scripted) SetReadDeadline(time.Time) error  { return nil }
func (scripted) SetWriteDeadline(time.Time) error { return nil }

// parse returns the command of a line, without its line end.
func parse(t testing.TB, line string) *wire.Command {
	t.Helper()
	p, err := wire.New(scripted{bytes.NewReader([]byte(line + "\r\n"))}, time.Time{}, time.Minute).Next()
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return p
}

func parseItems(p *wire.Command) (items fetchItems) {
	p.ReadList(func() { items.parse(p, p.ReadWhile("an item", isItemNameByte)) })
	return items
}

// FuzzArguments gives any text to whatever parses arguments: what is accepted has a form in which
// it is accepted again.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{
		"(MODSEQ BODY[HEADER.FIELDS (\"a\" B)]<1.2>)", "(EMAILID PREVIEW (LAZY) THREADID BINARY.SIZE[1.2])", "BODY.PEEK[1.2.MIME]", "RFC822.HEADER",
		"OR NOT EMAILID a_b-c SAVEDON 1-Jan-2026 SAVEDATESUPPORTED", "(MODSEQ \"x\" all 5 SMALLER 3) UID 1:* $ 3,2", "OR (THREADID b SENTON \"1-Jan-2026\") KEYWORD x",
		"(1 2 3:4,9 (1,3:4 5,7:8))", "(HIGHESTMODSEQ MAILBOXID MESSAGES)", "(\\Seen x) \"17-Jul-1996 02:44:25 -0700\" UTF8 (~{3}", "~{3+}",
	} {
		for kind := range byte(5) {
			f.Add(kind, seed)
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, text string) {
		if strings.ContainsAny(text, "\r\n\x00") {
			return
		}
		p, err := wire.New(scripted{bytes.NewReader([]byte("a b " + text + "\r\n"))}, time.Time{}, time.Minute).Next()
		if err != nil {
			return
		}
		p.Space()
		switch kind % 5 {
		case 0:
			items := parseItems(p)
			if p.End() != nil {
				return
			}
			if n := len(items.sections) + len(items.binaries) + len(items.binarySizes); n > maxSections {
				t.Errorf("%q has %d sections", text, n)
			}
			for _, s := range items.sections {
				label, _, _ := strings.Cut(s.label, "]<")
				label = strings.TrimSuffix(label, "]") + "]"
				again := parse(t, "a b ("+label+")")
				again.Space()
				if items := parseItems(again); again.End() != nil || len(items.sections) != 1 || items.sections[0].label != label {
					t.Errorf("%q is answered as %q, which is read as %+v", text, label, items.sections)
				}
			}
		case 1:
			q := parseQuery(p, &selectedFolder{view: view{1, 3}, saved: []uint32{3}})
			if q.keys > maxSearchKeys+1 {
				t.Errorf("%q has %d keys", text, q.keys)
			}
		case 2:
			if r := parseQResync(p); p.Err() == nil && (r.validity == 0 || r.modSeq == 0 || r.seqs.count() != r.uids.count()) {
				t.Errorf("%q is %+v", text, r)
			}
		case 3:
			parseStatusItems(p)
		case 4:
			if m := parseNewMessage(p); p.Err() == nil && (m.size < 0 || m.size > AppendLimit) {
				t.Errorf("%q has a message of %d bytes", text, m.size)
			}
		}
		_ = p.End()
	})
}
