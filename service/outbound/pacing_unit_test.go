package outbound

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/mail/deliver"
)

func TestThrottles(t *testing.T) {
	for text, want := range map[string]bool{
		"421 4.7.0 try again later": true, "421 Service not available": true, "454 Throttling failure: Maximum sending rate exceeded.": true,
		"450 4.7.1 too many connections": true, "452 4.5.3 Too many recipients": true, "451 4.7.500 Server busy. Please try again later": true,
		"429 Rate limit": false, "450 4.2.1 The user is receiving mail at a rate that prevents more": false, "452 4.2.2 mailbox is over its limit": false,
		"450 4.2.0 Greylisted": false, "451 Greylisting in action, try again later": false, "451 4.3.0 corporate policy": false, "454 4.7.0 TLS not available": false,
		"550 5.7.1 rate exceeded": false,
	} {
		var code int
		var enhanced string
		fmt.Sscanf(text, "%d %s", &code, &enhanced)
		if strings.Count(enhanced, ".") != 2 {
			enhanced = fmt.Sprintf("%d.0.0", code/100)
		}
		r := deliver.Result{Status: deliver.Temporary, Code: code, Enhanced: enhanced, Reply: text}
		if code >= 500 {
			r.Status = deliver.Permanent
		}
		if code < 450 && code != 421 {
			want = code == 429
		}
		if got := asksForLessMail(r); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestPaceFallsAndRecovers sends to a host that accepts one message every two seconds, and later
// any number.
func TestPaceFallsAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces(time.Now)
		slow := deliver.Result{Status: deliver.Temporary, Code: 421}
		taken := deliver.Result{Status: deliver.Delivered, Code: 250}
		var last time.Time
		limit := 2 * time.Second
		send := func() (sent, refused int) {
			for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if _, ok := p.reserve("mx far.test", destinationLimits{}); !ok {
					continue
				}
				p.release("mx far.test", time.Millisecond)
				if time.Since(last) < limit {
					p.observeResult("mx far.test", destinationLimits{}, slow)
					refused++
					continue
				}
				last = time.Now()
				p.observeResult("mx far.test", destinationLimits{}, taken)
				sent++
			}
			return sent, refused
		}
		if sent, refused := send(); sent < 100 || refused > sent/3 {
			t.Errorf("a host of one in 2 s took %d in 10 min, and refused %d", sent, refused)
		}
		limit = 0
		if sent, _ := send(); sent < 9000 {
			t.Errorf("the same host without a limit took %d", sent)
		}
		time.Sleep(maxHopWait) // of those who were told to wait
		p.reserve("mx far.test", destinationLimits{})
		p.release("mx far.test", 0)
		if len(p.Lanes) != 0 {
			t.Errorf("%d paces are left", len(p.Lanes))
		}
	})
}

// TestThoseWhoWaitComeInTurn: waiting messages get times that are a gap apart, and none far in the
// future.
func TestThoseWhoWaitComeInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces(time.Now)
		p.observeResult("a", destinationLimits{}, deliver.Result{Status: deliver.Temporary, Code: 421})
		for range 5 { // told by those who were under way at the same time
			p.observeResult("a", destinationLimits{}, deliver.Result{Status: deliver.Temporary, Code: 421})
		}
		var before time.Time
		for n := range 5000 {
			at, ok := p.reserve("a", destinationLimits{})
			if ok || at.Before(before) || at.After(time.Now().Add(maxHopWait)) {
				t.Fatalf("number %d: %s, %v", n, at, ok)
			}
			if n == 100 && time.Until(at) != firstPause+100*firstGap {
				t.Errorf("number 100 waits %s", time.Until(at))
			}
			before = at
		}
		if _, ok := p.reserve("b", destinationLimits{}); !ok {
			t.Error("another hop has to wait")
		}
	})
}

// TestTurnIsATime: reserve returns the current time for a message that may go now.
func TestTurnIsATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces(time.Now)
		for range 3 {
			if at, ok := p.reserve("a", destinationLimits{}); !ok || !at.Equal(time.Now()) {
				t.Errorf("%s, %v", at, ok)
			}
			p.observeResult("a", destinationLimits{}, deliver.Result{Status: deliver.Temporary, Code: 421})
			time.Sleep(time.Minute)
		}
	})
}

// TestForwardsToOneAddressAreBounded: 200 in any hour, the others one by one after them; other
// addresses do not wait.
func TestForwardsToOneAddressAreBounded(t *testing.T) {
	f, start := newForwards(), time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for n := range maxForwards {
		if _, ok := f.Take("a@far.test", start.Add(time.Duration(n)*time.Second)); !ok {
			t.Fatalf("the %d. waits", n+1)
		}
	}
	now, last := start.Add(10*time.Minute), time.Time{}
	for n := range 3 {
		at, ok := f.Take("a@far.test", now)
		if ok || n == 0 && !at.Equal(start.Add(forwardWindow)) || n > 0 && at.Sub(last) != forwardGap {
			t.Errorf("one more: %v, %v after %v", ok, at, last)
		}
		last = at
	}
	if _, ok := f.Take("b@far.test", now); !ok {
		t.Error("another address waits")
	}
	f.undoTake("a@far.test")
	if _, ok := f.Take("a@far.test", now); !ok {
		t.Error("what did not go counts")
	}
	// A message that retries at its time is admitted, and no hour has more than 200.
	var went []time.Time
	for at := start.Add(forwardWindow); at.Before(start.Add(5 * time.Hour)); at = at.Add(forwardGap / 3) {
		if _, ok := f.Take("a@far.test", at); ok {
			went = append(went, at)
		}
	}
	for n := maxForwards; n < len(went); n++ {
		if went[n].Sub(went[n-maxForwards]) < forwardWindow {
			t.Fatalf("201 messages within %v", went[n].Sub(went[n-maxForwards]))
		}
	}
	if len(went) < 3*maxForwards {
		t.Errorf("%d went in four hours", len(went))
	}
}

// TestForwardsDoNotWaitForAPastFlood: messages that waited in a flood and were given up delay
// nobody for days.
func TestForwardsDoNotWaitForAPastFlood(t *testing.T) {
	f, start := newForwards(), time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for range maxForwards + 100_000 {
		f.Take("a@far.test", start)
	}
	later := start.Add(GiveUpAfter + time.Hour) // by then the last of them has been given up
	for range maxForwards {
		if _, ok := f.Take("a@far.test", later); !ok {
			t.Fatal("a free place is not given")
		}
	}
	if at, ok := f.Take("a@far.test", later); ok || at.Sub(later) > 2*forwardWindow {
		t.Errorf("one more: %v, asked again after %v", ok, at.Sub(later))
	}
}

func TestRetryWaitRises(t *testing.T) {
	want := []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 8 * time.Hour, 8 * time.Hour}
	for n, w := range want {
		if got := RetryWait(n+1, 0.5); got.Round(time.Second) != w {
			t.Errorf("after attempt %d: %s, want %s", n+1, got, w)
		}
		if low, high := RetryWait(n+1, 0), RetryWait(n+1, 0.9999); low < w*9/10-1 || high > w*11/10 || low >= high {
			t.Errorf("after attempt %d: %s to %s, want %s ± 10 %%", n+1, low, high, w)
		}
	}
	if RetryWait(0, 0.5) != RetryWait(1, 0.5) || RetryWait(1<<40, 0.5).Round(time.Second) != 8*time.Hour {
		t.Error("numbers of attempts beyond the table")
	}
}
