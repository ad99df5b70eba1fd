package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// imapWorks are what mail clients ask of a mailbox of 10 000 messages.
func imapWorks() (list []work) {
	const box = 10000
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
		list = append(list, work{"imap " + w.name, []string{"mailstead"}, func(b *bench, _ string) (measured, error) {
			return b.imapCommand(b.times(box, 1000), w.command, b.times(w.times, 3))
		}})
	}
	return append(list,
		work{"imap log-in", []string{"mailstead"}, func(b *bench, _ string) (measured, error) { return b.logIns(b.times(100, 3)) }},
		work{"imap APPEND", []string{"mailstead"}, func(b *bench, _ string) (measured, error) { return b.appends(b.times(8000, 8), 1) }},
		work{"imap MULTIAPPEND", []string{"mailstead"}, func(b *bench, _ string) (measured, error) { return b.appends(b.times(40000, 8), 20) }},
		work{"imap idle, KiB each", []string{"mailstead"}, func(b *bench, _ string) (measured, error) { return b.idleMemory(b.times(1000, 20)) }},
	)
}

// An imapClient speaks just enough of IMAP to measure it: it reads answers and forgets them.
type imapClient struct {
	net.Conn
	r   *bufio.Reader
	tag int
}

func dialIMAP(addr string, limit time.Duration) (*imapClient, error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(limit))
	c := &imapClient{Conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
	if _, err := c.r.ReadString('\n'); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

func (m *mailstead) imap(limit time.Duration) (*imapClient, error) {
	c, err := dialIMAP(m.ready.IMAP, limit)
	if err != nil {
		return nil, err
	}
	if err := c.run(fmt.Sprintf("LOGIN %s %q", address(0), password)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// run sends a command and reads all of its answer.
func (c *imapClient) run(command string) error {
	c.tag++
	tag := "a" + strconv.Itoa(c.tag)
	if _, err := io.WriteString(c.Conn, tag+" "+command+"\r\n"); err != nil {
		return err
	}
	return c.answer(tag)
}

// answer reads up to the tagged line, which must be OK.
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

// filled starts the program with so many messages in a mailbox.
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

func (b *bench) imapCommand(size int, command string, times int) (measured, error) {
	m, err := b.filled(size)
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	c, err := m.imap(b.limit)
	if err != nil {
		return measured{}, err
	}
	defer c.Close()
	if err := c.run("SELECT INBOX"); err != nil {
		return measured{}, err
	}
	if strings.Contains(command, "%d") {
		command = fmt.Sprintf(command, max(1, size-499))
	}
	if err := c.run(command); err != nil { // once to warm up
		return measured{}, err
	}
	return repeat(m.process, times, func(int) error { return c.run(command) })
}

// repeat does something so many times, one after the other.
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

// logIns logs in again and again with the same password, as phones do.
func (b *bench) logIns(times int) (measured, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	return repeat(m.process, times, func(int) error {
		c, err := m.imap(b.limit)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// appends stores messages over eight connections with LITERAL+, so many in each command.
func (b *bench) appends(times, each int) (measured, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	messages := b.messages(2<<10, false)
	var all sync.WaitGroup
	failed := make(chan error, 8)
	before, began := m.cpu(), time.Now()
	for range 8 {
		all.Go(func() {
			c, err := m.imap(b.limit)
			for n := 0; err == nil && n < times/8; {
				command := new(strings.Builder)
				command.WriteString("APPEND INBOX")
				for end := min(n+each, times/8); n < end; n++ {
					text := strings.TrimSuffix(string(messages[n%len(messages)]), ".\r\n")
					fmt.Fprintf(command, " {%d+}\r\n%s", len(text), text)
				}
				err = c.run(command.String())
			}
			if err != nil {
				failed <- err
				return
			}
			c.Close()
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return measured{}, err
	default:
		return measured{times / 8 * 8, time.Since(began), m.cpu() - before, nil}, nil
	}
}

// idleSessions opens IMAP sessions that wait for mail; end closes them.
func (m *mailstead) idleSessions(n int) (end func(), err error) {
	var open []*imapClient
	end = func() {
		for _, c := range open {
			c.Close()
		}
	}
	for range n {
		c, err := m.imap(10 * time.Minute)
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

// idleMemory measures what an idle session takes: p50 is in KiB in the place of milliseconds.
func (b *bench) idleMemory(n int) (measured, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	before := m.memory()
	began := time.Now()
	end, err := m.idleSessions(n)
	defer end()
	if err != nil {
		return measured{}, err
	}
	wall := time.Since(began)
	time.Sleep(time.Second)
	each := time.Duration(float64(m.memory()-before) / float64(n) / 1024 * float64(time.Millisecond))
	return measured{n, wall, m.cpu(), []time.Duration{each}}, nil
}
