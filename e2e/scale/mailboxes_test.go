package scale

import (
	"errors"
	"fmt"
	"io"
	"net/smtp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/e2e/rig"
)

const (
	mailboxesPerDomain = 25           // of TestThousandMailboxes
	programAddress     = "127.60.0.1" // of the program with many mailboxes
	floodAddress       = "127.50.0.1" // of clients that connect and say nothing
)

// TestThousandMailboxes has one program use many mailboxes of many domains from one address, with
// the default limits of production: each logs in over IMAP and over SMTP, sends a message to a
// mailbox of another domain, and stays. Connections from elsewhere that do not log in keep nobody
// out. make soak-mailboxes has 1 000 mailboxes of 40 domains.
func TestThousandMailboxes(t *testing.T) {
	most := rig.NumberFrom(t, "MAILSTEAD_MAILBOXES", 3*mailboxesPerDomain)
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || int(files.Max) < 2*most+1000 {
		t.Skipf("this process may have no more than %d open files (%v)", files.Max, err)
	}
	i := rig.Start(t, rig.GenerousLimits+"exempt_networks = []\n")
	var addresses []string
	for n := range most {
		domain := fmt.Sprintf("d%d.test", n/mailboxesPerDomain)
		if n%mailboxesPerDomain == 0 {
			i.AddDomain(domain)
		}
		addresses = append(addresses, fmt.Sprintf("m%d@%s", n, domain))
		i.AddMailbox(addresses[n], "correct horse")
	}
	flood(t, i, floodAddress)
	start := time.Now()
	clients := make([]mailClient, most)
	var next atomic.Int32
	var workers sync.WaitGroup
	for range 20 {
		workers.Go(func() {
			for n := int(next.Add(1)) - 1; n < most; n = int(next.Add(1)) - 1 {
				c, err := useMailbox(t, i, addresses[n], addresses[(n+mailboxesPerDomain)%most])
				if err != nil {
					t.Errorf("%s: %v", addresses[n], err)
					return
				}
				clients[n] = c
			}
		})
	}
	workers.Wait()
	if t.Failed() {
		return
	}
	t.Logf("%d mailboxes have logged in twice and sent a message after %s", most, time.Since(start).Round(time.Millisecond))
	flood(t, i, programAddress) // what has logged in does not count for the address
	for n, c := range clients {
		i.Until(addresses[n]+" has its message", func() bool {
			status, err := c.imap.Status("INBOX", &imap.StatusOptions{NumMessages: true}).Wait()
			if err := errors.Join(err, c.smtp.Noop()); err != nil {
				t.Fatalf("%s: %v", addresses[n], err)
			}
			return *status.NumMessages == 1
		})
	}
}

// A mailClient is logged in to a mailbox.
type mailClient struct {
	imap *imapclient.Client
	smtp *smtp.Client
}

// useMailbox logs in to a mailbox from the address of the program, and sends a message.
func useMailbox(t *testing.T, i *rig.Instance, email, to string) (c mailClient, err error) {
	conn, err := rig.DialFrom(t.Context(), programAddress, i.Ready.IMAP)
	if err != nil {
		return c, err
	}
	t.Cleanup(func() { conn.Close() })
	c.imap = imapclient.New(conn, nil)
	if err := c.imap.Login(email, "correct horse").Wait(); err != nil {
		return c, err
	}
	conn, err = rig.DialFrom(t.Context(), programAddress, i.Ready.Submission)
	if err != nil {
		return c, err
	}
	t.Cleanup(func() { conn.Close() })
	c.smtp, err = smtp.NewClient(conn, "mail.mailstead.test")
	if err != nil {
		return c, err
	}
	if err := c.smtp.Auth(rig.PlainAuth{User: email, Password: "correct horse"}); err != nil {
		return c, err
	}
	return c, rig.SendMail(c.smtp, email, []string{to}, "From: "+email+"\r\nTo: "+to+"\r\nSubject: one of many\r\n\r\nhello\r\n")
}

// flood opens 60 connections to each port that say nothing. 50 are accepted, and the others
// refused.
func flood(t *testing.T, i *rig.Instance, from string) {
	t.Helper()
	for addr, refusal := range map[string]string{i.Ready.IMAP: "* BYE [LIMIT]", i.Ready.Submission: "421 4.7.0", i.Ready.SMTP: "421 4.7.0"} {
		for n := range 60 {
			conn, err := rig.DialFrom(t.Context(), from, addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			greeting := make([]byte, 256)
			k, err := io.ReadAtLeast(conn, greeting, len(refusal))
			if refused := strings.HasPrefix(string(greeting[:k]), refusal); err != nil || refused != (n >= 50) {
				t.Fatalf("connection %d from %s to %s: %q, %v", n+1, from, addr, greeting[:k], err)
			}
		}
	}
}
