package service_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/storetest"
)

// listener makes the feeds of a separate store, and opens one feed.
func listener(t testing.TB) (*service.Feeds, *service.Feed) {
	t.Helper()
	fs := service.NewFeeds(storetest.Open(t))
	return fs, joinedBy(t, fs, core.Actor{AccountID: "acc_1", UserID: "usr_1", Role: "owner"})
}

func joinedBy(t testing.TB, fs *service.Feeds, who core.Actor) *service.Feed {
	t.Helper()
	f, err := fs.Join(who)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func jobChanged(account string, n int) store.Change {
	return store.Change{Table: "job", Account: account, ID: fmt.Sprint("job_", n)}
}

func jobsChanged(n int) (all []store.Change) {
	for i := range n {
		all = append(all, jobChanged("acc_1", i))
	}
	return all
}

// awoken waits until the feed wakes, and returns how long that took; -1 if it has not within 20
// seconds.
func awoken(f *service.Feed) time.Duration {
	began := time.Now()
	select {
	case <-f.Wake():
		return time.Since(began)
	case <-time.After(20 * time.Second):
		return -1
	}
}

func TestChangesComeInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, f := listener(t)
		fs.Add([]store.Change{jobChanged("acc_1", 1), jobChanged("acc_2", 2), jobChanged("acc_1", 3)})
		fs.Add([]store.Change{jobChanged("acc_1", 1)})
		if wait := awoken(f); wait != service.FeedGather {
			t.Errorf("the first batch came after %v, want %v", wait, service.FeedGather)
		}
		got, everything := f.Take()
		if want := []service.FeedChange{{Kind: "job", ID: "job_1"}, {Kind: "job", ID: "job_3"}}; !slices.Equal(got, want) || everything {
			t.Errorf("got %v, %v, want %v", got, everything, want)
		}
		time.Sleep(service.FeedPause / 2)
		fs.Add([]store.Change{jobChanged("acc_1", 1)})
		if wait := awoken(f); wait != service.FeedPause/2 {
			t.Errorf("the second batch came %v after its change, want %v", wait, service.FeedPause/2)
		}
		if got, _ := f.Take(); len(got) != 1 {
			t.Errorf("got %v, want job_1 again", got)
		}
		if wait := awoken(f); wait != -1 {
			t.Errorf("woken after %v for nothing", wait)
		}
		if got, everything := f.Take(); got != nil || everything {
			t.Errorf("got %v, %v of nothing", got, everything)
		}
		f.Close()
	})
}

func TestTooManyChangesAreAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, f := listener(t)
		fs.Add(jobsChanged(service.FeedBatch))
		fs.Add(jobsChanged(service.FeedBatch))
		awoken(f)
		if got, everything := f.Take(); len(got) != service.FeedBatch || everything {
			t.Errorf("%d changes, everything %v, want %d", len(got), everything, service.FeedBatch)
		}
		fs.Add(jobsChanged(service.FeedBatch + 1))
		awoken(f)
		if got, everything := f.Take(); got != nil || !everything {
			t.Errorf("%d changes, everything %v, want a reset", len(got), everything)
		}
		fs.Add(jobsChanged(1))
		if wait := awoken(f); wait != service.FeedRest {
			t.Errorf("what comes after a reset came %v later, want %v", wait, service.FeedRest)
		}
		f.Close()
	})
}

func TestSlowListenersAreResetAndHoldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, slow := listener(t)
		quick := joinedBy(t, fs, core.Actor{AccountID: "acc_1", UserID: "usr_2", Role: "owner"})
		for round := range 50 {
			fs.Add([]store.Change{jobChanged("acc_1", round)})
			awoken(quick)
			if got, everything := quick.Take(); len(got) != 1 || everything {
				t.Fatalf("round %d: the quick one got %v, %v", round, got, everything)
			}
			time.Sleep(service.FeedPause)
		}
		if n := len(slow.Queue); n > service.FeedQueue {
			t.Errorf("%d batches wait for a slow listener", n)
		}
		if got, everything := slow.Take(); got != nil || !everything {
			t.Errorf("the slow one got %v, %v, want a reset", got, everything)
		}
		fs.Add([]store.Change{jobChanged("acc_1", 1)})
		time.Sleep(2 * service.FeedPause)
		if got, everything := slow.Take(); len(got) != 1 || everything {
			t.Errorf("after its reset the slow one got %v, %v", got, everything)
		}
		slow.Close()
		quick.Close()
	})
}

func TestWhatWaitedIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, f := listener(t)
		for round := range service.FeedQueue {
			fs.Add([]store.Change{jobChanged("acc_1", round%2), jobChanged("acc_1", 2)})
			time.Sleep(2 * service.FeedPause)
		}
		got, everything := f.Take()
		if want := []service.FeedChange{{Kind: "job", ID: "job_0"}, {Kind: "job", ID: "job_2"}, {Kind: "job", ID: "job_1"}}; !slices.Equal(got, want) || everything {
			t.Errorf("got %v, %v, want %v", got, everything, want)
		}
		f.Close()
	})
}

func TestMembersHearNothingOfOthersTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := service.NewFeeds(storetest.Open(t))
		heard := map[string]*service.Feed{}
		for _, role := range []string{"owner", "admin", "member"} {
			heard[role] = joinedBy(t, fs, core.Actor{AccountID: "acc_1", UserID: "usr_" + role, Role: role})
		}
		fs.Add([]store.Change{
			{Table: "token", Account: "acc_1", User: "usr_owner", ID: "tok_1"},
			{Table: "token", Account: "acc_1", User: "usr_member", ID: "tok_2"},
			{Table: "export", Account: "acc_1", User: "usr_owner", ID: "exp_1"},
		})
		time.Sleep(service.FeedPause)
		for role, want := range map[string]string{"owner": "[tok_1 tok_2 exp_1]", "admin": "[tok_1 tok_2 exp_1]", "member": "[tok_2]"} {
			var ids []string
			changes, _ := heard[role].Take()
			for _, c := range changes {
				ids = append(ids, c.ID)
			}
			if got := fmt.Sprint(ids); got != want {
				t.Errorf("%s hears of %s, want %s", role, got, want)
			}
			heard[role].Close()
		}
	})
}

// TestEveryKindIsTold writes a row of each kind and checks that it is reported, and that no table
// without a public name is reported.
func TestEveryKindIsTold(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	f := i.Listen(core.Actor{AccountID: i.Account.AccountID, UserID: "usr_x", Role: "owner"})
	a := i.Account.AccountID
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.Update(func(tx *store.Tx) error {
		for _, put := range []error{
			store.CustomRecords.Put(tx, &store.CustomRecord{ID: "rec_1", DomainID: d.ID}),
			store.Templates.Put(tx, &store.Template{ID: "tpl_1", AccountID: a}),
			store.Exports.Put(tx, &store.Export{ID: "exp_1", AccountID: a}),
			store.Jobs.Put(tx, &store.Job{ID: "job_1", AccountID: a, Kind: "k", State: store.JobCompleted, Visible: true}),
			store.Outgoings.Put(tx, &store.Outgoing{ID: "msg_1", AccountID: a, Status: store.OutgoingSent}),
			store.Suppressions.Put(tx, &store.Suppression{AccountID: a, Email: "x@far.test"}),
			store.Webhooks.Put(tx, &store.Webhook{ID: "wh_1", AccountID: a}),
			store.Deliveries.Put(tx, &store.Delivery{ID: "dlv_1", AccountID: a, WebhookID: "wh_1"}),
			store.Events.Put(tx, &store.Event{ID: "evt_1", AccountID: a}),
			store.Users.Put(tx, &store.User{ID: "usr_1", AccountID: a, Email: "u@example.test"}),
			store.Tokens.Put(tx, &store.Token{ID: "tok_1", AccountID: a, Hash: "h", UserID: "usr_1"}),
		} {
			if put != nil {
				return put
			}
		}
		account, err := store.Accounts.Get(tx, a)
		if err != nil {
			return err
		}
		return store.Accounts.Put(tx, account)
	})
	i.MustArrive("someone@far.test", ann.Email, "Subject: s\r\n\r\nhello\r\n")
	want := map[string]string{
		"account": a, "domain": d.ID, "mailbox": ann.ID, "inbox": ann.ID, "record": "rec_1", "template": "tpl_1", "export": "exp_1", "job": "job_1",
		"message": "msg_1", "suppression": "x@far.test", "webhook": "wh_1", "delivery": "dlv_1", "event": "evt_1", "user": "usr_1", "token": "tok_1",
	}
	for deadline := time.Now().Add(20 * time.Second); len(want) > 0 && time.Now().Before(deadline); {
		awoken(f)
		changes, everything := f.Take()
		if everything {
			t.Fatal("a reset")
		}
		for _, c := range changes {
			if c.Kind == "" {
				t.Errorf("%s is of no kind", c.ID)
			}
			if want[c.Kind] == c.ID {
				delete(want, c.Kind)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("not told of %v", slices.Collect(maps.Keys(want)))
	}
}

// TestNobodyMissesWhatWasOnItsWay opens feeds while transactions are committed: a change that
// cannot be read after Listen must be reported later.
func TestNobodyMissesWhatWasOnItsWay(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	a := i.Account.AccountID
	for round := range 30 {
		id := fmt.Sprint("job_", round)
		done := make(chan error, 1)
		go func() {
			done <- i.St.Update(func(tx *store.Tx) error {
				return store.Jobs.Put(tx, &store.Job{ID: id, AccountID: a, Kind: "k", State: store.JobCompleted, Visible: true})
			})
		}()
		if round%2 == 0 {
			runtime.Gosched()
		}
		f := i.Listen(core.Actor{AccountID: a, UserID: "usr_x", Role: "owner"})
		there := i.St.View(func(tx *store.Tx) error { _, err := store.Jobs.Get(tx, id); return err }) == nil
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if !there {
			awoken(f)
			if changes, _ := f.Take(); !slices.Contains(changes, service.FeedChange{Kind: "job", ID: id}) {
				t.Errorf("round %d: %v, want %s", round, changes, id)
			}
		}
		f.Close()
	}
}

func TestFeedsEndWithTheirToken(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ctx := context.Background()
	token := func(change func(*store.Token, *store.User)) core.Actor {
		tok := &store.Token{AccountID: i.Account.AccountID, Permissions: []string{"read"}, Kind: "api"}
		u := &store.User{AccountID: i.Account.AccountID, Role: "admin", Status: "active"}
		i.Update(func(tx *store.Tx) error {
			tok.ID, u.ID = tx.NewID("tok"), tx.NewID("usr")
			tok.Hash, tok.UserID, u.Email = tok.ID, u.ID, u.ID+"@team.test"
			if err := store.Users.Put(tx, u); err != nil {
				return err
			}
			return store.Tokens.Put(tx, tok)
		})
		who := core.Actor{AccountID: tok.AccountID, UserID: u.ID, Role: u.Role, TokenID: tok.ID}
		if err := i.Svc.Accounts.CheckActor(ctx, who); err != nil {
			t.Fatalf("before: %v", err)
		}
		i.Update(func(tx *store.Tx) error {
			change(tok, u)
			if u.ID == "" {
				return store.Users.Delete(tx, who.UserID)
			}
			if tok.ID == "" {
				return store.Tokens.Delete(tx, who.TokenID)
			}
			if err := store.Users.Put(tx, u); err != nil {
				return err
			}
			return store.Tokens.Put(tx, tok)
		})
		return who
	}
	for name, change := range map[string]func(*store.Token, *store.User){
		"token_revoked: revoked":        func(tok *store.Token, _ *store.User) { tok.RevokedAt = i.St.Now() },
		"token_revoked: pruned":         func(tok *store.Token, _ *store.User) { tok.ID = "" },
		"token_revoked: of nobody":      func(_ *store.Token, u *store.User) { u.ID = "" },
		"token_revoked: of a lesser":    func(_ *store.Token, u *store.User) { u.Role = "member" },
		"token_expired: after its time": func(tok *store.Token, _ *store.User) { tok.ExpiresAt = i.St.Now() },
	} {
		err := i.Svc.Accounts.CheckActor(ctx, token(change))
		if e, ours := core.AsError(err); !ours || !strings.HasPrefix(name, e.Code) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := i.Svc.Accounts.CheckActor(ctx, token(func(tok *store.Token, u *store.User) { tok.Name, u.FirstName = "new", "New" })); err != nil {
		t.Errorf("another name: %v", err)
	}
}

// BenchmarkFeeds has a thousand listeners in ten accounts and ten thousand changes, one per commit.
// It measures the committer's part, and the memory of the listeners when all of them are slow.
func BenchmarkFeeds(b *testing.B) {
	const accounts, changes = 10, 10_000
	var told []store.Change
	for n := range changes {
		told = append(told, jobChanged(fmt.Sprint("acc_", n%accounts), n))
	}
	s := storetest.Open(b)
	for b.Loop() {
		fs := service.NewFeeds(s)
		var open []*service.Feed
		before := heapInUse()
		for n := range accounts * service.FeedsOfAccount {
			open = append(open, joinedBy(b, fs, core.Actor{AccountID: fmt.Sprint("acc_", n%accounts), UserID: fmt.Sprint("usr_", n/service.FeedsOfUser, n%accounts)}))
		}
		began := time.Now()
		for n := range told {
			fs.Add(told[n : n+1])
		}
		b.ReportMetric(float64(time.Since(began).Nanoseconds())/changes, "ns/change")
		time.Sleep(2 * service.FeedGather)
		b.ReportMetric(float64(heapInUse()-before)/float64(len(open)), "bytes/listener")
		for _, f := range open {
			if _, everything := f.Take(); !everything {
				b.Fatal("a thousand changes of an account are no reset")
			}
			f.Close()
		}
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
