package scale

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// A bucket lets so many pass in a second, as large receivers count.
type bucket struct {
	mu    sync.Mutex
	rate  float64
	level float64
	last  time.Time
}

func (b *bucket) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.level = min(b.rate, b.level+now.Sub(b.last).Seconds()*b.rate)
	b.last = now
	if b.level < 1 {
		return false
	}
	b.level--
	return true
}

// TestSlowReceivers: very many messages to a relay that takes 14 a second, as Amazon SES does at
// first, and to a host that answers 4xx to what is more than it wants, and to some of the others.
// None is lost and none bounces; each is delivered once.
func TestSlowReceivers(t *testing.T) {
	t.Parallel()
	total := 300
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		total = 50_000
	}
	const batch = 500
	toSES := total * 3 / 10
	slow := bucket{rate: 14, level: 14, last: time.Now()}
	ses := newTimedRelay(t, func(string) string {
		if slow.take() {
			return ""
		}
		return "454 Throttling failure: Maximum sending rate exceeded."
	})
	busy := bucket{rate: 60, level: 60, last: time.Now()}
	var mu sync.Mutex
	refused := map[string]int{}
	mx := newTimedRelay(t, func(to string) string {
		mu.Lock()
		defer mu.Unlock()
		if to[len(to)-len("7@far.test")] == '7' && refused[to] == 0 { // each tenth, once
			refused[to]++
			return "451 4.3.0 local trouble"
		}
		if !busy.take() {
			refused[to]++
			return "421 4.7.28 too many messages, slow down"
		}
		return ""
	})
	world := rig.NewFakeResolver(t)
	host, port, _ := net.SplitHostPort(mx.addr)
	_, relayPort, _ := net.SplitHostPort(ses.addr)
	config := rig.GenerousLimits + fmt.Sprintf("[[relay]]\nname='ses'\nkind='ses'\nregion='eu-west-1'\nhost='127.0.0.1'\nport=%s\ntls='none'\n[[destination]]\noperator='slow.test'\nrelay='ses'\n", relayPort)
	i := rig.Start(t, config, "--resolver", world.Addr, "--outbound", "direct", "--mx-port", port)
	world.Delegate(i.Ready.DNS)
	for _, name := range []string{"far.test", "slow.test"} {
		world.Set(t, name, "MX", "10 mx."+name+".")
		world.Set(t, "mx."+name, "A", host)
		world.Set(t, "mx."+name, "AAAA")
	}
	i.AddDomain("example.test")
	ann := i.AddMailbox("ann@example.test", "correct horse")

	began := time.Now()
	address := func(n int) string {
		if n < toSES {
			return fmt.Sprintf("r%d@slow.test", n)
		}
		return fmt.Sprintf("r%d@far.test", n)
	}
	for from := 0; from < total; from += batch {
		var recipients []map[string]any
		for n := from; n < min(from+batch, total); n++ {
			recipients = append(recipients, map[string]any{"to": address(n)})
		}
		i.Want(202, "POST", "/v1/email-users/"+ann+"/inbox/send-batch", map[string]any{
			"recipients": recipients, "message": map[string]any{"subject": "s", "text": "hello"},
		}, nil)
	}
	limit := time.Now().Add(2*time.Minute + time.Duration(total)*150*time.Millisecond)
	arrived := func(f *timedRelay) (count map[string]int, copies int) {
		count = map[string]int{}
		for _, m := range f.mails() {
			count[m.to]++
			copies++
		}
		return count, copies
	}
	waiting := func(f *timedRelay, n int) {
		for time.Now().Before(limit) {
			if count, _ := arrived(f); len(count) == n {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		waiting(ses, toSES)
		t.Logf("%d to the relay took %s", toSES, time.Since(began).Round(time.Second))
	}()
	waiting(mx, total-toSES)
	t.Logf("%d to the host took %s", total-toSES, time.Since(began).Round(time.Second))
	<-done
	for f, want := range map[*timedRelay]int{ses: toSES, mx: total - toSES} {
		if count, copies := arrived(f); len(count) != want || copies != want {
			t.Errorf("%d of %d arrived, in %d copies", len(count), want, copies)
		}
	}
	for status, want := range map[string]int{"relayed": toSES, "sent": total - toSES, "bounced": 0, "deferred": 0, "queued": 0} {
		i.Until(fmt.Sprintf("%d are %s", want, status), func() bool { return countRows(i, "/v1/messages?limit=100&status="+status) == want })
	}
	if n := countRows(i, "/v1/events?limit=100&type=email.bounced"); n != 0 {
		t.Errorf("%d bounces", n)
	}
	t.Logf("%d MiB", i.Memory("VmRSS"))
	i.Stop()
	i.Check()
}

// countRows follows a list to its end.
func countRows(i *rig.Instance, path string) (n int) {
	for cursor := ""; ; {
		var list struct {
			Data       []any
			Pagination struct{ Cursor string }
		}
		i.Want(200, "GET", path+cursor, nil, &list)
		n += len(list.Data)
		if list.Pagination.Cursor == "" {
			return n
		}
		cursor = "&cursor=" + url.QueryEscape(list.Pagination.Cursor)
	}
}
