package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

const (
	planLifetime  = time.Minute // how long a plan is kept
	maxPlansBytes = 16 << 20    // memory of all plans that are kept
	bytesPerRow   = 200         // memory of a row of a plan beside its values
	newDKIMText   = "v=DKIM1; k=%s; p=…"
)

// A DNSPlan says what Mailstead changes, or would change, at a DNS provider.
type DNSPlan struct {
	Changes          []PlannedChange   `json:"changes"`
	ForeignConflicts []ForeignConflict `json:"foreign_conflicts"`
	Count            int               `json:"count"` // How many rows are in `changes`.
}

// A PlannedChange is the change of all records of one name and type.
type PlannedChange struct {
	Action string    `json:"action" enum:"create|update|delete|keep"`
	Name   string    `json:"name" words:"ours" example:"@"`
	Type   string    `json:"type" words:"ours" example:"MX"`
	Before *[]string `json:"before" words:"theirs" example:"10 mx.example.net"`   // The values before, with those of others; null if there are none.
	After  *[]string `json:"after" words:"ours" example:"10 mail.example.com"`    // The values after; null if there are none.
	Reason string    `json:"reason" words:"ours" example:"Mail arrives by this."` // For people; the text may change.
}

// A ForeignConflict is a record of somebody else in the place of one that is needed. It is not
// changed.
type ForeignConflict struct {
	Name   string `json:"name" words:"ours" example:"@"`
	Type   string `json:"type" words:"ours" example:"MX"`
	Value  string `json:"value" words:"theirs" example:"10 mx.example.net"`
	Wanted string `json:"wanted" words:"ours" example:"10 mail.example.com"` // The value that is needed instead or beside it.
}

// reasons says for each purpose of records why they are needed.
var reasons = map[string]string{
	dnsprov.PurposeMX: "Mail arrives by this.", dnsprov.PurposeSPF: "It permits this host to send mail.", dnsprov.PurposeDKIM: "It proves the signatures of outgoing mail.",
	dnsprov.PurposeDMARC: "It says what receivers do with forged mail.", dnsprov.PurposeA: "Visitors are redirected by this host.",
	dnsprov.PurposeMTASTS: "Senders encrypt mail because of it.", dnsprov.PurposeTLSRPT: "Senders report failed encryption because of it.",
	dnsprov.PurposeAutoconfig: "Mail programs find their settings by this.", dnsprov.PurposeACME: "It proves the name to a certificate authority.",
	dnsprov.PurposeCustom: "You have added it.",
}

// A planCache keeps plans for a short time, so that whoever asks again and again does not cost
// requests at DNS providers.
type planCache struct {
	mu    sync.Mutex
	plans map[string]keptPlan
	bytes int // memory of plans
}

type keptPlan struct {
	plan  *DNSPlan
	until time.Time
	bytes int
}

// get returns the plan that is kept under a key, or makes it.
func (c *planCache) get(key string, now time.Time, plan func() (*DNSPlan, error)) (*DNSPlan, error) {
	c.mu.Lock()
	kept, ok := c.plans[key]
	c.mu.Unlock()
	if ok && now.Before(kept.until) {
		return kept.plan, nil
	}
	made, err := plan()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, kept := range c.plans {
		if other == key || !now.Before(kept.until) {
			c.bytes -= kept.bytes
			delete(c.plans, other)
		}
	}
	size := made.size() + len(key)
	if c.plans == nil || c.bytes+size > maxPlansBytes {
		c.plans, c.bytes = map[string]keptPlan{}, 0
	}
	if size <= maxPlansBytes {
		c.plans[key] = keptPlan{made, now.Add(planLifetime), size}
		c.bytes += size
	}
	return made, nil
}

// size returns about how many bytes of memory the plan takes.
func (p *DNSPlan) size() int {
	n := bytesPerRow
	for _, c := range p.Changes {
		n += bytesPerRow + len(c.Name) + len(c.Reason)
		for _, values := range []*[]string{c.Before, c.After} {
			if values != nil {
				for _, v := range *values {
					n += len(v) + 16 // of the string's header
				}
			}
		}
	}
	for _, c := range p.ForeignConflicts {
		n += bytesPerRow + len(c.Name) + len(c.Value) + len(c.Wanted)
	}
	return n
}

// PreviewDNSPlanIn is the body of preview_dns_plan.
type PreviewDNSPlanIn struct {
	Domain          string `json:"domain" required:"true" log:"true"`
	DNSCredentialID string `json:"dns_credential_id" required:"true" log:"true"`
	Replace         bool   `json:"replace" log:"true"` // Plan with the replacement of mail records of others, as connect_domains and setup_domain do with it.
	// elsewhere: plan with mail that stays where it is, as connect_domains does with it. Without
	// it, as the domain is if it is connected, or else with mail that comes here.
	MX string `json:"mx" enum:"here|elsewhere|" log:"true"`
}

// PreviewDNSPlan says what connecting a domain with a DNS credential would change.
func (s *Service) PreviewDNSPlan(ctx context.Context, who core.Actor, in PreviewDNSPlanIn) (*DNSPlan, error) {
	name, _, err := idn.Registrable(in.Domain)
	if err != nil {
		return nil, core.Errorf("invalid_domain", "%s", err).With("domain", "invalid_domain", err.Error())
	}
	var c *store.DNSCredential
	d := &store.Domain{Name: name}
	var custom []*store.CustomRecord
	var own ownRecords
	err = s.Store.View(func(tx *store.Tx) error {
		c, err = CredentialFor(tx, who, in.DNSCredentialID, name)
		if err != nil {
			return err
		}
		known, err := store.DomainOfAccount.Find(tx, store.AccountDomainKey(who.AccountID, name))
		if known == nil || err != nil {
			return err
		}
		d = known
		if d.DNSProvider == c.Provider {
			own = ownRecordsOf(tx, d.ID)[d.EdgePlace]
		}
		custom = zonedata.LiveRecords(tx, d)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if d.DNSProvider != c.Provider {
		d.Replaced = nil
	}
	d.DNSProvider, d.Replace = c.Provider, in.Replace
	if in.MX != "" {
		d.MX = &store.DomainMX{Mode: in.MX}
	}
	access := Access{Provider: c.Provider, CredentialID: c.ID}
	key := fmt.Sprint(c.ID, c.UpdatedAt.UnixNano(), name, d.ID, d.ZoneChangedAt.UnixNano(), in.Replace, in.MX)
	return s.plans.get(key, s.Now(), func() (*DNSPlan, error) {
		provider, err := s.open(access)
		if err != nil {
			return nil, err
		}
		w := &zoneSync{s: s, d: d, customRecords: custom, own: own, access: access, provider: provider, refused: map[string]string{}}
		return w.planWithin(ctx)
	})
}

// GetDNSPlanIn names the domain whose plan is read.
type GetDNSPlanIn struct {
	DomainID string `path:"domain_id"`
}

// GetDNSPlan says what Mailstead would change now at the DNS provider of a domain.
func (s *Service) GetDNSPlan(ctx context.Context, who core.Actor, in GetDNSPlanIn) (*DNSPlan, error) {
	var d *store.Domain
	err := s.Store.View(func(tx *store.Tx) (err error) {
		d, err = zonedata.ManagedDomain(tx, who, in.DomainID)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !d.AtEdge() {
		return &DNSPlan{Changes: []PlannedChange{}, ForeignConflicts: []ForeignConflict{}}, nil
	}
	key := d.ID + strconv.FormatInt(d.ZoneChangedAt.UnixNano(), 10) + d.DNSCredentialID
	return s.plans.get(key, s.Now(), func() (*DNSPlan, error) {
		access, err := s.accessOf(d)
		if err != nil {
			return nil, err
		}
		var plan *DNSPlan
		err = s.withZoneLock(ctx, d.ID, func(w *zoneSync) (err error) {
			plan, err = w.plan()
			return err
		})
		switch {
		case errors.Is(err, errNotAtEdge):
			return nil, core.NotFound("domain")
		case err != nil:
			return nil, planError(access, d.Name, err)
		}
		return plan, nil
	})
}

// planError converts an error of a plan to one that people see.
func planError(access Access, domain string, err error) error {
	if _, ours := core.AsError(err); ours || !errors.As(err, new(providerFault)) {
		return err
	}
	return access.failure(domain, err)
}

// planWithin is plan for a zoneSync that was not made by withZoneLock.
func (w *zoneSync) planWithin(ctx context.Context) (*DNSPlan, error) {
	within, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	w.ctx = within
	out, err := w.plan()
	if noted := w.s.noteUse(w.access, err); noted != nil {
		return nil, noted
	}
	if err != nil {
		return nil, planError(w.access, w.d.Name, err)
	}
	return out, nil
}

// plan returns what sync would change now, without changing anything.
func (w *zoneSync) plan() (*DNSPlan, error) {
	if len(w.d.DKIM) == 0 {
		w.d.DKIM = []store.DKIMKey{{Selector: zonedata.RSASelector, Record: fmt.Sprintf(newDKIMText, "rsa")}, {Selector: zonedata.Ed25519Selector, Record: fmt.Sprintf(newDKIMText, "ed25519")}}
	}
	have, err := w.read(w.wanted())
	if err != nil {
		return nil, err
	}
	text, valid := w.foreignPolicy(have)
	followPolicy(w.d, text, valid, w.s.Now())
	mine, want, replaced := takeOver(w.d, have, w.wanted())
	var told []*dnsprov.Conflict
	out := &DNSPlan{Changes: []PlannedChange{}, ForeignConflicts: []ForeignConflict{}}
	fits := want
	for {
		some, err := dnsprov.Compatible(mine, fits)
		conflicts := conflictsIn(err)
		if len(conflicts) == 0 {
			fits = besideOthers(some, mine, told)
			break
		}
		for _, c := range conflicts {
			fits = withoutRecord(fits, c.Want)
			told = append(told, c)
			out.ForeignConflicts = append(out.ForeignConflicts, ForeignConflict{zonedata.RelativeHost(c.Have.Name, w.d.Name), c.Have.Type, c.Have.Text(), c.Want.Text()})
		}
	}
	out.Changes = w.plannedChanges(mine, want, fits)
	for _, r := range replaced {
		end := ""
		if r.IsSPF() {
			end = dnsprov.LooseEnd(dnsprov.UnquoteText(r.Value))
		}
		for i, c := range out.Changes {
			if end != "" && c.Reason == reasons[dnsprov.PurposeSPF] {
				out.Changes[i].Reason += " It ended in " + end + " and ends in ~all now, so mail of senders that it does not name is suspicious."
			}
		}
	}
	out.Count = len(out.Changes)
	return out, nil
}

// plannedChanges returns the changes by which the records mine of a zone get those of want that
// fit, set by set: first what changes, then what stays.
func (w *zoneSync) plannedChanges(mine, want, fits []dnsprov.Record) []PlannedChange {
	before, after := map[dnsprov.Set][]string{}, map[dnsprov.Set][]string{}
	purposes := map[dnsprov.Set]string{}
	var sets []dnsprov.Set
	note := func(r dnsprov.Record) dnsprov.Set {
		set := dnsprov.Set{Name: r.Name, Type: r.Type}
		if _, known := purposes[set]; !known {
			sets = append(sets, set)
		}
		if purposes[set] == "" {
			purposes[set] = r.Purpose
		}
		return set
	}
	changed := map[dnsprov.Set]bool{}
	changes := dnsprov.Plan(mine, fits)
	gone := map[*dnsprov.Record]bool{}
	for _, c := range changes {
		for _, r := range []*dnsprov.Record{c.Want, c.Have} {
			if r != nil {
				changed[note(*r)] = true
			}
		}
		if c.Have != nil {
			gone[c.Have] = true
		}
	}
	for _, r := range want {
		if slices.ContainsFunc(fits, r.Same) || slices.ContainsFunc(mine, func(h dnsprov.Record) bool { return h.Name == r.Name && h.Type == r.Type }) {
			note(r)
		}
	}
	for i, h := range mine {
		set := dnsprov.Set{Name: h.Name, Type: h.Type}
		before[set] = append(before[set], h.Text())
		if !gone[&mine[i]] {
			after[set] = append(after[set], h.Text())
		}
	}
	for _, c := range changes {
		if c.Want != nil {
			set := dnsprov.Set{Name: c.Want.Name, Type: c.Want.Type}
			after[set] = append(after[set], c.Want.Text())
		}
	}
	out, kept := []PlannedChange{}, []PlannedChange{}
	for _, set := range sets {
		c := PlannedChange{Action: "update", Name: zonedata.RelativeHost(set.Name, w.d.Name), Type: set.Type, Reason: reasons[purposes[set]]}
		if values := before[set]; len(values) > 0 {
			c.Before = &values
		} else {
			c.Action = "create"
		}
		if values := after[set]; len(values) > 0 {
			c.After = &values
		} else {
			c.Action, c.Reason = "delete", "It is Mailstead's, and not needed any more."
		}
		if !changed[set] {
			c.Action, c.Reason = "keep", "It is there already."
			kept = append(kept, c)
			continue
		}
		out = append(out, c)
	}
	return append(out, kept...)
}
