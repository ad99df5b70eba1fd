package domains_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/dnsprov/registrar/namecomtest"
	"github.com/mailstead/mailstead/internal/soak"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/storetest"
)

var errUnreachable = errors.New("the registrar cannot be reached")

// A life is one process. It ends at one of its calls to the registrar; then its data directory is
// copied.
type life struct {
	t    *testing.T
	s    *service.Service
	plan []string // what happens to each call: "" succeeds, "drop" loses the answer, "crash" ends the process

	world    http.RoundTripper // where its calls go, if it is a transport
	stubborn int               // how often a setup that failed is run again

	mu      sync.Mutex
	calls   int
	crashed string // the directory as it was; "" while the process lives
}

// RoundTrip is one of http.RoundTripper: what meddles does so before a request and before its
// answer.
func (l *life) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := l.meddle(""); err != nil {
		return nil, err
	}
	resp, err := l.world.RoundTrip(r)
	if err == nil {
		err = l.meddle("")
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (l *life) meddle(string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.crashed != "" {
		return errUnreachable
	}
	fate := ""
	if l.calls < len(l.plan) {
		fate = l.plan[l.calls]
	}
	l.calls++
	switch fate {
	case "drop":
		return errUnreachable
	case "crash":
		l.crashed = storetest.CopyCrashed(l.t, l.s.Core.Store)
		return errUnreachable
	}
	return nil
}

// live opens a directory and has its queue run until the process crashes, or the job has ended.
func live(t *testing.T, shop func(*life) registrar.Registrar, dir string, plan []string, begin func(*service.Service, core.Actor) string) (next string, job *core.JobResponse) {
	t.Helper()
	l := &life{t: t, plan: plan}
	s, who, run := openWorld(t, dir, func(c *core.Config) { c.Registrars = []registrar.Registrar{shop(l)} })
	l.s = s
	id := begin(s, who)
	run()
	for range 3000 { // a job that has crashed three times waits for a day
		time.Sleep(time.Minute)
		l.mu.Lock()
		next = l.crashed
		l.mu.Unlock()
		job = getJob(t, s, who, id)
		if next == "" && job.Status == "error" && l.stubborn > 0 {
			l.stubborn--
			id = begin(s, who)
			continue
		}
		if next != "" || job.Status == "completed" || job.Status == "error" {
			return next, job
		}
	}
	t.Fatalf("the job never ends: %+v", job)
	return "", nil
}

// fates lists what happens to the first calls of a process, until it crashes.
func fates(r *rand.Rand, most int) []string {
	var out []string
	for range r.IntN(most) {
		out = append(out, []string{"", "", "", "drop"}[r.IntN(4)])
	}
	return append(out, "crash")
}

// Whatever fails, and however often, a domain is paid for once.
func TestNothingIsBoughtTwice(t *testing.T) {
	for seed := range soak.Size[uint64](15, 50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { buyAmidCrashes(t, rand.New(rand.NewPCG(seed, 2))) })
		})
	}
}

func buyAmidCrashes(t *testing.T, r *rand.Rand) {
	shop := servicetest.NewShop()
	shop.Keyless = r.IntN(2) == 0
	shop.Lag = time.Duration(r.IntN(2)) * 100 * time.Second
	job := liveOn(t, r, 6, func(l *life) registrar.Registrar { return shop.Registrar(l.meddle) })
	if job.Status != "completed" || shop.Charges("once.com") != 1 {
		t.Errorf("bought %d times, keyless %v, lag %s; job %+v %+v", shop.Charges("once.com"), shop.Keyless, shop.Lag, job, job.Error)
	}
}

// liveOn buys once.com in several processes. The first three crash.
func liveOn(t *testing.T, r *rand.Rand, most int, shop func(*life) registrar.Registrar) *core.JobResponse {
	var id string
	begin := func(s *service.Service, who core.Actor) string {
		if id == "" {
			makeReady(t, s, connect(t, s, who, "once.com"))
		}
		if id == "" || getJob(t, s, who, id).Status == "error" {
			id = setUp(t, s, who, domains.SetupDomainIn{Domain: "once.com", Register: true, Price: new(11.0), SetupEmail: new(false)}).JobID
		}
		return id
	}
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		var plan []string
		if n < 3 {
			plan = fates(r, most)
		}
		next, job := live(t, shop, dir, plan, begin)
		if next == "" {
			return job
		}
		dir = next
	}
}

// The same at name.com, which charges every order of a name that it does not show yet, forgets
// keys, and misbehaves at random.
func TestNothingIsBoughtTwiceAtNameCom(t *testing.T) {
	for seed := range soak.Size[uint64](15, 50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { buyAmidMisdeeds(t, rand.New(rand.NewPCG(seed, 4))) })
		})
	}
}

func buyAmidMisdeeds(t *testing.T, r *rand.Rand) {
	shop := namecomtest.New()
	shop.Oversells, shop.ForgetsKeys = true, r.IntN(2) == 0
	shop.Lag = time.Duration(r.IntN(2)) * time.Minute
	shop.Pause = 40 * time.Second // longer than an order may take
	shop.RetryAfter = time.Duration(r.IntN(8)) * time.Second
	misdeeds, whims := 5, rand.New(rand.NewPCG(r.Uint64(), 5)) // a separate source, since it is used while r is in use
	shop.Meddle = func(call, _ string) (fate namecomtest.Fate) {
		shop.Set(func() {
			if grave := call == "create" || call == "charged"; misdeeds > 0 && (grave || whims.IntN(4) == 0) {
				misdeeds--
				fate = namecomtest.Fate(whims.IntN(6))
			}
		})
		return fate
	}
	job := liveOn(t, r, 10, func(l *life) registrar.Registrar {
		l.world, l.stubborn = namecomtest.Direct{Handler: shop}, 5
		n, err := registrar.NewNameCom(registrar.NameComConfig{Username: shop.Username, Token: shop.Token, HTTP: &http.Client{Transport: l}})
		if err != nil {
			t.Fatal(err)
		}
		return n
	})
	time.Sleep(time.Hour) // late orders have ended
	if job.Status != "completed" || shop.Purchases("once.com") != 1 || shop.Spent() != 10_99 {
		t.Errorf("bought %d times for %d cents, forgetful %v, lag %s; job %+v %+v", shop.Purchases("once.com"), shop.Spent(), shop.ForgetsKeys, shop.Lag, job, job.Error)
	}
}

// makeReady gives a domain fake keys, since real ones take long to generate; nothing is signed.
func makeReady(t *testing.T, s *service.Service, id string) {
	t.Helper()
	err := s.Core.Store.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, id)
		if err != nil {
			return err
		}
		d.DKIM = []store.DKIMKey{{Selector: "ms1", Record: "v=DKIM1; p=x"}}
		return store.Domains.Put(tx, d)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Where it cannot be found out whether a domain was bought, nothing is tried again, and the job
// says what to check. The next setup looks first.
func TestUndecidedPurchaseSaysWhatToCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop := servicetest.NewShop()
		s, who, run := openWorld(t, t.TempDir(), func(c *core.Config) { c.Registrars = []registrar.Registrar{shop.Registrar(nil)} })
		makeReady(t, s, connect(t, s, who, "lost.com"))
		buy := func() *core.JobResponse {
			job := setUp(t, s, who, domains.SetupDomainIn{Domain: "lost.com", Register: true, Price: new(11.0), SetupEmail: new(false)})
			time.Sleep(3 * time.Hour)
			return getJob(t, s, who, job.JobID)
		}
		shop.Set(func() {
			shop.Meddle = func(call string) error { // the order was accepted, and then nothing answers any more
				if call == "charged" {
					shop.Set(func() { shop.Meddle = func(string) error { return errUnreachable } })
					return errUnreachable
				}
				return nil
			}
		})
		run()
		job := buy()
		if job.Status != "error" || job.Error.Code != "registrar_error" || shop.Charges("lost.com") != 1 {
			t.Fatalf("bought %d times; job %+v %+v", shop.Charges("lost.com"), job, job.Error)
		}
		for _, what := range []string{"lost.com", "sandbox", "pur_", "never buys twice"} {
			if !strings.Contains(job.Error.Message, what) {
				t.Errorf("the error does not say %q: %s", what, job.Error.Message)
			}
		}
		shop.Set(func() { shop.Meddle = nil })
		job = buy()
		if job.Status != "completed" || shop.Charges("lost.com") != 1 {
			t.Errorf("bought %d times; job %+v %+v", shop.Charges("lost.com"), job, job.Error)
		}
	})
}

// A proxy repeats an order: the first one is paid for, and the second one is refused. The domain is
// ours.
func TestRepeatedOrderIsOurs(t *testing.T) {
	for _, unseen := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			shop := servicetest.NewShop()
			var dead atomic.Bool
			dead.Store(unseen)
			shop.Set(func() {
				shop.Meddle = func(call string) error {
					if call == "find" && dead.Load() {
						return errUnreachable
					}
					if call == "charged" {
						return registrar.ErrTaken
					}
					return nil
				}
			})
			s, who, run := openWorld(t, t.TempDir(), func(c *core.Config) { c.Registrars = []registrar.Registrar{shop.Registrar(nil)} })
			makeReady(t, s, connect(t, s, who, "twice.com"))
			run()
			job := setUp(t, s, who, domains.SetupDomainIn{Domain: "twice.com", Register: true, Price: new(11.0), SetupEmail: new(false)})
			time.Sleep(time.Minute)
			if j := getJob(t, s, who, job.JobID); unseen && (j.Status != "queued" || j.Error.Code != "registrar_error") {
				t.Errorf("while nobody can look: %+v %+v", j, j.Error)
			}
			dead.Store(false)
			time.Sleep(time.Hour)
			if j := getJob(t, s, who, job.JobID); j.Status != "completed" || shop.Charges("twice.com") != 1 {
				t.Errorf("bought %d times; %+v %+v", shop.Charges("twice.com"), j, j.Error)
			}
		})
	}
}
