package zones

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

// mayBeSite reports whether an address may be that of a website. It must be public, but not in a
// sandbox.
func (s *Service) mayBeSite(ip netip.Addr) bool {
	guard := &netguard.Guard{AllowPrivate: s.Config.AllowPrivate || s.Config.Sandbox}
	return guard.Allowed(ip)
}

// CleanApexAddresses validates and normalizes the addresses of a website. field is that of the
// request.
func (s *Service) CleanApexAddresses(field string, given []string) ([]string, error) {
	var out []string
	for _, text := range given {
		ip, err := netip.ParseAddr(strings.TrimSpace(text))
		switch {
		case err != nil || ip.Zone() != "":
			return nil, core.Invalid(field, "invalid", "has %.80q, which is not an IP address", text)
		case !s.mayBeSite(ip):
			return nil, core.Invalid(field, "not_allowed", "has %s, which is not a public address", ip)
		}
		if text := ip.Unmap().String(); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if len(out) > MaxApexAddresses {
		return nil, core.Invalid(field, "too_many_items", "must have at most %d items", MaxApexAddresses)
	}
	return out, nil
}

// CleanAlias validates and normalizes the host whose addresses a domain itself has.
func (s *Service) CleanAlias(field, given, domain string) (string, error) {
	host, ok := idn.WholeHost(given)
	switch {
	case !ok:
		return "", core.Invalid(field, "invalid", "%.80q is not a whole host name, such as site.example.net; give an address in addresses", given)
	case host == domain:
		return "", core.Invalid(field, "not_allowed", "is the domain itself")
	case strings.HasSuffix(host, "."+domain) || s.HostsName(host):
		return "", core.Invalid(field, "not_allowed", "%s is in a zone that this server serves itself; give the addresses in addresses", host)
	}
	return host, nil
}

// An ApexEdit is a change of where visitors of a domain itself go.
type ApexEdit struct {
	Apex      store.DomainApex // without Addresses
	Addresses []string         // those that the owner's A and AAAA records of the name have then
}

// EditApex changes where visitors of a domain itself go: draft returns the change, or nil for none.
// In the same transaction it calls within, which may change other fields of the domain; within may
// be nil. A domain that is redirected cannot lead elsewhere.
func (s *Service) EditApex(ctx context.Context, who core.Actor, domainID string, draft func(*store.Domain) (*ApexEdit, error), within func(*store.Tx, *store.Domain) error) (*store.Domain, error) {
	out, err := s.editZone(ctx, who, domainID, func(st *zoneState) (*zoneEdit, error) {
		e := &zoneEdit{kind: store.ZoneChangeSet, name: st.domain.Name, typ: "A", target: core.DomainTarget(st.domain), within: within}
		next, err := draft(st.domain)
		if next == nil || err != nil {
			return e, err
		}
		ttl := defaultTTL
		sets := map[string][]string{}
		for _, text := range next.Addresses {
			typ := "A"
			if strings.Contains(text, ":") {
				typ = "AAAA"
			}
			sets[typ] = append(sets[typ], text)
		}
		for _, typ := range []string{"A", "AAAA"} {
			present := st.set(st.domain.Name, typ)
			if len(present) > 0 {
				ttl = present[0].TTL
			}
			var records []dnsprov.Record
			if len(sets[typ]) > 0 {
				records, err = dnsprov.CustomSet(st.domain.Name, st.domain.Name, typ, uint32(ttl), sets[typ])
				if err != nil {
					return nil, invalidRecord("addresses", err)
				}
			}
			e.replaceSet(present, records)
		}
		return e, s.setApex(st, e, next.Apex)
	})
	if err != nil {
		return nil, err
	}
	return out.domain, nil
}

// setApex adds to a change where visitors of the domain itself go after it, and makes the state of
// the zone that of then. The owner's addresses are changed by the rows of the change.
func (s *Service) setApex(st *zoneState, e *zoneEdit, apex store.DomainApex) error {
	d := *st.domain
	if apex.Mode == store.ApexElsewhere && d.RedirectURL != "" {
		return ErrRedirected(&d)
	}
	before, after := apexSetting(&d), store.ApexSetting{Mode: apex.Mode, Alias: apex.Alias}
	if before != after {
		if e.settings == nil {
			e.settings = sameSettings(&d)
		}
		e.settings.Apex, e.settings.NewApex = &before, &after
	}
	e.apex = &apex
	d.Apex = &apex
	st.domain, st.source.Spec.Apex = &d, zonedata.ApexSpec(s.Core, &d)
	s.setReserved(st)
	return nil
}

// apexAddresses returns the owner's addresses of the domain itself that there are after a change.
func (st *zoneState) apexAddresses(e *zoneEdit) []string {
	var out []string
	for _, r := range st.after(e) {
		if r.Name == st.domain.Name && (r.Type == "A" || r.Type == "AAAA") {
			out = append(out, r.Value)
		}
	}
	return out
}

// applyApex sets in a domain where its visitors go after a change, which leaves it these addresses
// of the owner.
func (e *zoneEdit) applyApex(d *store.Domain, addresses []string) {
	if e.apex != nil {
		apex := *e.apex
		d.Apex = &apex
	}
	switch {
	case d.Apex == nil && len(addresses) > 0:
		d.Apex = &store.DomainApex{Mode: d.ApexMode()}
	case d.Apex == nil:
		return
	case d.Apex.Mode == store.ApexUndecided && len(addresses) > 0: // the owner has told where the website is
		d.Apex.Mode, d.Apex.Chosen = store.ApexElsewhere, true
	}
	d.Apex.Addresses = addresses
}

// PutFoundAddresses writes the addresses that were found for a new domain itself as its first
// custom records, in the transaction that creates the domain.
func PutFoundAddresses(tx *store.Tx, d *store.Domain) error {
	e := &zoneEdit{}
	for _, text := range d.Apex.Addresses {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return err
		}
		typ := "A"
		if ip.Is6() {
			typ = "AAAA"
		}
		e.add = append(e.add, &store.CustomRecord{Name: d.Name, Type: typ, Value: text, TTL: defaultTTL})
	}
	_, err := writeRows(tx, d, e, d.ZoneGeneration)
	return err
}
