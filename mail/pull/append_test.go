package pull_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/mail/pull/pulltest"
)

// TestSentFolder: the server's own mark counts before any name; where there is neither, there is no
// such folder.
func TestSentFolder(t *testing.T) {
	for _, tc := range []struct {
		folders []*pulltest.Folder
		want    string
	}{
		{[]*pulltest.Folder{{Name: "Sent"}, {Name: "Outbox", Attr: `\HasNoChildren \Sent`}}, "Outbox"},
		{[]*pulltest.Folder{{Name: "Sent Items"}, {Name: "INBOX/Sent"}}, "INBOX/Sent"},
		{[]*pulltest.Folder{{Name: "Sent Messages"}, {Name: "Sent", Attr: `\NoSelect`}}, "Sent Messages"},
		{[]*pulltest.Folder{{Name: "Work"}, {Name: "Work/Sent"}}, ""},
		{nil, ""},
	} {
		s := pulltest.Serve(t, nil)
		s.Change(func() { s.Folders = tc.folders })
		session, _ := open(t, s, 0)
		if got, err := session.SentFolder(t.Context()); err != nil || got != tc.want {
			t.Errorf("%q, %v, want %q", got, err, tc.want)
		}
		if session.StoresSentMail() {
			t.Error("it is not Gmail")
		}
	}
	s := pulltest.Serve(t, nil)
	s.Change(func() { s.Caps += " X-GM-EXT-1" })
	if session, _ := open(t, s, 0); !session.StoresSentMail() {
		t.Error("it is Gmail")
	}
}

func TestAppend(t *testing.T) {
	s := pulltest.Serve(t, nil)
	sent := &pulltest.Folder{Name: "Sent", Attr: `\Sent`}
	s.Change(func() { s.Folders = []*pulltest.Folder{sent} })
	session, _ := open(t, s, 0)
	text := "Message-ID: <a@b>\r\nSubject: ü\r\n\r\n" + strings.Repeat("hello\r\n", 100_000)
	if held, err := session.Holds(t.Context(), "Sent", "<a@b>"); held || err != nil {
		t.Fatalf("%v, %v", held, err)
	}
	if err := session.Append(t.Context(), "Sent", true, time.Now(), int64(len(text)), strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	s.Change(func() {
		if len(sent.Messages) != 1 || sent.Messages[0].Text != text || !slices.Equal(sent.Messages[0].Flags, []string{`\Seen`}) {
			t.Errorf("%d messages", len(sent.Messages))
		}
	})
	if held, err := session.Holds(t.Context(), "Sent", "<a@b>"); !held || err != nil {
		t.Errorf("%v, %v", held, err)
	}
}

// TestAppendIsBounded: a server that refuses, or that reads no more, ends the attempt.
func TestAppendIsBounded(t *testing.T) {
	text := smallMessage + strings.Repeat("x", 8<<20)
	for name, tc := range map[string]struct {
		manners func(tag string, c net.Conn, w io.Writer) bool
		want    error
	}{
		"refuses": {func(tag string, _ net.Conn, w io.Writer) bool {
			fmt.Fprintf(w, "%s NO [OVERQUOTA] full\r\n", tag)
			return true
		}, pull.ErrRefused},
		"silent": {func(string, net.Conn, io.Writer) bool { time.Sleep(time.Second); return true }, pull.ErrStalled},
		"reads no more": {func(_ string, c net.Conn, _ io.Writer) bool {
			fmt.Fprint(c, "+ go on\r\n")
			time.Sleep(2 * time.Second)
			return true
		}, pull.ErrStalled},
		"hangs up": {func(_ string, c net.Conn, _ io.Writer) bool { c.Close(); return true }, pull.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			s := pulltest.Serve(t, nil)
			session, _ := open(t, s, 0)
			s.Change(func() {
				s.Manners = func(tag, verb string, c net.Conn, w io.Writer) bool { return verb == "APPEND" && tc.manners(tag, c, w) }
			})
			start := time.Now()
			err := session.Append(t.Context(), "INBOX", false, time.Time{}, int64(len(text)), strings.NewReader(text))
			if !errors.Is(err, tc.want) || time.Since(start) > 1500*time.Millisecond {
				t.Errorf("%v after %s", err, time.Since(start))
			}
		})
	}
}
