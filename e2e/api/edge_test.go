package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/cloudflare/cloudflaretest"
	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/internal/soak"
	"github.com/miekg/dns"
)

// edgeToken is one that may do everything with records.
const edgeToken = "edge-token-of-an-owner"

// A fakeEdge is Cloudflare's API on a server of its own.
type fakeEdge struct {
	*cloudflaretest.Server
	url  string
	mu   sync.Mutex
	hook func(method, path string) // sees each request before it is answered; may be nil
}

func newFakeEdge(t *testing.T, zones ...string) *fakeEdge {
	t.Helper()
	f := &fakeEdge{Server: cloudflaretest.New()}
	f.Between = func(n int) {
		call := f.Calls()[n]
		f.mu.Lock()
		hook := f.hook
		f.mu.Unlock()
		if hook != nil {
			hook(call.Method, call.Path)
		}
	}
	f.AddToken(edgeToken, cloudflaretest.Token{Rights: cloudflaretest.DNS})
	for _, z := range zones {
		f.AddZone(z, "")
	}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL + "/client/v4"
	return f
}

func (f *fakeEdge) watch(hook func(method, path string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// config is what the program needs to speak to it.
func (f *fakeEdge) config() string {
	return rig.GenerousLimits + fmt.Sprintf("[cloudflare]\nbase_url = %q\n", f.url)
}

// put has somebody make a record. An MX begins with its priority.
func (f *fakeEdge) put(zone, kind, name, content string) {
	r := cloudflaretest.Record{Type: kind, Name: name, Content: content, TTL: 300}
	if pref, host, ok := strings.Cut(content, " "); ok && kind == "MX" {
		var n uint16
		_, _ = fmt.Sscan(pref, &n) // of the test
		r.Priority, r.Content = &n, host
	}
	f.Put(zone, r)
}

// lines lists the records of a zone, ours or those of others, as "TYPE name content"; keys are cut.
func (f *fakeEdge) lines(zone string, ours bool) []string {
	out := []string{}
	for _, r := range f.Records(zone) {
		if marked := r.Comment != nil && strings.HasPrefix(*r.Comment, "mailstead:"); marked != ours {
			continue
		}
		content, _, _ := strings.Cut(r.Content, "; p=M")
		if r.Priority != nil && r.Type == "MX" {
			content = fmt.Sprint(*r.Priority, " ", content)
		}
		out = append(out, r.Type+" "+r.Name+" "+content)
	}
	slices.Sort(out)
	return out
}

// has tells whether something of ours in a zone begins so.
func (f *fakeEdge) has(zone, line string) bool {
	return slices.ContainsFunc(f.lines(zone, true), func(l string) bool { return strings.HasPrefix(l, line) })
}

// An edgeResult is what connect says of one name.
type edgeResult struct {
	Domain   string
	DomainID string `json:"domain_id"`
	Status   string
	Error    string
}

// connectEdge connects names by a token.
func connectEdge(i *rig.Instance, token string, names ...string) []edgeResult {
	i.T.Helper()
	var out struct {
		Domains     []edgeResult
		Nameservers []string
		EdgeMode    bool `json:"edge_mode"`
	}
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": names, "edge_api_token": token}, &out)
	if !out.EdgeMode || out.Nameservers == nil || len(out.Nameservers) > 0 || len(out.Domains) != len(names) {
		i.T.Fatalf("connect: %+v", out)
	}
	return out.Domains
}

// endOf waits for a job's end.
func endOf(i *rig.Instance, id string) (job rig.Job) {
	i.T.Helper()
	i.Until("the job has ended", func() bool {
		i.Want(200, "GET", "/v1/jobs/"+id+"?wait=2", nil, &job)
		return job.Status == "completed" || job.Status == "error"
	})
	return job
}

// setUp runs a setup to its end.
func setUp(i *rig.Instance, body map[string]any) rig.Job {
	i.T.Helper()
	var job rig.Job
	i.Want(202, "POST", "/v1/domains/setup", body, &job)
	return endOf(i, job.JobID)
}

// erase deletes a domain and waits for the end of that.
func erase(i *rig.Instance, id string) rig.Job {
	i.T.Helper()
	var job rig.Job
	i.Want(202, "DELETE", "/v1/domains/"+id, nil, &job)
	return endOf(i, job.JobID)
}

// complete waits until a domain is.
func complete(i *rig.Instance, id string) {
	i.T.Helper()
	i.Until("the domain is complete", func() bool {
		var d struct {
			Status string
			Error  *struct{ Code, Message string }
		}
		i.Want(200, "GET", "/v1/domains/"+id, nil, &d)
		if d.Status == "error" {
			i.T.Fatalf("the domain is in error: %+v", d.Error)
		}
		return d.Status == "complete"
	})
}

// A seenRecord is what the tests read of a custom record.
type seenRecord struct {
	Record struct {
		ID     string `json:"record_id"`
		Status string
		Error  *string
	}
}

// TestEdge is the life of domains at the edge provider, from connect to delete, beside what others
// have there.
func TestEdge(t *testing.T) {
	t.Parallel()
	f, world := newFakeEdge(t, "edge.test", "taken.test", "parent.test"), rig.NewFakeResolver(t)
	f.AddToken("token-of-a-reader", cloudflaretest.Token{Rights: cloudflaretest.ReadZones | cloudflaretest.ReadRecords})
	f.AddToken("token-that-expired", cloudflaretest.Token{Rights: cloudflaretest.DNS, Status: "expired"})
	f.put("taken.test", "MX", "taken.test", "5 mx.elsewhere.test")
	f.put("edge.test", "CNAME", "edge.test", "site.elsewhere.test") // flattened there
	f.put("edge.test", "TXT", "edge.test", `"google-site-verification=1"`)
	f.put("edge.test", "TXT", "_dmarc.edge.test", `"v=DMARC1; p=reject"`)
	f.put("edge.test", "A", "shop.edge.test", "192.0.2.2")
	strangers := f.lines("edge.test", false)
	i := rig.Start(t, f.config(), "--resolver", world.Addr)

	results := edgeNames(i)
	id, sub := results[0].DomainID, results[3].DomainID
	complete(i, id)
	complete(i, sub)
	for _, line := range []string{"MX edge.test 10 mail.", "TXT edge.test \"v=spf1", "TXT ms1._domainkey.edge.test", "TXT ms1e._domainkey.edge.test"} {
		if !f.has("edge.test", line) {
			t.Errorf("%s is not among %q", line, f.lines("edge.test", true))
		}
	}
	if f.has("edge.test", "A edge.test") || f.has("edge.test", "TXT _dmarc") || !f.has("parent.test", "MX mail.parent.test 10") {
		t.Errorf("ours are %q and %q", f.lines("edge.test", true), f.lines("parent.test", true))
	}

	edgeRecords(i, f, id)
	edgeSeen(i, f, world, id)

	if job := erase(i, sub); job.Status != "completed" || len(f.lines("parent.test", true)) != 0 {
		t.Errorf("%+v left %q", job, f.lines("parent.test", true))
	}
	if job := erase(i, id); job.Status != "completed" || len(f.lines("edge.test", true)) != 0 {
		t.Errorf("%+v left %q", job, f.lines("edge.test", true))
	}
	if now := f.lines("edge.test", false); !slices.Equal(now, strangers) {
		t.Errorf("others have %q, had %q", now, strangers)
	}

	edgeTokens(i, f)
	for _, secret := range []string{edgeToken, "token-of-a-reader"} {
		for _, path := range []string{"/v1/domains", "/v1/jobs", "/v1/events"} {
			if strings.Contains(i.GetText(path), secret) {
				t.Errorf("%s shows a token", path)
			}
		}
	}
	i.Check()
}

// edgeNames connects good names beside bad ones, and names by bad tokens.
func edgeNames(i *rig.Instance) []edgeResult {
	t := i.T
	t.Helper()
	results := connectEdge(i, edgeToken, "edge.test", "taken.test", "nozone.test", "mail.parent.test", "no name")
	for n, want := range []string{"", `zone_conflict: `, "zone_not_found: ", "", "not a"} {
		if r := results[n]; (r.Status == "created") != (want == "") || n < 4 && !strings.HasPrefix(r.Error, want) {
			t.Errorf("connect: %+v", r)
		}
	}
	if !strings.Contains(results[1].Error, `MX taken.test "5 mx.elsewhere.test"`) {
		t.Errorf("the conflict: %s", results[1].Error)
	}
	for _, token := range []string{"token-that-expired", "token-of-nobody"} {
		for _, r := range connectEdge(i, token, "taken.test", "nozone.test") {
			if !strings.HasPrefix(r.Error, "edge_token_invalid: ") || strings.Contains(r.Error, token) {
				t.Errorf("with %s: %+v", token, r)
			}
		}
	}
	return results
}

// edgeTokens has a token that may only read found out when the first record is made, and a setup
// with a better one go on. With a dead token the domain goes, and the job says what remains.
func edgeTokens(i *rig.Instance, f *fakeEdge) {
	t := i.T
	t.Helper()
	reader := connectEdge(i, "token-of-a-reader", "edge.test")[0]
	var d struct {
		Status string
		Error  *struct{ Code, Message string }
	}
	i.Until("the domain is in error", func() bool {
		i.Want(200, "GET", "/v1/domains/"+reader.DomainID, nil, &d)
		return d.Status == "error"
	})
	if d.Error.Code != "edge_token_invalid" || !strings.Contains(d.Error.Message, "DNS → Edit") {
		t.Errorf("error %+v", d.Error)
	}
	if job := setUp(i, map[string]any{"domain": "edge.test", "edge_api_token": edgeToken}); job.Status != "completed" || !f.has("edge.test", "MX edge.test") {
		t.Errorf("setup %+v", job)
	}
	f.AddToken(edgeToken, cloudflaretest.Token{Status: "disabled"})
	job := erase(i, reader.DomainID)
	if step := job.Steps[1]; job.Status != "completed" || step.Status != "error" || !strings.Contains(*step.Error, "mailstead:"+reader.DomainID) || !strings.Contains(*step.Error, "MX edge.test") {
		t.Errorf("deletion %+v", job)
	}
}

// edgeRecords makes, changes and deletes records of one's own and the policy, and runs setup over
// it.
func edgeRecords(i *rig.Instance, f *fakeEdge, id string) {
	t, path := i.T, "/v1/domains/"+id+"/custom-dns-records"
	t.Helper()
	post := func(name, kind, value, status string) string {
		t.Helper()
		var r seenRecord
		i.Want(200, "POST", path, map[string]any{"name": name, "type": kind, "value": value}, &r)
		if r.Record.Status != status || (r.Record.Error != nil) != (status == "error") {
			t.Errorf("%s %s: %+v", kind, name, r.Record)
		}
		return r.Record.ID
	}
	post("shop", "CNAME", "shop.elsewhere.test", "error")
	www := post("web", "CNAME", "web.elsewhere.test", "active")
	post("quoted", "TXT", `say "hi" \o/ ü`, "active")
	post("long", "TXT", strings.Repeat("x", 700), "active")
	i.Want(200, "PATCH", path+"/"+www, map[string]any{"name": "web2"}, nil)
	var failed struct {
		Error struct{ Code, Message string }
	}
	for method, body := range map[string]any{"PUT": map[string]any{"value": "v=DMARC1; p=none"}, "DELETE": nil} {
		i.Want(409, method, "/v1/domains/"+id+"/dmarc", body, &failed)
		if failed.Error.Code != "zone_conflict" || !strings.Contains(failed.Error.Message, "v=DMARC1; p=reject") {
			t.Errorf("%s of a policy in the place of somebody else's: %+v", method, failed)
		}
	}
	var d struct {
		Detail *string                 `json:"status_detail"`
		Policy *struct{ Value string } `json:"dmarc_override"`
	}
	if i.Want(200, "GET", "/v1/domains/"+id, nil, &d); d.Detail != nil || d.Policy == nil || d.Policy.Value != "v=DMARC1; p=reject" {
		t.Errorf("status detail %v, policy %+v", d.Detail, d.Policy)
	}
	if !f.has("edge.test", "CNAME web2.edge.test web.elsewhere.test") || f.has("edge.test", "CNAME web.edge.test") || !f.has("edge.test", "TXT long") {
		t.Errorf("ours are %q", f.lines("edge.test", true))
	}
}

// edgeSeen shows that what is at the edge provider is what the domain needs, by looking it up.
func edgeSeen(i *rig.Instance, f *fakeEdge, world *rig.FakeResolver, id string) {
	t := i.T
	t.Helper()
	byName := map[string][]string{}
	for _, r := range f.Records("edge.test") {
		value := r.Content
		if r.Type == "MX" {
			value = fmt.Sprint(*r.Priority, " ", value, ".")
		}
		if r.Type == "MX" || r.Type == "TXT" {
			byName[r.Name+" "+r.Type] = append(byName[r.Name+" "+r.Type], value)
		}
	}
	for key, values := range byName {
		name, kind, _ := strings.Cut(key, " ")
		world.Set(t, name, kind, values...)
	}
	var s struct {
		Status string
		Ready  bool
	}
	if i.Want(200, "GET", "/v1/domains/"+id+"/dns-status?refresh=true", nil, &s); s.Status != "complete" || !s.Ready {
		t.Errorf("dns-status %+v: %s", s, i.GetText("/v1/domains/"+id+"/dns-status"))
	}
}

// TestEdgeFaults: whatever the provider answers, the domain is complete in the end, with each
// record once.
func TestEdgeFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []cloudflaretest.Fault{
		{Kind: cloudflaretest.TooMany, Path: "batch", After: time.Second, Times: 2},
		{Kind: cloudflaretest.TooMany, Path: "batch", After: 12 * time.Second},
		{Kind: cloudflaretest.Broken, Path: "batch"},
		{Kind: cloudflaretest.Garbage, Path: "dns_records", Skip: 1, Times: 4},
		{Kind: cloudflaretest.Cut, Method: "POST"},
		{Kind: cloudflaretest.CutAfter, Method: "POST"},
		{Kind: cloudflaretest.HalfDone, Method: "POST"},
	} {
		t.Run(fault.Kind, func(t *testing.T) {
			t.Parallel()
			f := newFakeEdge(t, "edge.test")
			i := rig.Start(t, f.config(), "--resolver", rig.NewFakeResolver(t).Addr)
			f.Fail(fault)
			r := connectEdge(i, edgeToken, "edge.test")[0]
			if r.Status != "created" {
				t.Fatalf("connect: %+v", r)
			}
			complete(i, r.DomainID)
			wantManaged(t, f, "edge.test", fault.Kind)
		})
	}
}

// wantManaged wants the managed records of a zone to be there, each once.
func wantManaged(t *testing.T, f *fakeEdge, zone, when string) {
	t.Helper()
	want := []string{"MX " + zone + " 10", "TXT _dmarc." + zone, "TXT " + zone + " \"v=spf1", "TXT ms1._domainkey." + zone, "TXT ms1e._domainkey." + zone}
	got := slices.DeleteFunc(f.lines(zone, true), func(l string) bool { return strings.HasPrefix(l, "SRV ") })
	for n, line := range want {
		if len(got) != len(want) || !strings.HasPrefix(got[n], line) {
			t.Errorf("%s: ours are %q", when, got)
			return
		}
	}
}

// TestEdgeRaces: somebody makes records between our look and our change. One that exists already is
// adopted, and left when the domain goes; one in the place of ours is a conflict, and stays.
func TestEdgeRaces(t *testing.T) {
	t.Parallel()
	f := newFakeEdge(t, "same.test", "other.test")
	i := rig.Start(t, f.config(), "--resolver", rig.NewFakeResolver(t).Addr)
	var once sync.Once
	race := func(zone, kind, name, content string) {
		once = sync.Once{}
		f.watch(func(_, path string) {
			if strings.HasSuffix(path, "/batch") {
				once.Do(func() { f.put(zone, kind, name, content) })
			}
		})
	}
	race("same.test", "TXT", "_dmarc.same.test", `"v=DMARC1; p=reject"`) // 81058
	same := connectEdge(i, edgeToken, "same.test")[0].DomainID
	complete(i, same)
	if f.has("same.test", "TXT _dmarc") || !f.has("same.test", "MX same.test") || len(f.lines("same.test", false)) != 1 {
		t.Errorf("ours are %q, others' %q", f.lines("same.test", true), f.lines("same.test", false))
	}
	if erase(i, same); len(f.lines("same.test", true)) != 0 || len(f.lines("same.test", false)) != 1 {
		t.Errorf("left are %q and %q", f.lines("same.test", true), f.lines("same.test", false))
	}

	race("other.test", "MX", "other.test", "20 mail.mailstead.test") // 81057
	job := setUp(i, map[string]any{"domain": "other.test", "edge_api_token": edgeToken})
	if job.Status != "error" || job.Error.Code != "zone_conflict" || !strings.Contains(job.Error.Message, `MX other.test "20 mail.mailstead.test"`) {
		t.Errorf("setup %+v %+v", job, job.Error)
	}
	f.watch(nil)
	if erase(i, job.Resource.ID); len(f.lines("other.test", true)) != 0 || !slices.Equal(f.lines("other.test", false), []string{"MX other.test 20 mail.mailstead.test"}) {
		t.Errorf("left are %q and %q", f.lines("other.test", true), f.lines("other.test", false))
	}
}

// TestKillAtTheEdge kills the program while each of its requests to the edge provider is under way,
// before the provider has done it and after, from the first of a setup to the last of a deletion.
// In the end each record was there once, and nothing of ours is left.
func TestKillAtTheEdge(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	f := newFakeEdge(t)
	i := rig.Start(t, f.config(), "--resolver", rig.NewFakeResolver(t).Addr)
	for first, done := range []bool{false, true} {
		n := 1
		if !soak.Full() {
			n += first // half of them are cut before they are done, the others after
		}
		for killed := true; killed; n += soak.Size(2, 1) {
			k := &requestKill{Instance: i, f: f, n: n, done: done, zone: fmt.Sprintf("kill%d-%t.test", n, done)}
			k.run()
			killed = k.killed
		}
		if n < 10 {
			t.Errorf("there were less than %d requests of setup, change and deletion, done: %t", n, done)
		}
	}
	i.Check()
}

// A requestKill is one life of a domain, in which the program is killed at its n-th request.
type requestKill struct {
	*rig.Instance
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
	k.T.Helper()
	k.f.AddZone(k.zone, "")
	k.f.put(k.zone, "A", k.zone, "192.0.2.1")
	k.hold()
	defer k.f.watch(nil)
	var job rig.Job
	k.Want(202, "POST", "/v1/domains/setup", map[string]any{"domain": k.zone, "edge_api_token": edgeToken, "users": []any{map[string]any{"username": "ann"}}}, &job)
	id := job.Resource.ID
	k.through(k.completed(job.JobID))
	complete(k.Instance, id)
	wantManaged(k.T, k.f, k.zone, k.what)

	added := k.addRecord(id)
	k.through(func() bool { return len(added) > 0 })
	if err := <-added; err != nil && !k.killed {
		k.T.Error(err)
	}
	k.Until("the record is there", func() bool { return k.f.has(k.zone, "TXT own."+k.zone) })
	if n := strings.Count(strings.Join(k.f.lines(k.zone, true), "|"), "own."+k.zone); n != 1 {
		k.T.Errorf("%s: ours are %q", k.what, k.f.lines(k.zone, true))
	}

	k.Want(202, "DELETE", "/v1/domains/"+id, nil, &job)
	k.through(k.completed(job.JobID))
	if ours, others := k.f.lines(k.zone, true), k.f.lines(k.zone, false); len(ours) != 0 || len(others) != 1 {
		k.T.Errorf("%s: left are %q and %q", k.what, ours, others)
	}
	if strings.Contains(k.GetText("/v1/domains"), k.zone) {
		k.T.Errorf("%s: the domain is there", k.what)
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
	k.T.Helper()
	k.Until("it is over", func() bool {
		select {
		case k.what = <-k.reached:
			k.Kill()
			close(k.dead)
			k.killed = true
			time.Sleep(20 * time.Millisecond) // the provider does what the killed program asked for
			k.Start()
		default:
		}
		return over()
	})
}

// completed tells whether a job is; an error ends the test.
func (k *requestKill) completed(id string) func() bool {
	return func() bool {
		var job rig.Job
		if k.Want(200, "GET", "/v1/jobs/"+id, nil, &job); job.Status == "error" {
			k.T.Fatalf("%s: %+v %+v", k.what, job, job.Error)
		}
		return job.Status == "completed"
	}
}

// addRecord adds a record while the program may die. The error comes when there is an answer or
// none can come.
func (k *requestKill) addRecord(id string) <-chan error {
	url, body := "http://"+k.Ready.HTTP+"/v1/domains/"+id+"/custom-dns-records", strings.NewReader(`{"name":"own","type":"TXT","value":"x"}`)
	req, err := http.NewRequest("POST", url, body)
	if err != nil {
		k.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+k.Token)
	req.Header.Set("Content-Type", "application/json")
	added := make(chan error, 1)
	go func() {
		resp, err := k.HTTP.Do(req)
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
	f, world := newFakeEdge(t), rig.NewFakeResolver(t)
	i := rig.Start(t, f.config()+"[dns]\nlisten = \"127.0.0.1:0\"\n", "--resolver", world.Addr)
	world.Delegate(i.Ready.DNS)
	i.Args = append(i.Args, "--dns", i.Ready.DNS) // also after a kill: a setup looks at its delegation the moment it is back
	for _, provider := range []string{"builtin", "manual", "cloudflare"} {
		for n, m := range moments {
			if m.asks == dns.TypeNS && provider != "builtin" || m.asks != 0 && provider == "manual" {
				continue
			}
			k := &stepKill{Instance: i, f: f, world: world, provider: provider, moment: m, domain: fmt.Sprintf("step%d-%s.test", n, provider), users: 4}
			if m.name == "among the users" {
				k.users = 24 // so many that they take several writes
			}
			k.run()
			if m.now == nil && m.asks == dns.TypeMX || n < 2 {
				k := &stepKill{Instance: i, f: f, world: world, provider: provider, moment: m, domain: fmt.Sprintf("connect%d-%s.test", n, provider)}
				k.run()
			}
		}
	}
	i.Check()
}

// A stepKill is one life of a domain with a kill.
type stepKill struct {
	*rig.Instance
	f        *fakeEdge
	world    *rig.FakeResolver
	provider string
	moment   moment
	domain   string
	users    int // of a setup; 0: the domain is connected
}

func (k *stepKill) run() {
	k.T.Helper()
	k.f.AddZone(k.domain, "")
	asked := k.holdQuestions()
	begin := k.setUp
	if k.users == 0 {
		begin = k.connect
	}
	id, jobID := begin()
	state := k.waitFor(id, asked)
	k.Kill()
	k.release()
	k.Start()
	job := endOf(k.Instance, jobID)
	if job.Status != "completed" {
		k.T.Errorf("%s killed %s (%s): job %+v %+v", k.domain, k.moment.name, state, job, job.Error)
	}
	k.T.Logf("%s killed %s (%s); %d attempts", k.domain, k.moment.name, state, job.Attempts)
	k.wantWhole(id)
	k.wantTold()
}

// setUp begins a setup with everything.
func (k *stepKill) setUp() (id, jobID string) {
	k.T.Helper()
	body := map[string]any{"domain": k.domain, "redirect_url": "https://example.net/", "forward_address": "team@example.net"}
	var list []any
	for n := range k.users {
		list = append(list, map[string]any{"username": fmt.Sprint("user", n)})
	}
	body["users"] = list
	if k.provider != "cloudflare" {
		body["apex"] = "here" // no nameserver answers for the domain, so nobody knows whether it has a website
	}
	switch k.provider {
	case "manual":
		body["manual_dns"] = true
	case "cloudflare":
		body["edge_api_token"] = edgeToken
	}
	var job rig.Job
	k.Want(202, "POST", "/v1/domains/setup", body, &job)
	return job.Resource.ID, job.JobID
}

// connect begins a provisioning.
func (k *stepKill) connect() (id, jobID string) {
	k.T.Helper()
	body := map[string]any{"domains": []string{k.domain}}
	switch k.provider {
	case "manual":
		body["manual_dns"] = true
	case "cloudflare":
		body["edge_api_token"] = edgeToken
	}
	var out struct{ Domains []edgeResult }
	k.Want(200, "POST", "/v1/domains/connect", body, &out)
	if k.provider == "builtin" {
		k.Want(200, "POST", "/v1/domains/check-ns", body, nil)
	}
	var d seenDomain
	k.Want(200, "GET", "/v1/domains/"+out.Domains[0].DomainID, nil, &d)
	return out.Domains[0].DomainID, *d.JobID
}

// holdQuestions has the DNS not answer questions of the moment, and tells of the first.
func (k *stepKill) holdQuestions() <-chan struct{} {
	asked, held := make(chan struct{}, 64), make(chan struct{})
	k.world.Mu.Lock()
	defer k.world.Mu.Unlock()
	k.world.Hook = func(q dns.Question) {
		if k.moment.asks == 0 || q.Qtype != k.moment.asks || !strings.HasSuffix(q.Name, k.domain+".") {
			return
		}
		asked <- struct{}{}
		<-held
	}
	k.world.Release = held
	return asked
}

func (k *stepKill) release() {
	k.world.Mu.Lock()
	defer k.world.Mu.Unlock()
	k.world.Hook = nil
	close(k.world.Release)
}

// waitFor waits for the moment, or the job's end, and says where the domain was.
func (k *stepKill) waitFor(id string, asked <-chan struct{}) string {
	k.T.Helper()
	if k.moment.asks != 0 {
		select {
		case <-asked:
			return "asked"
		case <-time.After(20 * time.Second):
			k.T.Errorf("%s: nothing is asked %s", k.domain, k.moment.name)
			return "never"
		}
	}
	for {
		var d seenDomain
		k.Want(200, "GET", "/v1/domains/"+id, nil, &d)
		if ended := d.Status == "complete" || d.Status == "pending_dns_records"; k.moment.now(d) || ended {
			return fmt.Sprintf("%s, %d users", d.Status, d.Users)
		}
		time.Sleep(time.Millisecond) // between two looks: each costs the program time
	}
}

// wantWhole wants the domain to be as it is without a kill.
func (k *stepKill) wantWhole(id string) {
	k.T.Helper()
	var d seenDomain
	if k.provider == "manual" {
		if k.Want(200, "GET", "/v1/domains/"+id, nil, &d); d.Status != "pending_dns_records" {
			k.T.Errorf("%s is %s", k.domain, d.Status)
		}
	} else {
		complete(k.Instance, id)
	}
	k.Want(200, "GET", "/v1/domains/"+id, nil, &d)
	if whole := k.users > 0; d.Users != k.users || d.DKIM == nil || (d.Redirect != nil) != whole || (d.Forward != nil) != whole {
		k.T.Errorf("%s: %+v", k.domain, d)
	}
	if k.provider == "cloudflare" && (k.f.has(k.domain, "A "+k.domain) != (k.users > 0) || !k.f.has(k.domain, "MX "+k.domain)) {
		k.T.Errorf("%s: ours are %q", k.domain, k.f.lines(k.domain, true))
	}
}

// wantTold wants everything to be told of once.
func (k *stepKill) wantTold() {
	k.T.Helper()
	want := map[string]int{"domain.created": 1, "domain.ready": 1, "email_user.created": k.users}
	if k.provider == "manual" {
		want = map[string]int{"domain.created": 1}
	}
	for kind, n := range want {
		if got := k.told(kind); got != n {
			k.T.Errorf("%s: %d of %s, want %d", k.domain, got, kind, n)
		}
	}
}

// told counts the events of a type about the domain.
func (k *stepKill) told(kind string) (n int) {
	k.T.Helper()
	for cursor := ""; ; {
		var page struct {
			Data       []struct{ Data struct{ Domain string } }
			Pagination struct{ Cursor *string }
		}
		k.Want(200, "GET", "/v1/events?limit=100&type="+kind+cursor, nil, &page)
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
