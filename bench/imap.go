package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// imapWorks lists the commands of mail clients in a mailbox of 10 000 messages.
func imapWorks() (list []work) {
	const box = 10000
	add := func(name string, run func(b *bench, server string) (measured, error)) {
		list = append(list, work{name: "imap " + name, servers: []string{"mailstead", dovecot}, run: run})
	}
	for _, w := range []struct {
		name, command string
		times         int
	}{
		{"SELECT", "SELECT INBOX", 200},
		{"envelopes", "FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE)", 10},
		{"flags", "FETCH 1:* (UID FLAGS)", 50},
		{"newest 500", "FETCH %d:* (UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE BODYSTRUCTURE)", 50},
		{"SEARCH UNSEEN", "SEARCH UNSEEN", 100},
		{"SEARCH SUBJECT", "SEARCH SUBJECT \"article\"", 20},
	} {
		add(w.name, func(b *bench, server string) (measured, error) {
			return b.imapCommand(server, b.times(box, 1000), w.command, b.times(w.times, 3))
		})
	}
	add("log-in", func(b *bench, server string) (measured, error) { return b.logIns(server, b.times(100, 3)) })
	add("APPEND", func(b *bench, server string) (measured, error) { return b.appends(server, b.times(8000, 8), 1) })
	add("MULTIAPPEND", func(b *bench, server string) (measured, error) { return b.appends(server, b.times(40000, 8), 20) })
	return append(list,
		mailsteadWork("imap idle, KiB each", func(b *bench) (measured, error) { return b.idleMemory(b.times(1000, 20), false) }),
		mailsteadWork("imap idle TLS, KiB each", func(b *bench) (measured, error) { return b.idleMemory(b.times(1000, 20), true) }),
	)
}

// An imapServer is an IMAP server with the mailboxes of this bench.
type imapServer struct {
	*process
	addr    string
	discard func()
}

func (b *bench) imapServer(server string) (*imapServer, error) {
	if server == dovecot {
		return b.newDovecot()
	}
	m, err := b.newMailstead("")
	if err != nil {
		return nil, err
	}
	return &imapServer{m.process, m.ready.IMAP, m.discard}, nil
}

// An imapClient implements just enough of IMAP to measure a server: it reads answers and discards
// them.
type imapClient struct {
	net.Conn
	r   *bufio.Reader
	tag int
}

// logIn opens a session of a mailbox. from is the client's address; nil: chosen by the system.
func logIn(addr string, from net.Addr, secure bool, email string, limit time.Duration) (*imapClient, error) {
	conn, err := (&net.Dialer{LocalAddr: from, Timeout: 10 * time.Second}).Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(limit))
	c := &imapClient{Conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
	_, err = c.r.ReadString('\n')
	if err == nil && secure {
		if err = c.run("STARTTLS"); err == nil {
			c.Conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the certificate is self-made
			c.r.Reset(c.Conn)
		}
	}
	if err == nil {
		err = c.run(fmt.Sprintf("LOGIN %s %q", email, password))
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// run sends a command and reads the whole answer.
func (c *imapClient) run(command string) error {
	c.tag++
	tag := "a" + strconv.Itoa(c.tag)
	if _, err := io.WriteString(c.Conn, tag+" "+command+"\r\n"); err != nil {
		return err
	}
	return c.answer(tag)
}

// answer reads up to the tagged line, and returns an error unless it is OK.
func (c *imapClient) answer(tag string) error {
	for {
		line, err := c.r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return err
		}
		text := strings.TrimRight(string(line), "\r\n")
		if rest, ok := strings.CutPrefix(text, tag+" "); ok {
			if !strings.HasPrefix(rest, "OK") {
				return errors.New(rest)
			}
			return nil
		}
		if open := strings.LastIndexByte(text, '{'); open >= 0 && strings.HasSuffix(text, "}") {
			n, err := strconv.Atoi(text[open+1 : len(text)-1])
			if err != nil {
				continue
			}
			if _, err := c.r.Discard(n); err != nil {
				return err
			}
		}
	}
}

// append stores messages in the INBOX with LITERAL+: times messages in all, with as many per
// command as each says. item returns the flags and date of the n-th message, and its text.
func (c *imapClient) append(times, each int, item func(n int) (before, text string)) error {
	for n := 0; n < times; {
		command := new(strings.Builder)
		command.WriteString("APPEND INBOX")
		for end := min(n+each, times); n < end; n++ {
			before, text := item(n)
			fmt.Fprintf(command, "%s {%d+}\r\n%s", before, len(text), text)
		}
		if err := c.run(command.String()); err != nil {
			return err
		}
	}
	return nil
}

// plain returns an item function for messages without flags and dates.
func plain(messages [][]byte) func(n int) (before, text string) {
	return func(n int) (before, text string) {
		return "", strings.TrimSuffix(string(messages[n%len(messages)]), ".\r\n")
	}
}

// filled starts the program with size messages in a mailbox.
func (b *bench) filled(size int) (*mailstead, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return nil, err
	}
	c, err := dialSMTP(m.ready.SMTP, false, b.limit)
	for n := 0; err == nil && n < size; n++ {
		messages := b.messages(2<<10, false)
		err = c.send("bounce@"+sender, address(0), messages[n%len(messages)])
	}
	if err == nil {
		err = c.Close()
	}
	if err != nil {
		m.discard()
		return nil, err
	}
	return m, nil
}

func (b *bench) imapCommand(server string, size int, command string, times int) (measured, error) {
	s, err := b.imapServer(server)
	if err != nil {
		return measured{}, err
	}
	defer s.discard()
	c, err := logIn(s.addr, nil, false, address(0), b.limit)
	if err != nil {
		return measured{}, err
	}
	defer c.Close()
	if err := c.append(size, 100, plain(b.messages(2<<10, false))); err != nil {
		return measured{}, err
	}
	if err := c.run("SELECT INBOX"); err != nil {
		return measured{}, err
	}
	if strings.Contains(command, "%d") {
		command = fmt.Sprintf(command, max(1, size-499))
	}
	if err := c.run(command); err != nil { // warm up
		return measured{}, err
	}
	return repeat(s.process, times, func(int) error { return c.run(command) })
}

// repeat calls do a number of times, one after the other.
func repeat(p *process, times int, do func(n int) error) (out measured, err error) {
	before, began := p.cpu(), time.Now()
	for n := range times {
		start := time.Now()
		if err := do(n); err != nil {
			return out, err
		}
		out.Took = append(out.Took, time.Since(start))
	}
	out.Ops, out.Wall, out.CPU = times, time.Since(began), p.cpu()-before
	return out, nil
}

// logIns logs in repeatedly with the same password, as phones do.
func (b *bench) logIns(server string, times int) (measured, error) {
	s, err := b.imapServer(server)
	if err != nil {
		return measured{}, err
	}
	defer s.discard()
	return repeat(s.process, times, func(int) error {
		c, err := logIn(s.addr, nil, false, address(0), b.limit)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// appends stores messages over eight connections with LITERAL+, several in each command.
func (b *bench) appends(server string, times, each int) (measured, error) {
	s, err := b.imapServer(server)
	if err != nil {
		return measured{}, err
	}
	defer s.discard()
	item := plain(b.messages(2<<10, false))
	before, began := s.cpu(), time.Now()
	err = eight(func(int) error {
		c, err := logIn(s.addr, nil, false, address(0), b.limit)
		if err != nil {
			return err
		}
		defer c.Close()
		return c.append(times/8, each, item)
	})
	return measured{Ops: times / 8 * 8, Wall: time.Since(began), CPU: s.cpu() - before}, err
}

// eight calls do eight times in parallel.
func eight(do func(n int) error) error {
	var all sync.WaitGroup
	errs := make([]error, 8)
	for n := range errs {
		all.Go(func() { errs[n] = do(n) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// The program's limits of sessions for one mailbox, and for one client address.
const (
	perMailbox = 50
	perAddress = 150
)

// idleSessions opens idle IMAP sessions, spread over as many mailboxes and addresses as the limits
// require; end closes them.
func (m *mailstead) idleSessions(n int, secure bool) (end func(), err error) {
	var open []*imapClient
	end = func() {
		for _, c := range open {
			c.Close()
		}
	}
	for i := range n {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i/perAddress))}
		c, err := logIn(m.ready.IMAP, from, secure, mailbox(i/perMailbox), 10*time.Minute)
		if err != nil {
			return end, err
		}
		open = append(open, c)
		if err := c.run("SELECT INBOX"); err != nil {
			return end, err
		}
		if _, err := io.WriteString(c.Conn, "i IDLE\r\n"); err != nil {
			return end, err
		}
		go func() { _, _ = io.Copy(io.Discard, c.r) }()
	}
	return end, nil
}

// idleMemory measures the memory of an idle session: p50 is in KiB instead of milliseconds. The
// passwords are hashed beforehand, since hashing needs memory too.
func (b *bench) idleMemory(n int, secure bool) (measured, error) {
	n = min(n, 4500) // the program's limit is 5 000
	var args []string
	if secure {
		var err error
		args, err = b.certificate()
		if err != nil {
			return measured{}, err
		}
	}
	m, err := b.newMailstead("", args...)
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	mailboxes := (n + perMailbox - 1) / perMailbox
	if err := m.addUsers(mailboxes); err != nil {
		return measured{}, err
	}
	for i := range mailboxes {
		c, err := logIn(m.ready.IMAP, nil, secure, mailbox(i), b.limit)
		if err != nil {
			return measured{}, err
		}
		if err := errors.Join(c.run("LOGOUT"), c.Close()); err != nil {
			return measured{}, err
		}
	}
	before, err := m.settled()
	if err != nil {
		return measured{}, err
	}
	began := time.Now()
	end, err := m.idleSessions(n, secure)
	defer end()
	if err != nil {
		return measured{}, err
	}
	wall := time.Since(began)
	after, err := m.settled()
	each := time.Duration(float64(after-before) / float64(n) / 1024 * float64(time.Millisecond))
	return measured{Ops: n, Wall: wall, CPU: m.cpu(), Took: []time.Duration{each}}, err
}

// settled returns the process's memory after garbage collections, when freed memory was returned to
// the system. A heap profile starts a collection.
func (m *mailstead) settled() (size int64, err error) {
	file := filepath.Join(m.dir, "heap")
	defer os.Remove(file)
	for n := range 15 {
		if out, err := exec.Command(m.b.server, "profile", "heap", "--data", m.dir, "--to", file).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("profile heap: %w: %s", err, out)
		}
		time.Sleep(time.Second)
		before := size
		size = m.memory()
		if n > 2 && size > before-1<<20 {
			break
		}
	}
	return size, nil
}
