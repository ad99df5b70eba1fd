package smtpd

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
)

// silence is a resolver that knows nothing.
type silence struct{ core.Resolver }

var errNoName = &net.DNSError{Err: "no such host", IsNotFound: true}

func (silence) LookupTXT(context.Context, string) ([]string, error)        { return nil, errNoName }
func (silence) LookupMX(context.Context, string) ([]*net.MX, error)        { return nil, errNoName }
func (silence) LookupIPAddr(context.Context, string) ([]net.IPAddr, error) { return nil, errNoName }
func (silence) LookupAddr(context.Context, string) ([]string, error)       { return nil, errNoName }

// script is a connection whose client has said everything already, in pieces of some size.
type script struct {
	said  []byte
	piece int
	heard bytes.Buffer
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.said) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.piece)], s.said)
	s.said = s.said[n:]
	return n, nil
}

func (s *script) Write(p []byte) (int, error)      { return s.heard.Write(p) }
func (s *script) Close() error                     { return nil }
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// stage is a server for scripts, with the mailbox ana@example.test.
type stage struct {
	*servicetest.Sandbox
	server *Server
	log    bytes.Buffer
}

func newStage(f *testing.F) *stage {
	st := &stage{Sandbox: servicetest.New(f, func(c *core.Config) { c.Resolver = silence{} })}
	owner := core.Actor{AccountID: st.Owner.AccountID, Role: "owner", Permissions: []string{"admin"}}
	st.Domain(f, owner.AccountID, "example.test", "builtin", "complete")
	pw := "correct horse"
	if _, err := st.Mailboxes.CreateEmailUser(context.Background(), owner, mailboxes.CreateEmailUserIn{Email: "ana@example.test", Password: &pw}); err != nil {
		f.Fatal(err)
	}
	st.server = New(st.Service)
	st.server.Log = slog.New(slog.NewTextHandler(&st.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return st
}

// play lets a client send its script and returns the replies.
func (st *stage) play(t *testing.T, m Mode, s *script) string {
	r := st.server.newRun(t.Context(), m)
	defer r.cancel()
	w := newProtocolConn(s, &r.limits, r.host, libraryLog{r.log})
	slot := r.limiter.Acquire(s.RemoteAddr(), w.closeNow)
	defer slot.Release()
	w.attachSlot(slot)
	r.serve(w, netip.MustParseAddr("192.0.2.1"))
	r.receiving.Wait()
	if st.log.Len() > 0 {
		t.Fatal(st.log.String())
	}
	return s.heard.String()
}

// stored returns the newest UID of ana's INBOX and how many rows the sending log has.
func (st *stage) stored(t *testing.T) (uid uint32, sent int) {
	return st.NextUID(t, "ana@example.test") - 1, len(st.Sent(t))
}

// FuzzSession lets clients say anything. Nothing panics, every session ends, nobody who is not here
// gets mail, and what is stored was answered with 250.
func FuzzSession(f *testing.F) {
	const full = "EHLO a\r\nMAIL FROM:<b@c.test> SIZE=10\r\nRCPT TO:<ana@example.test>\r\n"
	for _, said := range []string{
		full + "DATA\r\nSubject: x\r\n\r\n..x\r\n.\r\nQUIT\r\n",
		full + "BDAT 5\r\nabcdeBDAT 3 LAST\r\nabcNOOP\r\n",
		full + "BDAT 0\r\nRSET\r\n" + full + "DATA\r\n.\r\n",
		full + "RCPT TO:<nobody@example.test>\r\nRCPT TO:<Postmaster>\r\nDATA\r\n\r\r\n.\r\n",
		"HELO a\r\nAUTH PLAIN\r\nAGEAYg==\r\nAUTH LOGIN\r\n*\r\nSTARTTLS\r\nVRFY x\r\nHELP\r\n",
		"EHLO a\r\nMAIL FROM:<\"a\\\"b\"@c> BODY=8BITMIME SMTPUTF8 RET=FULL ENVID=x+2Bx AUTH=<>\r\nRCPT TO:<@a,@b:x@y> NOTIFY=NEVER ORCPT=rfc822;a+40b\r\n",
		full + "BDAT 99999999999 LAST\r\n" + full, full + "BDAT\r\n", "LHLO x\r\nTURN\r\n\x00\xff\r\n",
	} {
		f.Add([]byte(said), uint8(0), uint8(255))
		f.Add([]byte(said), uint8(1), uint8(3))
	}
	st := newStage(f)
	f.Fuzz(func(t *testing.T, said []byte, mode, piece uint8) {
		if bytes.Contains(bytes.ToUpper(said), []byte("AUTH")) && mode%2 == 1 {
			said = bytes.ReplaceAll(said, []byte("correct horse"), nil) // a log-in costs 40 ms
		}
		before, sentBefore := st.stored(t)
		heard := st.play(t, Mode(mode%2), &script{said: said, piece: int(piece) + 1})
		after, sent := st.stored(t)
		taken := strings.Count(heard, "250 2.0.0 OK: queued as")
		switch {
		case int(after-before) > taken:
			t.Errorf("%d messages stored, %d answered with 250", after-before, taken)
		case after > before && !bytes.Contains(bytes.ToLower(said), []byte("ana")):
			t.Error("a message came to somebody who was not named")
		case sent > sentBefore && !bytes.Contains(bytes.ToLower(said), []byte("postmaster")) && !bytes.Contains(bytes.ToLower(said), []byte("abuse")):
			t.Error("a message is sent on for a stranger")
		}
	})
}

// FuzzData holds that a message ends at the first CRLF.CRLF and nowhere else, and that what is
// stored is what was sent, with its line ends put right.
func FuzzData(f *testing.F) {
	for _, text := range []string{
		"x\r\n", "\n.\n", "\r.\r", "\n.\r\n", "\r\n.\n", "\r\n.\rx", "\r\n.\r\r\n", "\r\r\n.\r\n", "\r\n..\r\n", "..\r\n", ".", ".\r\nQUIT\r\n", "\x00.\r\n", "\r\n\x00.\r\n",
		strings.Repeat("y", inBufferSize-1) + "\r\n.\r\n", strings.Repeat("z", inBufferSize-20) + "\r\n.\r\nRSET\r\n",
	} {
		f.Add([]byte(text), uint16(4096))
		f.Add([]byte(text), uint16(0))
	}
	st := newStage(f)
	f.Fuzz(func(t *testing.T, text []byte, piece uint16) {
		const head = "Subject: fuzz\r\n\r\n"
		sent := "EHLO a\r\nMAIL FROM:<b@c.test>\r\nRCPT TO:<ana@example.test>\r\nDATA\r\n" + head + string(text) + "\r\n.\r\n"
		before, _ := st.stored(t)
		heard := st.play(t, MX, &script{said: []byte(sent), piece: int(piece) + 1})
		after, _ := st.stored(t)
		if after == before {
			if !strings.Contains(heard, "554 5.6.0") {
				t.Fatalf("not taken: %q", heard)
			}
			return
		}
		if got, want := st.Text(t, st.Folder(t, "ana@example.test", "INBOX", before+1)[0]), head+ended("\r\n"+string(text)+"\r\n.\r\n"); !strings.HasSuffix(got, "\r\n"+want) {
			t.Errorf("stored %q, want %q", got, want)
		}
	})
}

// ended is a message as RFC 5321 sections 4.1.1.4 and 4.5.2 read it, with its line ends put right.
func ended(text string) string {
	text, _, _ = strings.Cut(text, "\r\n.\r\n")
	text = strings.ReplaceAll(text, "\r\n.", "\r\n")
	var out bytes.Buffer
	w := msg.NormalizeLines(&out)
	io.WriteString(w, text+"\r\n")
	w.Close()
	return out.String()[2:]
}
