package inbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/cputime"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// A waitRig is an installation with mailboxes for requests that wait.
type waitRig struct {
	*servicetest.Installation
	who      core.Actor
	ann, bob *store.Mailbox
}

func newWaitRig(t *testing.T, c core.Config) *waitRig {
	t.Helper()
	i := servicetest.Install(t, c)
	i.DNS.Txt["far.test"], i.DNS.Txt["_dmarc.far.test"] = "v=spf1 ip4:192.0.2.0/24 -all", "v=DMARC1; p=none"
	d := i.AddDomain(i.Account, "example.test", nil)
	r := &waitRig{Installation: i, who: servicetest.ActorNum(i.Account, 1), ann: i.AddMailbox(d, "ann", nil), bob: i.AddMailbox(d, "bob", nil)}
	for _, mb := range []*store.Mailbox{r.ann, r.bob} {
		i.Update(func(tx *store.Tx) error {
			for _, f := range []store.Folder{{Name: "Junk", SpecialUse: `\Junk`}, {Name: "Trash", SpecialUse: `\Trash`}, {Name: "Archive", SpecialUse: `\Archive`}, {Name: "Sent", SpecialUse: `\Sent`}} {
				f.Mailbox = mb.Num
				if err := tx.CreateFolder(&f); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return r
}

// first returns what wait returns immediately, or within a tenth of a second.
func (r *waitRig) first(userID string, f inbox.WaitFilter) *inbox.WaitAnswer {
	r.T.Helper()
	out, err := r.Svc.Inbox.WaitFor(r.T.Context(), r.who, userID, f, 100*time.Millisecond)
	if err != nil {
		r.T.Fatal(err)
	}
	return out
}

func subjectOf(a *inbox.WaitAnswer) string {
	if a.Message == nil {
		return ""
	}
	return a.Message.Subject
}

const verifyLetter = "From: Harbour <no-reply@far.test>\r\nTo: ann@example.test\r\nSubject: %s\r\nMessage-ID: <%s@far.test>\r\n\r\n" +
	"Your code is 482913.\r\nOr open https://login.far.test/c?u=1 (help: https://elsewhere.test/help).\r\n"

// ever is a time before all mail.
var ever = core.Time{Time: time.UnixMilli(1)}

func TestWaitForMessage(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	r.Run()
	if err := r.Receive("no-reply@far.test", fmt.Sprintf(verifyLetter, "Before", "0"), "ann+sign.up@example.test"); err != nil {
		t.Fatal(err)
	}

	// Mail that arrived before is not returned; mail that arrives during the wait is, promptly.
	if a := r.first(r.ann.ID, inbox.WaitFilter{}); a.Message != nil || a.Now.IsZero() || a.Links == nil || a.Code != nil {
		t.Errorf("without anything new: %+v", a)
	}
	got := make(chan *inbox.WaitAnswer, 2)
	began := make(chan struct{}, 2)
	for _, id := range []string{r.ann.ID, ""} {
		go func() {
			began <- struct{}{}
			a, err := r.Svc.Inbox.WaitFor(t.Context(), r.who, id, inbox.WaitFilter{}, 20*time.Second)
			if err != nil {
				t.Error(err)
			}
			got <- a
		}()
		<-began
	}
	time.Sleep(50 * time.Millisecond)
	sent := time.Now()
	if err := r.Receive("no-reply@far.test", fmt.Sprintf(verifyLetter, "After", "1"), "ann@example.test"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		a := <-got
		if subjectOf(a) != "After" || a.Code == nil || *a.Code != "482913" || a.VerifiedDomain == nil || *a.VerifiedDomain != "far.test" || !a.Now.Equal(a.Message.ReceivedAt.Time) || a.Message.Withheld {
			t.Fatalf("%+v", a)
		}
		want := []inbox.MessageLink{{URL: "https://login.far.test/c?u=1", Text: "https://login.far.test/c?u=1", SameDomain: true}, {URL: "https://elsewhere.test/help", Text: "https://elsewhere.test/help"}}
		if !slices.Equal(a.Links, want) {
			t.Errorf("links: %+v", a.Links)
		}
		if took := time.Since(sent); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
	}

	// The filters.
	since := inbox.WaitFilter{Since: ever}
	for name, c := range map[string]struct {
		change func(f *inbox.WaitFilter)
		want   string
	}{
		"all":                   {func(*inbox.WaitFilter) {}, "Before"},
		"recipient":             {func(f *inbox.WaitFilter) { f.To = "Ann+Sign.up@Example.test" }, "Before"},
		"the other recipient":   {func(f *inbox.WaitFilter) { f.To = "ann@example.test" }, "After"},
		"subject":               {func(f *inbox.WaitFilter) { f.Subject = "AFT" }, "After"},
		"author":                {func(f *inbox.WaitFilter) { f.From = "harbour"; f.Subject = "after" }, "After"},
		"author's address":      {func(f *inbox.WaitFilter) { f.From = "@far.test" }, "Before"},
		"another author":        {func(f *inbox.WaitFilter) { f.From = "@near.test" }, ""},
		"domain":                {func(f *inbox.WaitFilter) { f.FromDomain = "Far.test" }, "Before"},
		"another domain":        {func(f *inbox.WaitFilter) { f.FromDomain = "ar.test" }, ""},
		"a domain below it":     {func(f *inbox.WaitFilter) { f.FromDomain = "mail.far.test" }, ""},
		"code":                  {func(f *inbox.WaitFilter) { f.Kind = "code" }, "Before"},
		"what was there so far": {func(f *inbox.WaitFilter) { f.Since = core.Time{Time: time.Now().Add(time.Hour)} }, ""},
	} {
		f := since
		c.change(&f)
		for _, id := range []string{r.ann.ID, ""} {
			if got := subjectOf(r.first(id, f)); got != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
		if a := r.first(r.bob.ID, f); a.Message != nil {
			t.Errorf("%s, at a neighbour: %q", name, a.Message.Subject)
		}
	}
	for name, f := range map[string]inbox.WaitFilter{
		"a public suffix": {FromDomain: "co.uk"}, "a private one": {FromDomain: "github.io"}, "no domain": {FromDomain: "x@far.test"},
		"no time": {Timeout: new(61)}, "too little": {Timeout: new(0)}, "no address": {To: "ann"}, "no word": {From: "!"},
	} {
		if _, err := r.Svc.Inbox.WaitForMessage(t.Context(), r.who, inbox.WaitForMessageIn{UserID: r.ann.ID, WaitFilter: f}); !servicetest.HasCode(err, "validation_error") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Svc.Inbox.WaitForMessage(t.Context(), r.who, inbox.WaitForMessageIn{UserID: "eu_none"}); !servicetest.HasCode(err, "not_found") {
		t.Errorf("a mailbox of nobody: %v", err)
	}

	// With withhold, a stranger's words are left out.
	f := since
	f.Withhold, f.FromDomain = true, "far.test"
	a := r.first(r.ann.ID, f)
	if m := a.Message; m == nil || !m.Withheld || m.Subject != "" || m.BodyPreview != "" || m.MessageID != "" || m.From != "no-reply@far.test" || m.FromName != nil || a.Code == nil ||
		len(a.Links) != 1 || !a.Links[0].SameDomain || a.Links[0].Text != "" {
		t.Errorf("withheld: %+v", a)
	}
}

// TestWhatArrives: mail of others counts as arrived in any folder but Junk and Trash, and still
// does after a move; mail that the mailbox itself has sent or added does not.
func TestWhatArrives(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	r.Run()
	all := func(f inbox.WaitFilter) (subjects []string) {
		f.Since = ever
		for {
			a := r.first(r.ann.ID, f)
			if a.Message == nil {
				return subjects
			}
			subjects = append(subjects, a.Message.Subject)
			f.Since = a.Now
		}
	}
	if _, _, err := r.Svc.Inbox.AppendMessages(t.Context(), core.MailboxUser{MailboxID: r.ann.ID, Mailbox: r.ann.Num, AccountID: r.ann.AccountID, PasswordAt: r.ann.PasswordAt}, "INBOX", inbox.Append{Body: r.Spool("From: x@far.test\r\nSubject: appended\r\n\r\nx\r\n")}); err != nil {
		t.Fatal(err)
	}
	if got := all(inbox.WaitFilter{}); got != nil {
		t.Errorf("appended: %v", got)
	}

	// Mail of another mailbox of the account, also through a group; not the mailbox's own.
	for _, from := range []*store.Mailbox{r.bob, r.ann} {
		if _, err := r.Send(from, submit.SendEmailIn{To: submit.Texts{"ann@example.test"}, Subject: "by " + from.Email, Text: "Code: 774411"}); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(10 * time.Second); len(r.Folder(r.ann, "INBOX")) < 3 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	if got := all(inbox.WaitFilter{}); !slices.Equal(got, []string{"by bob@example.test"}) {
		t.Errorf("of neighbours: %v", got)
	}
	if got := all(inbox.WaitFilter{FromDomain: "example.test", Kind: "code"}); !slices.Equal(got, []string{"by bob@example.test"}) {
		t.Errorf("of a neighbour, for sure: %v", got)
	}
	if a := r.first(r.ann.ID, inbox.WaitFilter{Since: ever, Withhold: true}); subjectOf(a) == "" || a.Message.Withheld {
		t.Errorf("what a neighbour has written is withheld: %+v", a)
	}

	// It still counts after a move, except to Junk and Trash.
	uid := ""
	page, err := r.Svc.Inbox.ListEmailUserInbox(t.Context(), r.who, inbox.ListEmailUserInboxIn{UserID: r.ann.ID})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range page.Data {
		if m.Subject == "by bob@example.test" {
			uid = m.UID
		}
	}
	folder := ""
	for _, to := range []string{"archive", "junk", "trash", "inbox"} {
		moved, err := r.Svc.Inbox.BulkMoveMessages(t.Context(), r.who, inbox.BulkMoveMessagesIn{To: to, Messages: []inbox.MessageRef{{UID: uid, Mailbox: r.ann.Email, Folder: folder}}})
		if err != nil || moved.Moved != 1 {
			t.Fatalf("move to %s: %+v %v", to, moved, err)
		}
		folder, uid = to, moved.Results[0].NewUID
		if got := all(inbox.WaitFilter{}); (len(got) == 1) != (to == "archive" || to == "inbox") {
			t.Errorf("in %s: %v", to, got)
		}
	}
}

// TestWaitersEnd: a waiter ends with its client's connection or with the server, and one above the
// limit is refused.
func TestWaitersEnd(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	errs := make(chan error, 2000)
	for range 1999 {
		wg.Go(func() {
			_, err := r.Svc.Inbox.WaitForAnyMessage(ctx, r.who, inbox.WaitForAnyMessageIn{})
			errs <- err
		})
	}
	one := make(chan *inbox.WaitAnswer, 1)
	go func() {
		a, err := r.Svc.Inbox.WaitForMessage(t.Context(), r.who, inbox.WaitForMessageIn{UserID: r.ann.ID, WaitFilter: inbox.WaitFilter{Timeout: new(60)}})
		if err != nil {
			t.Error(err)
		}
		one <- a
	}()
	for r.Svc.Inbox.Waiters(1) < 2000 {
		time.Sleep(time.Millisecond)
	}
	if _, err := r.Svc.Inbox.WaitForAnyMessage(t.Context(), r.who, inbox.WaitForAnyMessageIn{}); !servicetest.HasCode(err, "rate_limited") {
		t.Errorf("one too many: %v", err)
	}
	cancel()
	wg.Wait()
	for range 1999 {
		if err := <-errs; err != context.Canceled { //nolint:errorlint // itself
			t.Fatalf("a client has gone: %v", err)
		}
	}
	if n := r.Svc.Inbox.Waiters(1); n != 1 {
		t.Errorf("%d waiters are left", n)
	}
	began := time.Now()
	r.Svc.Inbox.EndWaiting()
	if a := <-one; a == nil || a.Message != nil || a.Now.IsZero() || time.Since(began) > 2*time.Second {
		t.Errorf("after %s: %+v", time.Since(began), a)
	}
	if a, err := r.Svc.Inbox.WaitForMessage(t.Context(), r.who, inbox.WaitForMessageIn{UserID: r.ann.ID}); err != nil || a.Message != nil || time.Since(began) > 2*time.Second {
		t.Errorf("who comes later: %+v %v", a, err)
	}
}

// TestReceivedRises: of a thousand messages that arrive at once, no two have the same time, even if
// the clock goes back.
func TestReceivedRises(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	for k := range 200 {
		if err := r.Receive("a@far.test", fmt.Sprintf(verifyLetter, "m", fmt.Sprint(k)), "ann@example.test", "bob@example.test"); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[int64]bool{}
	for _, mb := range []*store.Mailbox{r.ann, r.bob} {
		for _, m := range r.Folder(mb, "INBOX") {
			if seen[m.Received.UnixMilli()] {
				t.Fatalf("two at %s", m.Received)
			}
			seen[m.Received.UnixMilli()] = true
		}
	}
	if len(seen) != 400 {
		t.Errorf("%d messages", len(seen))
	}
	r.Update(func(tx *store.Tx) error {
		last, err := tx.LastArrived(1)
		if err != nil {
			return err
		}
		at, err := tx.AssignArrivalTime(1, last.Add(time.Hour))
		if err == nil && !at.After(last.Add(time.Hour)) {
			t.Errorf("after %s: %s", last.Add(time.Hour), at)
		}
		again, err := tx.AssignArrivalTime(1, time.Time{})
		if err == nil && !again.After(at) {
			t.Errorf("after %s: %s", at, again)
		}
		return err
	})
}

// TestNoMessageIsMissed: a client that passes each answer's now to the next call gets each message
// once, in order of time, whatever happens between the calls: timeouts, disconnects, and moves.
// MAILSTEAD_WAIT is the number of runs.
func TestNoMessageIsMissed(t *testing.T) {
	runs := 60
	if text := os.Getenv("MAILSTEAD_WAIT"); text != "" {
		runs, _ = strconv.Atoi(text)
	}
	r := newWaitRig(t, core.Config{})
	since := map[string]core.Time{}
	for _, id := range []string{r.ann.ID, r.bob.ID, ""} {
		since[id] = r.first(id, inbox.WaitFilter{}).Now
	}
	calls, empty, gone := 0, 0, 0
	for run := range runs {
		rng := rand.New(rand.NewPCG(uint64(run), 7))
		boxes := []*store.Mailbox{r.ann, r.bob}
		count := 1 + rng.IntN(5)
		to := make([]int, count)
		pauses := make([]time.Duration, count)
		for k := range to {
			to[k], pauses[k] = rng.IntN(3), time.Duration(rng.IntN(3000))*time.Microsecond
		}
		var senders sync.WaitGroup
		for k := range count {
			senders.Go(func() {
				time.Sleep(pauses[k])
				addresses := []string{r.ann.Email, r.bob.Email}
				if to[k] < 2 {
					addresses = []string{boxes[to[k]].Email}
				}
				if err := r.Receive("a@far.test", fmt.Sprintf(verifyLetter, fmt.Sprintf("run %d message %d", run, k), fmt.Sprintf("%d.%d", run, k)), addresses...); err != nil {
					t.Error(err)
				}
			})
		}
		want := map[string]int{}
		for k := range to {
			if to[k] != 1 {
				want[r.ann.ID]++
				want[""]++
			}
			if to[k] != 0 {
				want[r.bob.ID]++
				want[""]++
			}
		}
		var mu sync.Mutex
		var waiters sync.WaitGroup
		for _, id := range []string{r.ann.ID, r.bob.ID, ""} {
			own := rand.New(rand.NewPCG(uint64(run), uint64(len(id)+int(id0(id)))))
			at := since[id]
			waiters.Go(func() {
				got := map[string]bool{}
				for end := time.Now().Add(20 * time.Second); len(got) < want[id]; {
					if time.Now().After(end) {
						t.Errorf("run %d, %q: %d of %d messages: %v", run, id, len(got), want[id], got)
						break
					}
					ctx, cancel := context.WithCancel(t.Context())
					if own.IntN(3) == 0 {
						time.AfterFunc(time.Duration(own.IntN(2000))*time.Microsecond, cancel)
					}
					a, err := r.Svc.Inbox.WaitFor(ctx, r.who, id, inbox.WaitFilter{Since: at}, time.Duration(own.IntN(2000))*time.Microsecond)
					ended := ctx.Err() != nil
					cancel()
					mu.Lock()
					calls++
					switch {
					case err != nil && ended:
						gone++
					case err == nil && a.Message == nil:
						empty++
					}
					mu.Unlock()
					if err != nil {
						if !ended {
							t.Errorf("run %d: %v", run, err)
						}
						continue
					}
					if a.Message != nil {
						key := a.Message.Mailbox + " " + a.Message.Subject
						if got[key] || !a.Now.After(at.Time) || !strings.HasPrefix(a.Message.Subject, fmt.Sprintf("run %d ", run)) {
							t.Errorf("run %d, %q: %s at %s after %s", run, id, key, a.Now, at)
						}
						got[key] = true
					}
					at = a.Now
				}
				mu.Lock()
				since[id] = at
				mu.Unlock()
			})
		}
		waiters.Wait()
		senders.Wait()
		if t.Failed() {
			return
		}
	}
	t.Logf("%d runs: %d calls, %d of them without a message, %d of clients that went", runs, calls, empty, gone)
}

func id0(id string) byte {
	if id == "" {
		return 0
	}
	return id[len(id)-1]
}

// TestCostOfWaiters prints the cost of a thousand waiters: memory, goroutines, and processor time
// while idle and for each message that wakes them.
func TestCostOfWaiters(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures")
	}
	r := newWaitRig(t, core.Config{})
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	const n = 1000
	before, goroutines := memory(), runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			_, _ = r.Svc.Inbox.WaitForAnyMessage(ctx, r.who, inbox.WaitForAnyMessageIn{WaitFilter: inbox.WaitFilter{FromDomain: "harbour.test", Kind: "code", Timeout: new(60)}})
		})
	}
	for r.Svc.Inbox.Waiters(1) < n {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	after := memory()
	if extra := runtime.NumGoroutine() - goroutines; extra > n+5 {
		t.Errorf("%d waiters have %d goroutines", n, extra)
	}
	idle := cputime.Used(t)
	time.Sleep(time.Second)
	idle = cputime.Used(t) - idle
	busy := cputime.Used(t)
	const messages = 20
	for k := range messages {
		if err := r.Receive("a@far.test", fmt.Sprintf(verifyLetter, "m", fmt.Sprint(k)), "ann@example.test"); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(200 * time.Millisecond)
	busy = cputime.Used(t) - busy
	each := int64(after-before) / n
	t.Logf("%d waiters: %d bytes and %d goroutines each beside their request's own; idle %s of CPU in a second; %s for a message that wakes all and fits none",
		n, each, (runtime.NumGoroutine()-goroutines-n)/n, idle, busy/messages)
	if each > 64<<10 || idle > 300*time.Millisecond {
		t.Errorf("%d bytes, %s", each, idle)
	}
	cancel()
	wg.Wait()
}
