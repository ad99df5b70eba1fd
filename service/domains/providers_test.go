package domains_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// A providerWorld has two accounts, and two DNS providers that mark no records: hetzner and desec,
// each with a zone edge.test of its own.
type providerWorld struct {
	*edgeWorld
	desec   *servicetest.Edge
	dns     *servicetest.World
	servers *providerServers
	rival   core.Actor
}

func newProviderWorld(t *testing.T) *providerWorld {
	t.Helper()
	world, servers := &servicetest.World{}, &providerServers{}
	hetzner, desec := servicetest.NewEdge("edge.test"), servicetest.NewEdge("edge.test")
	b := servicetest.New(t, hetzner.With(func(c *core.Config) {
		c.Resolver, c.Scanner = world, servers
		c.DNS[store.DomainProviderDeSEC] = func(a core.DNSAccess) (dnsprov.Provider, error) {
			other := core.Config{}
			desec.With(nil)(&other)
			return other.DNS[store.DomainProviderHetzner](a)
		}
	}))
	who, err := b.Accounts.Operator(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	rival, err := b.Accounts.Operator(t.Context(), b.Account(t, "rival@example.test").AccountID)
	if err != nil {
		t.Fatal(err)
	}
	return &providerWorld{&edgeWorld{b, t, hetzner, who}, desec, world, servers, rival}
}

// connectAt connects edge.test with a new credential of an account for a provider, and returns its
// id.
func (w *providerWorld) connectAt(who core.Actor, provider string) string {
	w.t.Helper()
	token := servicetest.EdgeToken
	c, err := w.Edge.CreateDNSCredential(w.t.Context(), who, edge.CreateDNSCredentialIn{Provider: provider, Name: "ours", DNSSecrets: edge.DNSSecrets{Token: &token}})
	if err != nil {
		w.t.Fatal(err)
	}
	r := connectAs(w.t, w.Sandbox, who, domains.ConnectDomainsIn{Domains: []string{"edge.test"}, DNSCredentialID: &c.ID})
	if r.Error != nil {
		w.t.Fatal(*r.Error)
	}
	return *r.DomainID
}

// told returns the status_detail of a domain.
func told(d *domains.Domain) string {
	if d.StatusDetail == nil {
		return ""
	}
	return *d.StatusDetail
}

// wantClaims compares the kinds of proof of two domains; "" for a claim that is open, and "lost".
func (w *providerWorld) wantClaims(first, firstProof, second, secondProof string) {
	w.t.Helper()
	for id, want := range map[string]string{first: firstProof, second: secondProof} {
		d := w.stored(id)
		got := d.ProvenBy
		if d.Claim == store.ClaimLost {
			got = "lost"
		}
		if got != want {
			w.t.Errorf("the claim to %s at %s is %s, proven by %q, want %q: %s", d.Name, d.DNSProvider, d.Claim, d.ProvenBy, want, d.ErrorMessage)
		}
	}
}

// providerServers are the servers to which the parent zone delegates domains: those of one
// provider, which answer with the zone that it has.
type providerServers struct {
	mu   sync.Mutex
	at   *servicetest.Edge // nil: no parent zone names a server
	more map[string]string // further TXT records
}

func (p *providerServers) set(at *servicetest.Edge, more map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.more = at, more
}

func (p *providerServers) Find(context.Context, string, []string) (*scan.Servers, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		return &scan.Servers{}, nil
	}
	return &scan.Servers{Names: []string{"ns1.provider.test"}}, nil
}

func (p *providerServers) OwnTexts(_ context.Context, _ *scan.Servers, _ string, names ...string) (map[string][]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string][]string{}
	for _, name := range names {
		for _, line := range append(p.at.Ours("edge.test"), p.at.Strangers("edge.test")...) {
			if value, is := strings.CutPrefix(line, "TXT "+name+" "); is {
				out[name] = append(out[name], value)
			}
		}
		if p.more[name] != "" {
			out[name] = append(out[name], p.more[name])
		}
	}
	return out, nil
}

func (p *providerServers) Parent(context.Context, string) (*scan.Parent, error) {
	return nil, scan.ErrNoServer
}

func (p *providerServers) Ask(context.Context, *scan.Servers, string, string) ([]dnsprov.Record, error) {
	return nil, scan.ErrNoServer
}

func (p *providerServers) Zone(context.Context, *scan.Servers, string, func(done, total int)) (*scan.Result, error) {
	return nil, scan.ErrNoServer
}

// Two accounts have a zone of one name at two providers. A credential proves nothing: the name
// belongs to the account whose key is at the servers to which the parent zone delegates it.
func TestClaimsAreProvenAtTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProviderWorld(t)
		squatter := w.connectAt(w.rival, store.DomainProviderHetzner)
		w.settle()
		w.wantClaims(squatter, "", squatter, "")
		d := getDomain(t, w.Service, w.rival, squatter)
		if !strings.Contains(told(d), "_mailstead.edge.test with the value mailstead-claim="+squatter) || w.Zones.HostsName("edge.test") {
			t.Errorf("what is missing is told as %q", told(d))
		}
		owner := w.connectAt(w.who, store.DomainProviderDeSEC)
		w.settle()
		w.wantClaims(squatter, "", owner, "")
		w.servers.set(w.desec, nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		w.wantClaims(squatter, "lost", owner, "dkim")
		if d := getDomain(t, w.Service, w.rival, squatter); claimCode(d) != "domain_claimed_elsewhere" {
			t.Errorf("the loser is %s %+v", d.Status, d.Error)
		}
		if d := w.domain(owner); d.Status != "complete" || strings.Contains(told(d), "ownership") {
			t.Errorf("the winner is %s, %q", d.Status, told(d))
		}
	})
}

// A domain whose servers have its key already is proven when it is set up.
func TestClaimIsProvenBySetup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProviderWorld(t)
		w.servers.set(w.edge, nil)
		id := w.connectAt(w.who, store.DomainProviderHetzner)
		time.Sleep(time.Second)
		synctest.Wait()
		w.wantClaims(id, "dkim", id, "dkim")
	})
}

// The TXT record of the claim proves it as well, and that of another claim does not.
func TestClaimRecordAtTheServersProves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProviderWorld(t)
		squatter, owner := w.connectAt(w.rival, store.DomainProviderHetzner), w.connectAt(w.who, store.DomainProviderDeSEC)
		elsewhere := servicetest.NewEdge("edge.test") // a third provider, at which the owner enters the record
		w.servers.set(elsewhere, map[string]string{"_mailstead.edge.test": "mailstead-claim=dom_other"})
		time.Sleep(time.Hour)
		synctest.Wait()
		w.wantClaims(squatter, "", owner, "")
		w.servers.set(elsewhere, map[string]string{"_mailstead.edge.test": "mailstead-claim=" + owner})
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		w.wantClaims(squatter, "lost", owner, "txt")
	})
}

// A nameserver that no parent zone delegates a name to proves nothing, even if the resolver of
// this server asks it.
func TestPrivateServerProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProviderWorld(t)
		id := w.connectAt(w.who, store.DomainProviderHetzner)
		w.settle()
		for _, line := range w.edge.Ours("edge.test") {
			if kind, rest, _ := strings.Cut(line, " "); kind == "TXT" {
				name, value, _ := strings.Cut(rest, " ")
				w.dns.Tell("TXT", name, value)
			}
		}
		w.dns.Tell("TXT", "_mailstead.edge.test", "mailstead-claim="+id)
		if _, err := w.Domains.GetDNSStatus(t.Context(), w.who, domains.GetDNSStatusIn{DomainID: id, Refresh: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(13 * 24 * time.Hour)
		synctest.Wait()
		w.wantClaims(id, "", id, "")
		time.Sleep(2 * 24 * time.Hour)
		synctest.Wait()
		d := w.domain(id)
		if claimCode(d) != "claim_expired" || !strings.Contains(d.Error.Message, "_mailstead.edge.test") || !strings.Contains(d.Error.Message, "nameservers") {
			t.Errorf("after two weeks: %s %+v", d.Status, d.Error)
		}
	})
}

// check_provider guesses who serves a domain, and names a credential that is for it: by its zones,
// or because the provider has the zone. It does not wait for a provider for long, asks few of them,
// and shows members nothing.
func TestCheckProviderFindsACredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProviderWorld(t)
		tell := func(name string, servers ...string) { w.dns.Tell("NS", name, servers...) }
		check := func(who core.Actor, name string) (guess, credential string) {
			t.Helper()
			p, err := w.Domains.CheckProvider(t.Context(), who, domains.CheckProviderIn{Domain: name})
			if err != nil {
				t.Fatal(err)
			}
			if p.DNSProviderGuess != nil {
				guess = *p.DNSProviderGuess
			}
			if p.DNSCredentialID != nil {
				credential = *p.DNSCredentialID
			}
			return guess, credential
		}
		want := func(name, guess, credential string) {
			t.Helper()
			if g, c := check(w.who, name); g != guess || c != credential {
				t.Errorf("%s: %q %q, want %q %q", name, g, c, guess, credential)
			}
		}
		want("edge.test", "", "")
		add := func(provider string, zones ...string) string {
			t.Helper()
			token := servicetest.EdgeToken
			c, err := w.Edge.CreateDNSCredential(t.Context(), w.who, edge.CreateDNSCredentialIn{Provider: provider, Name: "ours", Zones: zones, DNSSecrets: edge.DNSSecrets{Token: &token}})
			if err != nil {
				t.Fatal(err)
			}
			return c.ID
		}
		all := add(store.DomainProviderHetzner)
		want("edge.test", "", all)
		want("mail.edge.test", "", all)
		want("other.test", "", "")
		named := add(store.DomainProviderHetzner, "mail.edge.test", "named.test")
		want("edge.test", "", all)
		want("mail.edge.test", "", named) // its zone is the longer one
		want("named.test", "", named)
		cloudflare := add(store.DomainProviderCloudflare)
		tell("edge.test", "ada.ns.cloudflare.com.", "bob.ns.cloudflare.com.")
		want("edge.test", "cloudflare", cloudflare)
		want("mail.edge.test", "cloudflare", cloudflare)
		tell("edge.test", "hydrogen.ns.hetzner.com.", "helium.ns.hetzner.de.")
		want("edge.test", "hetzner", all)
		tell("edge.test", "ns1.example.test.", "ns2.example.test.")
		want("edge.test", "builtin", all)

		member, bound, other := w.who, w.who, w.who
		member.Role, bound.Bound, other.AccountID = store.UserRoleMember, true, "acc_other"
		for what, who := range map[string]core.Actor{"a member": member, "a bound token": bound, "another account": other} {
			if guess, c := check(who, "edge.test"); guess != "builtin" || c != "" {
				t.Errorf("%s sees %q %q", what, guess, c)
			}
		}

		for range 20 {
			add(store.DomainProviderHetzner)
		}
		asked := 0
		w.edge.Set(func() {
			w.edge.Meddle = func(call string) error {
				if call == "zone" {
					asked++
				}
				return nil
			}
		})
		want("elsewhere.test", "", "")
		if asked != 8 {
			t.Errorf("%d providers were asked", asked)
		}
		w.edge.Set(func() { w.edge.Silent = true })
		began := time.Now()
		want("named.test", "", named)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it waited %s for providers that do not answer", took)
		}
	})
}

// What an SPF record of others permits becomes the owner's part of the domain's SPF record when it
// is replaced, as when a zone is imported: get_domain shows it, and set_spf changes it. An ending
// that cannot stay is told by the plan.
func TestReplacedSPFIsTheOwners(t *testing.T) {
	for end, want := range map[string]string{"-all": "-", "~all": "~", "?all": "~", "redirect=_spf.other.test": "~"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newProviderWorld(t)
				w.edge.Takes = true
				w.edge.Add("edge.test", "TXT", "edge.test", "v=spf1 include:_spf.elsewhere.test "+end)
				credential := w.mustCredential()
				plan, err := w.Edge.PreviewDNSPlan(t.Context(), w.who, edge.PreviewDNSPlanIn{Domain: "edge.test", DNSCredentialID: credential, Replace: true})
				if err != nil {
					t.Fatal(err)
				}
				told := false
				for _, c := range plan.Changes {
					told = told || strings.Contains(c.Reason, "It ended in "+end+" and ends in ~all now")
				}
				if told != (end == "?all") {
					t.Errorf("the plan says %+v", plan.Changes)
				}
				id, why := w.connectWith(credential, true)
				if why != "" {
					t.Fatal(why)
				}
				w.settle()
				extra, published := []string{"include:_spf.elsewhere.test"}, "TXT edge.test v=spf1 mx ip4:127.0.0.1 include:_spf.elsewhere.test "+want+"all"
				if strings.HasPrefix(end, "redirect") {
					extra, published = append(extra, end), "TXT edge.test v=spf1 mx ip4:127.0.0.1 include:_spf.elsewhere.test "+end
				}
				const ours = "TXT edge.test v=spf1 mx ip4:127.0.0.1 ~all"
				w.wantOurs([]string{published}, ours)
				if d := w.domain(id); d.SPF.All != want || !slices.Equal(d.SPF.Extra, extra) || len(d.Replaced) != 1 {
					t.Errorf("the domain has %+v, replaced %+v", d.SPF, d.Replaced)
				}
				if _, err := w.Zones.SetSPF(t.Context(), w.who, zones.SetSPFIn{DomainID: id, Extra: []string{"a:mine.test"}, All: "-"}); err != nil {
					t.Fatal(err)
				}
				w.settle()
				w.wantOurs([]string{"TXT edge.test v=spf1 mx ip4:127.0.0.1 a:mine.test -all"}, ours)
				if _, err := w.Zones.ResetSPF(t.Context(), w.who, zones.ResetSPFIn{DomainID: id}); err != nil {
					t.Fatal(err)
				}
				w.settle()
				w.wantOurs(nil)
			})
		})
	}
}
