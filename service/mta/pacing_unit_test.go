package mta

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
		if got := throttles(r); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestPaceFallsAndRecovers sends against a host that takes one message in two seconds, and then as
// many as come.
func TestPaceFallsAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces(time.Now)
		slow := deliver.Result{Status: deliver.Temporary, Code: 421}
		taken := deliver.Result{Status: deliver.Delivered, Code: 250}
		var last time.Time
		limit := 2 * time.Second
		send := func() (sent, refused int) {
			for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if _, ok := p.turn("mx far.test"); !ok {
					continue
				}
				if time.Since(last) < limit {
					p.tell("mx far.test", slow)
					refused++
					continue
				}
				last = time.Now()
				p.tell("mx far.test", taken)
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
		if len(p.Lanes) != 0 {
			t.Errorf("%d paces are left", len(p.Lanes))
		}
	})
}

// TestThoseWhoWaitComeInTurn: they are told times that a gap parts, and none that is far away.
func TestThoseWhoWaitComeInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces(time.Now)
		p.tell("a", deliver.Result{Status: deliver.Temporary, Code: 421})
		for range 5 { // told by those who were under way at the same time
			p.tell("a", deliver.Result{Status: deliver.Temporary, Code: 421})
		}
		var before time.Time
		for n := range 5000 {
			at, ok := p.turn("a")
			if ok || at.Before(before) || at.After(time.Now().Add(farthest)) {
				t.Fatalf("number %d: %s, %v", n, at, ok)
			}
			if n == 100 && time.Until(at) != firstHold+100*firstGap {
				t.Errorf("number 100 waits %s", time.Until(at))
			}
			before = at
		}
		if _, ok := p.turn("b"); !ok {
			t.Error("another hop has to wait")
		}
	})
}

// TestTurnIsATime: whoever may go on is told when, which is now.
func TestTurnIsATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces(time.Now)
		for range 3 {
			if at, ok := p.turn("a"); !ok || !at.Equal(time.Now()) {
				t.Errorf("%s, %v", at, ok)
			}
			p.tell("a", deliver.Result{Status: deliver.Temporary, Code: 421})
			time.Sleep(time.Minute)
		}
	})
}
