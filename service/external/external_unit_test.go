package external

import (
	"context"
	"testing"
	"time"
)

func TestSeatsGoToThoseWithNewestMail(t *testing.T) {
	i := newIdlePool()
	if ctx, _ := i.acquire("early", "acc", time.Unix(1, 0)); ctx != nil {
		t.Error("a slot before it is open")
	}
	i.open(t.Context())
	var slots []*idleSlot
	contexts := map[string]context.Context{}
	for n := range maxIdle {
		name := string(rune('A'+n/26)) + string(rune('a'+n%26))
		ctx, s := i.acquire(name, "acc", time.Unix(int64(1000+n), 0))
		slots, contexts[name] = append(slots, s), ctx
	}
	if ctx, _ := i.acquire("old", "acc", time.Unix(999, 0)); ctx != nil {
		t.Error("a slot for one whose mail is older than all")
	}
	ctx, s := i.acquire("new", "acc", time.Unix(5000, 0))
	if ctx == nil || contexts["Aa"].Err() == nil || i.hasSession("Aa") || !i.hasSession("new") {
		t.Error("no slot for one whose mail is newer")
	}
	i.cancelAccount("acc")
	if ctx.Err() == nil {
		t.Error("a session of the account goes on")
	}
	for _, s := range append(slots, s) {
		i.release(s)
	}
	i.close()
	if i.hasSession("new") {
		t.Error("a slot is left")
	}
}

func TestFailuresAreTriedLessAndLess(t *testing.T) {
	last := time.Duration(0)
	for n := 1; n <= 12; n++ {
		d := FailureWait(n, 0.5)
		if d < last || d > maxFailureWait {
			t.Errorf("after %d failures %s, before that %s", n, d, last)
		}
		last = d
	}
	h := &serverOutages{byServer: map[string]outage{}}
	now := time.Unix(0, 0)
	h.recordAnswer("h", false, now)
	if h.downUntil("h", now).IsZero() || h.downUntil("other", now) != (time.Time{}) {
		t.Error("a server that does not answer is left alone, another is not")
	}
	later := now.Add(time.Minute)
	if !h.downUntil("h", later).IsZero() || h.downUntil("h", later).IsZero() {
		t.Error("after a while one of the mailboxes tries, the others wait")
	}
	h.allowRetry("h")
	if !h.downUntil("h", later).IsZero() {
		t.Error("who asks is let through")
	}
	h.recordAnswer("h", true, later)
	if !h.downUntil("h", later).IsZero() || len(h.byServer) != 0 {
		t.Error("an answer ends it")
	}
}
