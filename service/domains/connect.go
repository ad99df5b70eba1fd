package domains

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rdap"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// ConnectDomainsIn is the body of connect_domains.
type ConnectDomainsIn struct {
	Domains []string `json:"domains" required:"true" min:"1" max:"100" items:"judged" log:"true"`
	// A Cloudflare API token with Zone → Zone → Read and Zone → DNS → Edit for the zone. It is
	// stored encrypted and never shown.
	EdgeAPIToken    *string `json:"edge_api_token" alias:"cloudflare_api_token"`
	DNSCredentialID *string `json:"dns_credential_id" log:"true"` // The DNS credential with which Mailstead makes the records at another DNS provider. Excludes edge_api_token, manual_dns and external.
	// At a DNS provider: replace MX records of others at the domains themselves, and merge their
	// SPF records with ours. What was there stays in the domain's replaced.
	Replace   bool     `json:"replace" log:"true"`
	ManualDNS bool     `json:"manual_dns" log:"true"`
	External  bool     `json:"external" log:"true"`
	Tags      []string `json:"tags" max:"50"`
	// here: visitors of the domains themselves come to this host, as a redirect needs. elsewhere:
	// their websites stay where they are. Without it, Mailstead finds out from their nameservers.
	Apex string `json:"apex" enum:"here|elsewhere|" log:"true"`
	// elsewhere: the hosts of before go on to take the mail, until update_domain changes this to
	// here. Their MX records at a DNS provider stay, also with replace. here by default.
	MX string `json:"mx" enum:"here|elsewhere|" log:"true"`
}

// provider returns the DNS provider that the request selects for the domains; "" if a DNS
// credential decides.
func (in *ConnectDomainsIn) provider() (string, error) {
	edge := in.EdgeAPIToken != nil || in.DNSCredentialID != nil
	switch {
	case in.DNSCredentialID != nil && (in.EdgeAPIToken != nil || in.ManualDNS || in.External):
		return "", core.Invalid("dns_credential_id", "not_allowed", "excludes edge_api_token, manual_dns and external: one DNS provider serves the DNS")
	case in.Replace && !edge:
		return "", core.Invalid("replace", "not_allowed", "needs dns_credential_id or edge_api_token: only records at such a DNS provider can be replaced")
	case in.External && in.Apex != "":
		return "", core.Invalid("apex", "not_allowed", "excludes external: the records of an external domain are not ours")
	case in.External && in.MX != "":
		return "", core.Invalid("mx", "not_allowed", "excludes external: the mail of an external domain is hosted elsewhere")
	case in.DNSCredentialID != nil:
		return "", nil
	case in.EdgeAPIToken != nil && in.ManualDNS, in.EdgeAPIToken != nil && in.External:
		return "", core.Invalid("edge_api_token", "not_allowed", "excludes manual_dns and external: either the edge provider serves the DNS or somebody else does")
	case in.ManualDNS && in.External:
		return "", core.Invalid("external", "not_allowed", "excludes manual_dns: an external domain needs no records from us")
	case in.EdgeAPIToken != nil:
		return store.DomainProviderCloudflare, nil
	case in.ManualDNS:
		return store.DomainProviderManual, nil
	case in.External:
		return store.DomainProviderExternal, nil
	}
	return dnsprov.Builtin, nil
}

// Connected is the answer of connect_domains.
type Connected struct {
	Domains     []ConnectResult `json:"domains"`
	Nameservers []string        `json:"nameservers" words:"ours"`
	DomainsUsed int             `json:"domains_used"`
	DomainLimit int             `json:"domain_limit"`
	EdgeMode    bool            `json:"edge_mode"` // Whether Mailstead manages the records at another DNS provider.
}

// A ConnectResult is the result for one name of the request.
type ConnectResult struct {
	Domain      string   `json:"domain" words:"ours"`
	DomainID    *string  `json:"domain_id" words:"ours"`
	Status      string   `json:"status" enum:"created|already_exists|error"`
	DNSProvider string   `json:"dns_provider" words:"ours" example:"builtin"`
	Nameservers []string `json:"nameservers" words:"ours"`
	Error       *string  `json:"error" words:"theirs" rare:"true"`
}

// A candidate is a domain name in a request. problem says why the name is not valid; it is "" for a
// valid name.
type candidate struct {
	name    string
	problem string
}

// candidates normalizes names and removes duplicates. It keeps the order.
func candidates(names []string) []candidate {
	var out []candidate
	for _, given := range names {
		c := candidate{}
		ascii, _, err := idn.Registrable(given)
		c.name = ascii
		if err != nil {
			c = candidate{edge.ClipName(strings.TrimSpace(given)), err.Error()}
		}
		if !slices.ContainsFunc(out, func(o candidate) bool { return o.name == c.name }) {
			out = append(out, c)
		}
	}
	return out
}

// ConnectDomains adds domains to the account. If a name cannot be added, the others still are. If
// the account would then have too many domains, none is added.
func (s *Service) ConnectDomains(ctx context.Context, who core.Actor, in ConnectDomainsIn) (*Connected, error) {
	provider, err := in.provider()
	if err != nil {
		return nil, err
	}
	tags, err := cleanTags(in.Tags)
	if err != nil {
		return nil, err
	}
	token, err := edge.CleanToken(in.EdgeAPIToken)
	if err != nil {
		return nil, err
	}
	names := candidates(in.Domains)
	access := edge.Access{Provider: provider, Token: token}
	var credential *store.DNSCredential
	if in.DNSCredentialID != nil {
		err := s.Store.View(func(tx *store.Tx) (err error) {
			credential, err = edge.CredentialFor(tx, who, *in.DNSCredentialID)
			return err
		})
		if err != nil {
			return nil, err
		}
		provider = credential.Provider
		access = edge.Access{Provider: provider, CredentialID: credential.ID}
	}
	probed, err := s.probeEdge(ctx, who, access, names, store.Domain{Replace: in.Replace, MX: s.newMX(&store.Domain{DNSProvider: provider}, in.MX, presentSite{})})
	if err != nil {
		return nil, err
	}
	for name := range probed {
		if credential != nil && !edge.CoversDomain(credential, name) {
			probed[name] = "zone_not_found: The DNS credential is not for " + name + ": its zones are " + joinNames(credential.Zones) + "."
		}
	}
	sites, err := s.sitesOf(ctx, who, provider, in, names)
	if err != nil {
		return nil, err
	}
	var dkim map[string][]dkimKey
	if provider == dnsprov.Builtin { // which has a zone from now on
		fresh, err := s.newNames(who, names)
		if err == nil {
			dkim, err = s.generateDKIMFor(ctx, fresh)
		}
		if err != nil {
			return nil, err
		}
	}
	var out *Connected
	err = s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		if credential != nil {
			if _, err := edge.CredentialFor(tx, who, credential.ID); err != nil { // it was deleted in the meantime
				return err
			}
		}
		c := &connectRequest{s: s, tx: tx, who: who, in: in, provider: provider, tags: tags, access: access, probed: probed, sites: sites, dkim: dkim}
		a, err := store.Accounts.Read(tx, who.AccountID)
		if err != nil {
			return err
		}
		out = &Connected{
			Nameservers: s.nameserversOf(&store.Domain{DNSProvider: provider}), DomainLimit: s.LimitsOf(a).Domains, EdgeMode: store.IsEdge(provider),
		}
		for _, name := range names {
			r, err := c.connectName(name)
			if err != nil {
				return err
			}
			out.Domains = append(out.Domains, r)
		}
		if err := c.republishZones(); err != nil {
			return err
		}
		out.DomainsUsed = store.DomainsByAccount.Count(tx, who.AccountID, 0)
		if len(c.created) > 0 && out.DomainLimit > 0 && out.DomainsUsed > out.DomainLimit {
			return errDomainLimit(out.DomainLimit, out.DomainsUsed-len(c.created))
		}
		return auditDomains(tx, who, c.created)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// auditDomains writes one audit row for a request that has changed domains. It writes none if the
// list is empty.
func auditDomains(tx *store.Tx, who core.Actor, changed []*store.Domain) error {
	switch len(changed) {
	case 0:
		return nil
	case 1:
		return core.Audit(tx, who, core.DomainTarget(changed[0]))
	}
	return core.AuditMany(tx, who, store.AuditTarget{}, len(changed))
}

// probeEdge asks a DNS provider about new names, if the request has a token or credential for one.
// For each name, the result says why it cannot be added; "" if it can. like is as in edge.Probe.
func (s *Service) probeEdge(ctx context.Context, who core.Actor, access edge.Access, names []candidate, like store.Domain) (map[string]string, error) {
	if !store.IsEdge(access.Provider) {
		return nil, nil
	}
	fresh, err := s.newNames(who, names)
	if err != nil || len(fresh) == 0 {
		return nil, err
	}
	return s.edge.Probe(ctx, access, fresh, like)
}

// sitesOf asks the present nameservers of new names about their websites and mail, as far as the
// request needs it.
func (s *Service) sitesOf(ctx context.Context, who core.Actor, provider string, in ConnectDomainsIn, names []candidate) (map[string]presentSite, error) {
	needsApex := !store.IsEdge(provider) && in.Apex != store.ApexHere
	if !s.findsSites() || in.External || !needsApex && in.MX != store.MXElsewhere {
		return nil, nil
	}
	fresh, err := s.newNames(who, names)
	if err != nil || len(fresh) == 0 {
		return nil, err
	}
	return s.lookAtSites(ctx, who.AccountID, fresh), ctx.Err()
}

// simulatorNameText says that a name belongs to the mail simulator and cannot be connected.
func simulatorNameText(name string) string {
	return name + " is a name of this host's own, for recipients that it simulates"
}

func errDomainLimit(limit, used int) *core.Error {
	return core.Errorf("domain_limit_exceeded", "This account's limit of domains is %d, and it has %d, so none of these was connected. Connect fewer, or delete some first.", limit, used)
}

// A connectRequest is a connect_domains request while its transaction runs.
type connectRequest struct {
	s        *Service
	tx       *store.Tx
	who      core.Actor
	in       ConnectDomainsIn
	provider string
	tags     []string
	access   edge.Access            // to the DNS provider, if the provider is one
	probed   map[string]string      // by name: why the DNS provider cannot serve it; "" if it can
	sites    map[string]presentSite // by name: what its present nameservers say
	dkim     map[string][]dkimKey   // by name: the keys of a zone that is served here
	created  []*store.Domain
}

// connectName creates the domain for one name, if the account may connect the name. It returns what
// the answer says about the name.
func (c *connectRequest) connectName(name candidate) (ConnectResult, error) {
	r := ConnectResult{Domain: name.name, Status: "error", DNSProvider: c.provider, Nameservers: []string{}}
	refuse := func(why string) (ConnectResult, error) {
		r.Error = &why
		return r, nil
	}
	if name.problem != "" {
		return refuse("invalid_domain: " + name.problem)
	}
	if c.s.IsSimulator(name.name) {
		return refuse("invalid_domain: " + simulatorNameText(name.name))
	}
	d, err := claimOf(c.tx, c.who.AccountID, name.name)
	switch {
	case err == nil && d.Gone():
		return refuse(name.name + " is being deleted. Connect it again when the job " + d.JobID + " has ended.")
	case err == nil:
		r.DomainID, r.Status, r.DNSProvider, r.Nameservers = &d.ID, "already_exists", d.DNSProvider, c.s.nameserversOf(d)
		return r, nil
	case !errors.Is(err, store.ErrNotFound):
		return r, err
	}
	if c.s.isOperatorName(c.tx, c.who.AccountID, name.name) {
		return refuse(notAvailableText(name.name))
	}
	if elsewhere, err := isProvenByOther(c.tx, c.who.AccountID, name.name); err != nil {
		return r, err
	} else if elsewhere {
		return refuse(errClaimedElsewhere(name.name).Error())
	}
	if why, asked := c.probed[name.name]; why != "" {
		return refuse(why)
	} else if store.IsEdge(c.provider) && !asked { // not asked, because the account still had a domain of this name then
		return refuse("upstream_error: The DNS provider was not asked about " + name.name + " yet. Try again.")
	}
	d, err = c.createDomain(name.name)
	if err != nil {
		return r, err
	}
	r.DomainID, r.Status, r.Nameservers = &d.ID, "created", c.s.nameserversOf(d)
	return r, nil
}

// notAvailableText says that a name cannot be connected to this account.
func notAvailableText(name string) string {
	return name + " cannot be connected to this account. If it is yours, ask the operator of this installation."
}

// isOperatorName reports whether a name is reserved and the account may not connect it. Reserved
// are the names of this host and of its nameservers, and the names above them: whoever owns them
// controls the server. Only the oldest account, which has set up the server, may connect them.
func (s *Service) isOperatorName(tx *store.Tx, accountID, name string) bool {
	holds := func(host string) bool { return dnsprov.IsWithin(strings.ToLower(host), name) }
	if !holds(s.Config.Hostname) && !slices.ContainsFunc(s.Config.Nameservers, holds) {
		return false
	}
	for a := range store.Accounts.All(tx) {
		return a.ID != accountID
	}
	return true
}

// createDomain writes a new domain. Its first status depends on its DNS provider.
func (c *connectRequest) createDomain(name string) (*store.Domain, error) {
	d := &store.Domain{
		ID: c.tx.NewID("dom"), AccountID: c.who.AccountID, Name: name, DNSProvider: c.provider, Source: store.DomainSourceConnected,
		Status: store.DomainPendingNS, NSStatus: store.DomainNSPending, DNSStatus: dnsPending, Tags: c.tags, CreatedAt: c.tx.Now(),
	}
	if err := errors.Join(c.s.zones.GenerateZoneKey(d), c.s.beginClaim(c.tx, d)); err != nil {
		return nil, err
	}
	c.s.setDKIM(d, c.dkim[name])
	d.Apex, d.MX = c.s.newApex(d, c.in.Apex, c.sites[name]), c.s.newMX(d, c.in.MX, c.sites[name])
	if d.DNSProvider == dnsprov.Builtin && len(d.Apex.Addresses) > 0 {
		if err := zones.PutFoundAddresses(c.tx, d); err != nil {
			return nil, err
		}
	}
	switch {
	case c.provider == store.DomainProviderManual, d.AtEdge():
		d.Status, d.NSStatus = store.DomainInProgress, store.DomainNSNotRequired
		d.DNSCredentialID, d.Replace = c.access.CredentialID, c.in.Replace
		if c.access.Token != "" {
			d.EdgeToken = c.s.Keys.Seal(store.EdgeBinding(d.ID), []byte(c.access.Token))
		}
		if err := c.s.addProvision(c.tx, d, c.who.UserID); err != nil {
			return nil, err
		}
	case c.provider == store.DomainProviderExternal:
		d.NSStatus, d.DNSStatus = store.DomainNSNotRequired, dnsComplete
		d.Status, d.CompletedAt = store.DomainComplete, c.tx.Now()
		if err := errors.Join(c.s.emitCreated(c.tx, d), c.s.emitReady(c.tx, d)); err != nil {
			return nil, err
		}
	default: // builtin
		if err := c.s.await(c.tx, d, store.DomainPendingNS); err != nil {
			return nil, err
		}
	}
	if err := c.s.scans.Begin(c.tx, d, c.who.UserID); err != nil {
		return nil, err
	}
	c.created = append(c.created, d)
	d.UpdatedAt = c.tx.Now()
	return d, c.s.zones.Publish(c.tx, d)
}

// republishZones republishes the zones that the new domains affect: zones above them, and zones of
// other accounts' unproven claims. It is called once for all new domains.
func (c *connectRequest) republishZones() error {
	var own, around []string
	for _, d := range c.created {
		if !zones.Contested(c.tx, d) {
			if c.s.zones.HasZone(d) {
				own = append(own, d.Name)
			}
			continue
		}
		names, err := c.s.affectedZonesWithin(c.tx, claimArgs{Name: d.Name, Except: d.AccountID}, len(around))
		if err != nil {
			return err
		}
		around = append(around, names...)
	}
	slices.Sort(around)
	return errors.Join(c.s.zones.Republish(c.tx, slices.Compact(around), nil), c.s.zones.PublishAbove(c.tx, nil, own...))
}

// cloudflareIANAID is the number of Cloudflare in IANA's list of registrars.
const cloudflareIANAID = "1910"

// CheckProviderIn is the body of check_provider.
type CheckProviderIn struct {
	Domain string `json:"domain" required:"true" log:"true"`
}

// A DomainProvider says at which registrar a domain is registered. is_edge means that this is
// Cloudflare, which does not allow other nameservers.
type DomainProvider struct {
	Domain      string   `json:"domain" words:"ours"`
	Registrar   *string  `json:"registrar" words:"theirs" example:"Example Registrar, Inc."`
	Nameservers []string `json:"nameservers" words:"theirs" example:"[\"ns1.example.net\",\"ns2.example.net\"]"`
	IsEdge      bool     `json:"is_edge"`
	CheckedVia  string   `json:"checked_via" enum:"registrar|rdap|dns"`
	// The DNS provider that runs all of the nameservers, by their names: `builtin` if they are
	// Mailstead's. Null if they are others, or of several providers.
	DNSProviderGuess *string `json:"dns_provider_guess" enum:"builtin|cloudflare|route53|hetzner|desec"`
	// A DNS credential of the account for a zone that the domain is in, preferably at that
	// provider. Null if there is none, or for members, who do not see credentials.
	DNSCredentialID *string `json:"dns_credential_id" words:"ours" example:"dnsc_01k9a2b3c4d5e6f7g8h9j0k1m2"`
}

// CheckProvider finds out at which registrar a domain is registered, which DNS provider serves it,
// and which DNS credential of the account is for it.
func (s *Service) CheckProvider(ctx context.Context, who core.Actor, in CheckProviderIn) (*DomainProvider, error) {
	ascii, _, err := idn.Registrable(in.Domain)
	if err != nil {
		return nil, core.Errorf("invalid_domain", "%s", err)
	}
	var (
		wg          sync.WaitGroup
		credentials []*store.DNSCredential
		listErr     error
	)
	wg.Go(func() { credentials, listErr = s.edge.FindCredentials(ctx, who, ascii) })
	p, err := s.findRegistrar(ctx, ascii)
	wg.Wait()
	if err = errors.Join(err, listErr); err != nil {
		return nil, err
	}
	guess := edge.GuessProvider(p.Nameservers)
	if s.Config.AreOwnNameservers(p.Nameservers) {
		guess = dnsprov.Builtin
	}
	p.DNSProviderGuess = core.OrNull(guess)
	for _, c := range credentials {
		if p.DNSCredentialID == nil || c.Provider == guess {
			p.DNSCredentialID = &c.ID
		}
		if c.Provider == guess {
			break
		}
	}
	return p, nil
}

// findRegistrar finds out at which registrar a domain is registered. It asks the configured
// registrars first, and then the domain's registry by RDAP. If the name is not registered, the
// result has neither a registrar nor nameservers.
func (s *Service) findRegistrar(ctx context.Context, ascii string) (*DomainProvider, error) {
	ctx, cancel := context.WithTimeout(ctx, quoteTimeout)
	defer cancel()
	registered := dnsprov.RegisteredName(ascii)
	for _, shop := range s.Settings().Registrars {
		r, err := shop.Find(ctx, registered)
		if err == nil {
			name := shop.Name()
			return &DomainProvider{Domain: ascii, Registrar: &name, Nameservers: append([]string{}, r.Nameservers...), IsEdge: name == store.DomainProviderCloudflare, CheckedVia: viaRegistrar}, nil
		}
		if !errors.Is(err, registrar.ErrNotFound) {
			s.LogOf(ctx).Warn("registrar could not look up a domain", "registrar", shop.Name(), "domain", ascii, "error", err)
		}
	}
	if s.Config.RDAP == nil {
		return s.providerWithoutRDAP(ctx, ascii, registered, errNoRDAP(ascii, "this installation asks no RDAP service"))
	}
	d, err := s.Config.RDAP.Domain(ctx, registered)
	switch {
	case err == nil:
		return registryProvider(ascii, d), nil
	case errors.Is(err, rdap.ErrNotFound):
		return &DomainProvider{Domain: ascii, Nameservers: []string{}, CheckedVia: viaRDAP}, nil
	case errors.Is(err, rdap.ErrNoServer):
		return s.providerWithoutRDAP(ctx, ascii, registered, errNoRDAP(ascii, "the registry has no RDAP service").Because(err))
	}
	return s.providerWithoutRDAP(ctx, ascii, registered, errNoRDAP(ascii, "the registry's RDAP service gave no usable answer").Because(err))
}

// providerWithoutRDAP is called with the reason err if RDAP does not tell the registrar. It returns
// err. In a sandbox, whose names are in no registry, it returns the nameservers of the DNS instead.
func (s *Service) providerWithoutRDAP(ctx context.Context, asked, registered string, err error) (*DomainProvider, error) {
	if !s.Config.Sandbox {
		return nil, err
	}
	p := &DomainProvider{Domain: asked, Nameservers: []string{}, CheckedVia: viaDNS}
	servers, lookErr := s.Resolver.LookupNS(lookup.Fresh(ctx), registered)
	for _, ns := range servers {
		p.Nameservers = append(p.Nameservers, strings.ToLower(strings.TrimSuffix(ns.Host, ".")))
	}
	if lookErr != nil {
		s.LogOf(ctx).Debug("could not look up nameservers", "domain", registered, "error", lookErr)
	}
	return p, nil
}

// registryProvider converts the RDAP answer of a registry to a DomainProvider. Some registries do
// not tell the registrar.
func registryProvider(asked string, d *rdap.Domain) *DomainProvider {
	p := &DomainProvider{Domain: asked, Nameservers: append([]string{}, d.Nameservers...), IsEdge: d.IANAID == cloudflareIANAID, CheckedVia: viaRDAP}
	if d.Registrar != "" {
		p.Registrar = &d.Registrar
	}
	return p
}

func errNoRDAP(name, why string) *core.Error {
	return core.Errorf("upstream_error", "No RDAP service answered for %s, so its registrar is unknown. Look it up by hand, or connect the domain with manual_dns.", name).
		With("rdap", "upstream_error", why)
}

// newNames returns the valid names that the account may connect and has not connected yet.
func (s *Service) newNames(who core.Actor, names []candidate) ([]string, error) {
	var out []string
	err := s.Store.View(func(tx *store.Tx) error {
		for _, c := range names {
			if c.problem != "" || s.isOperatorName(tx, who.AccountID, c.name) {
				continue
			}
			if elsewhere, err := isProvenByOther(tx, who.AccountID, c.name); elsewhere || err != nil {
				if err != nil {
					return err
				}
				continue
			}
			_, err := claimOf(tx, who.AccountID, c.name)
			if errors.Is(err, store.ErrNotFound) {
				out = append(out, c.name)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}
