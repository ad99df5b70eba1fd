package scale

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/smtp"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

// TestHourOfLoad runs the program in production's settings under steady mixed load. Every request
// must succeed, and memory, goroutines and open files must not grow: a line that is fitted to their
// figures rises no more than their noise and a stated floor allow. A segment has one handle, which
// does not count: TestYearsReachAPlateau bounds the segments. CI has some seconds of it, too few
// for the lines; make soak-hour has an hour.
func TestHourOfLoad(t *testing.T) {
	t.Parallel()
	l := &load{t: t, rate: 8, users: 4, length: 10 * time.Second, seed: 2026, told: map[string]bool{}, done: map[string]*requests{}}
	whole := false
	if n, err := strconv.ParseFloat(os.Getenv("MAILSTEAD_MINUTES"), 64); err == nil {
		whole, l.length, l.rate = true, time.Duration(n*float64(time.Minute)), 40
		l.users = 20
	}
	if n, err := strconv.ParseFloat(os.Getenv("MAILSTEAD_RATE"), 64); err == nil {
		l.rate = n
	}
	if n, err := strconv.ParseUint(os.Getenv("MAILSTEAD_SEED"), 10, 64); err == nil {
		l.seed = n
	}
	t.Logf("seed %d: %s at %.0f messages a second", l.seed, l.length, l.rate)
	l.prepare()
	before := l.sample()
	ctx, cancel := context.WithTimeout(t.Context(), l.length)
	defer cancel()
	l.begin(ctx)
	every := min(10*time.Second, l.length/5)
	for tick := time.NewTicker(every); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			tick.Stop()
		case <-tick.C:
			s := l.sample()
			l.samples = append(l.samples, s)
			if whole && len(l.samples)%30 == 1 {
				t.Log(s)
			}
		}
	}
	l.all.Wait()
	l.report("smtp", "submission", "send", "imap", "idle", "list", "search", "read", "delete", "dns", "page", "backup")
	if whole {
		l.judge()
	}
	l.settle(before, whole)
	l.Check()
}

const hourHost = "mail.hour.test"

// load is what goes on in TestHourOfLoad and TestLargeLoad.
type load struct {
	*rig.Instance
	t       *testing.T
	rate    float64 // messages a second that come in
	users   int     // mailboxes, at least four
	length  time.Duration
	seed    uint64
	client  *http.Client
	api     string       // the URL that paths follow
	boxes   []string     // ids of b0@example.test and so on
	turns   []sync.Mutex // held by who deletes in a mailbox: EXPUNGE tells one client what another deleted
	large   string
	samples []sample
	all     sync.WaitGroup

	came, went      atomic.Int64 // messages that were taken in, and that were deleted
	relayed, passed atomic.Int64 // messages for the relay, and those that it took
	mu              sync.Mutex
	told            map[string]bool // events that the webhook took, by id; false: it was refused once
	done            map[string]*requests
}

// requests are those of one kind.
type requests struct {
	took   []time.Duration
	failed int
	first  error
}

// prepare starts the server and what it talks to.
func (l *load) prepare() {
	t := l.t
	world := rig.NewFakeResolver(t)
	for _, name := range []string{hourHost, "ns1.hour.test", "ns2.hour.test"} {
		world.PointHere(t, name)
	}
	world.Set(t, "elsewhere.test", "TXT", `"v=spf1 ip4:127.0.0.0/8 -all"`)
	world.Set(t, "_dmarc.elsewhere.test", "TXT", `"v=DMARC1; p=none"`)
	world.Set(t, "example.test", "NS", "ns1.hour.test.", "ns2.hour.test.")
	relay := rig.NewFakeSMTP(t, false, func(n int) string {
		if n%20 == 0 {
			return "451 4.3.0 not now"
		}
		l.passed.Add(1)
		return fmt.Sprintf("250 Ok id-%d", n)
	})
	endpoint, hookCA := rig.ServeHTTPS(t, l.takeEvent)
	cert, key, _ := rig.SelfSigned(t, hourHost)
	host, port, _ := net.SplitHostPort(relay.Addr)
	l.Instance = rig.Start(t, rig.GenerousLimits+fmt.Sprintf("[[relay]]\nname='r1'\nkind='custom'\nhost=%q\nport=%s\ntls='none'\n", host, port),
		"--hostname", hourHost, "--public-ip", "127.0.0.1", "--tls-cert", cert, "--tls-key", key, "--acme-directory", "off", "--http-tls", "127.0.0.1:0",
		"--submissions", "127.0.0.1:0", "--imaps", "127.0.0.1:0", "--resolver", world.Addr, "--ca-file", hookCA, "--allow-private-destinations", "--outbound", "relay")
	world.Delegate(l.Ready.DNS)
	l.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 4}}
	t.Cleanup(l.client.CloseIdleConnections)
	l.api = "https://" + l.Ready.HTTPTLS
	l.AddDomain("example.test")
	l.turns = make([]sync.Mutex, l.users)
	for n := range l.users {
		l.boxes = append(l.boxes, l.AddMailbox(fmt.Sprintf("b%d@example.test", n), "correct horse"))
	}
	l.Want(201, "POST", "/v1/webhooks", map[string]any{"url": endpoint, "events": []string{"email.received"}}, nil)
	var text strings.Builder
	for random := rand.New(rand.NewPCG(l.seed, 0)); text.Len() < 600<<10; {
		fmt.Fprintf(&text, "%016x%016x%016x%016x\r\n", random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64())
	}
	l.large = text.String()
}

// takeEvent is a webhook that refuses the first delivery of one event in twenty, and is slow for
// one in fifty.
func (l *load) takeEvent(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("webhook-id")
	_, _ = io.Copy(io.Discard, r.Body)
	l.mu.Lock()
	_, again := l.told[id]
	taken := again || len(l.told)%20 != 19
	l.told[id] = taken
	slow := len(l.told)%50 == 0
	l.mu.Unlock()
	if slow {
		time.Sleep(200 * time.Millisecond) // a slow endpoint
	}
	if !taken {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// begin starts everything that goes on until ctx ends.
func (l *load) begin(ctx context.Context) {
	second := func(perSecond float64) time.Duration { return time.Duration(float64(time.Second) / perSecond) }
	for n := range 8 {
		random := rand.New(rand.NewPCG(l.seed, uint64(n)+1))
		c := &courier{addr: l.Ready.SMTP, longest: 100}
		l.repeat(ctx, "smtp", second(l.rate/8), c.leave, func() error { return l.sendIn(c, random) })
	}
	boxes, random := new(atomic.Int64), rand.New(rand.NewPCG(l.seed, 100))
	next := func() int { return int(boxes.Add(1)) % l.users }
	submitter := &courier{addr: l.Ready.Submission, longest: 20, login: rig.PlainAuth{User: "b0@example.test", Password: "correct horse"}}
	l.repeat(ctx, "submission", second(l.rate/40), submitter.leave, func() error {
		l.relayed.Add(1)
		return submitter.send("b0@example.test", []string{"x@far.test"}, l.letter("b0@example.test", random))
	})
	l.repeat(ctx, "send", second(l.rate/40), nil, func() error {
		l.came.Add(1)
		l.relayed.Add(1)
		return l.call(200, "POST", "/v1/email-users/"+l.boxes[1]+"/inbox/send", map[string]any{"to": []string{"x@far.test", "b2@example.test"}, "subject": "s", "text": "hello"}, nil)
	})
	for range 2 {
		l.repeat(ctx, "imap", second(l.rate/80), nil, func() error { return l.visit(next()) })
	}
	for n := range 4 {
		l.all.Go(func() { l.note("idle", 0, l.idle(ctx, n)) })
	}
	l.repeat(ctx, "list", second(l.rate/20), nil, func() error { return l.call(200, "GET", "/v1/inbox?limit=50", nil, nil) })
	l.repeat(ctx, "search", second(l.rate/40), nil, func() error {
		return l.call(200, "GET", fmt.Sprintf("/v1/inbox?q=word%d", next()), nil, nil)
	})
	l.repeat(ctx, "read", second(l.rate/20), nil, func() error { return l.read(next()) })
	l.repeat(ctx, "log", second(l.rate/80), nil, func() error { return l.call(200, "GET", "/v1/messages?limit=20", nil, nil) })
	var turn atomic.Int64
	l.repeat(ctx, "delete", second(l.rate/50), nil, func() error { return l.reap(int(turn.Add(1)) % l.users) })
	l.repeat(ctx, "dns", second(l.rate/4), nil, func() error { return l.query(next()) })
	l.all.Go(func() { l.note("page", 0, l.page(ctx, time.Hour)) })
	l.all.Go(func() { l.note("page", 0, l.page(ctx, l.length/20)) })
	to := filepath.Join(l.t.TempDir(), "backups") + "/"
	l.repeat(ctx, "backup", min(3*time.Minute, l.length/3), nil, func() error { return l.backUp(to) })
}

// repeat does something again and again; what takes longer than its turn is not made up for.
func (l *load) repeat(ctx context.Context, name string, every time.Duration, leave func(), do func() error) {
	l.all.Go(func() {
		if leave != nil {
			defer leave()
		}
		for turn := time.Now().Add(rand.N(every)); ; turn = turn.Add(every) {
			if late := time.Since(turn); late > 10*every {
				turn = time.Now()
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(turn)):
			}
			began := time.Now()
			err := do()
			l.note(name, time.Since(began), err)
		}
	})
}

func (l *load) note(name string, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.done[name]
	if r == nil {
		r = new(requests)
		l.done[name] = r
	}
	r.took = append(r.took, took)
	if err != nil {
		r.failed++
		if r.first == nil {
			r.first = err
		}
	}
}

// call calls the API and demands a status.
func (l *load) call(status int, method, path string, body, out any) error {
	text := []byte{}
	var err error
	if body != nil {
		text, err = json.Marshal(body)
		if err != nil {
			return err
		}
	}
	req, err := http.NewRequest(method, l.api+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+l.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != status {
		return fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, answer)
	}
	if out != nil {
		return json.Unmarshal(answer, out)
	}
	return nil
}

// letter is a message of one to eight KiB, or in one of a hundred cases of 600.
func (l *load) letter(from string, random *rand.Rand) string {
	text := fmt.Sprintf("From: Someone <%s>\r\nSubject: word%d and number %d\r\nMessage-ID: <%x@elsewhere.test>\r\n\r\n", from, random.IntN(50), random.IntN(1e6), random.Uint64())
	if random.IntN(100) == 0 {
		return text + l.large
	}
	begin := random.IntN(len(l.large)/66-130) * 66
	return text + l.large[begin:begin+(16+random.IntN(112))*66]
}

func (l *load) sendIn(c *courier, random *rand.Rand) error {
	from := fmt.Sprintf("s%d@elsewhere.test", random.IntN(200))
	err := c.send(from, []string{fmt.Sprintf("b%d@example.test", random.IntN(len(l.boxes)))}, l.letter(from, random))
	if err == nil {
		l.came.Add(1)
	}
	return err
}

// A courier sends messages over one connection after the other.
type courier struct {
	addr    string
	login   smtp.Auth // with STARTTLS before it
	longest int       // messages over one connection
	conn    net.Conn
	c       *smtp.Client
	sent    int
}

func (c *courier) send(from string, to []string, message string) (err error) {
	if c.c == nil {
		if err := c.connect(); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
	}
	_ = c.conn.SetDeadline(time.Now().Add(time.Minute))
	if err := rig.SendMail(c.c, from, to, message); err != nil {
		c.leave()
		return err
	}
	if c.sent++; c.sent == c.longest {
		c.leave()
	}
	return nil
}

func (c *courier) connect() (err error) {
	c.conn, err = net.DialTimeout("tcp", c.addr, 10*time.Second)
	if err != nil {
		return err
	}
	_ = c.conn.SetDeadline(time.Now().Add(time.Minute))
	c.sent = 0
	c.c, err = smtp.NewClient(c.conn, hourHost)
	if err != nil || c.login == nil {
		return err
	}
	return errors.Join(c.c.StartTLS(&tls.Config{InsecureSkipVerify: true}), c.c.Auth(c.login))
}

func (c *courier) leave() {
	if c.c != nil {
		_ = c.c.Quit()
		c.c.Close()
	}
	c.c = nil
}

func (l *load) logIn(n int) (*imapclient.Client, error) {
	c, err := imapclient.DialTLS(l.Ready.IMAPS, &imapclient.Options{TLSConfig: &tls.Config{InsecureSkipVerify: true}})
	if err != nil {
		return nil, err
	}
	err = c.Login(fmt.Sprintf("b%d@example.test", n), "correct horse").Wait()
	if err == nil {
		_, err = c.Select("INBOX", nil).Wait()
	}
	if err != nil {
		c.Close()
	}
	return c, err
}

// visit is what a mail client does: it looks, waits for a moment, reads, flags, deletes the oldest
// and goes.
func (l *load) visit(n int) error {
	l.turns[n].Lock()
	defer l.turns[n].Unlock()
	c, err := l.logIn(n)
	if err != nil {
		return err
	}
	defer c.Close()
	idle, err := c.Idle()
	if err != nil {
		return err
	}
	time.Sleep(200 * time.Millisecond) // it idles
	if err := errors.Join(idle.Close(), idle.Wait()); err != nil {
		return err
	}
	found, err := c.UIDSearch(new(imap.SearchCriteria), nil).Wait()
	if err != nil {
		return err
	}
	uids := found.AllUIDs()
	if len(uids) < 20 {
		return c.Logout().Wait()
	}
	newest := imap.UIDSetNum(uids[len(uids)-10:]...)
	if _, err := c.Fetch(newest, &imap.FetchOptions{Envelope: true, Flags: true, RFC822Size: true}).Collect(); err != nil {
		return err
	}
	last := imap.UIDSetNum(uids[len(uids)-1])
	if _, err := c.Fetch(last, &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{{}}}).Collect(); err != nil {
		return err
	}
	flag := func(set imap.UIDSet, f imap.Flag) error {
		return c.Store(set, &imap.StoreFlags{Op: imap.StoreFlagsAdd, Silent: true, Flags: []imap.Flag{f}}, nil).Close()
	}
	oldest := imap.UIDSetNum(uids[:3]...)
	if err := errors.Join(flag(last, imap.FlagSeen), flag(newest, imap.FlagFlagged), flag(oldest, imap.FlagDeleted)); err != nil {
		return err
	}
	gone, err := c.UIDExpunge(oldest).Collect()
	if err != nil {
		return err
	}
	l.went.Add(int64(len(gone)))
	return c.Logout().Wait()
}

// idle is a mail client that stays until the end.
func (l *load) idle(ctx context.Context, n int) error {
	c, err := l.logIn(n)
	if err != nil {
		return err
	}
	defer c.Close()
	idle, err := c.Idle()
	if err != nil {
		return err
	}
	<-ctx.Done()
	return errors.Join(idle.Close(), idle.Wait(), c.Logout().Wait())
}

// read reads the newest message of a mailbox, and marks it.
func (l *load) read(n int) error {
	var page struct{ Data []rig.InboxRow }
	path := "/v1/email-users/" + l.boxes[n] + "/inbox"
	if err := l.call(200, "GET", path+"?limit=1", nil, &page); err != nil || len(page.Data) == 0 {
		return err
	}
	path += "/" + page.Data[0].UID
	return errors.Join(l.call(200, "GET", path, nil, nil), l.call(200, "PATCH", path, map[string]any{"is_read": true}, nil))
}

// reap deletes a mailbox's second hundred of messages.
func (l *load) reap(n int) error {
	l.turns[n].Lock()
	defer l.turns[n].Unlock()
	var page struct {
		Data       []rig.InboxRow
		Pagination struct{ Cursor *string }
	}
	path := "/v1/email-users/" + l.boxes[n] + "/inbox?limit=100"
	if err := l.call(200, "GET", path, nil, &page); err != nil || page.Pagination.Cursor == nil {
		return err
	}
	if err := l.call(200, "GET", path+"&cursor="+url.QueryEscape(*page.Pagination.Cursor), nil, &page); err != nil || len(page.Data) == 0 {
		return err
	}
	var refs []map[string]string
	for _, m := range page.Data {
		refs = append(refs, map[string]string{"uid": m.UID, "mailbox": m.Mailbox})
	}
	var out struct{ Deleted int }
	err := l.call(200, "POST", "/v1/inbox/bulk-delete", map[string]any{"messages": refs}, &out)
	l.went.Add(int64(out.Deleted))
	return err
}

func (l *load) query(n int) error {
	q := new(dns.Msg).SetQuestion("example.test.", []uint16{dns.TypeMX, dns.TypeTXT, dns.TypeNS, dns.TypeSOA}[n%4])
	way := "udp"
	if n%10 == 0 {
		way = "tcp"
	}
	answer, _, err := (&dns.Client{Net: way, Timeout: 10 * time.Second}).Exchange(q, l.Ready.DNS)
	if err == nil && len(answer.Answer) == 0 {
		err = errors.New(answer.String())
	}
	return err
}

// page listens to the stream of the dashboard, and comes again each time.
func (l *load) page(ctx context.Context, each time.Duration) error {
	for ctx.Err() == nil {
		visit, leave := context.WithTimeout(ctx, each)
		req, err := http.NewRequestWithContext(visit, "GET", "http://"+l.Ready.HTTP+"/session/stream", nil)
		if err != nil {
			leave()
			return err
		}
		req.Header.Set("Authorization", "Bearer "+l.Token)
		resp, err := new(http.Transport).RoundTrip(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		early := visit.Err() == nil
		leave()
		if early {
			return fmt.Errorf("the stream has ended: %w", err)
		}
	}
	return nil
}

func (l *load) backUp(to string) error {
	path, err := rig.Binary()
	if err != nil {
		return err
	}
	out, err := exec.Command(path, "backup", "--data", l.Dir, "--to", to, "--json").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
