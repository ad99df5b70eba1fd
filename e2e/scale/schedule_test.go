package scale

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// A timedRelay notes when it gets what, and acknowledges each message.
type timedRelay struct {
	addr   string
	answer func(to string) string // to a message, in place of 250; it is not taken then
	mu     sync.Mutex
	got    []timedMail
}

type timedMail struct {
	to    string
	began time.Time // its DATA
}

// newTimedRelay starts one; answer, where it is not nil and gives a text, refuses messages.
func newTimedRelay(t *testing.T, answer func(to string) string) *timedRelay {
	f := &timedRelay{answer: answer}
	f.addr = rig.Serve(t, func(c net.Conn) {
		defer c.Close()
		r := bufio.NewReaderSize(c, 32<<10)
		say := func(text string) { fmt.Fprintf(c, "%s\r\n", text) }
		say("220 relay")
		to := ""
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			switch strings.ToUpper(line[:min(4, len(line))]) {
			case "EHLO":
				say("250-relay\r\n250-PIPELINING\r\n250 8BITMIME")
			case "RCPT":
				to = rig.BetweenBrackets(line)
				say("250 ok")
			case "DATA":
				one := timedMail{to, time.Now()}
				say("354 go on")
				if _, err := rig.ReadDots(r); err != nil {
					return
				}
				if f.answer != nil {
					if text := f.answer(to); text != "" {
						say(text)
						continue
					}
				}
				f.mu.Lock()
				f.got = append(f.got, one)
				n := len(f.got)
				f.mu.Unlock()
				say(fmt.Sprintf("250 Ok id-%d", n))
			case "QUIT":
				say("221 bye")
				return
			default:
				say("250 ok")
			}
		}
	})
	return f
}

func (f *timedRelay) mails() []timedMail {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

// TestScheduledForTheSameMinute: very many messages that are due within some seconds. None leaves
// early, none overtakes one that is due a second or more before it but for those on their way, the
// API answers meanwhile, and a kill in the middle loses none and repeats only what was on its way.
func TestScheduledForTheSameMinute(t *testing.T) {
	t.Parallel()
	total := 1000
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		total = 100_000
	}
	const parts, batch, inFlight = 5, 1000, 36
	relay := newTimedRelay(t, nil)
	host, port, _ := net.SplitHostPort(relay.addr)
	config := rig.GenerousLimits + fmt.Sprintf("[[relay]]\nname='r1'\nkind='custom'\nhost=%q\nport=%s\ntls='none'\ndkim=false\n", host, port)
	i := rig.Start(t, config, "--outbound", "relay")
	ann := i.AddMailbox("ann@"+i.AddDomainNamed("example.test"), "correct horse")

	// Schedule them, each second of five a fifth.
	began := time.Now()
	lead := 9*time.Second + time.Duration(total)*3*time.Millisecond // it takes up to this long to take them all
	due := began.Add(lead).Truncate(time.Second)
	for from := 0; from < total; from += batch {
		size := min(batch, total-from)
		for part := range parts {
			var recipients []map[string]any
			for n := from + part*size/parts; n < from+(part+1)*size/parts; n++ {
				recipients = append(recipients, map[string]any{"to": fmt.Sprintf("p%d-%d@far.test", part, n)})
			}
			var job struct {
				JobID string `json:"job_id"`
			}
			i.Want(202, "POST", "/v1/email-users/"+ann+"/inbox/send-batch", map[string]any{
				"recipients": recipients, "message": map[string]any{"subject": "s", "text": "hello"}, "send_at": due.Add(time.Duration(part) * time.Second).UTC().Format(time.RFC3339),
			}, &job)
			i.Until("the batch is taken", func() bool {
				var state struct{ Status string }
				i.Want(200, "GET", "/v1/jobs/"+job.JobID+"?wait=20", nil, &state)
				return state.Status == "completed"
			})
		}
	}
	took := time.Since(began)
	memory := i.Memory("VmRSS")
	t.Logf("%d were taken in %s, %s before they are due; %d MiB", total, took.Round(time.Millisecond), time.Until(due).Round(time.Millisecond), memory)
	if !time.Now().Before(due) {
		t.Fatal("the machine is too slow for this test: they were due before all were taken")
	}
	if n := len(relay.mails()); n != 0 {
		t.Fatalf("%d left before their time", n)
	}

	// While they leave, the API answers; in the middle the server is killed.
	time.Sleep(time.Until(due)) // the schedule is tested
	var latencies []time.Duration
	ask := func() {
		at := time.Now()
		i.Want(200, "GET", "/v1/email-users/"+ann, nil, nil)
		latencies = append(latencies, time.Since(at))
		time.Sleep(5 * time.Millisecond) // the pace of this load
	}
	limit := time.Now().Add(2*time.Minute + time.Duration(total)*5*time.Millisecond)
	for len(relay.mails()) < total/2 && time.Now().Before(limit) {
		ask()
	}
	before := relay.mails()
	i.Kill()
	i.Start()
	begins := time.Now()
	distinct := func() int {
		seen := map[string]bool{}
		for _, m := range relay.mails() {
			seen[m.to] = true
		}
		return len(seen)
	}
	for distinct() < total && time.Now().Before(limit) {
		ask()
	}
	rest := total - len(before)
	t.Logf("after the kill %d left in %s: %.0f a second", rest, time.Since(begins).Round(time.Millisecond), float64(rest)/time.Since(begins).Seconds())
	rate := func(list []timedMail) float64 {
		return float64(len(list)-1) / list[len(list)-1].began.Sub(list[0].began).Seconds()
	}
	t.Logf("from the first to the last it was %.0f a second before the kill, and %.0f after it", rate(before), rate(relay.mails()[len(before):]))

	// What came of it.
	got := relay.mails()
	count := map[string]int{}
	dueOf := func(to string) time.Time { return due.Add(time.Duration(to[1]-'0') * time.Second) }
	for _, m := range got {
		count[m.to]++
		if m.began.Before(dueOf(m.to)) {
			t.Errorf("%s left %s before its time", m.to, dueOf(m.to).Sub(m.began))
		}
	}
	if len(count) != total || len(got) > total+inFlight {
		t.Errorf("%d of %d arrived, %d copies", len(count), total, len(got)-len(count))
	}
	// Of those that are due earlier, only as many may still come as were on their way.
	for part := range parts - 1 {
		first := time.Time{}
		for _, m := range got {
			if int(m.to[1]-'0') > part && (first.IsZero() || m.began.Before(first)) {
				first = m.began
			}
		}
		late := 0
		for _, m := range got {
			if int(m.to[1]-'0') <= part && m.began.After(first) && count[m.to] == 1 {
				late++
			}
		}
		if late > inFlight {
			t.Errorf("%d that are due in second %d or before came after one that is due later", late, part)
		}
	}
	slices.Sort(latencies)
	p99 := latencies[len(latencies)*99/100]
	t.Logf("the API's p99 was %s of %d requests; %d MiB", p99, len(latencies), i.Memory("VmRSS"))
	if os.Getenv("MAILSTEAD_SOAK") != "" && p99 > 50*time.Millisecond {
		t.Errorf("the API's p99 was %s", p99)
	}
	i.Stop()
	i.Check()
}
