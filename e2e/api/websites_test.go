package api

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/e2e/rig"
)

const webSiteText = "this is the website"

// startWebSite serves a website on a loopback address that is not the program's. It returns the
// address and the port.
func startWebSite(t *testing.T) (ip, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.80:0")
	if err != nil {
		t.Skip("no second loopback address: ", err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, webSiteText)
	})}}
	server.Start()
	t.Cleanup(server.Close)
	ip, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return ip, port
}

// wantWebSite asks our DNS server for the addresses of a name, which must be those given, and gets
// the website there.
func wantWebSite(i *rig.Instance, step, name, ip, port string) {
	i.T.Helper()
	r, _, err := new(dns.Client).Exchange(new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA), i.Ready.DNS)
	if err != nil {
		i.T.Fatal(err)
	}
	var found []string
	for _, rr := range r.Answer {
		if a, ok := rr.(*dns.A); ok {
			found = append(found, a.A.String())
		}
	}
	if !slices.Equal(found, []string{ip}) {
		i.T.Fatalf("%s: %s has the addresses %v, want %s", step, name, found, ip)
	}
	answer, err := http.Get("http://" + net.JoinHostPort(found[0], port) + "/")
	if err != nil {
		i.T.Fatalf("%s: %v", step, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != webSiteText {
		i.T.Errorf("%s: the website says %q, %v", step, text, err)
	}
}

// TestWebSiteAnswersThroughout: a website at the domain itself answers while the domain is
// connected, set up and changed, whoever serves its DNS.
func TestWebSiteAnswersThroughout(t *testing.T) {
	t.Parallel()
	ip, port := startWebSite(t)
	f := newFakeEdge(t, "away.test")
	f.put("away.test", "A", "away.test", ip)
	i := rig.Start(t, f.config())
	type connected struct {
		Domains []struct {
			DomainID string `json:"domain_id"`
		}
	}
	apex := map[string]any{"apex": map[string]any{"mode": "elsewhere", "addresses": []string{ip}}}

	var out connected
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"site.test"}, "apex": "elsewhere"}, &out)
	site := "/v1/domains/" + out.Domains[0].DomainID
	i.Want(200, "PATCH", site, apex, nil)
	wantWebSite(i, "connected", "site.test", ip, port)
	i.Want(200, "POST", "/v1/domains/check-ns", map[string]any{"domains": []string{"site.test"}}, nil)
	wantWebSite(i, "delegated", "site.test", ip, port)
	complete(i, out.Domains[0].DomainID)
	wantWebSite(i, "complete", "site.test", ip, port)
	var refused struct {
		Error struct{ Code, Message string }
	}
	i.Want(409, "POST", site+"/redirect", map[string]any{"redirect_url": "https://other.test/"}, &refused)
	if refused.Error.Code != "apex_elsewhere" || !strings.Contains(refused.Error.Message, ip) {
		t.Errorf("a redirect: %+v", refused)
	}
	i.Want(200, "PUT", site+"/zone/www/CNAME", map[string]any{"values": []string{"@"}}, nil)
	i.Want(200, "PUT", site+"/dmarc", map[string]any{"value": "v=DMARC1; p=none"}, nil)
	wantWebSite(i, "changed", "site.test", ip, port)
	job := setUp(i, map[string]any{"domain": "site.test"})
	if job.Status != "completed" {
		t.Errorf("setup: %+v", job)
	}
	wantWebSite(i, "set up again", "site.test", ip, port)
	i.Stop()
	i.Start()
	wantWebSite(i, "after a restart", "site.test", ip, port)

	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"hand.test"}, "manual_dns": true, "apex": "elsewhere"}, &out)
	hand := "/v1/domains/" + out.Domains[0].DomainID
	var records struct {
		Status  string
		Records []struct{ Type, Host, Value, Purpose string }
	}
	i.Want(200, "PATCH", hand, apex, nil)
	i.Until("the records are ready", func() bool {
		i.Want(200, "GET", hand+"/dns-records", nil, &records)
		return records.Status == "ready"
	})
	told := false
	for _, r := range records.Records {
		if r.Host == "@" && r.Purpose == "A" {
			told = r.Type == "A" && r.Value == ip
		}
	}
	if !told {
		t.Errorf("the records to enter have not the address that there is: %+v", records.Records)
	}
	wantWebSite(i, "manual", "hand.test", ip, port)
	var verified struct {
		CriticalVerified bool `json:"critical_verified"`
	}
	i.Want(200, "POST", hand+"/verify-dns", nil, &verified)
	if !verified.CriticalVerified {
		t.Error("a manual domain is not verified with its website")
	}
	complete(i, out.Domains[0].DomainID)
	wantWebSite(i, "manual and complete", "hand.test", ip, port)

	away := connectEdge(i, edgeToken, "away.test")[0]
	want := func(step string) {
		t.Helper()
		for _, line := range f.lines("away.test", true) {
			if strings.HasPrefix(line, "A away.test ") {
				t.Errorf("%s: %s is ours", step, line)
			}
		}
		if got := f.lines("away.test", false); !slices.Equal(got, []string{"A away.test " + ip}) {
			t.Errorf("%s: others have %v", step, got)
		}
	}
	complete(i, away.DomainID)
	want("complete")
	erase(i, away.DomainID)
	want("deleted")
}
