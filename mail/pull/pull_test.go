package pull_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/mail/pull/pulltest"
)

const smallMessage = "From: a@far.test\r\nSubject: hello\r\n\r\nhello\r\n"

// certified gives a configuration with a certificate for 127.0.0.1, and a client that trusts it.
func certified(t testing.TB) (*tls.Config, *pull.Client) {
	t.Helper()
	web := httptest.NewTLSServer(nil) // which brings a certificate
	t.Cleanup(web.Close)
	c := client()
	c.RootCAs = web.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	return &tls.Config{Certificates: web.TLS.Certificates}, c
}

func client() *pull.Client {
	return &pull.Client{Dial: new(net.Dialer).DialContext, Timeouts: pull.Timeouts{
		Connect: time.Second, Command: 300 * time.Millisecond, Bulk: 600 * time.Millisecond, Silence: 200 * time.Millisecond,
	}}
}

func at(s *pulltest.Server, security string) pull.Server {
	return pull.Server{Host: "127.0.0.1", Port: s.Port, Security: security, Username: "ann", Password: "secret"}
}

// open connects to a server with n messages and selects its INBOX.
func open(t *testing.T, s *pulltest.Server, n int) (*pull.Session, pull.FolderState) {
	t.Helper()
	s.Change(func() {
		for range n {
			s.Add(smallMessage)
		}
	})
	session, err := client().Connect(t.Context(), at(s, "none"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	box, err := session.Select(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return session, box
}

func TestTLSIsVerified(t *testing.T) {
	config, trusting := certified(t)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	implicit := pulltest.Serve(t, ln)
	upgraded := pulltest.Serve(t, nil)
	upgraded.Change(func() { upgraded.TLS = config })
	for security, s := range map[string]*pulltest.Server{"tls": implicit, "starttls": upgraded} {
		session, err := trusting.Connect(t.Context(), at(s, security))
		if err != nil {
			t.Fatalf("%s: %v", security, err)
		}
		if _, err := session.Select(t.Context()); err != nil {
			t.Errorf("%s: %v", security, err)
		}
		session.Close()
		if _, err := client().Connect(t.Context(), at(s, security)); !errors.Is(err, pull.ErrTLS) {
			t.Errorf("%s with an unknown authority: %v", security, err)
		}
	}
	for _, answer := range []string{"a1 NO not now\r\n", "a1 OK begin\r\n* OK [CAPABILITY IMAP4rev1 AUTH=PLAIN] injected\r\nT1 OK\r\n"} {
		upgraded.Change(func() {
			upgraded.Manners = func(tag, verb string, _ net.Conn, w io.Writer) bool {
				if verb == "STARTTLS" {
					_, _ = io.WriteString(w, answer)
				}
				return verb == "STARTTLS"
			}
		})
		if _, err := trusting.Connect(t.Context(), at(upgraded, "starttls")); !errors.Is(err, pull.ErrTLS) {
			t.Errorf("STARTTLS answered %q: %v", answer, err)
		}
	}
	if n := upgraded.Count("LOGIN") + implicit.Count("LOGIN"); n != 0 {
		t.Error("a password went out")
	}
}

func TestLogin(t *testing.T) {
	for _, c := range []struct {
		caps, greeting, answer string
		want                   error
		final                  bool
	}{
		{pulltest.Caps, "", "", nil, false},
		{"IMAP4rev1", "", "", nil, false},
		{"IMAP4rev1 LOGINDISABLED", "", "", pull.ErrLogin, true},
		{pulltest.Caps, "", "NO [AUTHENTICATIONFAILED] wrong", pull.ErrLogin, true},
		{pulltest.Caps, "", "NO wrong", pull.ErrLogin, false},
		{pulltest.Caps, "", "NO [UNAVAILABLE] later", pull.ErrRefused, false},
		{pulltest.Caps, "* BYE too many connections", "", pull.ErrRefused, false},
		{pulltest.Caps, "* PREAUTH hello", "", pull.ErrProtocol, false},
		{pulltest.Caps, "HTTP/1.1 400 Bad Request", "", pull.ErrProtocol, false},
	} {
		s := pulltest.Serve(t, nil)
		s.Change(func() { s.Caps, s.Greeting, s.Login = c.caps, c.greeting, c.answer })
		session, err := client().Connect(t.Context(), at(s, "none"))
		if session != nil {
			session.Close()
		}
		var login *pull.LoginError
		if !errors.Is(err, c.want) || errors.As(err, &login) && login.Final != c.final {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestWindowsAndPieces(t *testing.T) {
	s := pulltest.Serve(t, nil)
	long := "Subject: long\r\n\r\n" + strings.Repeat("0123456789abcdef\r\n", 70_000)
	s.Change(func() {
		s.Add(smallMessage, `\Seen`, "$Work")
		s.Add(long)
		s.UIDNext = 100
		s.Add(smallMessage, `\Flagged`, `\Answered`)
	})
	session, box := open(t, s, 0)
	if box != (pull.FolderState{UIDValidity: 7, UIDNext: 101, Messages: 3, ModSeq: box.ModSeq}) || box.ModSeq == 0 {
		t.Errorf("%+v", box)
	}
	rows, whole, err := session.FetchWindow(t.Context(), 1, 3)
	if err != nil || !whole || len(rows) != 3 || rows[2].UID != 100 || !rows[0].Flags.Seen || !slices.Equal(rows[0].Flags.Keywords, []string{"$Work"}) {
		t.Errorf("%+v %t %v", rows, whole, err)
	}
	_, whole, err = session.FetchWindow(t.Context(), 1, 5)
	if err != nil || whole {
		t.Errorf("a window with gaps is whole: %v", err)
	}
	var got []string
	err = session.Fetch(t.Context(), []uint32{1, 2, 50, 100}, func(m pull.Message) error {
		got = append(got, fmt.Sprintf("%d %d %t", m.UID, m.Size, m.More))
		return nil
	})
	if want := []string{"1 43 false", fmt.Sprintf("2 %d true", len(long)), "100 43 false"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v", got, err)
	}
	var text strings.Builder
	if n, err := session.Content(t.Context(), 2, &text); err != nil || int(n) != len(long) || text.String() != long {
		t.Errorf("%d bytes of %d, %v", n, len(long), err)
	}
	text.Reset()
	if _, err := session.Header(t.Context(), 2, &text); err != nil || text.String() != "Subject: long\r\n\r\n" {
		t.Errorf("%q, %v", text.String(), err)
	}
	if n, err := session.Content(t.Context(), 77, io.Discard); n != 0 || err != nil {
		t.Errorf("what is gone: %d, %v", n, err)
	}
	s.Change(func() { s.SetFlags(s.Messages[0]) })
	var changed []uint32
	err = session.FetchChanged(t.Context(), box.ModSeq, 100, 3, func(rows []pull.Row) error {
		for _, r := range rows {
			changed = append(changed, r.UID)
		}
		return nil
	})
	if err != nil || !slices.Equal(changed, []uint32{1}) {
		t.Errorf("changed: %v, %v", changed, err)
	}
}

// TestDeleteTakesNothingElse: what others have marked for deletion stays, and stays marked, with
// and without UIDPLUS.
func TestDeleteTakesNothingElse(t *testing.T) {
	for _, caps := range []string{pulltest.Caps, "IMAP4rev1"} {
		s := pulltest.Serve(t, nil)
		s.Change(func() { s.Caps = caps })
		session, _ := open(t, s, 4)
		s.Change(func() { s.SetFlags(s.Messages[2], `\Deleted`) })
		left, err := session.Delete(t.Context(), []uint32{2, 9})
		if err != nil || len(left) != 0 {
			t.Errorf("%s: left %v, %v", caps, left, err)
		}
		if s.Find(2) != nil || s.Find(1) == nil || s.Find(3) == nil || !slices.Contains(s.Find(3).Flags, `\Deleted`) {
			t.Errorf("%s: %+v", caps, s.Messages)
		}
		yes, no := true, false
		want := pull.FlagChange{Seen: &yes, Flagged: &yes, Answered: &no}
		rows, err := session.ChangeFlags(t.Context(), []uint32{1, 2, 3}, want)
		if err != nil || len(rows) != 2 || !want.IsSatisfiedBy(rows[0].Flags) || !want.IsSatisfiedBy(rows[1].Flags) || rows[0].UID != 1 || rows[1].UID != 3 {
			t.Errorf("%s: mark: %+v %v", caps, rows, err)
		}
		if f := s.Find(1).Flags; !slices.Contains(f, `\Seen`) || !slices.Contains(f, `\Flagged`) || want.IsSatisfiedBy(pull.Flags{Seen: true}) {
			t.Errorf("%s: flags there: %v", caps, f)
		}
		rows, err = session.ChangeFlags(t.Context(), []uint32{1}, pull.FlagChange{Flagged: &no})
		if err != nil || len(rows) != 1 || rows[0].Flags.Flagged || !rows[0].Flags.Seen {
			t.Errorf("%s: mark: %+v %v", caps, rows, err)
		}
		if rows, err := session.ChangeFlags(t.Context(), []uint32{2}, want); len(rows) != 0 || err != nil {
			t.Errorf("%s: mark what is gone: %+v %v", caps, rows, err)
		}
	}
}

func TestIdle(t *testing.T) {
	s := pulltest.Serve(t, nil)
	session, _ := open(t, s, 1)
	time.AfterFunc(50*time.Millisecond, func() { s.Change(func() { s.Add(smallMessage) }) })
	start := time.Now()
	if err := session.Idle(t.Context(), 10*time.Second); err != nil || time.Since(start) > 5*time.Second {
		t.Errorf("%s, %v", time.Since(start), err)
	}
	if box, err := session.Select(t.Context()); err != nil || box.Messages != 2 {
		t.Errorf("%+v, %v", box, err)
	}
	if err := session.Idle(t.Context(), 30*time.Millisecond); err != nil {
		t.Errorf("without news: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := session.Idle(ctx, 10*time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestBadManners: whatever the server does instead of answering, the call ends soon, with little
// memory.
func TestBadManners(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(tag string, c net.Conn, w io.Writer)
		want error
	}{
		"stall":           {func(string, net.Conn, io.Writer) {}, pull.ErrStalled},
		"trickle":         {trickle, pull.ErrStalled},
		"bye":             {func(_ string, c net.Conn, _ io.Writer) { _, _ = io.WriteString(c, "* BYE\r\n"); c.Close() }, pull.ErrClosed},
		"garbage":         {say("\x00\xff (((\r\n"), pull.ErrProtocol},
		"line":            {endless("* OK ", "x"), pull.ErrTooMuch},
		"lines":           {endless("", "* OK hello\r\n"), pull.ErrTooMuch},
		"literal":         {say("* 1 FETCH (UID 1 FLAGS () BODY[]<0> {99999999999}\r\n"), pull.ErrTooMuch},
		"atom as literal": {endless("* LIST () \"/\" {200000}\r\n", "y"), pull.ErrProtocol},
		"nesting":         {endless("* 1 FETCH (BODYSTRUCTURE ", "("), pull.ErrTooMuch},
		"falling UIDs":    {say("* 1 FETCH (UID 9 FLAGS ())\r\n* 2 FETCH (UID 8 FLAGS ())\r\nTAG OK\r\n"), pull.ErrProtocol},
		"another tag":     {say("T99 OK\r\n"), pull.ErrProtocol},
		"no":              {say("TAG NO [SERVERBUG] sorry\r\n"), pull.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := pulltest.Serve(t, nil)
			session, _ := open(t, s, 3)
			s.Change(func() {
				s.Manners = func(tag, _ string, conn net.Conn, w io.Writer) bool { c.do(tag, conn, w); return true }
			})
			start := time.Now()
			_, _, err := session.FetchWindow(t.Context(), 1, 3)
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			runtime.GC()
			var m runtime.MemStats
			if runtime.ReadMemStats(&m); m.HeapAlloc > 64<<20 {
				t.Errorf("%d bytes are in use", m.HeapAlloc)
			}
		})
	}
}

func say(text string) func(string, net.Conn, io.Writer) {
	return func(tag string, _ net.Conn, w io.Writer) {
		_, _ = io.WriteString(w, strings.ReplaceAll(text, "TAG", tag))
	}
}

func trickle(_ string, c net.Conn, _ io.Writer) {
	for {
		if _, err := io.WriteString(c, "* OK x\r\n"); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func endless(first, more string) func(string, net.Conn, io.Writer) {
	return func(_ string, c net.Conn, _ io.Writer) {
		_, err := io.WriteString(c, first)
		for block := strings.Repeat(more, 1000); err == nil; {
			_, err = io.WriteString(c, block)
		}
	}
}

// TestSearchWithoutEnd: a set of four billion UIDs is not written out.
func TestSearchWithoutEnd(t *testing.T) {
	s := pulltest.Serve(t, nil)
	s.Change(func() { s.Caps = "IMAP4rev1" })
	session, _ := open(t, s, 1)
	s.Change(func() {
		s.Manners = func(tag, verb string, _ net.Conn, w io.Writer) bool {
			if verb == "UID SEARCH" {
				fmt.Fprintf(w, "* ESEARCH (TAG %q) UID ALL 1:4294967295\r\n%[1]s OK\r\n", tag)
			}
			return verb == "UID SEARCH"
		}
	})
	if _, err := session.Delete(t.Context(), []uint32{1}); !errors.Is(err, pull.ErrRefused) {
		t.Error(err)
	}
}

// FuzzAnswers: whatever comes instead of answers, every call ends and nothing panics.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte("* OK [CAPABILITY IMAP4rev1] hi\r\nT1 OK\r\n* 1 EXISTS\r\n* OK [UIDVALIDITY 1]\r\nT2 OK\r\n* 1 FETCH (UID 1 FLAGS (\\Seen))\r\nT3 OK\r\n"))
	f.Add([]byte("* OK [CAPABILITY IMAP4rev1] hi\r\nT1 OK\r\nT2 OK\r\n* OK [UIDVALIDITY 1]\r\nT3 OK\r\n* 1 FETCH (UID 1 BODY[]<0> {3}\r\nabc)\r\nT4 OK\r\n"))
	f.Fuzz(func(t *testing.T, answers []byte) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		go func() {
			_, _ = theirs.Write(answers)
			theirs.Close()
		}()
		c := &pull.Client{Dial: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		session, err := c.Connect(ctx, pull.Server{Host: "h", Port: 1, Security: "none", Username: "u", Password: "p"})
		if err != nil {
			return
		}
		defer session.Close()
		if _, err := session.Select(ctx); err != nil {
			return
		}
		_, _, _ = session.FetchWindow(ctx, 1, 3)
		_ = session.Fetch(ctx, []uint32{1, 2}, func(pull.Message) error { return nil })
		if ctx.Err() != nil {
			t.Error("it did not end")
		}
	})
}
