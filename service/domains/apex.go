package domains

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// A domain that is connected may have a website and mail elsewhere. Its present nameservers say
// so, and what they say is kept, so that nothing breaks when the nameservers change.

const (
	siteTimeout  = 15 * time.Second // for what the nameservers of one domain say
	sitesTimeout = 30 * time.Second // for those of all names of a request
	sitesAtOnce  = 10
	maxMXRecords = 20
	maxMXTTL     = 86400 // seconds
)

// A presentSite is what the present nameservers of a domain say about its website and its mail.
type presentSite struct {
	answered  bool     // they have answered, or there are none
	ours      bool     // they are ours, so they say nothing about what was before
	addresses []string // of the website; those of this host are left out
	alias     string   // the host that has its addresses; "": none
	aliasHas  []string // the addresses of that host
	aliasSeen time.Time
	mx        []store.MXRecord
}

// mode returns where the bare name of the domain leads: one of the store.Apex… constants.
func (f *presentSite) mode() string {
	switch {
	case !f.answered:
		return store.ApexUndecided
	case len(f.addresses) > 0 || f.alias != "":
		return store.ApexElsewhere
	}
	return store.ApexHere
}

// lookAtSite asks the present nameservers of a domain for its addresses and its MX records.
func (s *Service) lookAtSite(ctx context.Context, accountID, name string) presentSite {
	ctx, cancel := context.WithTimeout(ctx, siteTimeout)
	defer cancel()
	var f presentSite
	err := s.zones.WithLookupSlot(ctx, accountID, name, func() error {
		servers, err := s.Config.Scanner.Find(ctx, name, nil)
		if err != nil {
			return err
		}
		f.ours = s.Config.AreOwnNameservers(servers.Names)
		if f.ours || len(servers.Names) == 0 {
			f.answered = true
			return nil
		}
		for _, typ := range []string{"A", "AAAA", "MX"} {
			records, err := s.Config.Scanner.Ask(ctx, servers, name, typ)
			if err != nil {
				return err
			}
			for _, r := range records {
				s.noteRecord(&f, name, r)
			}
		}
		f.answered = true
		return nil
	})
	if err != nil {
		s.LogOf(ctx).Debug("could not ask the nameservers of a domain", "domain", name, "error", err)
		return presentSite{}
	}
	if f.alias != "" {
		if _, err := s.zones.CleanAlias("alias", f.alias, name); err != nil {
			f.alias = "" // such as www of the domain itself: its addresses stay
		} else {
			f.addresses = nil
			if found, answered := s.zones.AliasAddresses(ctx, accountID, f.alias); answered {
				f.aliasHas, f.aliasSeen = found, s.Now()
			}
		}
	}
	slices.SortStableFunc(f.mx, func(a, b store.MXRecord) int { return int(a.Priority) - int(b.Priority) })
	return f
}

// noteRecord adds a record of the present nameservers to what they say. Records that lead to this
// host, and those that are too many, are left out.
func (s *Service) noteRecord(f *presentSite, name string, r dnsprov.Record) {
	switch {
	case (r.Type == "A" || r.Type == "AAAA") && len(f.addresses) < zones.MaxApexAddresses:
		if !s.isOwnAddress(r.Value) && !slices.Contains(f.addresses, r.Value) {
			f.addresses = append(f.addresses, r.Value)
		}
	case r.Type == "CNAME" && r.Name == name && r.Value != s.Config.Hostname:
		f.alias = r.Value
	case r.Type == "MX" && r.Name == name && r.Value != "." && r.Value != s.Config.Hostname && len(f.mx) < maxMXRecords:
		f.mx = append(f.mx, store.MXRecord{Host: r.Value, Priority: r.Priority, TTL: min(max(r.TTL, 1), maxMXTTL)})
	}
}

// isOwnAddress reports whether an IP address is one of this host's.
func (s *Service) isOwnAddress(text string) bool {
	for _, ip := range s.Config.PublicIPs {
		if ip.Unmap().String() == text {
			return true
		}
	}
	return false
}

// lookAtSites looks at the sites of several domains, sitesAtOnce at the same time. The result lacks
// those that did not answer within sitesTimeout.
func (s *Service) lookAtSites(ctx context.Context, accountID string, names []string) map[string]presentSite {
	ctx, cancel := context.WithTimeout(ctx, sitesTimeout)
	defer cancel()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		slots = make(chan struct{}, sitesAtOnce)
		out   = map[string]presentSite{}
	)
	for _, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f := s.lookAtSite(ctx, accountID, name)
			mu.Lock()
			defer mu.Unlock()
			out[name] = f
		})
	}
	wg.Wait()
	return out
}

// findsSites reports whether this installation asks the nameservers of domains that are connected.
func (s *Service) findsSites() bool { return s.Config.Scanner != nil && s.Config.ScanNew }

// newApex returns where the bare name of a new domain leads. asked is the mode in the request, ""
// for none; f is what its present nameservers say.
func (s *Service) newApex(d *store.Domain, asked string, f presentSite) *store.DomainApex {
	out := &store.DomainApex{Mode: asked, Chosen: asked != ""}
	switch {
	case d.DNSProvider == store.DomainProviderExternal:
		return nil
	case d.AtEdge() && asked == "":
		out.Mode = store.ApexElsewhere // the records there stay
		return out
	case d.AtEdge():
		return out
	case !s.findsSites():
		if asked == "" {
			out.Mode = store.ApexHere
		}
		return out
	case asked == "":
		out.Mode = f.mode()
	}
	if out.Mode == store.ApexElsewhere {
		s.setSite(out, f)
	}
	return out
}

// setSite sets the addresses or the alias of a website that was found.
func (s *Service) setSite(apex *store.DomainApex, f presentSite) {
	apex.Found, apex.Addresses, apex.Alias = f.addresses, f.addresses, f.alias
	apex.AliasAddresses, apex.AliasSeenAt, apex.AliasChangedAt = f.aliasHas, f.aliasSeen, f.aliasSeen
}

// followSite asks the nameservers of a domain again what its bare name and its mail lead to, and
// keeps what has changed. It does nothing once the domain is delegated to us, and changes nothing
// that the owner has chosen.
func (s *Service) followSite(ctx context.Context, d *store.Domain) error {
	apex := d.Apex
	followsApex := apex != nil && !apex.Given && !d.AtEdge() && !(apex.Chosen && apex.Mode == store.ApexHere) && d.RedirectURL == "" &&
		slices.Equal(slices.Sorted(slices.Values(apex.Addresses)), slices.Sorted(slices.Values(apex.Found)))
	followsMX := d.MXMode() == store.MXElsewhere
	if !s.findsSites() || !followsApex && !followsMX {
		return nil
	}
	f := s.lookAtSite(ctx, d.AccountID, d.Name)
	if ctx.Err() != nil || !f.answered || f.ours {
		return ctx.Err()
	}
	if followsMX && (!d.MX.Found || !slices.Equal(d.MX.Records, f.mx)) {
		err := s.Store.Update(func(tx *store.Tx) error {
			d, err := store.Domains.Find(tx, d.ID)
			if d == nil || err != nil || d.Gone() || d.MXMode() != store.MXElsewhere {
				return err
			}
			d.MX.Found, d.MX.Records = true, f.mx
			return s.zones.PutZone(tx, d)
		})
		if err != nil {
			return err
		}
	}
	if !followsApex {
		return nil
	}
	mode := f.mode()
	if apex.Chosen {
		mode = apex.Mode
	}
	if mode == apex.Mode && f.alias == apex.Alias && slices.Equal(f.addresses, apex.Found) {
		return nil
	}
	next := store.DomainApex{Mode: mode, Chosen: apex.Chosen}
	if mode == store.ApexElsewhere {
		s.setSite(&next, f)
	}
	_, err := s.writeApex(ctx, core.Actor{AccountID: d.AccountID}, d, func(now *store.Domain) (*store.DomainApex, error) {
		if now.RedirectURL != "" || now.Apex == nil || now.Apex.Given || now.Apex.Chosen != apex.Chosen || !slices.Equal(now.Apex.Addresses, apex.Addresses) {
			return nil, nil // the owner has changed it in the meantime
		}
		return &next, nil
	}, nil)
	if e, ok := core.AsError(err); ok {
		s.LogOf(ctx).Warn("could not keep the website of a domain", "domain", d.Name, "error", e)
		return nil // the next look tries again
	}
	return err
}

// withPresentSite is followSite, and returns the domain as it is after that.
func (s *Service) withPresentSite(ctx context.Context, d *store.Domain) (*store.Domain, error) {
	if err := s.followSite(ctx, d); err != nil {
		return nil, err
	}
	return s.DomainByID(d.ID)
}

// writeApex writes where the bare name of a domain leads: draft returns it, with the addresses that
// it then has; nil for no change. within may change other fields in the same transaction; it may be
// nil.
func (s *Service) writeApex(ctx context.Context, who core.Actor, d *store.Domain, draft func(*store.Domain) (*store.DomainApex, error), within func(*store.Tx, *store.Domain) error) (*store.Domain, error) {
	if d.DNSProvider != store.DomainProviderManual {
		return s.zones.EditApex(ctx, who, d.ID, func(d *store.Domain) (*zones.ApexEdit, error) {
			next, err := draft(d)
			if next == nil || err != nil {
				return nil, err
			}
			e := &zones.ApexEdit{Apex: *next, Addresses: next.Addresses}
			e.Apex.Addresses = nil
			return e, nil
		}, within)
	}
	var out *store.Domain
	err := s.Store.Update(func(tx *store.Tx) error {
		d, err := core.DomainOf(tx, who, d.ID)
		if err != nil {
			return err
		}
		if d.Gone() {
			return core.DomainBusy(d, "is being deleted, so it cannot be changed")
		}
		out = d
		next, err := draft(d)
		if err != nil {
			return err
		}
		if next != nil {
			if next.Mode == store.ApexElsewhere && d.RedirectURL != "" {
				return zones.ErrRedirected(d)
			}
			d.Apex = next
		}
		if within != nil {
			if err := within(tx, d); err != nil {
				return err
			}
		}
		return errors.Join(s.zones.PutZone(tx, d), core.Audit(tx, who, core.DomainTarget(d)))
	})
	return out, err
}

// An ApexIn is an Apex in a request.
type ApexIn struct {
	Mode string `json:"mode" required:"true" enum:"here|elsewhere" log:"true"`
	// Only with elsewhere: the addresses of your website, which become your A and AAAA records of
	// the name `@`. Without them and alias, what there is stays; before the nameservers change, it
	// is what they have.
	Addresses *[]string `json:"addresses" max:"8" example:"[\"192.0.2.7\"]" log:"true"`
	// Only with elsewhere, and without addresses: a host whose addresses the domain itself gets.
	// They are looked up again and again.
	Alias core.Opt[string] `json:"alias" max:"253" example:"site.example.net" log:"true"`
}

// check validates what can be validated without the store.
func (in *ApexIn) check(s *Service, domain string) (err error) {
	switch {
	case in.Mode == store.ApexHere && in.Addresses != nil && len(*in.Addresses) > 0:
		return core.Invalid("apex.addresses", "not_allowed", "must not be given with the mode here: the domain itself then has the addresses of this host")
	case in.Mode == store.ApexHere && in.Alias.Value != "":
		return core.Invalid("apex.alias", "not_allowed", "must not be given with the mode here: the domain itself then has the addresses of this host")
	case in.Addresses != nil && len(*in.Addresses) > 0 && in.Alias.Value != "":
		return core.Invalid("apex.alias", "not_allowed", "excludes addresses: the domain itself either has the addresses of another host, or those that you give")
	}
	if in.Addresses != nil {
		*in.Addresses, err = s.zones.CleanApexAddresses("apex.addresses", *in.Addresses)
		if err != nil {
			return err
		}
	}
	if in.Alias.Value != "" {
		in.Alias.Value, err = s.zones.CleanAlias("apex.alias", in.Alias.Value, domain)
	}
	return err
}

// changeApex carries out an update_domain request that changes where the bare name of a domain
// leads. within makes the other changes of the request.
func (s *Service) changeApex(ctx context.Context, who core.Actor, d *store.Domain, in ApexIn, within func(*store.Tx, *store.Domain) error) (*store.Domain, error) {
	if d.DNSProvider == store.DomainProviderExternal {
		return nil, core.Invalid("apex", "not_allowed", "cannot be set: %s is connected as hosted elsewhere", d.Name)
	}
	if err := in.check(s, d.Name); err != nil {
		return nil, err
	}
	var given *store.DomainApex // nil: the addresses and the alias are not given
	switch {
	case in.Mode == store.ApexHere:
		given = &store.DomainApex{}
	case in.Alias.Value != "":
		apex := s.zones.ApexWithAlias(ctx, d.AccountID, in.Alias.Value)
		given = &apex
	case in.Addresses != nil:
		given = &store.DomainApex{Addresses: *in.Addresses}
	case in.Alias.Set:
		given = &store.DomainApex{}
	}
	var f presentSite
	if given == nil && d.ApexMode() != store.ApexElsewhere && !d.AtEdge() && s.findsSites() && d.NSStatus != store.DomainNSVerified {
		f = s.lookAtSite(ctx, d.AccountID, d.Name)
	}
	return s.writeApex(ctx, who, d, func(d *store.Domain) (*store.DomainApex, error) {
		next := store.DomainApex{}
		switch {
		case given != nil:
			next = *given
			next.Given = in.Mode == store.ApexElsewhere
		case d.ApexMode() == store.ApexElsewhere && d.Apex != nil:
			next = *d.Apex
		default:
			s.setSite(&next, f)
		}
		next.Mode, next.Chosen = in.Mode, true
		return &next, nil
	}, within)
}

// mayRedirect reports whether a setup may give a domain a redirect: whether its bare name leads to
// this host, or may without another choice, as at a DNS provider by API. There the records of
// others stay, so a redirect takes the place of no website.
func mayRedirect(d *store.Domain) bool {
	mode := d.ApexMode()
	return mode == store.ApexHere || d.AtEdge() && mode == store.ApexElsewhere && (d.Apex == nil || !d.Apex.Chosen && len(d.Apex.Addresses) == 0)
}

// undecidedText says what to do while the nameservers of a domain do not answer: not to change
// them, or to leave the addresses there. It returns "" for other domains.
func undecidedText(d *store.Domain) string {
	const whose = ` and {"apex": {"mode": "elsewhere", "addresses": [...]}} or {"apex": {"mode": "here"}}.`
	switch {
	case d.DNSProvider == store.DomainProviderManual && d.ApexMode() == store.ApexUndecided:
		return d.Name + " waits until its records are found. Its nameservers do not answer, so it is not known either whether it has a website: enter the records of dns-records, and leave the addresses of " +
			d.Name + " itself as they are. Mailstead asks again by itself. You can say where it leads with PATCH /v1/domains/" + d.ID + whose
	case d.DNSProvider != dnsprov.Builtin:
		return ""
	case d.ApexMode() == store.ApexUndecided:
		return "The present nameservers of " + d.Name + " do not answer, so it is not known whether it has a website. Do not change them yet: Mailstead asks them again, or say it with PATCH /v1/domains/" +
			d.ID + whose
	case d.MXMode() == store.MXElsewhere && !d.MX.Found:
		return "The present nameservers of " + d.Name + " do not answer, so it is not known which hosts take its mail. Do not change them yet: Mailstead asks them again."
	}
	return ""
}
