package scale

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/mailstead/mailstead/e2e/rig"
)

// TestLargeLoad runs the program over a large store with GOMEMLIMIT=200MiB: half of the mail that
// it can take comes in, sessions of many mailboxes wait for it and read it, and pages are listed.
// Every request must succeed, and what TestHourOfLoad measures must not grow. CI has some seconds
// of it over a small store; make soak-large has an hour.
func TestLargeLoad(t *testing.T) {
	besideOthers(t)
	l := &load{t: t, users: 8, length: 3 * time.Second, seed: 2026, told: map[string]bool{}, done: map[string]*requests{}}
	full := 200 * time.Millisecond
	whole := false
	if n, err := strconv.ParseFloat(os.Getenv("MAILSTEAD_MINUTES"), 64); err == nil {
		whole, l.length, l.users, full = true, time.Duration(n*float64(time.Minute)), 200, 30*time.Second
	}
	s := largeStore(t, scaleSize(t, 3000))
	l.Instance = rig.Prepare(t, s.data, s.Token)
	l.client = &http.Client{Timeout: time.Minute}
	t.Cleanup(l.client.CloseIdleConnections)
	l.Env = []string{"GOMEMLIMIT=200MiB"}
	database := sizeOf(t, s.data, "mailstead.db")
	began := time.Now()
	l.Start()
	l.api = "http://" + l.Ready.HTTP
	t.Logf("the start took %s; %s", time.Since(began).Round(time.Millisecond), l.sample())

	// Eight connections that send as much as they can tell what half of it is, once the system has
	// read the pages of the database that they need into its cache.
	random := rand.New(rand.NewPCG(l.seed, 0))
	text := s.letter(random)
	l.rate = 1e9
	came := int64(0)
	for _, length := range []time.Duration{5 * full, full} {
		came += l.came.Swap(0)
		ctx, cancel := context.WithTimeout(t.Context(), length)
		l.mailIn(ctx, s, text)
		l.all.Wait()
		cancel()
	}
	most := float64(l.came.Load()) / full.Seconds()
	l.rate = most / 2
	if n, err := strconv.ParseFloat(os.Getenv("MAILSTEAD_RATE"), 64); err == nil {
		l.rate = n
	}
	t.Logf("it takes %.0f messages a second; now %.0f for %s, and %d sessions", most, l.rate, l.length, l.users)
	l.done = map[string]*requests{}
	came += l.came.Swap(0)

	ctx, cancel := context.WithTimeout(t.Context(), l.length)
	defer cancel()
	l.mailIn(ctx, s, text)
	for n := range l.users { // one after the other, since few log-ins at a time are verified
		l.all.Go(func() {
			time.Sleep(time.Duration(n) * 150 * time.Millisecond) // log-ins come one after the other
			l.note("idle", 0, l.watch(ctx, s.address(n), n%10 == 0))
		})
	}
	l.repeat(ctx, "list", 100*time.Millisecond, nil, func() error { return l.call(200, "GET", "/v1/inbox?limit=50&is_read=false", nil, nil) })
	l.repeat(ctx, "search", time.Second, nil, func() error { return l.call(200, "GET", "/v1/inbox?limit=20&q=market", nil, nil) })
	var turn atomic.Int64
	l.repeat(ctx, "domain", time.Second, nil, func() error {
		return l.call(200, "GET", "/v1/email-users?domain="+scaleDomain(int(turn.Add(1))%s.Domains), nil, nil)
	})
	every := min(10*time.Second, l.length/5)
	for tick := time.NewTicker(every); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			tick.Stop()
		case <-tick.C:
			l.samples = append(l.samples, l.sample())
			if whole && len(l.samples)%30 == 1 {
				t.Log(l.samples[len(l.samples)-1])
			}
		}
	}
	l.all.Wait()
	l.report("smtp", "idle", "fetch", "list", "search", "domain")
	if whole {
		l.judge()
	}
	t.Logf("%d messages came in; %s", l.came.Load(), l.sample())

	// A snapshot that is open for long makes the file grow with each commit: bbolt uses no page
	// again that it can see. A message takes 3 KiB of the database.
	came += l.came.Load()
	if grown := sizeOf(t, s.data, "mailstead.db") - database; grown > 1<<30+6<<10*came {
		t.Errorf("the database grew by %d MiB for %d messages", grown>>20, came)
	}
}

// mailIn has mail come in over eight connections until ctx ends.
func (l *load) mailIn(ctx context.Context, s *scale, text string) {
	for n := range 8 {
		random := rand.New(rand.NewPCG(l.seed, uint64(n)+1))
		c := &courier{addr: l.Ready.SMTP, longest: 100}
		l.repeat(ctx, "smtp", time.Duration(8*float64(time.Second)/l.rate), c.leave, func() error {
			header := fmt.Sprintf("From: s@elsewhere.test\r\nSubject: market %d\r\nMessage-ID: <%x@elsewhere.test>\r\n\r\n", random.IntN(1e6), random.Uint64())
			err := c.send("s@elsewhere.test", []string{s.address(random.IntN(s.Mailboxes))}, header+text)
			if err == nil {
				l.came.Add(1)
			}
			return err
		})
	}
}

// letter is the text of a message, of some two KiB.
func (s *scale) letter(random *rand.Rand) (text string) {
	for len(text) < 2<<10 {
		text += fmt.Sprintf("weekly %x winter %x\r\n", random.Uint64(), random.Uint64())
	}
	return text
}

// watch is a mail client that stays until the end. A busy one reads the newest messages now and
// then.
func (l *load) watch(ctx context.Context, email string, busy bool) error {
	c, err := imapclient.DialInsecure(l.Ready.IMAP, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Login(email, scalePassword).Wait(); err != nil {
		return err
	}
	for {
		selected, err := c.Select("INBOX", nil).Wait()
		if err != nil {
			return err
		}
		if busy && selected.NumMessages > 0 {
			began := time.Now()
			newest := imap.SeqSet{}
			newest.AddRange(max(1, selected.NumMessages-49), selected.NumMessages)
			_, err := c.Fetch(newest, &imap.FetchOptions{Envelope: true, Flags: true, RFC822Size: true}).Collect()
			l.note("fetch", time.Since(began), err)
		}
		idle, err := c.Idle()
		if err != nil {
			return err
		}
		pause := time.Hour
		if busy {
			pause = 2 * time.Second
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		if err := idle.Close(); err != nil {
			return err
		}
		if err := idle.Wait(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return c.Logout().Wait()
		}
	}
}
