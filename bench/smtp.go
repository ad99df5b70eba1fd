package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/emersion/go-msgauth/dkim"
)

// smtpWorkloads returns workloads in which Mailstead or a sink receives mail from outside.
func smtpWorkloads() (list []workload) {
	add := func(name string, size, conns, times int, signed, startTLS bool, servers ...string) {
		list = append(list, workload{name: name, servers: servers, run: func(b *bench, server string) (measurement, error) {
			return b.measureSMTP(server, b.messages(size, signed), conns, b.scaled(times, conns), startTLS)
		}})
	}
	all := []string{"mailstead", sinkBolt, sinkLog, sinkNull}
	add("smtp 2KiB 8", 2<<10, 8, 8000, false, false, all...)
	add("smtp 2KiB 1", 2<<10, 1, 2000, false, false, all...)
	add("smtp 2KiB 64", 2<<10, 64, 8000, false, false, all...)
	add("smtp 2KiB 8 signed", 2<<10, 8, 6000, true, false, all...)
	add("smtp 20KiB 8", 20<<10, 8, 5000, false, false, all...)
	add("smtp 200KiB 8", 200<<10, 8, 1500, false, false, all...)
	add("smtp 2KiB 8 TLS", 2<<10, 8, 6000, false, true, "mailstead")
	slow := []string{"mailstead", sinkBolt, sinkLog}
	return append(list, workload{name: "smtp 2KiB 8, syncs 2 ms slower", servers: slow, needs: "strace", run: func(b *bench, server string) (measurement, error) {
		strace, err := programPath("strace")
		if err != nil {
			return measurement{}, err
		}
		// strace delays every sync by 2 ms. With -D the child process is the server, not strace.
		b.launcher = []string{strace, "-D", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_exit=2000"}
		defer func() { b.launcher = nil }()
		return b.measureSMTP(server, b.messages(2<<10, false), 8, b.scaled(4000, 8), false)
	}})
}

// measureSMTP measures messages that are received over conns connections. Without TLS, Mailstead
// also has 20 idle IMAP sessions.
func (b *bench) measureSMTP(server string, messages [][]byte, conns, times int, startTLS bool) (measurement, error) {
	var p *process
	var addr string
	if server == "mailstead" {
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
		if !startTLS { // a server with a certificate refuses log-ins without TLS
			idle, err := m.openIdleSessions(20, false)
			if err != nil {
				return measurement{}, err
			}
			defer idle()
		}
		p, addr = m.process, m.ready.SMTP
	} else {
		var err error
		p, addr, err = b.startSink(server)
		if err != nil {
			return measurement{}, err
		}
		defer p.stop()
	}
	// The first messages are not measured, because they fill caches.
	if _, err := sendAll(addr, messages, conns, max(times/20, conns), startTLS, b.limit); err != nil {
		return measurement{}, err
	}
	before, began := p.cpu(), time.Now()
	took, err := sendAll(addr, messages, conns, times, startTLS, b.limit)
	return measurement{Ops: len(took), Wall: time.Since(began), CPU: p.cpu() - before, Took: took}, err
}

// sendAll sends a number of messages over conns connections. It returns how long each message took,
// from MAIL to the final reply.
func sendAll(addr string, messages [][]byte, conns, times int, startTLS bool, limit time.Duration) (took []time.Duration, err error) {
	var next atomic.Int64
	var mu sync.Mutex
	var all sync.WaitGroup
	var errs []error
	for range conns {
		all.Go(func() {
			var mine []time.Duration
			err := func() error {
				c, err := dialSMTP(addr, startTLS, limit)
				if err != nil {
					return err
				}
				defer c.Close()
				for n := next.Add(1); n <= int64(times); n = next.Add(1) {
					began := time.Now()
					if err := c.send("bounce@"+senderDomain, address(int(n)), messages[n%int64(len(messages))]); err != nil {
						return err
					}
					mine = append(mine, time.Since(began))
				}
				return nil
			}()
			mu.Lock()
			defer mu.Unlock()
			took, errs = append(took, mine...), append(errs, err)
		})
	}
	all.Wait()
	return took, errors.Join(errs...)
}

// An smtpClient sends messages over one SMTP connection. As Postfix does, it writes MAIL, RCPT and
// DATA at once.
type smtpClient struct {
	net.Conn
	r *bufio.Reader
}

// dialSMTP connects to an SMTP server. startTLS makes it use STARTTLS. The connection ends after
// limit.
func dialSMTP(addr string, startTLS bool, limit time.Duration) (*smtpClient, error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(limit))
	c := &smtpClient{conn, bufio.NewReader(conn)}
	err = c.readReply("220")
	if err == nil {
		err = c.command("EHLO mx."+senderDomain, "250")
	}
	if err == nil && startTLS {
		if err = c.command("STARTTLS", "220"); err == nil {
			t := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the certificate is self-signed
			c.Conn, c.r = t, bufio.NewReader(t)
			err = c.command("EHLO mx."+senderDomain, "250")
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// command sends a command and reads the reply. It returns an error unless the reply has the code.
func (c *smtpClient) command(line, code string) error {
	if _, err := io.WriteString(c.Conn, line+"\r\n"); err != nil {
		return err
	}
	return c.readReply(code)
}

// readReply reads a reply, which may have several lines. It returns an error unless the reply has
// the code.
func (c *smtpClient) readReply(code string) error {
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return err
		}
		if !strings.HasPrefix(line, code) {
			return fmt.Errorf("the SMTP reply is %q instead of %s", strings.TrimSpace(line), code)
		}
		if len(line) > 3 && line[3] != '-' {
			return nil
		}
	}
}

// send sends one message, which ends with the line of a single dot.
func (c *smtpClient) send(from, to string, message []byte) error {
	if _, err := io.WriteString(c.Conn, "MAIL FROM:<"+from+">\r\nRCPT TO:<"+to+">\r\nDATA\r\n"); err != nil {
		return err
	}
	if err := errors.Join(c.readReply("250"), c.readReply("250"), c.readReply("354")); err != nil {
		return err
	}
	if _, err := c.Write(message); err != nil {
		return err
	}
	return c.readReply("250")
}

// messages returns 64 different messages of a size in bytes. Each ends with the line of a single
// dot. signed adds DKIM signatures.
func (b *bench) messages(size int, signed bool) [][]byte {
	kind := fmt.Sprint(size, signed)
	if len(b.bodies[kind]) > 0 {
		return b.bodies[kind]
	}
	rnd := rand.New(rand.NewPCG(2026, uint64(size)))
	for n := range 64 {
		var m bytes.Buffer
		fmt.Fprintf(&m, "From: Ann Example <ann@%s>\r\nTo: <%s>\r\nSubject: Report %d of the week, with %s\r\nDate: %s\r\nMessage-ID: <%d.%d@%s>\r\n"+
			"MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n",
			senderDomain, address(n), n, messageWords[rnd.IntN(len(messageWords))], time.Now().Format(time.RFC1123Z), rnd.Uint64(), n, senderDomain)
		line := 0
		for m.Len() < size {
			word := messageWords[rnd.IntN(len(messageWords))]
			m.WriteString(word)
			line += len(word) + 1
			if line > 70 {
				m.WriteString("\r\n")
				line = 0
			} else {
				m.WriteByte(' ')
			}
		}
		m.WriteString("\r\n")
		text := m.Bytes()
		if signed {
			var out bytes.Buffer
			err := dkim.Sign(&out, bytes.NewReader(text), &dkim.SignOptions{
				Domain: senderDomain, Selector: "s1", Signer: b.names.key,
				HeaderKeys: []string{"From", "To", "Subject", "Date", "Message-ID"},
			})
			if err != nil {
				panic(err) // the key and the message are our own
			}
			text = out.Bytes()
		}
		b.bodies[kind] = append(b.bodies[kind], append(bytes.Clone(text), ".\r\n"...))
	}
	return b.bodies[kind]
}

var messageWords = strings.Fields(`about above account after again almost along already although always among amount answer anything area
	around article attention available because become before behind believe better between beyond board bottle branch bridge
	bright bring brother brought build building burning business called camera capital careful carry cause center certain
	chance change charge chief child choice church circle citizen claim clear climb close cloud coast collect college common
	company compare complete concern condition consider contain continue control corner correct country course cover create
	credit cross current danger daughter decide degree demand describe design develop difference direct discover distance
	doctor double doubt dream drive during early earth eastern edge education effect effort either electric element employ
	energy engine enough enter entire equal escape especially evening event example except exercise expect experience explain`)
