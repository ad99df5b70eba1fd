package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestKillAtTheEdge kills the program while each of its requests to the edge provider is under way,
// before the provider has done it and after, from the first of a setup to the last of a deletion.
// In the end each record was there once, and nothing of ours is left.
func TestKillAtTheEdge(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	f := newFakeEdge(t)
	i := newInstance(t, f.config(), "--resolver", newResolver(t).addr)
	for _, done := range []bool{false, true} {
		kills := 0
		for killed := true; killed; kills++ {
			k := &requestKill{instance: i, f: f, n: kills + 1, done: done, zone: fmt.Sprintf("kill%d-%t.test", kills+1, done)}
			k.run()
			killed = k.killed
		}
		t.Logf("%d requests of setup, change and deletion were cut, done: %t", kills-1, done)
		if kills < 10 {
			t.Errorf("there were only %d requests", kills-1)
		}
	}
	i.check()
}

// A requestKill is one life of a domain, in which the program is killed at its n-th request.
type requestKill struct {
	*instance
	f       *fakeEdge
	n       int
	done    bool // the provider does what it was asked for
	zone    string
	reached chan string   // the request, when it comes
	dead    chan struct{} // closed when the program is
	killed  bool
	what    string // the request at which it was
}

func (k *requestKill) run() {
	k.t.Helper()
	k.f.AddZone(k.zone, "")
	k.f.put(k.zone, "A", k.zone, "192.0.2.1")
	k.hold()
	defer k.f.watch(nil)
	var job seenJob
	k.want(202, "POST", "/v1/domains/setup", map[string]any{"domain": k.zone, "edge_api_token": edgeToken, "users": []any{map[string]any{"username": "ann"}}}, &job)
	id := job.Resource.ID
	k.through(k.completed(job.JobID))
	k.complete(id)
	wantManaged(k.t, k.f, k.zone, k.what)

	added := k.addRecord(id)
	k.through(func() bool { return len(added) > 0 })
	if err := <-added; err != nil && !k.killed {
		k.t.Error(err)
	}
	k.until("the record is there", func() bool { return k.f.has(k.zone, "TXT own."+k.zone) })
	if n := strings.Count(strings.Join(k.f.lines(k.zone, true), "|"), "own."+k.zone); n != 1 {
		k.t.Errorf("%s: ours are %q", k.what, k.f.lines(k.zone, true))
	}

	k.want(202, "DELETE", "/v1/domains/"+id, nil, &job)
	k.through(k.completed(job.JobID))
	if ours, others := k.f.lines(k.zone, true), k.f.lines(k.zone, false); len(ours) != 0 || len(others) != 1 {
		k.t.Errorf("%s: left are %q and %q", k.what, ours, others)
	}
	if strings.Contains(k.text("/v1/domains"), k.zone) {
		k.t.Errorf("%s: the domain is there", k.what)
	}
}

// hold has the provider wait at the n-th request until the program is dead.
func (k *requestKill) hold() {
	k.reached, k.dead = make(chan string, 1), make(chan struct{})
	at := 0
	k.f.watch(func(method, path string) {
		k.f.mu.Lock()
		at++
		cut := at == k.n
		k.f.mu.Unlock()
		if !cut {
			return
		}
		path, _, _ = strings.Cut(path, "?")
		k.reached <- fmt.Sprintf("request %d, %s %s", k.n, method, path)
		<-k.dead
		if !k.done {
			panic(http.ErrAbortHandler) // it never came
		}
	})
}

// through waits until something is over, and kills the program on the way if the request comes.
func (k *requestKill) through(over func() bool) {
	k.t.Helper()
	k.until("it is over", func() bool {
		select {
		case k.what = <-k.reached:
			k.kill()
			close(k.dead)
			k.killed = true
			time.Sleep(20 * time.Millisecond) // the provider does what it was asked for
			k.start()
		default:
		}
		return over()
	})
}

// completed tells whether a job is; an error ends the test.
func (k *requestKill) completed(id string) func() bool {
	return func() bool {
		var job seenJob
		if k.want(200, "GET", "/v1/jobs/"+id, nil, &job); job.Status == "error" {
			k.t.Fatalf("%s: %+v %+v", k.what, job, job.Error)
		}
		return job.Status == "completed"
	}
}

// addRecord adds a record while the program may die. The error comes when there is an answer or
// none can come.
func (k *requestKill) addRecord(id string) <-chan error {
	url, body := "http://"+k.ready.HTTP+"/v1/domains/"+id+"/custom-dns-records", strings.NewReader(`{"name":"own","type":"TXT","value":"x"}`)
	req, err := http.NewRequest("POST", url, body)
	if err != nil {
		k.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+k.token)
	req.Header.Set("Content-Type", "application/json")
	added := make(chan error, 1)
	go func() {
		resp, err := k.http.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		added <- err
	}()
	return added
}

// A moment is when a setup or provisioning is killed: once what the domain shows is so, or once the
// DNS is asked for something.
type moment struct {
	name string
	now  func(d seenDomain) bool
	asks uint16 // a question of this type; 0: see now
}

type seenDomain struct {
	Status   string
	DKIM     *string `json:"dkim_selector"`
	Redirect *string `json:"redirect_url"`
	Forward  *string `json:"forward_address"`
	Users    int     `json:"email_users_count"`
	JobID    *string `json:"job_id"`
}

var moments = []moment{
	{name: "at once", now: func(seenDomain) bool { return true }},
	{name: "after the keys", now: func(d seenDomain) bool { return d.DKIM != nil }},
	{name: "among the users", now: func(d seenDomain) bool { return d.Users > 0 }},
	{name: "after the redirect", now: func(d seenDomain) bool { return d.Redirect != nil }},
	{name: "after the forward", now: func(d seenDomain) bool { return d.Forward != nil }},
	{name: "in delegate", asks: dns.TypeNS},
	{name: "in verify", asks: dns.TypeMX},
}

// TestKillInEveryStep kills the program in the middle of the steps of setup and provisioning, for
// each way of DNS. The job ends right, nothing is made twice, and everything is told of once.
func TestKillInEveryStep(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	f, world := newFakeEdge(t), newResolver(t)
	i := newInstance(t, f.config()+"[dns]\nlisten = \"127.0.0.1:0\"\n", "--resolver", world.addr)
	world.delegate(i.ready.DNS)
	i.args = append(i.args, "--dns", i.ready.DNS) // also after a kill: a setup looks at its delegation the moment it is back
	for _, provider := range []string{"builtin", "manual", "cloudflare"} {
		for n, m := range moments {
			if m.asks == dns.TypeNS && provider != "builtin" || m.asks != 0 && provider == "manual" {
				continue
			}
			k := &stepKill{instance: i, f: f, world: world, provider: provider, moment: m, domain: fmt.Sprintf("step%d-%s.test", n, provider), users: 24}
			k.run()
			if m.now == nil && m.asks == dns.TypeMX || n < 2 {
				k := &stepKill{instance: i, f: f, world: world, provider: provider, moment: m, domain: fmt.Sprintf("connect%d-%s.test", n, provider)}
				k.run()
			}
		}
	}
	i.check()
}

// A stepKill is one life of a domain with a kill.
type stepKill struct {
	*instance
	f        *fakeEdge
	world    *fakeResolver
	provider string
	moment   moment
	domain   string
	users    int // of a setup; 0: the domain is connected
}

func (k *stepKill) run() {
	k.t.Helper()
	k.f.AddZone(k.domain, "")
	asked := k.holdQuestions()
	begin := k.setUp
	if k.users == 0 {
		begin = k.connect
	}
	id, jobID := begin()
	state := k.waitFor(id, asked)
	k.kill()
	k.release()
	k.start()
	job := k.endOf(jobID)
	if job.Status != "completed" {
		k.t.Errorf("%s killed %s (%s): job %+v %+v", k.domain, k.moment.name, state, job, job.Error)
	}
	k.t.Logf("%s killed %s (%s); %d attempts", k.domain, k.moment.name, state, job.Attempts)
	k.wantWhole(id)
	k.wantTold()
}

// setUp begins a setup with everything.
func (k *stepKill) setUp() (id, jobID string) {
	k.t.Helper()
	body := map[string]any{"domain": k.domain, "redirect_url": "https://example.net/", "forward_address": "team@example.net"}
	var list []any
	for n := range k.users {
		list = append(list, map[string]any{"username": fmt.Sprint("user", n)})
	}
	body["users"] = list
	switch k.provider {
	case "manual":
		body["manual_dns"] = true
	case "cloudflare":
		body["edge_api_token"] = edgeToken
	}
	var job seenJob
	k.want(202, "POST", "/v1/domains/setup", body, &job)
	return job.Resource.ID, job.JobID
}

// connect begins a provisioning.
func (k *stepKill) connect() (id, jobID string) {
	k.t.Helper()
	body := map[string]any{"domains": []string{k.domain}}
	switch k.provider {
	case "manual":
		body["manual_dns"] = true
	case "cloudflare":
		body["edge_api_token"] = edgeToken
	}
	var out struct{ Domains []edgeResult }
	k.want(200, "POST", "/v1/domains/connect", body, &out)
	if k.provider == "builtin" {
		k.want(200, "POST", "/v1/domains/check-ns", body, nil)
	}
	var d seenDomain
	k.want(200, "GET", "/v1/domains/"+out.Domains[0].DomainID, nil, &d)
	return out.Domains[0].DomainID, *d.JobID
}

// holdQuestions has the DNS not answer questions of the moment, and tells of the first.
func (k *stepKill) holdQuestions() <-chan struct{} {
	asked, held := make(chan struct{}, 64), make(chan struct{})
	k.world.mu.Lock()
	defer k.world.mu.Unlock()
	k.world.hook = func(q dns.Question) {
		if k.moment.asks == 0 || q.Qtype != k.moment.asks || !strings.HasSuffix(q.Name, k.domain+".") {
			return
		}
		asked <- struct{}{}
		<-held
	}
	k.world.held = held
	return asked
}

func (k *stepKill) release() {
	k.world.mu.Lock()
	defer k.world.mu.Unlock()
	k.world.hook = nil
	close(k.world.held)
}

// waitFor waits for the moment, or the job's end, and says where the domain was.
func (k *stepKill) waitFor(id string, asked <-chan struct{}) string {
	k.t.Helper()
	if k.moment.asks != 0 {
		select {
		case <-asked:
			return "asked"
		case <-time.After(20 * time.Second):
			k.t.Errorf("%s: nothing is asked %s", k.domain, k.moment.name)
			return "never"
		}
	}
	for {
		var d seenDomain
		k.want(200, "GET", "/v1/domains/"+id, nil, &d)
		if ended := d.Status == "complete" || d.Status == "pending_dns_records"; k.moment.now(d) || ended {
			return fmt.Sprintf("%s, %d users", d.Status, d.Users)
		}
	}
}

// wantWhole wants the domain to be as it is without a kill.
func (k *stepKill) wantWhole(id string) {
	k.t.Helper()
	var d seenDomain
	if k.provider == "manual" {
		if k.want(200, "GET", "/v1/domains/"+id, nil, &d); d.Status != "pending_dns_records" {
			k.t.Errorf("%s is %s", k.domain, d.Status)
		}
	} else {
		k.complete(id)
	}
	k.want(200, "GET", "/v1/domains/"+id, nil, &d)
	if whole := k.users > 0; d.Users != k.users || d.DKIM == nil || (d.Redirect != nil) != whole || (d.Forward != nil) != whole {
		k.t.Errorf("%s: %+v", k.domain, d)
	}
	if k.provider == "cloudflare" && (k.f.has(k.domain, "A "+k.domain) != (k.users > 0) || !k.f.has(k.domain, "MX "+k.domain)) {
		k.t.Errorf("%s: ours are %q", k.domain, k.f.lines(k.domain, true))
	}
}

// wantTold wants everything to be told of once.
func (k *stepKill) wantTold() {
	k.t.Helper()
	want := map[string]int{"domain.created": 1, "domain.ready": 1, "email_user.created": k.users}
	if k.provider == "manual" {
		want = map[string]int{"domain.created": 1}
	}
	for kind, n := range want {
		if got := k.told(kind); got != n {
			k.t.Errorf("%s: %d of %s, want %d", k.domain, got, kind, n)
		}
	}
}

// told counts the events of a type about the domain.
func (k *stepKill) told(kind string) (n int) {
	k.t.Helper()
	for cursor := ""; ; {
		var page struct {
			Data       []struct{ Data struct{ Domain string } }
			Pagination struct{ Cursor *string }
		}
		k.want(200, "GET", "/v1/events?limit=100&type="+kind+cursor, nil, &page)
		for _, e := range page.Data {
			if e.Data.Domain == k.domain {
				n++
			}
		}
		if page.Pagination.Cursor == nil {
			return n
		}
		cursor = "&cursor=" + *page.Pagination.Cursor
	}
}
