package inbox

import (
	"context"
	"testing"
	"time"
)

func TestSeatsGoToThoseWithNewestMail(t *testing.T) {
	i := newIdlers()
	if ctx, _ := i.take("early", "acc", time.Unix(1, 0)); ctx != nil {
		t.Error("a seat before it is open")
	}
	i.Open(t.Context())
	var seats []*seat
	contexts := map[string]context.Context{}
	for n := range idleMost {
		name := string(rune('A'+n/26)) + string(rune('a'+n%26))
		ctx, s := i.take(name, "acc", time.Unix(int64(1000+n), 0))
		seats, contexts[name] = append(seats, s), ctx
	}
	if ctx, _ := i.take("old", "acc", time.Unix(999, 0)); ctx != nil {
		t.Error("a seat for one whose mail is older than all")
	}
	ctx, s := i.take("new", "acc", time.Unix(5000, 0))
	if ctx == nil || contexts["Aa"].Err() == nil || i.Has("Aa") || !i.Has("new") {
		t.Error("no seat for one whose mail is newer")
	}
	i.dropAccount("acc")
	if ctx.Err() == nil {
		t.Error("a session of the account goes on")
	}
	for _, s := range append(seats, s) {
		i.leave(s)
	}
	i.close()
	if i.Has("new") {
		t.Error("a seat is left")
	}
}

func TestFailuresAreTriedLessAndLess(t *testing.T) {
	last := time.Duration(0)
	for n := 1; n <= 12; n++ {
		d := FailureWait(n, 0.5)
		if d < last || d > failureLatest {
			t.Errorf("after %d failures %s, before that %s", n, d, last)
		}
		last = d
	}
	h := &hosts{down: map[string]outage{}}
	now := time.Unix(0, 0)
	h.note("h", false, now)
	if h.until("h", now).IsZero() || h.until("other", now) != (time.Time{}) {
		t.Error("a server that does not answer is left alone, another is not")
	}
	later := now.Add(time.Minute)
	if !h.until("h", later).IsZero() || h.until("h", later).IsZero() {
		t.Error("after a while one of the mailboxes tries, the others wait")
	}
	h.retry("h")
	if !h.until("h", later).IsZero() {
		t.Error("who asks is let through")
	}
	h.note("h", true, later)
	if !h.until("h", later).IsZero() || len(h.down) != 0 {
		t.Error("an answer ends it")
	}
}
