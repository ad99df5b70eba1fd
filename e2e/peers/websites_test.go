package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

const (
	siteIP   = "127.0.0.80" // not an address of the program
	siteText = "this is the website"
)

// sitesConf has a zone that takes updates with a key. Its gaps are the zone and the secret.
const sitesConf = `key "update.key.test" { algorithm hmac-sha256; secret "%[2]s"; };
zone "%[1]s" { type primary; file "%[1]s.zone"; allow-update { key update.key.test; }; allow-transfer { key update.key.test; }; };
`

// siteZone is a domain with a website at the bare name. Its gap is the domain.
const siteZone = `$ORIGIN %s.
$TTL 300
@ SOA ns1.elsewhere.test. hostmaster.elsewhere.test. 1 3600 600 86400 60
@ NS ns1.elsewhere.test.
@ NS ns2.elsewhere.test.
@ A ` + siteIP + `
@ TXT "google-site-verification=1"
www CNAME @
`

// A visitor looks a website up and reads it, again and again, as browsers do that know nothing
// from before.
type visitor struct {
	visits   int
	failures []error
	stop     context.CancelFunc
	done     chan struct{}
}

// visit begins the visits of a website whose port is given. Before each visit it calls look, which
// may be nil.
func visit(t *testing.T, resolver, name, port string, look func()) *visitor {
	ctx, cancel := context.WithCancel(t.Context())
	v := &visitor{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(v.done)
		pause := time.NewTicker(10 * time.Millisecond)
		defer pause.Stop()
		for ctx.Err() == nil {
			if look != nil {
				look()
			}
			err := visitOnce(ctx, resolver, name, port)
			switch {
			case ctx.Err() != nil:
			case err != nil:
				v.failures = append(v.failures, err)
			default:
				v.visits++
			}
			<-pause.C
		}
	}()
	t.Cleanup(v.end)
	return v
}

func visitOnce(ctx context.Context, resolver, name, port string) error {
	r, _, err := new(dns.Client).ExchangeContext(ctx, new(dns.Msg).SetQuestion(name+".", dns.TypeA), resolver)
	if err != nil {
		return err
	}
	if len(r.Answer) != 1 {
		return fmt.Errorf("%s, %v", dns.RcodeToString[r.Rcode], r.Answer)
	}
	a, ok := r.Answer[0].(*dns.A)
	if !ok {
		return fmt.Errorf("the answer is %s", r.Answer[0])
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(a.A.String(), port)+"/", nil)
	if err != nil {
		return err
	}
	request.Host = name
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if string(text) != siteText {
		err = errors.Join(err, fmt.Errorf("the website says %q", text))
	}
	return err
}

func (v *visitor) end() {
	v.stop()
	<-v.done
}

// check ends the visits, and fails the test unless all of them have found the website.
func (v *visitor) check(t *testing.T) {
	t.Helper()
	v.end()
	if len(v.failures) > 0 || v.visits < 20 {
		t.Errorf("%d visits have found the website and %d have not: %v", v.visits, len(v.failures), errors.Join(v.failures[:min(3, len(v.failures))]...))
	}
	t.Logf("%d visits", v.visits)
}

// startSite serves a website until the test ends, and returns its port.
func startSite(t *testing.T) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", siteIP+":0")
	if err != nil {
		t.Skip("no second loopback address: ", err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Host, "-site.test") {
			_, _ = io.WriteString(w, siteText)
		}
	})}}
	server.Start()
	t.Cleanup(server.Close)
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// A siteMove is a domain with a website, while it is connected.
type siteMove struct {
	*rig.Instance
	zone, bind string
	world      *rig.FakeResolver
	path       string // of the domain
}

// connect connects the domain.
func (m *siteMove) connect(more map[string]any) {
	m.T.Helper()
	body := map[string]any{"domains": []string{m.zone}}
	for name, value := range more {
		body[name] = value
	}
	var out struct {
		Domains []struct {
			ID    string `json:"domain_id"`
			Error *string
		}
	}
	m.Want(200, "POST", "/v1/domains/connect", body, &out)
	if why := out.Domains[0].Error; why != nil {
		m.T.Fatal(*why)
	}
	m.path = "/v1/domains/" + out.Domains[0].ID
}

// complete waits until the domain is complete, with its website elsewhere.
func (m *siteMove) complete() {
	m.T.Helper()
	var d struct {
		Status string
		Error  *struct{ Message string }
		Apex   struct{ Mode string }
	}
	m.Until("the domain is complete", func() bool {
		m.Want(200, "GET", m.path, nil, &d)
		if d.Status == "error" {
			m.T.Fatal(d.Error.Message)
		}
		return d.Status == "complete"
	})
	if d.Apex.Mode != "elsewhere" {
		m.T.Errorf("the website is %s", d.Apex.Mode)
	}
}

// changes makes changes of a domain that is complete.
func (m *siteMove) changes() {
	m.T.Helper()
	m.Want(200, "PUT", m.path+"/dmarc", map[string]any{"value": "v=DMARC1; p=none"}, nil)
	m.Want(200, "POST", m.path+"/custom-dns-records", map[string]any{"name": "@", "type": "TXT", "value": "the owner's"}, nil)
	m.redirect()
	var job rig.Job
	m.Want(202, "POST", "/v1/domains/setup", map[string]any{"domain": m.zone}, &job)
	if job = m.end(job.JobID); job.Status != "completed" {
		m.T.Errorf("the setup is %s: %+v", job.Status, job.Error)
	}
	m.complete()
}

// redirect asks for a redirect, which would take the place of the website, and is refused.
func (m *siteMove) redirect() {
	m.T.Helper()
	var failed struct{ Error struct{ Code string } }
	m.Want(409, "POST", m.path+"/redirect", map[string]any{"redirect_url": "https://other.test/"}, &failed)
	if failed.Error.Code != "apex_elsewhere" {
		m.T.Errorf("a redirect: %s", failed.Error.Code)
	}
}

// end waits for the end of a job.
func (m *siteMove) end(id string) (job rig.Job) {
	m.T.Helper()
	m.Until("the job has ended", func() bool {
		m.Want(200, "GET", "/v1/jobs/"+id+"?wait=2", nil, &job)
		return job.Status == "completed" || job.Status == "error"
	})
	return job
}

// erase deletes the domain.
func (m *siteMove) erase() {
	m.T.Helper()
	m.Want(202, "DELETE", m.path, nil, nil)
	m.Until("the domain is gone", func() bool { return m.Do("GET", m.path, nil, nil) == 404 })
}

// update adds records to the zone at BIND, as its owner would.
func (m *siteMove) update(records []dns.RR) {
	m.T.Helper()
	u := new(dns.Msg).SetUpdate(m.zone + ".")
	u.Insert(records)
	u.SetTsig("update.key.test.", dns.HmacSHA256, 300, time.Now().Unix())
	client := dns.Client{Net: "tcp", TsigSecret: map[string]string{"update.key.test.": updateSecret}}
	if r, _, err := client.Exchange(u, m.bind); err != nil || r.Rcode != dns.RcodeSuccess {
		m.T.Fatalf("an update: %v, %v", r, err)
	}
}

// byHand enters the records of a manual domain but the address, which is there.
func (m *siteMove) byHand() {
	m.T.Helper()
	m.connect(map[string]any{"manual_dns": true})
	var told struct {
		Status  string
		Records []struct {
			Type, Host, Value, Purpose string
			Priority                   *int
		}
	}
	m.Until("the records are ready", func() bool {
		m.Want(200, "GET", m.path+"/dns-records", nil, &told)
		return told.Status == "ready"
	})
	var verified struct {
		CriticalVerified bool `json:"critical_verified"`
	}
	m.Want(200, "POST", m.path+"/verify-dns", nil, &verified)
	if verified.CriticalVerified {
		m.T.Error("the records are verified before they are there")
	}
	var records []dns.RR
	addresses := 0
	for _, r := range told.Records {
		if r.Purpose == "A" {
			addresses++
			if r.Type != "A" || r.Host != "@" || r.Value != siteIP {
				m.T.Errorf("the address to enter is %+v", r)
			}
			continue
		}
		name := strings.TrimPrefix(r.Host+"."+m.zone+".", "@.")
		data := r.Value
		if r.Type == "TXT" {
			data = ""
			for part := range slices.Chunk([]byte(r.Value), 200) {
				data += fmt.Sprintf(" %q", part)
			}
		}
		if r.Priority != nil {
			data = fmt.Sprint(*r.Priority, " ", data)
		}
		if r.Type != "TXT" {
			data = strings.TrimSuffix(data, ".") + "."
		}
		rr, err := dns.NewRR(name + " 300 IN " + r.Type + " " + data)
		if err != nil {
			m.T.Fatal(err)
		}
		records = append(records, rr)
	}
	if addresses != 1 {
		m.T.Errorf("%d addresses are to be entered", addresses)
	}
	m.update(records)
	m.Want(200, "POST", m.path+"/verify-dns", nil, &verified)
	if !verified.CriticalVerified {
		m.T.Errorf("the records are not verified: %s", m.GetText(m.path+"/dns-records"))
	}
	m.complete()
	if a := answersOf(m.T, m.bind, []string{m.zone + "."})[question{m.zone + ".", dns.TypeA}]; !slices.Equal(a, []string{"NOERROR", m.zone + ". A 300 " + siteIP}) {
		m.T.Errorf("the address is %q", a)
	}
}

// TestWebSitesAnswerThroughout: a website at a bare domain answers each visitor while the domain
// is connected, set up, changed and, where its DNS is elsewhere, deleted, whoever serves its DNS.
func TestWebSitesAnswerThroughout(t *testing.T) {
	for n, provider := range []string{"builtin", "manual", "cloudflare", "rfc2136"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			port, m := startSite(t), &siteMove{zone: provider + "-site.test", world: rig.NewFakeResolver(t)}
			text, config, look := fmt.Sprintf(siteZone, m.zone), rig.GenerousLimits, func() {}
			if provider == "cloudflare" {
				api, more := startCloudflare(t, m.zone, text)
				config = more
				look = func() {
					var ips []string
					for _, r := range api.Records(m.zone) {
						if r.Type == "A" && r.Name == m.zone {
							ips = append(ips, r.Content)
						}
					}
					m.world.Set(t, m.zone, "A", ips...)
				}
				look()
			} else {
				m.bind = startBIND(t, fmt.Sprintf(sitesConf, m.zone, updateSecret), map[string]string{m.zone: text})
				m.world.Delegate(m.bind)
				ips := passOn(t, 10+n, m.bind)
				m.world.Set(t, "ns1.elsewhere.test", "A", ips[:4]...)
				m.world.Set(t, "ns2.elsewhere.test", "A", ips[4:]...)
			}
			m.Instance = rig.Start(t, config, "--resolver", m.world.Addr)
			v := visit(t, m.world.Addr, m.zone, port, look)
			switch provider {
			case "builtin":
				m.connect(nil)
				var job rig.Job
				m.Want(202, "POST", m.path+"/zone/scan", map[string]any{}, &job)
				m.Want(200, "POST", m.path+"/zone/import", map[string]any{"scan": m.end(job.JobID).JobID}, nil)
				m.world.Delegate(m.Ready.DNS)
				m.Want(200, "POST", "/v1/domains/check-ns", map[string]any{"domains": []string{m.zone}}, nil)
				m.complete()
				m.changes()
			case "manual":
				m.byHand()
				m.erase()
			case "cloudflare":
				m.connect(map[string]any{"edge_api_token": "edge-token"})
				m.complete()
				m.changes()
				m.erase()
			case "rfc2136":
				var credential struct{ ID string }
				m.Want(201, "POST", "/v1/dns-credentials", map[string]any{
					"provider": "rfc2136", "name": "bind", "zones": []string{m.zone}, "server": m.bind, "key_name": "update.key.test", "secret": updateSecret,
				}, &credential)
				m.connect(map[string]any{"dns_credential_id": credential.ID})
				m.complete()
				m.changes()
				m.erase()
			}
			v.check(t)
		})
	}
}
