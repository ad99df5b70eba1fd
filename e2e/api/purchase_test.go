package api

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/registrar/namecomtest"
	"github.com/mailstead/mailstead/e2e/rig"
)

// aShop starts a name.com and an installation that buys there.
func aShop(t *testing.T) (*namecomtest.Fake, *rig.Instance) {
	t.Helper()
	f := namecomtest.New()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	i := rig.Start(t, rig.GenerousLimits+fmt.Sprintf("[registrar.namecom]\nusername = %q\ntoken = %q\nbase_url = %q\n", f.Username, f.Token, s.URL))
	return f, i
}

// An order is a job of domain_setup as the tests read it.
type setupJob struct {
	ID       string `json:"job_id"`
	Status   string
	Resource struct{ ID, Name string }
	Error    *struct{ Code, Message string }
	Steps    []struct{ Name, Status string }
	Result   struct{ Price *float64 }
}

func (j setupJob) bought() bool {
	return len(j.Steps) > 0 && j.Steps[0].Name == "register" && j.Steps[0].Status == "completed"
}

func order(i *rig.Instance, name string, price float64) (j setupJob) {
	i.T.Helper()
	i.Want(202, "POST", "/v1/domains/setup", map[string]any{"domain": name, "register": true, "price": price, "auto_renew": true}, &j)
	return j
}

func readSetupJob(i *rig.Instance, id string) (j setupJob) {
	i.T.Helper()
	i.Want(200, "GET", "/v1/jobs/"+id, nil, &j)
	return j
}

// ended waits for a job's end.
func ended(i *rig.Instance, id string) (j setupJob) {
	i.T.Helper()
	i.Until("the setup has ended", func() bool {
		j = readSetupJob(i, id)
		return j.Status == "completed" || j.Status == "error"
	})
	return j
}

func TestBuyAtNameCom(t *testing.T) {
	t.Parallel()
	f, i := aShop(t)
	var offer struct {
		Available, Purchasable bool
		Price                  float64
		Registrar              string
		CheckedVia             string `json:"checked_via"`
	}
	i.Want(200, "GET", "/v1/domains/search?q=bakery.com", nil, &offer)
	if !offer.Available || !offer.Purchasable || offer.Price != 10.99 || offer.Registrar != "namecom" || offer.CheckedVia != "registrar" {
		t.Errorf("offer %+v", offer)
	}
	if j := ended(i, order(i, "dear.com", 10.98).ID); j.Error == nil || j.Error.Code != "price_changed" || f.Purchases("dear.com") != 0 {
		t.Errorf("a name above its price: %+v", j)
	}
	j := ended(i, order(i, "bakery.com", 10.99).ID)
	if j.Status != "completed" || *j.Result.Price != 10.99 || f.Spent() != 1099 {
		t.Fatalf("job %+v; %d spent", j, f.Spent())
	}
	if d := f.Domain("bakery.com"); !d.AutoRenew || !slices.Equal(d.Nameservers, []string{"ns1.mailstead.test", "ns2.mailstead.test"}) {
		t.Errorf("at the registrar it is %+v", d)
	}
	i.Want(200, "PATCH", "/v1/domains/"+j.Resource.ID, map[string]any{"auto_renew": false}, nil)
	if f.Domain("bakery.com").AutoRenew {
		t.Error("it is still renewed")
	}
	if j := ended(i, order(i, "bakery.com", 10.99).ID); j.Status != "completed" || f.Purchases("bakery.com") != 1 {
		t.Errorf("bought %d times; %+v", f.Purchases("bakery.com"), j)
	}
}

// The money is taken and the line is cut, the server is killed at that very moment, or hears of an
// error: what was bought is found, and bought once.
func TestChargedAndDropped(t *testing.T) {
	t.Parallel()
	f, i := aShop(t)
	f.ForgetsKeys, f.Oversells = true, true
	charged, dead := make(chan struct{}, 1), make(chan struct{})
	f.Meddle = func(call, name string) namecomtest.Fate {
		switch {
		case call != "charged":
			return namecomtest.Well
		case name == "killed.com":
			charged <- struct{}{}
			<-dead
		}
		return map[string]namecomtest.Fate{"dropped.com": namecomtest.Drop, "failed.com": namecomtest.Fail, "garbled.com": namecomtest.Garbage}[name]
	}
	killed := order(i, "killed.com", 10.99)
	<-charged
	i.Kill()
	close(dead)
	i.Start()
	jobs := []setupJob{killed}
	for _, name := range []string{"dropped.com", "failed.com", "garbled.com"} {
		jobs = append(jobs, order(i, name, 10.99))
	}
	for _, j := range jobs {
		j = ended(i, j.ID)
		if j.Status != "completed" || f.Purchases(j.Resource.Name) != 1 {
			t.Errorf("%s was bought %d times: %+v %+v", j.Resource.Name, f.Purchases(j.Resource.Name), j, j.Error)
		}
	}
	if f.Spent() != 4*1099 {
		t.Errorf("%d spent", f.Spent())
	}
	i.Check()
}

// Fifty purchases at a registrar that forgets keys, sells a name as often as it is asked to and
// answers as it likes, and a server that is killed again and again, at calls and at any moment: no
// name is paid for twice, and none that was paid for is lost. What was cut before the money was
// taken waits for the time in which a lost order may show, and is not waited for here.
func TestKillWhileBuying(t *testing.T) {
	t.Parallel()
	f, i := aShop(t)
	f.ForgetsKeys, f.Oversells, f.Pause = true, true, 300*time.Millisecond
	r := rand.New(rand.NewPCG(1, 1))
	var calls atomic.Int64
	reached := make(chan struct{}, 1)
	fates := []namecomtest.Fate{namecomtest.Well, namecomtest.Well, namecomtest.Drop, namecomtest.Fail, namecomtest.Garbage, namecomtest.Late}
	f.Meddle = func(call, _ string) (fate namecomtest.Fate) {
		if calls.Add(1)%29 == 0 {
			select {
			case reached <- struct{}{}:
				time.Sleep(20 * time.Millisecond) // the kill comes while this call is served
			default:
			}
		}
		if call == "charged" || call == "get" || call == "nameservers" {
			f.Set(func() { fate = fates[r.IntN(len(fates))] })
		}
		return fate
	}
	jobs := map[string]setupJob{}
	for n := range 50 {
		name := fmt.Sprintf("name-%d.com", n)
		jobs[name] = order(i, name, 10.99)
	}
	for kill := range 10 {
		select {
		case <-reached:
		case <-time.After(time.Duration(kill) * 100 * time.Millisecond):
		}
		i.Kill()
		i.Start()
	}
	f.Set(func() { f.Meddle = nil })
	for name := range jobs { // a setup that waits for its next try gives way to another one
		var again setupJob
		if i.Do("POST", "/v1/domains/setup", map[string]any{"domain": name, "register": true, "price": 10.99}, &again) == 202 {
			jobs[name] = again
		}
	}
	undecided := untilDecided(i, f, jobs)
	spent := int64(0)
	for name := range jobs {
		if n := f.Purchases(name); n > 1 {
			t.Errorf("%s was paid for %d times", name, n)
		}
		spent += f.Paid(name)
	}
	if spent != f.Spent() || spent%1099 != 0 {
		t.Errorf("%d cents for these names of %d", spent, f.Spent())
	}
	t.Logf("%d of 50 bought, %d wait for a lost order, %d calls", spent/1099, undecided, calls.Load())
	if spent/1099 < 25 {
		t.Errorf("only %d were bought", spent/1099)
	}
	i.Check()
}

// untilDecided waits until every name is bought or waits for a lost order; it counts those.
func untilDecided(i *rig.Instance, f *namecomtest.Fake, jobs map[string]setupJob) (undecided int) {
	i.T.Helper()
	deadline := time.Now().Add(40 * time.Second)
	for {
		open := []string{}
		undecided = 0
		for name, j := range jobs {
			j = readSetupJob(i, j.ID)
			switch {
			case j.bought() && f.Purchases(name) == 1:
			case f.Purchases(name) == 0 && j.Error != nil && strings.Contains(j.Error.Message, "unknown whether"):
				undecided++
			default:
				open = append(open, fmt.Sprintf("%s %+v %+v bought %d", name, j, j.Error, f.Purchases(name)))
			}
		}
		if len(open) == 0 {
			return undecided
		}
		if time.Now().After(deadline) {
			i.T.Fatalf("%d are open: %s", len(open), open[0])
		}
		time.Sleep(200 * time.Millisecond)
	}
}
