package scans

import (
	"context"
	"slices"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

const (
	defaultDSTTL  = 24 * time.Hour  // of DS records whose TTL is not known; that of most registries
	parentTimeout = 5 * time.Second // for the questions to the parent zone of one domain
	maxDS         = 16              // DS records of one domain that are kept
)

// A Delegation is what the parent zone of a domain answers for it.
type Delegation struct {
	// The nameservers. Empty if the domain has none.
	Nameservers []string `json:"nameservers" words:"theirs" example:"[\"ns1.example.net\",\"ns2.example.net\"]"`
	// The DS records in zone file format.
	DS []string `json:"ds" words:"theirs" example:"[\"12345 8 2 b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17\"]"`
	// For how many seconds resolvers keep the nameservers. Null if the parent zone's own servers
	// did not answer; then a resolver has told the nameservers, and these can be older ones.
	TTL      *int      `json:"ttl"`
	LookedAt core.Time `json:"looked_at"`
}

// DelegationOf returns what the parent zone of a domain answered last; nil if it was not asked.
func DelegationOf(d *store.Domain) *Delegation {
	if d.Delegation == nil || d.DNSProvider == store.DomainProviderExternal {
		return nil
	}
	out := &Delegation{
		Nameservers: append([]string{}, d.Delegation.Nameservers...), DS: append([]string{}, d.Delegation.DS...),
		LookedAt: core.Time{Time: d.Delegation.LookedAt},
	}
	if d.Delegation.TTL > 0 {
		out.TTL = new(int(d.Delegation.TTL / time.Second))
	}
	return out
}

// AskParent asks the parent zone of a domain for its delegation. It returns nil if this
// installation asks no nameservers of others, or if the lookup failed.
func (s *Service) AskParent(ctx context.Context, name string) *scan.Parent {
	if s.Config.Scanner == nil || !s.Config.ScanNew {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, parentTimeout)
	defer cancel()
	defer s.zones.PauseQuestions(name)()
	found, err := s.Config.Scanner.Parent(ctx, name)
	if err != nil {
		s.LogOf(ctx).Debug("could not ask the parent zone of a domain", "domain", name, "error", err)
		return nil
	}
	return found
}

// NoteParent sets what the parent zone of a domain has, and reports whether more than the time has
// changed. The caller writes the domain.
func (s *Service) NoteParent(tx *store.Tx, d *store.Domain, found *scan.Parent) (changed bool) {
	before := d.Delegation
	now := &store.Delegation{Nameservers: found.Names[:min(len(found.Names), maxNameservers)], TTL: found.TTL, LookedAt: tx.Now()}
	if found.DS != nil {
		for _, ds := range (*found.DS)[:min(len(*found.DS), maxDS)] {
			now.DS = append(now.DS, ds.String())
		}
		slices.Sort(now.DS)
	} else if before != nil {
		now.DS = before.DS
	}
	d.Delegation = now
	return before == nil || !slices.Equal(before.Nameservers, now.Nameservers) || !slices.Equal(before.DS, now.DS)
}

// NoteDS sets the DNSSEC status of a domain by the DS records that the parent zone has, and notes
// until when resolvers may have one of another key; found is nil if the lookup has failed. ttl is
// that of the records, 0 if it is not known. The caller writes the domain.
func (s *Service) NoteDS(tx *store.Tx, d *store.Domain, found *[]dnsprov.DS, ttl time.Duration) {
	if found == nil || d.DNSSEC == nil {
		return
	}
	before := d.DNSSEC.Status
	zones.UpdateDSStatus(d, found)
	if before != store.DNSSECBogus && d.DNSSEC.Status != store.DNSSECBogus {
		return
	}
	if d.ForeignDS == nil {
		d.ForeignDS = &store.ForeignDS{TTL: defaultDSTTL}
	}
	if ttl > 0 {
		d.ForeignDS.TTL = ttl
	}
	d.ForeignDS.Until = tx.Now().Add(d.ForeignDS.TTL)
}
