package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-imap/v2"
)

func TestIdleClientsAreSentAway(t *testing.T) {
	for name, tc := range map[string]struct {
		loggedIn bool
		after    time.Duration
	}{
		"before log-in": {false, time.Minute},
		"after log-in":  {true, 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, served := net.Pipe()
				c := New(served, time.Now().Add(time.Minute), 30*time.Minute)
				defer c.Close()
				if tc.loggedIn {
					c.LoggedIn()
				}
				reply := make(chan string)
				go func() {
					text, _ := bufio.NewReader(client).ReadString('\n')
					reply <- text
				}()
				begin := time.Now()
				go c.Next()
				if got := <-reply; got != "* BYE Idle for too long\r\n" || time.Since(begin) != tc.after {
					t.Errorf("after %v: %q", time.Since(begin), got)
				}
			})
		})
	}
}

// TestSlowMessageIsBoundedByRate: the bound is on the rate, not on the whole.
func TestSlowMessageIsBoundedByRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, served := net.Pipe()
		c := New(served, time.Time{}, 30*time.Minute)
		defer c.Close()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			io.WriteString(client, "a APPEND {1048576+}\r\n")
			for range 1024 {
				time.Sleep(120 * time.Millisecond)
				if _, err := client.Write(make([]byte, 1024)); err != nil {
					return
				}
			}
			time.Sleep(29 * time.Minute)
			io.WriteString(client, "\r\nb NOOP\r\n")
		}()
		p, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		p.Space()
		if size := p.MessageSize(); size != 1<<20 || p.Err() != nil {
			t.Fatalf("a message of %d bytes, %v", size, p.Err())
		}
		message, err := p.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, message); n != 1<<20 || err != nil {
			t.Fatalf("message: %d bytes, %v", n, err)
		}
		go io.Copy(io.Discard, client)
		if p.EndOfMessage(); p.End() == nil {
			t.Error("a command may take half an hour")
		}
		client.Close()
		<-sent
	})
}

// TestDrippedCommandsAreBounded has a client that sends a command of many small strings, each in
// good time.
func TestDrippedCommandsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, served := net.Pipe()
		c := New(served, time.Time{}, 30*time.Minute)
		defer c.Close()
		go io.Copy(io.Discard, client)
		begin, ended := time.Now(), make(chan struct{})
		go func() {
			defer close(ended)
			io.WriteString(client, "a SEARCH")
			for {
				time.Sleep(20 * time.Second)
				if _, err := io.WriteString(client, " {1+}\r\nx"); err != nil {
					return
				}
			}
		}()
		p, err := c.Next()
		for err == nil {
			p.Space()
			p.Text()
			err = p.Err()
		}
		if time.Since(begin) > 2*commandTimeout {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		client.Close()
		<-ended
	})
}

// scripted is a connection on which everything has come at once.
type scripted struct {
	*bytes.Reader
	answers bytes.Buffer
}

func (s *scripted) Write(p []byte) (int, error)    { return s.answers.Write(p) }
func (*scripted) Close() error                     { return nil }
func (*scripted) LocalAddr() net.Addr              { return nil }
func (*scripted) RemoteAddr() net.Addr             { return nil }
func (*scripted) SetDeadline(time.Time) error      { return nil }
func (*scripted) SetReadDeadline(time.Time) error  { return nil }
func (*scripted) SetWriteDeadline(time.Time) error { return nil }

// parse returns the command of a line, without its line end.
func parse(t testing.TB, line string) *Command {
	t.Helper()
	p, err := New(&scripted{Reader: bytes.NewReader([]byte(line + "\r\n"))}, time.Time{}, time.Minute).Next()
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return p
}

func TestArguments(t *testing.T) {
	p := parse(t, `a1 uid Fetch at] "q \"\\ x" 7 1:3,9:*,2 (\Seen $forwarded x) {3}`+"\r\n"+`abc&- "17-Jul-1996 02:44:25 -0700" 1-Feb-2026 &-b "Entw&APw-rfe" "&" $ `)
	p.Space()
	atom := p.AString()
	p.Space()
	quoted := p.Text()
	p.Space()
	number := p.Number()
	p.Space()
	set := p.Set()
	p.Space()
	flags := p.Flags()
	p.Space()
	literal := p.AString()
	rest := p.AString()
	p.Space()
	at := p.DateTime()
	p.Space()
	day := p.Date()
	p.Space()
	folders := []string{p.Folder()}
	p.Space()
	folders = append(folders, p.Folder())
	p.Space()
	folders = append(folders, p.Folder())
	p.Space()
	saved := p.Set()
	if err := p.End(); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%s %s %s|%s|%d|%s|%s|%s|%s|%s|%s|%q|%v", p.Tag, p.Name, atom, quoted, number, set, flags, literal, rest,
		at.UTC().Format(time.DateTime), day.Format(time.DateOnly), folders, imap.IsSearchRes(saved))
	want := `a1 UID FETCH at]|q "\ x|7|1:3,9:*|[\Seen $Forwarded x]|abc|&-|1996-07-17 09:44:25|2026-02-01|["&b" "Entwürfe" "#unreadable"]|true`
	if got != want {
		t.Errorf("parsed\n%s, want\n%s", got, want)
	}
}

// TestFirstErrorStays: once an argument cannot be parsed, nothing more is.
func TestFirstErrorStays(t *testing.T) {
	p := parse(t, "a FETCH x 1 (1 2)")
	p.Space()
	n := p.Number()
	p.Space()
	list := 0
	p.ReadList(func() { list++ })
	err := p.End()
	var answer *imap.Error
	if n != 0 || list != 0 || !errors.As(err, &answer) || answer.Type != imap.StatusResponseTypeBad || !strings.Contains(answer.Text, `a number, not "x"`) {
		t.Errorf("%d, %d values, %v", n, list, err)
	}
}

func TestArgumentsThatAreRefused(t *testing.T) {
	for line, argument := range map[string]func(*Command){
		"a b 4294967296":           func(p *Command) { p.Number() },
		"a b 9223372036854775808":  func(p *Command) { p.ModSeq() },
		"a b 0":                    func(p *Command) { p.NumberOrStar() },
		"a b 1,,2":                 func(p *Command) { p.Set() },
		"a b 0:3":                  func(p *Command) { p.Set() },
		"a b 1:":                   func(p *Command) { p.Set() },
		"a b 32-Jan-2026":          func(p *Command) { p.Date() },
		`a b "17 Jul 1996"`:        func(p *Command) { p.DateTime() },
		"a b (x":                   func(p *Command) { p.ReadList(func() { p.Atom() }) },
		"a b (x y":                 func(p *Command) { p.ReadList(func() { p.Atom() }) },
		"a b (x  y)":               func(p *Command) { p.ReadList(func() { p.Atom() }) },
		"a b \"x":                  nil, // no line of a command
		"a b x y":                  func(p *Command) { p.AString() },
		"a b  x":                   func(p *Command) { p.AString() },
		"a b {3}\r\na\x00c":        func(p *Command) { p.AString() },
		"a b {3}\r\na\nc":          func(p *Command) { p.AString() },
		"a b {2000000}\r\nabc":     func(p *Command) { p.AString() },
		"a b {40000000}":           func(p *Command) { p.MessageSize() },
		"a b x":                    func(p *Command) { p.MessageSize() },
		"a b \\\\x":                func(p *Command) { p.Flag() },
		"a b":                      func(p *Command) { p.Atom() },
		"a b {3}\r\nabc{40}\r\nxy": func(p *Command) { p.AString() },
	} {
		if argument == nil {
			continue
		}
		p := parse(t, line)
		p.Space()
		argument(p)
		if err := p.End(); err == nil {
			t.Errorf("%q is accepted", line)
		}
	}
}

func FuzzScanLine(f *testing.F) {
	f.Add([]byte("a LOGIN \"x\\\"y\" {5+}"))
	f.Add([]byte("a LOGIN {5}"))
	f.Add([]byte("\"{1}\""))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := findMarker(line)
		if err != nil {
			return
		}
		text := string(line)
		if strings.ContainsAny(text, "\x00\r\n") {
			t.Errorf("%q passes", line)
		}
		if !m.found {
			return
		}
		sign := ""
		if m.nonSync {
			sign = "+"
		}
		digits := strings.TrimSuffix(text, sign+"}")
		digits = digits[strings.LastIndexByte(digits, '{')+1:]
		if size, err := strconv.ParseUint(digits, 10, 32); err != nil || int64(size) != m.size || !strings.HasSuffix(text, "{"+digits+sign+"}") {
			t.Errorf("%q: marker %+v is not at the end", line, m)
		}
	})
}

// FuzzNames: what is encoded is decoded again, and what is decoded is encoded so that it is decoded
// to the same.
func FuzzNames(f *testing.F) {
	f.Add("Entwürfe")
	f.Add("&-b&AGE-&")
	f.Add("a\U0001F600&/\x7f")
	f.Fuzz(func(t *testing.T, text string) {
		if isValidName(text) {
			if back, ok := decodeName(encodeName(text)); !ok || back != text {
				t.Errorf("%q is encoded as %q, and that decoded as %q", text, encodeName(text), back)
			}
		}
		name, ok := decodeName(text)
		if !ok {
			return
		}
		if again, ok := decodeName(encodeName(name)); !ok || again != name {
			t.Errorf("%q is %q, which comes back as %q", text, name, again)
		}
	})
}

// FuzzSets compares a set with what its numbers say one by one.
func FuzzSets(f *testing.F) {
	f.Add("1:3,9:*,2")
	f.Add("*:4,4294967295")
	f.Add("5:*,7:9,*")
	f.Fuzz(func(t *testing.T, text string) {
		list, ok := parseSet(text)
		if !ok {
			return
		}
		for i, r := range list {
			first, last := r.comparableEnds()
			if first > last || i > 0 && func() bool { _, end := list[i-1].comparableEnds(); return first <= end }() {
				t.Fatalf("%q is %v, which does not ascend", text, list)
			}
		}
		const last = 12 // the largest number in use
		has := func(n, first, end uint32) bool {
			if first == 0 {
				first = last
			}
			if end == 0 {
				end = last
			}
			return n >= min(first, end) && n <= max(first, end)
		}
		for n := uint32(1); n <= last; n++ {
			want, got := false, false
			for part := range strings.SplitSeq(text, ",") {
				a, b, isRange := strings.Cut(part, ":")
				if !isRange {
					b = a
				}
				first, _ := parseSetNumber(a)
				end, _ := parseSetNumber(b)
				want = want || has(n, first, end)
			}
			for _, r := range list {
				got = got || has(n, r.first, r.last)
			}
			if got != want {
				t.Fatalf("%q as %v: %d is in it: %v", text, list, n, got)
			}
		}
	})
}

// FuzzWire plays a client whose bytes are anything, and a server that takes every other literal: of
// the bytes of a literal, none becomes a command, and each command is of limited size.
func FuzzWire(f *testing.F) {
	f.Add([]byte("a LOGIN {3+}\r\nx\"y {3}\r\nabc\r\nb NOOP\r\n"), true)
	f.Add([]byte("a APPEND INBOX (\\Seen) {3+}\r\nabc {3+}\r\ndef\r\nb APPEND {1+}\r\na UTF8 (~{3+}\r\nabc)\r\n"), true)
	f.Add([]byte("a SEARCH TEXT {60000+}\r\n"+strings.Repeat("x NOOP\r\n", 7500)+"\r\nb NOOP\r\n"), false)
	f.Add([]byte("a APPEND{3+}\r\n00 {0}\r\n"), true)
	f.Add([]byte("a REPLACE 1 x UTF8 (~{1+}\r\na)\r\nb UID REPLACE 2 {1+}\r\nx (\\Seen) {2}\r\nbc {1+}\r\nd {1+}\r\ne\r\nc NOOP\r\n"), true)
	f.Add([]byte("a IDLE\r\n{18+}\r\nx DELETE Archive\r\n\r\n"), false)
	f.Fuzz(func(t *testing.T, input []byte, loggedIn bool) {
		until := time.Now().Add(time.Minute)
		if loggedIn {
			until = time.Time{}
		}
		conn := &scripted{Reader: bytes.NewReader(input)}
		c := New(conn, until, time.Minute)
		defer c.Close()
		at := func() int { return len(input) - conn.Len() - c.in.Buffered() } // where reading has come to
		for n := 0; ; n++ {
			begin := at()
			p, err := c.Next()
			if err != nil {
				if n, _ := conn.Read(make([]byte, 1)); n > 0 && !errors.Is(err, errClosedByServer) {
					t.Fatalf("it ends early: %v", err)
				}
				return
			}
			taken := 0 // bytes of messages
			for i := 0; p.Err() == nil && p.More() && i < 1000; i++ {
				p.Space()
				switch {
				case (n+i)%2 == 0 && p.Next('{'):
					size := p.MessageSize()
					if p.Err() != nil || i%5 == 4 {
						break // as if it had refused it
					}
					message, err := p.ReadMessage()
					if err != nil {
						return
					}
					want := input[at():]
					got, err := io.ReadAll(message)
					if !bytes.HasPrefix(want, got) || err == nil && int64(len(got)) != size {
						t.Fatalf("a message of %d bytes is %q", size, got)
					}
					taken += len(got)
					p.EndOfMessage()
				case p.nextIsString():
					p.Text()
				case p.Next('('):
					p.Skip('(')
				default:
					p.ReadWhile("anything", func(b byte) bool { return b != ' ' && b != '{' && b != '"' })
				}
			}
			if c.size > MaxCommandBytes {
				t.Fatalf("a command of %d bytes", c.size)
			}
			if end := at(); end-begin-taken > MaxCommandBytes+maxBadLines*MaxCommandBytes+2*maxSkipped {
				t.Fatalf("%d bytes were read for one command", end-begin)
			}
		}
	})
}
