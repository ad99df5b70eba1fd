// Package pulltest is an IMAP server for tests. It has an INBOX and other folders, and can be made
// to misbehave. It does not know what is tested.
package pulltest

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Caps are the default capabilities of a Server.
const Caps = "IMAP4rev1 AUTH=PLAIN SASL-IR UIDPLUS IDLE CONDSTORE"

// A Message is one message of INBOX.
type Message struct {
	UID    uint32
	Flags  []string
	Date   time.Time
	Text   string
	modSeq uint64
}

// A Server is an IMAP server on the loopback interface. Its exported fields may be read and set
// only inside Change.
type Server struct {
	Port     int
	Validity uint32
	UIDNext  uint32
	Messages []*Message
	Caps     string
	Folders  []*Folder                                            // folders beside INBOX
	TLS      *tls.Config                                          // configuration for STARTTLS
	Greeting string                                               // "" means a plain OK
	Login    string                                               // the reply to a login; "" means OK
	Manners  func(tag, verb string, c net.Conn, w io.Writer) bool // called for each command; returns true if it has answered the command
	Commands []string                                             // the commands received, without their tags
	Open     int                                                  // number of open connections

	mu      sync.Mutex
	modSeq  uint64
	changed chan struct{} // closed and replaced at each change
}

// A Folder is a folder to which messages can be appended.
type Folder struct {
	Name, Attr string // Attr is a special-use attribute such as \Sent
	Messages   []*Message
}

// Serve starts a server on ln, or on a free port if ln is nil. The server ends with the test.
func Serve(t testing.TB, ln net.Listener) *Server {
	t.Helper()
	if ln == nil {
		var err error
		ln, err = net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &Server{
		Port: ln.Addr().(*net.TCPAddr).Port, Validity: 7, UIDNext: 1, Caps: Caps, modSeq: 10, changed: make(chan struct{}),
	}
	var conns sync.Map
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Store(c, true)
			all.Go(func() {
				defer c.Close()
				s.serve(c)
				conns.Delete(c)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		all.Wait()
	})
	return s
}

// Change calls fn, which may change the state of the server. No command runs meanwhile. Then Change
// notifies sessions in IDLE.
func (s *Server) Change(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	s.announceChange()
}

func (s *Server) announceChange() {
	s.modSeq++
	close(s.changed)
	s.changed = make(chan struct{})
}

// Add adds a message to INBOX. It must be called inside Change.
func (s *Server) Add(text string, flags ...string) *Message {
	m := &Message{UID: s.UIDNext, Flags: flags, Date: time.Date(2026, 11, 1, 0, 0, int(s.UIDNext), 0, time.UTC), Text: text, modSeq: s.modSeq + 1}
	s.UIDNext++
	s.Messages = append(s.Messages, m)
	return m
}

// SetFlags replaces the flags of a message. It must be called inside Change.
func (s *Server) SetFlags(m *Message, flags ...string) { m.Flags, m.modSeq = flags, s.modSeq+1 }

// Remove removes a message from INBOX. It must be called inside Change.
func (s *Server) Remove(uid uint32) {
	s.Messages = slices.DeleteFunc(s.Messages, func(m *Message) bool { return m.UID == uid })
}

// Find returns the message of INBOX with the UID, nil if there is none.
func (s *Server) Find(uid uint32) *Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.Messages {
		if m.UID == uid {
			return m
		}
	}
	return nil
}

// Count returns the number of received commands that begin with prefix.
func (s *Server) Count(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.Commands {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

// Sessions returns the number of open connections.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Open
}

// A session is one connection to the server.
type session struct {
	*Server
	c      net.Conn
	r      *bufio.Reader
	w      *bufio.Writer
	folder *Folder // the selected folder; nil for INBOX
}

func (s *Server) serve(c net.Conn) {
	s.Change(func() { s.Open++ })
	defer s.Change(func() { s.Open-- })
	t := &session{Server: s, c: c, r: bufio.NewReader(c), w: bufio.NewWriter(c)}
	s.mu.Lock()
	greeting := s.Greeting
	s.mu.Unlock()
	if greeting == "" {
		greeting = "* OK ready"
	}
	fmt.Fprintf(t.w, "%s\r\n", greeting)
	for t.w.Flush() == nil {
		line, err := t.r.ReadString('\n')
		if err != nil {
			return
		}
		tag, command, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		if !t.answer(tag, command) {
			_ = t.w.Flush()
			return
		}
	}
}

// answer executes one command and writes the response. It returns false to end the connection.
func (t *session) answer(tag, command string) (goOn bool) {
	verb, args, _ := strings.Cut(command, " ")
	if strings.EqualFold(verb, "UID") {
		var second string
		second, args, _ = strings.Cut(args, " ")
		verb += " " + second
	}
	verb = strings.ToUpper(verb)
	t.mu.Lock()
	t.Commands = append(t.Commands, strings.ToUpper(command))
	manners := t.Manners
	t.mu.Unlock()
	if manners != nil && manners(tag, verb, t.c, t.w) {
		return t.w.Flush() == nil
	}
	switch verb {
	case "STARTTLS":
		return t.startTLS(tag)
	case "IDLE":
		return t.idle(tag)
	case "APPEND":
		return t.append(tag, args)
	case "LOGOUT":
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	result := t.execute(verb, args)
	fmt.Fprintf(t.w, "%s %s\r\n", tag, result)
	return true
}

func (t *session) startTLS(tag string) (goOn bool) {
	fmt.Fprintf(t.w, "%s OK begin\r\n", tag)
	if t.w.Flush() != nil {
		return false
	}
	t.mu.Lock()
	secured := tls.Server(t.c, t.TLS)
	t.mu.Unlock()
	t.c, t.r, t.w = secured, bufio.NewReader(secured), bufio.NewWriter(secured)
	return secured.Handshake() == nil
}

// idle reports each change until DONE.
func (t *session) idle(tag string) (goOn bool) {
	fmt.Fprint(t.w, "+ idling\r\n")
	done := make(chan bool, 1)
	go func() {
		_, err := t.r.ReadString('\n')
		done <- err == nil
	}()
	for {
		t.mu.Lock()
		changed, n := t.changed, len(t.Messages)
		t.mu.Unlock()
		_ = t.w.Flush()
		select {
		case ok := <-done:
			fmt.Fprintf(t.w, "%s OK done\r\n", tag)
			return ok
		case <-changed:
			t.mu.Lock()
			if len(t.Messages) != n {
				fmt.Fprintf(t.w, "* %d EXISTS\r\n", len(t.Messages))
			}
			t.mu.Unlock()
		}
	}
}

// execute executes a command and returns the text of its tagged response. The caller holds the
// lock.
func (t *session) execute(verb, args string) string {
	switch verb {
	case "CAPABILITY":
		fmt.Fprintf(t.w, "* CAPABILITY %s\r\n", t.Caps)
	case "LOGIN", "AUTHENTICATE":
		if t.Login != "" {
			return t.Login
		}
		if mechanism, ir, ok := strings.Cut(args, " "); ok && mechanism == "PLAIN" {
			if _, err := base64.StdEncoding.DecodeString(ir); err != nil {
				return "BAD base64"
			}
		}
	case "LIST":
		for _, f := range t.Folders {
			fmt.Fprintf(t.w, "* LIST (%s) \"/\" %q\r\n", f.Attr, f.Name)
		}
	case "EXAMINE", "SELECT":
		t.folder = t.findFolder(args)
		if verb == "EXAMINE" && t.folder != nil {
			fmt.Fprint(t.w, "* 0 EXISTS\r\n* OK [UIDVALIDITY 1] x\r\n")
			break
		}
		t.folder = nil
		fmt.Fprintf(t.w, "* %d EXISTS\r\n* OK [UIDVALIDITY %d] x\r\n", len(t.Messages), t.Validity)
		if t.UIDNext > 0 {
			fmt.Fprintf(t.w, "* OK [UIDNEXT %d] x\r\n", t.UIDNext)
		}
		if strings.Contains(t.Caps, "CONDSTORE") {
			fmt.Fprintf(t.w, "* OK [HIGHESTMODSEQ %d] x\r\n", t.modSeq)
		}
	case "FETCH", "UID FETCH":
		t.fetch(args, verb == "UID FETCH")
	case "UID STORE":
		t.store(args)
	case "EXPUNGE", "UID EXPUNGE":
		t.expunge(args, verb == "UID EXPUNGE")
	case "UID SEARCH":
		t.search(args)
	case "NOOP":
	default:
		return "BAD what?"
	}
	return "OK done"
}

// findFolder returns the folder with the name, which may be quoted. It returns nil for INBOX and
// for an unknown folder.
func (t *session) findFolder(name string) *Folder {
	i := slices.IndexFunc(t.Folders, func(f *Folder) bool { return f.Name == strings.Trim(name, `"`) })
	if i < 0 {
		return nil
	}
	return t.Folders[i]
}

// search executes SEARCH for messages marked as deleted, or for messages that contain a text:
// HEADER "name" "text".
func (t *session) search(args string) {
	messages := t.Messages
	if t.folder != nil {
		messages = t.folder.Messages
	}
	words := strings.Fields(args)
	fmt.Fprint(t.w, "* SEARCH")
	for _, m := range messages {
		named := len(words) == 3 && strings.Contains(m.Text, strings.Trim(words[2], `"`))
		if named || len(words) == 1 && slices.Contains(m.Flags, `\Deleted`) {
			fmt.Fprintf(t.w, " %d", m.UID)
		}
	}
	fmt.Fprint(t.w, "\r\n")
}

// append executes APPEND: "folder" (flags) "date" {size}.
func (t *session) append(tag, args string) (goOn bool) {
	name, rest, _ := strings.Cut(args, " ")
	flags := ""
	if strings.HasPrefix(rest, "(") {
		flags, _, _ = strings.Cut(rest[1:], ")")
	}
	_, length, _ := strings.Cut(rest, "{")
	size, err := strconv.Atoi(strings.TrimSuffix(length, "}"))
	if err != nil {
		fmt.Fprintf(t.w, "%s BAD no literal\r\n", tag)
		return true
	}
	fmt.Fprint(t.w, "+ go on\r\n")
	text := make([]byte, size+2)
	if t.w.Flush() != nil {
		return false
	}
	if _, err := io.ReadFull(t.r, text); err != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.findFolder(name); f != nil {
		f.Messages = append(f.Messages, &Message{UID: uint32(len(f.Messages) + 1), Flags: strings.Fields(flags), Text: string(text[:size])})
	} else {
		t.Add(string(text[:size]), strings.Fields(flags)...)
		t.announceChange()
	}
	fmt.Fprintf(t.w, "%s OK appended\r\n", tag)
	return true
}

func (t *session) fetch(args string, byUID bool) {
	set, items, _ := strings.Cut(args, " ")
	var since uint64
	if _, text, ok := strings.Cut(items, "CHANGEDSINCE "); ok {
		since, _ = strconv.ParseUint(strings.TrimRight(text, ")"), 10, 64)
	}
	for i, m := range t.Messages {
		n := uint32(i + 1)
		if byUID {
			n = m.UID
		}
		if !setContains(set, n) || m.modSeq <= since {
			continue
		}
		fmt.Fprintf(t.w, "* %d FETCH (UID %d FLAGS (%s)", i+1, m.UID, strings.Join(m.Flags, " "))
		if strings.Contains(items, "INTERNALDATE") {
			fmt.Fprintf(t.w, " INTERNALDATE %q RFC822.SIZE %d", m.Date.Format("_2-Jan-2006 15:04:05 -0700"), len(m.Text))
		}
		t.sendBody(m, items)
		fmt.Fprint(t.w, ")\r\n")
	}
}

// sendBody sends the requested section of a message.
func (t *session) sendBody(m *Message, items string) {
	_, rest, ok := strings.Cut(items, "BODY.PEEK[")
	if !ok {
		return
	}
	what, span, _ := strings.Cut(rest, "]<")
	text := m.Text
	if what == "HEADER" {
		text = text[:strings.Index(text, "\r\n\r\n")+4]
	}
	var offset, size int
	_, _ = fmt.Sscanf(span, "%d.%d>", &offset, &size)
	text = text[min(offset, len(text)):]
	text = text[:min(size, len(text))]
	fmt.Fprintf(t.w, " BODY[%s]<%d> {%d}\r\n%s", what, offset, len(text), text)
}

func (t *session) store(args string) {
	set, rest, _ := strings.Cut(args, " ")
	op, list, _ := strings.Cut(rest, " ")
	flags := strings.Fields(strings.Trim(list, "()"))
	for _, m := range t.Messages {
		if !setContains(set, m.UID) {
			continue
		}
		m.Flags = slices.DeleteFunc(slices.Clone(m.Flags), func(f string) bool {
			return slices.ContainsFunc(flags, func(flag string) bool { return strings.EqualFold(f, flag) })
		})
		if op[0] == '+' {
			m.Flags = append(m.Flags, flags...)
		}
		m.modSeq = t.modSeq + 1
	}
	t.announceChange()
}

func (t *session) expunge(set string, byUID bool) {
	kept := t.Messages[:0:0]
	for _, m := range t.Messages {
		if slices.Contains(m.Flags, `\Deleted`) && (!byUID || setContains(set, m.UID)) {
			fmt.Fprintf(t.w, "* %d EXPUNGE\r\n", len(kept)+1)
			continue
		}
		kept = append(kept, m)
	}
	t.Messages = kept
	t.announceChange()
}

// setContains reports whether a sequence set such as "1:3,7" contains n.
func setContains(set string, n uint32) bool {
	for part := range strings.SplitSeq(set, ",") {
		from, to, ranged := strings.Cut(part, ":")
		lo, _ := strconv.ParseUint(from, 10, 32)
		hi, err := strconv.ParseUint(to, 10, 32)
		switch {
		case !ranged:
			hi = lo
		case err != nil:
			hi = 1<<32 - 1
		}
		if uint64(n) >= lo && uint64(n) <= hi {
			return true
		}
	}
	return false
}
