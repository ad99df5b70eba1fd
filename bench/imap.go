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

// imapWorkloads returns workloads of IMAP commands, most of them in a mailbox with 10 000 messages.
func imapWorkloads() (list []workload) {
	const mailboxSize = 10000
	add := func(name string, run func(b *bench, server string) (measurement, error)) {
		list = append(list, workload{name: "imap " + name, servers: []string{"mailstead", dovecot}, run: run})
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
		add(w.name, func(b *bench, server string) (measurement, error) {
			return b.measureIMAP(server, b.scaled(mailboxSize, 1000), w.command, b.scaled(w.times, 3))
		})
	}
	add("log-in", func(b *bench, server string) (measurement, error) { return b.measureLogIn(server, b.scaled(100, 3)) })
	add("APPEND", func(b *bench, server string) (measurement, error) {
		return b.measureAppend(server, b.scaled(8000, 8), 1)
	})
	add("MULTIAPPEND", func(b *bench, server string) (measurement, error) {
		return b.measureAppend(server, b.scaled(40000, 8), 20)
	})
	return append(list,
		mailsteadWorkload("imap idle, KiB each", func(b *bench) (measurement, error) { return b.measureIdleMemory(b.scaled(1000, 20), false) }),
		mailsteadWorkload("imap idle TLS, KiB each", func(b *bench) (measurement, error) { return b.measureIdleMemory(b.scaled(1000, 20), true) }),
	)
}

// An imapServer is a running IMAP server with empty mailboxes.
type imapServer struct {
	*process
	addr    string
	discard func()
}

// startIMAPServer starts Dovecot if server is its name, or else Mailstead.
func (b *bench) startIMAPServer(server string) (*imapServer, error) {
	if server == dovecot {
		return b.newDovecot()
	}
	m, err := b.newMailstead("")
	if err != nil {
		return nil, err
	}
	return &imapServer{m.process, m.ready.IMAP, m.stopAndDelete}, nil
}

// An imapClient sends IMAP commands and discards the data in the answers.
type imapClient struct {
	net.Conn
	r   *bufio.Reader
	tag int
}

// logIn connects to an IMAP server and logs in to a mailbox. from is the address of the client, or
// nil for any. startTLS makes it use STARTTLS.
func logIn(addr string, from net.Addr, startTLS bool, email string, limit time.Duration) (*imapClient, error) {
	conn, err := (&net.Dialer{LocalAddr: from, Timeout: 10 * time.Second}).Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(limit))
	c := &imapClient{Conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
	_, err = c.r.ReadString('\n')
	if err == nil && startTLS {
		if err = c.run("STARTTLS"); err == nil {
			c.Conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the certificate is self-signed
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

// run sends a command and reads the answer. It returns an error unless the answer is OK.
func (c *imapClient) run(command string) error {
	c.tag++
	tag := "a" + strconv.Itoa(c.tag)
	if _, err := io.WriteString(c.Conn, tag+" "+command+"\r\n"); err != nil {
		return err
	}
	return c.readAnswer(tag)
}

// readAnswer reads up to the tagged line. It returns an error unless that line is OK.
func (c *imapClient) readAnswer(tag string) error {
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

// append stores a number of messages in INBOX by APPEND commands with LITERAL+. Each command has up
// to perCommand messages. item returns the text of message n, and before it the message's flags and
// date in the form of the command.
func (c *imapClient) append(times, perCommand int, item func(n int) (before, text string)) error {
	for n := 0; n < times; {
		command := new(strings.Builder)
		command.WriteString("APPEND INBOX")
		for end := min(n+perCommand, times); n < end; n++ {
			before, text := item(n)
			fmt.Fprintf(command, "%s {%d+}\r\n%s", before, len(text), text)
		}
		if err := c.run(command.String()); err != nil {
			return err
		}
	}
	return nil
}

// plainMessages returns a function for the parameter item of imapClient.append. Its messages have
// no flags and dates.
func plainMessages(messages [][]byte) func(n int) (before, text string) {
	return func(n int) (before, text string) {
		return "", strings.TrimSuffix(string(messages[n%len(messages)]), ".\r\n")
	}
}

// startFilled starts Mailstead and fills one mailbox with size messages over SMTP.
func (b *bench) startFilled(size int) (*mailstead, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return nil, err
	}
	c, err := dialSMTP(m.ready.SMTP, false, b.limit)
	for n := 0; err == nil && n < size; n++ {
		messages := b.messages(2<<10, false)
		err = c.send("bounce@"+senderDomain, address(0), messages[n%len(messages)])
	}
	if err == nil {
		err = c.Close()
	}
	if err != nil {
		m.stopAndDelete()
		return nil, err
	}
	return m, nil
}

// measureIMAP measures an IMAP command in a mailbox with size messages.
func (b *bench) measureIMAP(server string, size int, command string, times int) (measurement, error) {
	s, err := b.startIMAPServer(server)
	if err != nil {
		return measurement{}, err
	}
	defer s.discard()
	c, err := logIn(s.addr, nil, false, address(0), b.limit)
	if err != nil {
		return measurement{}, err
	}
	defer c.Close()
	if err := c.append(size, 100, plainMessages(b.messages(2<<10, false))); err != nil {
		return measurement{}, err
	}
	if err := c.run("SELECT INBOX"); err != nil {
		return measurement{}, err
	}
	if strings.Contains(command, "%d") {
		command = fmt.Sprintf(command, max(1, size-499))
	}
	if err := c.run(command); err != nil { // warm up
		return measurement{}, err
	}
	return measureRepeated(s.process, times, func(int) error { return c.run(command) })
}

// measureRepeated calls do a number of times, one after the other, and measures each call.
func measureRepeated(p *process, times int, do func(n int) error) (out measurement, err error) {
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

// measureLogIn measures log-ins with the same password, as phones do them.
func (b *bench) measureLogIn(server string, times int) (measurement, error) {
	s, err := b.startIMAPServer(server)
	if err != nil {
		return measurement{}, err
	}
	defer s.discard()
	return measureRepeated(s.process, times, func(int) error {
		c, err := logIn(s.addr, nil, false, address(0), b.limit)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// measureAppend measures APPEND commands over eight connections. Each command has up to perCommand
// messages.
func (b *bench) measureAppend(server string, times, perCommand int) (measurement, error) {
	s, err := b.startIMAPServer(server)
	if err != nil {
		return measurement{}, err
	}
	defer s.discard()
	item := plainMessages(b.messages(2<<10, false))
	before, began := s.cpu(), time.Now()
	err = runEightInParallel(func(int) error {
		c, err := logIn(s.addr, nil, false, address(0), b.limit)
		if err != nil {
			return err
		}
		defer c.Close()
		return c.append(times/8, perCommand, item)
	})
	return measurement{Ops: times / 8 * 8, Wall: time.Since(began), CPU: s.cpu() - before}, err
}

// runEightInParallel calls do eight times in parallel, with n from 0 to 7.
func runEightInParallel(do func(n int) error) error {
	var all sync.WaitGroup
	errs := make([]error, 8)
	for n := range errs {
		all.Go(func() { errs[n] = do(n) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Limits of Mailstead on IMAP sessions.
const (
	maxPerMailbox = 50  // sessions of one mailbox
	maxPerAddress = 150 // sessions from one client address
)

// openIdleSessions opens n IMAP sessions in IDLE, in as many mailboxes and from as many client
// addresses as the limits require. end closes the sessions.
func (m *mailstead) openIdleSessions(n int, startTLS bool) (end func(), err error) {
	var open []*imapClient
	end = func() {
		for _, c := range open {
			c.Close()
		}
	}
	for i := range n {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i/maxPerAddress))}
		c, err := logIn(m.ready.IMAP, from, startTLS, mailboxAddress(i/maxPerMailbox), 10*time.Minute)
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

// measureIdleMemory measures the memory of an idle IMAP session. The result is the p50, in KiB
// instead of milliseconds. It first logs in to each mailbox once, because hashing passwords needs
// memory too.
func (b *bench) measureIdleMemory(n int, startTLS bool) (measurement, error) {
	n = min(n, 4500) // Mailstead has a limit of 5 000
	var args []string
	if startTLS {
		var err error
		args, err = b.makeCertificate()
		if err != nil {
			return measurement{}, err
		}
	}
	m, err := b.newMailstead("", args...)
	if err != nil {
		return measurement{}, err
	}
	defer m.stopAndDelete()
	mailboxes := (n + maxPerMailbox - 1) / maxPerMailbox
	if err := m.addUsers(mailboxes); err != nil {
		return measurement{}, err
	}
	for i := range mailboxes {
		c, err := logIn(m.ready.IMAP, nil, startTLS, mailboxAddress(i), b.limit)
		if err != nil {
			return measurement{}, err
		}
		if err := errors.Join(c.run("LOGOUT"), c.Close()); err != nil {
			return measurement{}, err
		}
	}
	before, err := m.settledMemory()
	if err != nil {
		return measurement{}, err
	}
	began := time.Now()
	end, err := m.openIdleSessions(n, startTLS)
	defer end()
	if err != nil {
		return measurement{}, err
	}
	wall := time.Since(began)
	after, err := m.settledMemory()
	each := time.Duration(float64(after-before) / float64(n) / 1024 * float64(time.Millisecond))
	return measurement{Ops: n, Wall: wall, CPU: m.cpu(), Took: []time.Duration{each}}, err
}

// settledMemory returns the memory of the process in bytes after the runtime has returned free
// memory to the system. It requests heap profiles, because each starts a garbage collection.
func (m *mailstead) settledMemory() (size int64, err error) {
	file := filepath.Join(m.dir, "heap")
	defer os.Remove(file)
	for n := range 15 {
		if out, err := exec.Command(m.b.server, "profile", "heap", "--data", m.dir, "--to", file).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("profile heap: %w: %s", err, out)
		}
		time.Sleep(time.Second)
		before := size
		size = m.residentBytes()
		if n > 2 && size > before-1<<20 {
			break
		}
	}
	return size, nil
}
