package api

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/desec/desectest"
	"github.com/mailstead/mailstead/dnsprov/hetzner/hetznertest"
	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

// TestDomainClaim: the operator decides whose a disputed domain is, through the socket and on the
// stopped store.
func TestDomainClaim(t *testing.T) {
	t.Parallel()
	a := rig.Start(t, "")
	b := a.SecondAccount()
	connect := func(i *rig.Instance) (id string) {
		var out struct {
			Domains []struct {
				DomainID string `json:"domain_id"`
				Status   string
			}
		}
		i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"both.test"}}, &out)
		if out.Domains[0].Status != "created" {
			t.Fatalf("%+v", out)
		}
		return out.Domains[0].DomainID
	}
	mine, theirs := connect(a), connect(b)
	account := func(i *rig.Instance) string {
		var out struct{ ID string }
		i.Want(200, "GET", "/v1/account", nil, &out)
		return out.ID
	}
	first, second := account(a), account(b)
	claim := func(id string, args ...string) {
		t.Helper()
		out, code := rig.Run(t, append([]string{"domain", "claim", "--data", a.Dir}, args...)...)
		var got struct {
			DomainID string `json:"domain_id"`
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.DomainID != id {
			t.Errorf("%v: %d %v %s", args, code, err, out)
		}
	}
	state := func(i *rig.Instance, id string) (status, code string) {
		var d struct {
			Status string
			Error  *struct{ Code string }
		}
		i.Want(200, "GET", "/v1/domains/"+id, nil, &d)
		if d.Error != nil {
			code = d.Error.Code
		}
		return d.Status, code
	}
	claim(theirs, "--account", second, "both.test", "--json")
	if status, code := state(a, mine); status != "error" || code != "domain_claimed_elsewhere" {
		t.Errorf("the loser is %s %s", status, code)
	}
	if status, code := state(b, theirs); status != "pending_ns" || code != "" {
		t.Errorf("the winner is %s %s", status, code)
	}
	for want, args := range map[int][]string{2: {"both.test"}, 1: {"--account", first, "none.test"}} {
		if out, code := rig.Run(t, append([]string{"domain", "claim", "--data", a.Dir}, args...)...); code != want {
			t.Errorf("%v: exit %d, want %d: %s", args, code, want, out)
		}
	}
	a.Stop()
	claim(mine, "--json", "--account", "owner@example.org", "both.test")
}

// A claimant is an account's claim of a name, as its API shows it.
type claimant struct {
	*rig.Instance
	id string
}

func claim(i *rig.Instance, body map[string]any) claimant {
	i.T.Helper()
	var out struct{ Domains []edgeResult }
	i.Want(200, "POST", "/v1/domains/connect", body, &out)
	if len(out.Domains) != 1 || out.Domains[0].Status != "created" {
		i.T.Fatalf("connect %v: %+v", body, out)
	}
	return claimant{i, out.Domains[0].DomainID}
}

type claimState struct {
	Status string
	Detail *string `json:"status_detail"`
	Error  *struct{ Code string }
}

func (c claimant) state() (d claimState) {
	c.T.Helper()
	c.Want(200, "GET", "/v1/domains/"+c.id, nil, &d)
	return d
}

func (c claimant) lost() bool {
	d := c.state()
	return d.Status == "error" && d.Error != nil && d.Error.Code == "domain_claimed_elsewhere"
}

// servesZone tells whether our DNS answers for a name.
func servesZone(i *rig.Instance, name string) bool {
	i.T.Helper()
	answer, err := dns.Exchange(new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeSOA), i.Ready.DNS)
	if err != nil {
		i.T.Fatal(err)
	}
	return answer.Rcode == dns.RcodeSuccess && len(answer.Answer) > 0
}

// TestKillWhileAClaimIsProven kills the program while it looks for what proves one of two claims,
// and at several moments after it has found that. After the restart either both claims are open and
// nothing is served, or one is proven and served, and the other has lost.
func TestKillWhileAClaimIsProven(t *testing.T) {
	t.Parallel()
	world := rig.NewFakeResolver(t)
	a := rig.Start(t, rig.GenerousLimits+"[dns]\nlisten = \"127.0.0.1:0\"\n", "--resolver", world.Addr)
	theirs := a.SecondAccount().Token
	for n, wait := range []time.Duration{-1, time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond} {
		name := fmt.Sprintf("both%d.test", n)
		body := map[string]any{"domains": []string{name}}
		mine, other := claim(a, body), claim(a.As(theirs), body)
		asked, held := make(chan struct{}, 64), make(chan struct{})
		world.Mu.Lock()
		world.Hook = func(q dns.Question) {
			if q.Qtype == dns.TypeTXT && strings.HasPrefix(q.Name, "_mailstead.") {
				asked <- struct{}{}
				<-held
			}
		}
		world.Mu.Unlock()
		world.Set(t, "_mailstead."+name, "TXT", fmt.Sprintf("%q", "mailstead-claim="+mine.id))
		req, err := http.NewRequest("POST", "http://"+a.Ready.HTTP+"/v1/domains/check-ns", strings.NewReader(fmt.Sprintf(`{"domains":[%q]}`, name)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+a.Token)
		req.Header.Set("Content-Type", "application/json")
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			if resp, err := a.HTTP.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		select {
		case <-asked:
		case <-time.After(20 * time.Second):
			t.Fatal("nobody asks for the record")
		}
		if wait >= 0 {
			close(held)
			time.Sleep(wait) // the kill comes this long after the answer
		}
		a.Kill()
		if wait < 0 {
			close(held)
		}
		<-answered
		world.Set(t, "_mailstead."+name, "TXT") // so that nothing proves it meanwhile
		a.Start()
		other.Instance = a.As(theirs)
		served, lost := servesZone(a, name), other.lost()
		if mine.lost() || served != lost {
			t.Errorf("%s: lost %t and %t, served %t", name, mine.lost(), lost, served)
		}
		t.Logf("%s, killed %v after the answer: proven %t", name, wait, lost)
		world.Set(t, "_mailstead."+name, "TXT", fmt.Sprintf("%q", "mailstead-claim="+mine.id))
		a.Want(200, "POST", "/v1/domains/check-ns", body, nil)
		if mine.lost() || !servesZone(a, name) || !other.lost() {
			t.Errorf("%s: in the end served %t, and the claims are %+v and %+v", name, servesZone(a, name), mine.state(), other.state())
		}
	}
	a.Check()
}

// TestPendingZoneProvesNothing: anybody may make a zone of any name at Cloudflare. As long as it is
// not delegated there, the token proves nothing: the domain takes no mail and blocks nobody.
func TestPendingZoneProvesNothing(t *testing.T) {
	t.Parallel()
	f, world := newFakeEdge(t), rig.NewFakeResolver(t)
	f.AddZone("big.test", "pending")
	i := rig.Start(t, f.config(), "--resolver", world.Addr)
	owner := i.SecondAccount()
	body := map[string]any{"domains": []string{"big.test"}, "edge_api_token": edgeToken}
	squatter := claim(i, body)
	complete(i, squatter.id)
	var ann struct {
		UserID string `json:"user_id"`
	}
	i.Want(201, "POST", "/v1/email-users", map[string]any{"email": "ann@big.test", "password": "correct horse"}, &ann)
	if d := squatter.state(); d.Detail == nil || !strings.Contains(*d.Detail, "Cloudflare does not serve big.test yet") {
		t.Errorf("the domain does not say what is missing: %+v", d)
	}
	if err := rig.Transmit(i.Ready.SMTP, "ann@big.test", rig.Letter("x")); err == nil || !strings.Contains(err.Error(), "450 4.2.1") {
		t.Errorf("mail to it: %v", err)
	}
	i.Want(409, "POST", "/v1/email-users/"+ann.UserID+"/inbox/send", map[string]any{"to": "x@far.test", "subject": "s", "text": "t"}, nil)
	if servesZone(i, "big.test") {
		t.Error("our DNS answers for it")
	}
	again := map[string]any{"domain": "big.test", "edge_api_token": edgeToken}
	setUp(i, again)
	if d := squatter.state(); d.Detail == nil {
		t.Errorf("after another setup: %+v", d)
	}

	// Whose it is connects it as well, and proves it by its key.
	held := claim(owner, map[string]any{"domains": []string{"big.test"}, "manual_dns": true})
	var dns struct {
		Records []struct{ Purpose, Host, Value string }
	}
	i.Until("it has its records", func() bool {
		owner.Want(200, "GET", "/v1/domains/"+held.id+"/dns-records", nil, &dns)
		return len(dns.Records) > 0
	})
	for _, r := range dns.Records {
		if r.Purpose == "DKIM" {
			world.Set(t, r.Host+".big.test", "TXT", quoted(r.Value))
		}
	}
	owner.Want(200, "POST", "/v1/domains/"+held.id+"/verify-dns", nil, nil)
	if d := squatter.state(); held.lost() || !squatter.lost() {
		t.Errorf("the owner's is %+v, the squatter's %+v", held.state(), d)
	}
	f.SetStatus("big.test", "active") // too late
	if job := setUpFails(i, again); job != "domain_claimed_elsewhere" {
		t.Errorf("another setup: %s", job)
	}
}

// TestZoneThatBecomesActiveProves: setup proves the claim once Cloudflare serves the zone.
func TestZoneThatBecomesActiveProves(t *testing.T) {
	t.Parallel()
	f := newFakeEdge(t)
	f.AddZone("own.test", "pending")
	i := rig.Start(t, f.config(), "--resolver", rig.NewFakeResolver(t).Addr)
	mine := claim(i, map[string]any{"domains": []string{"own.test"}, "edge_api_token": edgeToken})
	complete(i, mine.id)
	f.SetStatus("own.test", "active")
	setUp(i, map[string]any{"domain": "own.test", "edge_api_token": edgeToken})
	i.AddMailbox("ann@own.test", "correct horse")
	if d := mine.state(); d.Detail != nil {
		t.Errorf("%+v: %s", d, *d.Detail)
	}
	if err := rig.Transmit(i.Ready.SMTP, "ann@own.test", rig.Letter("x")); err != nil {
		t.Error(err)
	}
}

// startServer serves a zone of the fake of deSEC on port 53 of an address of this machine, until
// the test ends: nameservers of others are asked on that port alone.
func startServer(t *testing.T, ip, zone string, fake *desectest.Server) {
	t.Helper()
	packets, err := net.ListenPacket("udp", net.JoinHostPort(ip, "53"))
	if err != nil {
		t.Skipf("nameservers of others are asked on port 53, which is not free here: %v", err)
	}
	soa, err := dns.NewRR(zone + ". 60 IN SOA ns." + zone + ". hostmaster." + zone + ". 1 3600 600 86400 60")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Authoritative, m.Ns = true, []dns.RR{soa}
		asked := q.Question[0]
		for _, set := range fake.Sets(zone) {
			for _, value := range set.Records {
				rr, err := dns.NewRR(fmt.Sprintf("%s %d IN %s %s", set.Name, set.TTL, set.Type, value))
				if err == nil && strings.EqualFold(set.Name, asked.Name) && rr.Header().Rrtype == asked.Qtype {
					m.Answer, m.Ns = append(m.Answer, rr), nil
				}
			}
		}
		if asked.Qtype == dns.TypeSOA && strings.EqualFold(asked.Name, soa.Header().Name) {
			m.Answer, m.Ns = []dns.RR{soa}, nil
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
}

// TestTwoAccountsAtProviders: two accounts have zones of one name at two providers, and credentials
// for them. The name belongs to the one whose provider the parent zone delegates it to, and until
// then nobody has it, however good the credentials are.
func TestTwoAccountsAtProviders(t *testing.T) {
	t.Parallel()
	const name, ip = "fought.test", "127.53.0.1"
	h, d := hetznertest.New("hetzner-token"), desectest.New("desec-token")
	h.AddZone(name, "primary")
	d.AddDomain(name)
	startServer(t, ip, name, d)
	config, world := rig.GenerousLimits, rig.NewFakeResolver(t)
	for provider, api := range map[string]http.Handler{"hetzner": h, "desec": d} {
		server := httptest.NewServer(api)
		t.Cleanup(server.Close)
		config += fmt.Sprintf("[%s]\nbase_url = %q\n", provider, server.URL+map[string]string{"hetzner": "/v1", "desec": "/api/v1"}[provider])
	}
	i := rig.Start(t, config, "--resolver", world.Addr)
	connect := func(i *rig.Instance, provider string) claimant {
		var made struct{ ID string }
		i.Want(201, "POST", "/v1/dns-credentials", map[string]any{"provider": provider, "name": "ours", "token": provider + "-token"}, &made)
		c := claim(i, map[string]any{"domains": []string{name}, "dns_credential_id": made.ID})
		complete(i, c.id)
		return c
	}
	squatter, owner := connect(i, "hetzner"), connect(i.SecondAccount(), "desec")
	owner.AddMailbox("ann@"+name, "correct horse")
	look := func() {
		t.Helper()
		for _, c := range []claimant{squatter, owner} {
			c.Want(200, "GET", "/v1/domains/"+c.id+"/dns-status?refresh=true", nil, nil)
		}
	}
	look()
	for _, c := range []claimant{squatter, owner} {
		if s := c.state(); c.lost() || s.Detail == nil || !strings.Contains(*s.Detail, "mailstead-claim="+c.id) {
			t.Errorf("before the delegation: %+v", s)
		}
	}
	if err := rig.Transmit(i.Ready.SMTP, "ann@"+name, rig.Letter("x")); err == nil || !strings.Contains(err.Error(), "450 4.2.1") {
		t.Errorf("mail before the delegation: %v", err)
	}
	world.Set(t, name, "NS", "ns."+name+".")
	world.Set(t, "ns."+name, "A", ip)
	world.Set(t, "ns."+name, "AAAA")
	look()
	if owner.lost() || !squatter.lost() {
		t.Errorf("the owner's is %+v, the squatter's %+v", owner.state(), squatter.state())
	}
	if err := rig.Transmit(i.Ready.SMTP, "ann@"+name, rig.Letter("x")); err != nil {
		t.Error(err)
	}
	i.Check()
}

// setUpFails gives the code of the error that a setup is refused with.
func setUpFails(i *rig.Instance, body map[string]any) string {
	i.T.Helper()
	var out struct{ Error struct{ Code string } }
	i.Do("POST", "/v1/domains/setup", body, &out)
	return out.Error.Code
}
