package domains_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// oldServers are the present nameservers of domains, which are not ours.
type oldServers struct {
	mu      sync.Mutex
	names   map[string][]string         // nameservers, by domain
	records map[string][]dnsprov.Record // by "TYPE name"
	silent  bool                        // they do not answer
	asked   int
	parent  func(domain string) (*scan.Parent, error) // nil: the parent zone has names
}

func (o *oldServers) Find(_ context.Context, domain string, _ []string) (*scan.Servers, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &scan.Servers{Names: o.names[domain]}, nil
}

func (o *oldServers) Parent(_ context.Context, domain string) (*scan.Parent, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.parent != nil {
		return o.parent(domain)
	}
	return &scan.Parent{Names: o.names[domain]}, nil
}

func (o *oldServers) Ask(_ context.Context, _ *scan.Servers, name, typ string) ([]dnsprov.Record, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	if o.silent {
		return nil, scan.ErrNoServer
	}
	return o.records[typ+" "+name], nil
}

func (o *oldServers) OwnTexts(context.Context, *scan.Servers, string, ...string) (map[string][]string, error) {
	return nil, scan.ErrNoServer
}

func (o *oldServers) Zone(context.Context, *scan.Servers, string, func(done, total int)) (*scan.Result, error) {
	return nil, scan.ErrNoServer
}

// set sets the records of a name; a value of an MX begins with its priority.
func (o *oldServers) set(t *testing.T, name, typ string, values ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.names[name] = []string{"ns1.old.test", "ns2.old.test"}
	var out []dnsprov.Record
	for _, v := range values {
		r, err := dnsprov.FromText(name, typ, v, 600)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	o.records[typ+" "+name] = out
}

func (o *oldServers) setSilent(silent bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.silent = silent
}

func newOldWorld(t *testing.T) (*servicetest.Sandbox, *servicetest.World, core.Actor, *oldServers) {
	t.Helper()
	world, old := &servicetest.World{}, &oldServers{names: map[string][]string{}, records: map[string][]dnsprov.Record{}}
	b := servicetest.New(t, func(c *core.Config) { c.Resolver, c.Scanner, c.ScanNew = world, old, true })
	world.Set(func() { world.Ours = b.Service })
	who, err := b.Accounts.Operator(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return b, world, who, old
}

// served returns the values that our own server has for a name and type, sorted.
func served(s *service.Service, name, typ string) []string {
	out := []string{}
	zone, ok := s.Zones.Zone(name)
	if !ok {
		return out
	}
	for _, rr := range zone.Answer(new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.StringToType[typ])).Answer {
		out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	slices.Sort(out)
	return out
}

func setApex(t *testing.T, s *service.Service, who core.Actor, id string, in domains.ApexIn) (*domains.Domain, error) {
	t.Helper()
	return s.Domains.UpdateDomain(t.Context(), who, domains.UpdateDomainIn{DomainID: id, Apex: &in})
}

// A website keeps its addresses when its domain is connected, follows them until the nameservers
// change, and gives way to a redirect only when its owner says so.
func TestWebSiteStaysWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who, old := newOldWorld(t)
		old.set(t, "site.test", "A", "192.0.2.80", "127.0.0.1")
		world.Tell("NS", "site.test", "ns1.old.test.")
		id := connect(t, b.Service, who, "site.test")
		d := getDomain(t, b.Service, who, id)
		if d.Apex.Mode != "elsewhere" || !slices.Equal(d.Apex.Addresses, []string{"192.0.2.80"}) || len(d.Nameservers) != 2 {
			t.Fatalf("connected: %+v, %v", d.Apex, d.Nameservers)
		}
		if got := served(b.Service, "site.test", "A"); !slices.Equal(got, []string{"192.0.2.80"}) {
			t.Errorf("served %v", got)
		}
		old.set(t, "site.test", "A", "192.0.2.81")
		old.set(t, "site.test", "AAAA", "2001:db8::81")
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if got := served(b.Service, "site.test", "A"); !slices.Equal(got, []string{"192.0.2.81"}) {
			t.Errorf("after the site has moved, served %v", got)
		}
		redirect := domains.SetRedirectIn{DomainID: id, RedirectURL: "https://other.test/"}
		if _, err := b.Domains.SetRedirect(t.Context(), who, redirect); code(err) != "apex_elsewhere" || !strings.Contains(err.Error(), "192.0.2.81") || !strings.Contains(err.Error(), id) {
			t.Errorf("a redirect: %v", err)
		}
		world.Tell("NS", "site.test", "ns1.example.test.", "ns2.example.test.")
		verify(t, b.Service, who, "site.test")
		synctest.Wait()
		old.set(t, "site.test", "A", "192.0.2.82")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		d = getDomain(t, b.Service, who, id)
		if got := served(b.Service, "site.test", "A"); d.Status != "complete" || !slices.Equal(got, []string{"192.0.2.81"}) || !slices.Equal(served(b.Service, "site.test", "AAAA"), []string{"2001:db8::81"}) {
			t.Errorf("complete: %s %v", d.Status, got)
		}
		if got := served(b.Service, "site.test", "MX"); !slices.Equal(got, []string{"10 mail.example.test."}) {
			t.Errorf("mail: %v", got)
		}

		d, err := setApex(t, b.Service, who, id, domains.ApexIn{Mode: "here"})
		if err != nil || d.Apex.Mode != "here" || len(d.Apex.Addresses) > 0 || !slices.Equal(served(b.Service, "site.test", "A"), []string{"127.0.0.1"}) {
			t.Fatalf("here: %+v, %v, %v", d, served(b.Service, "site.test", "A"), err)
		}
		if _, err := b.Domains.SetRedirect(t.Context(), who, redirect); err != nil {
			t.Errorf("a redirect of what is here: %v", err)
		}
		synctest.Wait()
		addresses := []string{"192.0.2.90"}
		if _, err := setApex(t, b.Service, who, id, domains.ApexIn{Mode: "elsewhere", Addresses: &addresses}); code(err) != "apex_elsewhere" {
			t.Errorf("elsewhere with a redirect: %v", err)
		}
		if _, err := b.Domains.DeleteRedirect(t.Context(), who, domains.DomainIn{DomainID: id}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		d, err = setApex(t, b.Service, who, id, domains.ApexIn{Mode: "elsewhere", Addresses: &addresses})
		if err != nil || !slices.Equal(d.Apex.Addresses, addresses) {
			t.Fatalf("elsewhere: %v", err)
		}
		records, err := b.Zones.ListCustomDNSRecords(t.Context(), who, zones.ListCustomDNSRecordsIn{DomainID: id})
		if err != nil || len(records.Records) != 1 || records.Records[0].Name != "@" || records.Records[0].Value != "192.0.2.90" {
			t.Errorf("records %+v, %v", records, err)
		}
		ttl := 120
		if _, err := b.Zones.SetZoneRecords(t.Context(), who, zones.SetZoneRecordsIn{DomainID: id, Name: "@", Type: "A", TTL: &ttl, Values: []string{"192.0.2.91", "192.0.2.92"}}); err != nil {
			t.Fatal(err)
		}
		if d := getDomain(t, b.Service, who, id); !slices.Equal(d.Apex.Addresses, []string{"192.0.2.91", "192.0.2.92"}) {
			t.Errorf("own records are the addresses: %v", d.Apex.Addresses)
		}
		for _, in := range []domains.ApexIn{
			{Mode: "here", Addresses: &addresses}, {Mode: "here", Alias: core.Opt[string]{Set: true, Value: "a.test"}},
			{Mode: "elsewhere", Alias: core.Opt[string]{Set: true, Value: "site.test"}}, {Mode: "elsewhere", Alias: core.Opt[string]{Set: true, Value: "www.site.test"}},
			{Mode: "elsewhere", Addresses: &addresses, Alias: core.Opt[string]{Set: true, Value: "a.test"}}, {Mode: "elsewhere", Addresses: &[]string{"0.0.0.0"}},
		} {
			if _, err := setApex(t, b.Service, who, id, in); code(err) != "validation_error" {
				t.Errorf("%+v: %v", in, err)
			}
		}
	})
}

// While the nameservers of a domain do not answer, it is not told to change them.
func TestUndecidedDomainKeepsItsNameservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who, old := newOldWorld(t)
		old.set(t, "mute.test", "A", "192.0.2.80")
		old.setSilent(true)
		world.Tell("NS", "mute.test", "ns1.old.test.")
		id := connect(t, b.Service, who, "mute.test")
		d := getDomain(t, b.Service, who, id)
		if d.Apex.Mode != "undecided" || len(d.Nameservers) > 0 || d.StatusDetail == nil || !strings.Contains(*d.StatusDetail, "Do not change") {
			t.Fatalf("undecided: %+v", d)
		}
		out, err := b.Domains.CheckNameservers(t.Context(), who, domains.CheckNameserversIn{Domains: []string{"mute.test"}})
		if err != nil || len(out.Domains[0].Nameservers) > 0 || strings.Contains(out.Domains[0].Message, "ns1.example.test") {
			t.Errorf("check-ns: %+v, %v", out, err)
		}
		if got := served(b.Service, "mute.test", "A"); len(got) > 0 {
			t.Errorf("served %v", got)
		}
		if _, err := b.Domains.SetRedirect(t.Context(), who, domains.SetRedirectIn{DomainID: id, RedirectURL: "https://other.test/"}); code(err) != "apex_elsewhere" {
			t.Errorf("a redirect: %v", err)
		}
		old.setSilent(false)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		d = getDomain(t, b.Service, who, id)
		if d.Apex.Mode != "elsewhere" || len(d.Nameservers) != 2 || !slices.Equal(d.Apex.Addresses, []string{"192.0.2.80"}) {
			t.Errorf("answered: %+v, %v", d.Apex, d.Nameservers)
		}
	})
}

// A name that nobody serves is here, and the setup of a domain with a website does not redirect
// it.
func TestSetupTakesNoSitesPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who, old := newOldWorld(t)
		id := connect(t, b.Service, who, "free.test")
		if d := getDomain(t, b.Service, who, id); d.Apex.Mode != "here" || !slices.Equal(served(b.Service, "free.test", "A"), []string{"127.0.0.1"}) {
			t.Errorf("a free name: %+v", d.Apex)
		}
		in := domains.SetupDomainIn{Domain: "shop.test", Apex: "elsewhere", RedirectURL: "https://other.test/"}
		if _, err := b.Domains.SetupDomain(t.Context(), who, in); code(err) != "apex_elsewhere" {
			t.Errorf("both: %v", err)
		}
		old.set(t, "shop.test", "A", "192.0.2.80")
		world.Tell("NS", "shop.test", "ns1.old.test.")
		in.Apex = ""
		j := setUp(t, b.Service, who, in)
		synctest.Wait()
		job := getJob(t, b.Service, who, j.JobID)
		d := getDomain(t, b.Service, who, j.Resource.ID)
		if job.Status != "error" || job.Error == nil || job.Error.Code != "apex_elsewhere" || d.RedirectURL != nil || d.DKIMSelector != nil || !slices.Equal(d.Apex.Addresses, []string{"192.0.2.80"}) {
			t.Errorf("job %s %+v, domain %+v %v", job.Status, job.Error, d.Apex, d.RedirectURL)
		}
		in.Apex = "here"
		j = setUp(t, b.Service, who, in)
		synctest.Wait()
		if d := getDomain(t, b.Service, who, j.Resource.ID); d.Apex.Mode != "here" || d.RedirectURL == nil || !slices.Equal(served(b.Service, "shop.test", "A"), []string{"127.0.0.1"}) {
			t.Errorf("here: %+v, %v", d.Apex, served(b.Service, "shop.test", "A"))
		}
	})
}

// A setup with a redirect asks the nameservers of an undecided domain again.
func TestSetupAsksAgainForAWebSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who, old := newOldWorld(t)
		for _, c := range []struct {
			name, site, status string
			before             bool // it is connected before its setup
		}{{"late.test", "", "queued", false}, {"known.test", "", "queued", true}, {"taken.test", "192.0.2.80", "error", false}} {
			if c.site == "" {
				old.set(t, c.name, "MX", "10 mx.old.test")
			} else {
				old.set(t, c.name, "A", c.site)
			}
			old.setSilent(true)
			world.Tell("NS", c.name, "ns1.old.test.")
			if c.before {
				connect(t, b.Service, who, c.name)
			}
			j := setUp(t, b.Service, who, domains.SetupDomainIn{Domain: c.name, RedirectURL: "https://other.test/"})
			time.Sleep(time.Second)
			if job := getJob(t, b.Service, who, j.JobID); job.Status != "queued" {
				t.Errorf("%s: while nobody answers, the job is %s %+v", c.name, job.Status, job.Error)
			}
			old.setSilent(false)
			time.Sleep(time.Minute)
			job, d := getJob(t, b.Service, who, j.JobID), getDomain(t, b.Service, who, j.Resource.ID)
			if job.Status != c.status || (d.RedirectURL != nil) != (c.site == "") {
				t.Errorf("%s: then it is %s %+v, the redirect %v", c.name, job.Status, job.Error, d.RedirectURL)
			}
			if c.site != "" && job.Error.Code != "apex_elsewhere" {
				t.Errorf("%s: %+v", c.name, job.Error)
			}
		}
	})
}

// A manual domain whose nameservers do not answer says what it waits for.
func TestUndecidedManualDomainSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, who, old := newOldWorld(t)
		old.set(t, "hand.test", "A", "192.0.2.80")
		old.setSilent(true)
		id := *connectAs(t, b, who, domains.ConnectDomainsIn{Domains: []string{"hand.test"}, ManualDNS: true}).DomainID
		synctest.Wait()
		d := getDomain(t, b.Service, who, id)
		if d.Status != "pending_dns_records" || d.Apex.Mode != "undecided" || d.StatusDetail == nil || !strings.Contains(*d.StatusDetail, "enter the records of dns-records") || !strings.Contains(*d.StatusDetail, "do not answer") {
			t.Errorf("%s, %+v, %v", d.Status, d.Apex, d.StatusDetail)
		}
		old.setSilent(false)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if d := getDomain(t, b.Service, who, id); d.Apex.Mode != "elsewhere" || d.StatusDetail != nil {
			t.Errorf("%+v, %v", d.Apex, d.StatusDetail)
		}
	})
}

// The DMARC policy of a manual domain's owner is as good as ours.
func TestManualDomainKeepsItsPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who := newWorld(t)
		id := addManual(t, b, world, who, "hand.test")
		policy := func() (out domains.VerifiedRecord) {
			v, err := b.Domains.VerifyDNS(t.Context(), who, domains.DomainIn{DomainID: id})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range v.Records {
				if r.Purpose == dnsprov.PurposeDMARC {
					out = r
				}
			}
			return out
		}
		for text, verified := range map[string]bool{"v=DMARC1; p=none; rua=mailto:dmarc@hand.test": true, "v=DMARC1; p=reject": true, "v=DMARC1; p=maybe": false, "v=DMARC1; p=none; p=reject": false, "v=spf1 -all": false} {
			world.Tell("TXT", "_dmarc.hand.test", text)
			if r := policy(); r.Verified != verified || !strings.HasPrefix(r.Expected, "v=DMARC1; p=reject") {
				t.Errorf("%s: %+v", text, r)
			}
		}
		world.Tell("TXT", "_dmarc.hand.test", "v=DMARC1; p=none", "v=DMARC1; p=reject")
		if r := policy(); r.Verified {
			t.Errorf("two policies: %+v", r)
		}
	})
}

// A manual domain becomes complete without touching its address record, which any public address
// verifies, and which does not make it fail later.
func TestManualDomainKeepsItsAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who, old := newOldWorld(t)
		old.set(t, "hand.test", "A", "192.0.2.80")
		out, err := b.Domains.ConnectDomains(t.Context(), who, domains.ConnectDomainsIn{Domains: []string{"hand.test"}, ManualDNS: true})
		if err != nil {
			t.Fatal(err)
		}
		id := *out.Domains[0].DomainID
		synctest.Wait()
		records, err := b.Domains.GetDNSRecords(t.Context(), who, domains.DomainIn{DomainID: id})
		if err != nil {
			t.Fatal(err)
		}
		var sites []string
		for _, r := range records.Records {
			if r.Purpose == dnsprov.PurposeA && r.Host == "@" {
				sites = append(sites, r.Type+" "+r.Value)
			}
		}
		if !slices.Equal(sites, []string{"A 192.0.2.80"}) {
			t.Errorf("to enter: %v", sites)
		}
		world.Tell("A", "hand.test", "198.51.100.9")
		v, err := b.Domains.VerifyDNS(t.Context(), who, domains.DomainIn{DomainID: id})
		if d := getDomain(t, b.Service, who, id); err != nil || !v.CriticalVerified || d.Status != "complete" {
			t.Fatalf("verified %+v, %v", v, err)
		}
		world.Tell("A", "hand.test")
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if d := getDomain(t, b.Service, who, id); len(eventsOf(t, b.Service, who, "domain.dns_failed")) > 0 || d.DNSStatus != "complete" {
			t.Errorf("failed for its website: %+v", d.DNSHealth)
		}
	})
}

// Mail goes to the hosts of before until its owner brings it here.
func TestMailStaysElsewhereUntilItIsBrought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who, old := newOldWorld(t)
		old.set(t, "post.test", "MX", "20 mx2.old.test", "10 mx1.old.test")
		world.Tell("NS", "post.test", "ns1.old.test.")
		out, err := b.Domains.ConnectDomains(t.Context(), who, domains.ConnectDomainsIn{Domains: []string{"post.test"}, MX: "elsewhere"})
		if err != nil {
			t.Fatal(err)
		}
		id := *out.Domains[0].DomainID
		before := []string{"10 mx1.old.test.", "20 mx2.old.test."}
		if d := getDomain(t, b.Service, who, id); d.MX.Mode != "elsewhere" || !slices.Equal(d.MX.Hosts, []string{"mx1.old.test", "mx2.old.test"}) {
			t.Fatalf("%+v", d.MX)
		}
		world.Tell("NS", "post.test", "ns1.example.test.", "ns2.example.test.")
		verify(t, b.Service, who, "post.test")
		synctest.Wait()
		if got := served(b.Service, "post.test", "MX"); !slices.Equal(got, before) {
			t.Errorf("after the switch: %v", got)
		}
		time.Sleep(20 * 24 * time.Hour) // it may wait for longer than a domain waits for its records
		synctest.Wait()
		d := getDomain(t, b.Service, who, id)
		if d.Status != "pending_dns_records" || d.StatusDetail == nil || !strings.Contains(*d.StatusDetail, `"mx"`) || len(served(b.Service, "_mta-sts.post.test", "TXT")) > 0 {
			t.Fatalf("waits: %+v", d)
		}
		d, err = b.Domains.UpdateDomain(t.Context(), who, domains.UpdateDomainIn{DomainID: id, MX: &domains.MXIn{Mode: "here", ExpectedAddresses: []string{"ann@post.test"}}})
		if err != nil || len(d.Warnings) != 1 || d.Warnings[0].Code != "no_mailbox" {
			t.Fatalf("here: %+v, %v", d, err)
		}
		synctest.Wait()
		d = getDomain(t, b.Service, who, id)
		if got := served(b.Service, "post.test", "MX"); d.Status != "complete" || !slices.Equal(got, []string{"10 mail.example.test."}) || d.Warnings != nil {
			t.Errorf("%s %v", d.Status, got)
		}
		if _, err := b.Domains.UpdateDomain(t.Context(), who, domains.UpdateDomainIn{DomainID: id, MX: &domains.MXIn{Mode: "elsewhere"}}); code(err) != "validation_error" {
			t.Errorf("away again: %v", err)
		}
	})
}

// The addresses of an alias are looked up while the domain is asked for, and the serial moves only
// with them, at most every five minutes.
func TestAliasFollowsItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who, _ := newOldWorld(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); b.Zones.Run(ctx) }()
		defer func() { stop(); <-ended }()
		world.Tell("NS", "ally.test", "ns1.old.test.")
		world.Tell("A", "cdn.old.test", "192.0.2.10")
		id := connect(t, b.Service, who, "ally.test")
		d, err := setApex(t, b.Service, who, id, domains.ApexIn{Mode: "elsewhere", Alias: core.Opt[string]{Set: true, Value: "cdn.old.test."}})
		if err != nil || d.Apex.Alias == nil || *d.Apex.Alias != "cdn.old.test" {
			t.Fatalf("%+v, %v", d, err)
		}
		ask := func() string {
			t.Helper()
			synctest.Wait()
			out := strings.Join(served(b.Service, "ally.test", "A"), " ")
			time.Sleep(time.Second)
			synctest.Wait()
			return out
		}
		serial := func() string { return strings.Join(served(b.Service, "ally.test", "SOA"), "") }
		if got := ask(); got != "192.0.2.10" {
			t.Fatalf("first %q", got)
		}
		first := serial()
		for range 10 {
			time.Sleep(2 * time.Minute)
			if got := ask(); got != "192.0.2.10" || serial() != first {
				t.Fatalf("unchanged: %q, serial %s after %s", got, serial(), first)
			}
		}
		world.Tell("A", "cdn.old.test", "192.0.2.12", "192.0.2.11")
		time.Sleep(2 * time.Minute)
		ask()
		if got := ask(); got != "192.0.2.11 192.0.2.12" || serial() == first {
			t.Errorf("changed: %q", got)
		}
		second := serial()
		world.Tell("A", "cdn.old.test", "192.0.2.13")
		time.Sleep(2 * time.Minute)
		ask()
		if got := ask(); got != "192.0.2.11 192.0.2.12" || serial() != second {
			t.Errorf("changed again within five minutes: %q", got)
		}
		time.Sleep(4 * time.Minute)
		ask()
		if got := ask(); got != "192.0.2.13" {
			t.Errorf("five minutes later: %q", got)
		}
		world.Set(func() { world.Dead = "records" })
		time.Sleep(20 * time.Hour)
		ask()
		if got := ask(); got != "192.0.2.13" {
			t.Errorf("while lookups fail: %q", got)
		}
		time.Sleep(5 * time.Hour)
		ask()
		if got := ask(); got != "" {
			t.Errorf("after a day of that: %q", got)
		}
		world.Set(func() { world.Dead = "" })
		time.Sleep(10 * time.Minute)
		ask()
		if got := ask(); got != "192.0.2.13" {
			t.Errorf("answered again: %q", got)
		}
		world.Tell("A", "cdn.old.test")
		time.Sleep(10 * time.Minute)
		ask()
		if got := ask(); got != "" {
			t.Errorf("no such host: %q", got)
		}
		world.Set(func() { world.Looked = 0 })
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		world.Set(func() {
			if world.Looked > 200 { // an hour of the alias, and the looks at the waiting domain
				t.Errorf("%d lookups while nobody asks", world.Looked)
			}
		})
		if _, err := b.Zones.SetZoneRecords(t.Context(), who, zones.SetZoneRecordsIn{DomainID: id, Name: "@", Type: "A", Values: []string{"192.0.2.1"}}); err != nil && code(err) != "managed_record_collision" {
			t.Errorf("own addresses beside an alias: %v", err)
		}
	})
}

// A domain from before there was a choice publishes what it did.
func TestDomainsOfBeforeArePublishedAsBefore(t *testing.T) {
	for provider, want := range map[string]string{
		store.DomainProviderBuiltin: "here", store.DomainProviderManual: "here", store.DomainProviderCloudflare: "elsewhere", store.DomainProviderExternal: "",
	} {
		d := &store.Domain{Name: "old.test", DNSProvider: provider}
		if got := d.ApexMode(); got != want {
			t.Errorf("%s: %q", provider, got)
		}
		d.RedirectURL = "https://other.test/"
		if provider == store.DomainProviderCloudflare && d.ApexMode() != store.ApexHere {
			t.Errorf("%s with a redirect: %q", provider, d.ApexMode())
		}
	}
}
