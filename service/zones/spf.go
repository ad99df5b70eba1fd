package zones

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/spf"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

const maxSPFText = 2048 // bytes of an SPF record; large ones make DNS answers that do not fit into a UDP packet

// An SPF is what the owner of a domain adds to its SPF record. Mailstead's own terms come first.
type SPF struct {
	// Terms that come after Mailstead's, in order, for other servers that send mail of the domain.
	// `redirect=` is only possible as the last one; then there is no `all`.
	Extra []string `json:"extra" words:"ours" example:"[\"include:_spf.example.net\"]"`
	// The qualifier of `all`, which is for all other servers: `~` softfail, `-` fail.
	All string `json:"all" enum:"~|-"`
}

// SPFOf returns what the owner of a domain has added to its SPF record.
func SPFOf(d *store.Domain) SPF {
	out := SPF{Extra: []string{}, All: store.SPFSoftFail}
	if d.SPF != nil {
		out = SPF{Extra: append(out.Extra, d.SPF.Extra...), All: cmp.Or(d.SPF.All, out.All)}
	}
	return out
}

// sameSPF reports whether two settings are equal. nil stands for the default.
func sameSPF(a, b *store.DomainSPF) bool {
	x, y := SPFOf(&store.Domain{SPF: a}), SPFOf(&store.Domain{SPF: b})
	return x.All == y.All && slices.Equal(x.Extra, y.Extra)
}

// SetSPFIn is the body of set_spf.
type SetSPFIn struct {
	DomainID string `path:"domain_id"`
	// Terms that come after Mailstead's, in order, for other servers that send mail of the domain.
	// `redirect=` is only possible as the last one; then there is no `all`.
	Extra []string `json:"extra" required:"true" max:"50" example:"[\"include:_spf.example.net\"]" log:"true"`
	// The qualifier of `all`, which is for all other servers: `~` softfail, `-` fail. `~` by
	// default.
	All string `json:"all" enum:"~|-|" log:"true"`
}

// SPFSet is the answer of set_spf.
type SPFSet struct {
	SPF SPF `json:"spf"`
}

// SetSPF sets what the owner adds to the SPF record of a domain.
func (s *Service) SetSPF(ctx context.Context, who core.Actor, in SetSPFIn) (*SPFSet, error) {
	set := &store.DomainSPF{All: cmp.Or(in.All, store.SPFSoftFail)}
	for i, given := range in.Extra {
		term, err := spfTerm(given, i == len(in.Extra)-1)
		if err != nil {
			return nil, err
		}
		set.Extra = append(set.Extra, term)
	}
	d, err := s.putSPF(ctx, who, in.DomainID, set)
	if err != nil {
		return nil, err
	}
	return &SPFSet{SPFOf(d)}, nil
}

// spfTerm validates a term that the owner adds to an SPF record, and returns it in its shortest
// form.
func spfTerm(given string, last bool) (string, error) {
	text := strings.TrimSpace(given)
	record := spf.Parse("v=spf1 " + text)
	if !record.WellFormed || len(record.Terms) != 1 || spf.IsRecord(text) {
		return "", core.Invalid("extra", "invalid", "%.80q is not a term of an SPF record, such as include:_spf.example.net or ip4:192.0.2.0/24", given)
	}
	t := record.Terms[0]
	switch {
	case t.Name == "all" && !t.IsModifier():
		return "", core.Invalid("extra", "invalid", "must not contain all; use the field all")
	case t.Name == "redirect" && t.IsModifier() && !last:
		return "", core.Invalid("extra", "invalid", "may have redirect= only as the last term")
	}
	return t.String(), nil
}

// putSPF writes what the owner adds to an SPF record; nil for nothing.
func (s *Service) putSPF(ctx context.Context, who core.Actor, domainID string, set *store.DomainSPF) (d *store.Domain, err error) {
	job := ""
	err = s.Store.Update(func(tx *store.Tx) (err error) {
		d, err = zonedata.ChangeableDomain(tx, who, domainID)
		if err != nil {
			return err
		}
		d.SPF = set
		if err := checkSPFText(s.spfText(d)); err != nil {
			return err
		}
		job, err = s.putZoneWithJob(tx, d)
		if err != nil {
			return err
		}
		return core.Audit(tx, who, core.DomainTarget(d))
	})
	if err != nil {
		return nil, err
	}
	s.awaitZone(ctx, d, job)
	return d, nil
}

// spfText returns the SPF record of a domain.
func (s *Service) spfText(d *store.Domain) string {
	for _, r := range dnsprov.Wanted(zonedata.Spec(s.Core, d), d.DNSProvider) {
		if r.Purpose == dnsprov.PurposeSPF && r.Name == d.Name {
			return r.Value
		}
	}
	return ""
}

// checkSPFText returns an error if receivers would refuse an SPF record.
func checkSPFText(text string) error {
	if n := spf.Lookups(text); n > spf.MaxLookups {
		return core.Invalid("extra", "too_many_lookups", "gives an SPF record that needs %d lookups; receivers make at most %d (RFC 7208 section 4.6.4)", n, spf.MaxLookups)
	}
	if len(text) > maxSPFText {
		return core.Invalid("extra", "too_long", "gives an SPF record of %d bytes; it can have at most %d", len(text), maxSPFText)
	}
	return nil
}

// ResetSPFIn names the domain whose SPF record gets Mailstead's terms alone.
type ResetSPFIn struct {
	DomainID string `path:"domain_id"`
}

// SPFReset is the answer of reset_spf.
type SPFReset struct {
	Reset          bool   `json:"reset" example:"true"` // Always true.
	AppliedDefault string `json:"applied_default" words:"ours" example:"v=spf1 mx ip4:192.0.2.1 ~all"`
}

// ResetSPF removes what the owner has added to the SPF record of a domain.
func (s *Service) ResetSPF(ctx context.Context, who core.Actor, in ResetSPFIn) (*SPFReset, error) {
	d, err := s.putSPF(ctx, who, in.DomainID, nil)
	if err != nil {
		return nil, err
	}
	return &SPFReset{true, s.spfText(d)}, nil
}
