package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/smtp"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

// idlers is how many connections come that say nothing. CI has fewer, but more than there may be:
// make soak NAME=all has them all.
func (p gate) idlers() int {
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		return 10_000
	}
	return p.most + 1000
}

// guest is an address in a network where none of the idle clients is.
const guest = "127.200.0.1"

// A gate is a server as idlers and guests see it.
type gate struct {
	name    string
	addr    func(rig.Ready) string
	most    int // connections that it takes at once
	refusal string
	dismiss string // what those are told who make room for others
	visit   func(t *testing.T, i *rig.Instance, conn net.Conn) error
}

var gates = []gate{
	{
		"smtp", func(r rig.Ready) string { return r.SMTP }, 2000, "421 4.7.0 mail.mailstead.test Too many connections", "421 4.3.2 mail.mailstead.test Idle connection closed",
		func(_ *testing.T, _ *rig.Instance, conn net.Conn) error { return hand(conn, nil) },
	},
	{
		"submission", func(r rig.Ready) string { return r.Submission }, 2000, "421 4.7.0 mail.mailstead.test Too many connections", "421 4.3.2 mail.mailstead.test Idle connection closed",
		func(_ *testing.T, _ *rig.Instance, conn net.Conn) error {
			return hand(conn, rig.PlainAuth{User: "ann@example.test", Password: "correct horse"})
		},
	},
	{
		"imap", func(r rig.Ready) string { return r.IMAP }, 5000, "* BYE [LIMIT] Too many connections", "* BYE [UNAVAILABLE] Idle connection closed for others",
		func(_ *testing.T, _ *rig.Instance, conn net.Conn) error {
			c := imapclient.New(conn, nil)
			defer c.Close()
			if err := c.Login("ann@example.test", "correct horse").Wait(); err != nil {
				return err
			}
			_, err := c.Select("INBOX", nil).Wait()
			return err
		},
	},
	{
		"http", func(r rig.Ready) string { return r.HTTP }, 4096, "HTTP/1.1 503 Service Unavailable", "",
		func(_ *testing.T, i *rig.Instance, conn net.Conn) error {
			fmt.Fprintf(conn, "GET /v1/account HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", i.Token)
			answer, err := io.ReadAll(conn)
			if err == nil && !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
				err = errors.New(string(answer))
			}
			return err
		},
	},
	{
		"dns", func(r rig.Ready) string { return r.DNS }, 512, "", "",
		func(_ *testing.T, _ *rig.Instance, conn net.Conn) error {
			q := new(dns.Msg).SetQuestion("example.test.", dns.TypeMX)
			answer, _, err := (&dns.Client{Net: "tcp"}).ExchangeWithConn(q, &dns.Conn{Conn: conn})
			if err == nil && len(answer.Answer) == 0 {
				err = errors.New(answer.String())
			}
			return err
		},
	},
}

// hand gives a server a message for ann, as ann where a log-in is given.
func hand(conn net.Conn, login smtp.Auth) error {
	c, err := smtp.NewClient(conn, "mail.mailstead.test")
	if err != nil {
		return err
	}
	defer c.Close()
	from := "bob@elsewhere.test"
	if login != nil {
		from = "ann@example.test"
		if err := c.Auth(login); err != nil {
			return err
		}
	}
	if err := errors.Join(c.Mail(from), c.Rcpt("ann@example.test")); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "From: %s\r\nSubject: among the idle\r\n\r\nhello\r\n", from)
	return errors.Join(w.Close(), c.Quit())
}

// A mob is the idlers at one port.
type mob struct {
	gate  gate
	conns []net.Conn
	heard sync.WaitGroup

	open                         atomic.Int32
	refused, dismissed, silenced atomic.Int32 // how the others have ended
	mu                           sync.Mutex
	odd                          map[string]int // what was said that should not be
}

// gather opens the connections, from 250 addresses in 50 networks.
func gather(t *testing.T, addr string, p gate) *mob {
	m := &mob{gate: p, conns: make([]net.Conn, p.idlers()), odd: map[string]int{}}
	var next atomic.Int32
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for n := int(next.Add(1)) - 1; n < len(m.conns); n = int(next.Add(1)) - 1 {
				from := fmt.Sprintf("127.100.%d.%d", n%50, 1+n/50%5)
				conn, err := rig.DialFrom(t.Context(), from, addr)
				if err != nil {
					t.Errorf("connection %d from %s: %v", n, from, err)
					return
				}
				m.conns[n] = conn
				m.open.Add(1)
				m.heard.Go(func() { m.hear(conn) })
			}
		})
	}
	workers.Wait()
	return m
}

// hear listens to the end of a connection.
func (m *mob) hear(conn net.Conn) {
	text, err := io.ReadAll(io.LimitReader(conn, 1000))
	m.open.Add(-1)
	said := string(text)
	switch {
	case errors.Is(err, net.ErrClosed): // by us
	case m.gate.refusal != "" && strings.HasPrefix(said, m.gate.refusal):
		m.refused.Add(1)
	case m.gate.dismiss != "" && strings.Contains(said, m.gate.dismiss):
		m.dismissed.Add(1)
	case said == "":
		m.silenced.Add(1)
	default:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.odd[fmt.Sprintf("%s (%v)", said, err)]++
	}
}

// leave closes what is still open.
func (m *mob) leave() {
	for _, c := range m.conns {
		if c != nil {
			c.Close()
		}
	}
	m.heard.Wait()
}

// TestTenThousandIdleConnections: at each port their number is bounded, those too many are refused,
// told why and counted; who comes from elsewhere is served meanwhile, who has logged in before is
// left alone, and nothing remains of it. It runs by itself: what it starts here keeps the fakes of
// other tests from answering in time.
func TestTenThousandIdleConnections(t *testing.T) {
	if rig.Race {
		t.Skip("the race detector takes more memory and time than what is measured")
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Max < 11_000 {
		t.Skipf("this process may have no more than %d open files (%v)", files.Max, err)
	}
	for _, p := range gates {
		if p.name == "submission" && os.Getenv("MAILSTEAD_SOAK") == "" {
			continue // the port of smtp has the same limits
		}
		t.Run(p.name, func(t *testing.T) {
			i, _ := rig.StartWithMailbox(t)
			before, memory := i.OpenFiles(), i.Memory("VmRSS")
			early, err := rig.DialFrom(t.Context(), guest, i.Ready.IMAP)
			if err != nil {
				t.Fatal(err)
			}
			reader := imapclient.New(early, nil)
			defer reader.Close()
			if err := reader.Login("ann@example.test", "correct horse").Wait(); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			m := gather(t, p.addr(i.Ready), p)
			defer m.leave()
			gathered := time.Since(start)
			slowest := visits(t, i, p)
			if got := i.OpenFiles(); got > before+p.most+50 {
				t.Errorf("the server has %d files open, %d before", got, before)
			}
			grown := i.Memory("VmHWM") - memory
			if most := 32 + p.most*80>>10; grown > most {
				t.Errorf("the server's memory grew by %d MiB, %d at most", grown, most)
			}
			if err := reader.Noop().Wait(); err != nil {
				t.Errorf("a client that had logged in: %v", err)
			}
			i.Until("the surplus is gone", func() bool { return int(m.open.Load()) <= p.most })
			t.Logf("%d came in %s, %d are still there, %d were refused, %d dismissed, %d closed; the slowest visit took %s; %d MiB more memory",
				len(m.conns), gathered.Round(time.Millisecond), m.open.Load(), m.refused.Load(), m.dismissed.Load(), m.silenced.Load(), slowest.Round(time.Millisecond), grown)
			m.leave()
			i.Until("the files are closed", func() bool { return i.OpenFiles() <= before+5 })
			for said, n := range m.odd {
				t.Errorf("%d were told %q", n, said)
			}
			i.Check()
			m.compare(t, i)
		})
	}
}

// visits has guests come while the idlers are there, and gives how long the slowest took.
func visits(t *testing.T, i *rig.Instance, p gate) (slowest time.Duration) {
	for range 20 {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		conn, err := rig.DialFrom(ctx, guest, p.addr(i.Ready))
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(start.Add(30 * time.Second))
		if err := p.visit(t, i, conn); err != nil {
			t.Errorf("a guest was not served: %v", err)
		}
		conn.Close()
		slowest = max(slowest, time.Since(start))
	}
	return slowest
}

var refusedLine = regexp.MustCompile(`msg="too many connections" server=(\S+) refused=(\d+) sent_away=(\d+)`)

// compare holds the server's log against what the idlers heard.
func (m *mob) compare(t *testing.T, i *rig.Instance) {
	text, err := os.ReadFile(i.Log.Name())
	if err != nil {
		t.Fatal(err)
	}
	lines := refusedLine.FindAllStringSubmatch(string(text), -1)
	var refused, away int
	for _, l := range lines {
		if l[1] != m.gate.name {
			t.Errorf("the log has %q", l[0])
		}
		n, _ := strconv.Atoi(l[2])
		refused += n
		n, _ = strconv.Atoi(l[3])
		away += n
	}
	if len(lines) == 0 || len(lines) > 4 {
		t.Errorf("%d lines in the log", len(lines))
	}
	told, dismissed, silenced := int(m.refused.Load()), int(m.dismissed.Load()), int(m.silenced.Load())
	if m.gate.refusal != "" && (refused < told || refused > told+silenced) {
		t.Errorf("the log counts %d that were refused, %d were told so", refused, told)
	}
	if away < dismissed {
		t.Errorf("the log counts %d that were sent away, %d were told so", away, dismissed)
	}
	if m.gate.dismiss == "" { // there idle connections end by themselves after ten seconds
		return
	}
	if least := len(m.conns) - m.gate.most; refused+away < least || silenced > least/100 {
		t.Errorf("the log counts %d refused and %d sent away, want %d at least; %d were told nothing", refused, away, least, silenced)
	}
}
