package edge

import (
	"context"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/spf"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

// A ReplacedRecord is a record of somebody else at a DNS provider that Mailstead has replaced,
// because the request had replace.
type ReplacedRecord struct {
	Name  string `json:"name" words:"ours" example:"@"`
	Type  string `json:"type" words:"ours" example:"MX"`
	Value string `json:"value" words:"theirs" example:"10 mx.example.net"`
	TTL   int    `json:"ttl"` // Seconds.
}

// ReplacedOf returns the records of others that were replaced for a domain.
func ReplacedOf(d *store.Domain) []ReplacedRecord {
	out := []ReplacedRecord{}
	for _, r := range d.Replaced {
		out = append(out, ReplacedRecord{zonedata.RelativeHost(r.Name, d.Name), r.Type, replacedRecord(r).Text(), int(r.TTL)})
	}
	return out
}

func replacedRecord(r store.ReplacedRecord) dnsprov.Record {
	return dnsprov.Record{Name: r.Name, Type: r.Type, Value: r.Value, Priority: r.Priority, TTL: r.TTL}
}

// addReplaced adds records to those that were replaced for a domain, unless it has them.
func addReplaced(d *store.Domain, records []dnsprov.Record) {
	for _, r := range records {
		if !slices.ContainsFunc(d.Replaced, func(o store.ReplacedRecord) bool { return replacedRecord(o).Same(r) }) {
			d.Replaced = append(d.Replaced, store.ReplacedRecord{Name: r.Name, Type: r.Type, Value: r.Value, Priority: r.Priority, TTL: r.TTL})
		}
	}
}

// takeOver returns the records that a provider has and those that are wanted, as they are planned
// with for a domain. If mail records of others are to be replaced, those of them at the domain
// itself count as ours: MX records that are not wanted, and SPF records. replaced has them as they
// are. The wanted SPF record also permits what replaced SPF records permit.
func takeOver(d *store.Domain, have, want []dnsprov.Record) (mine, wanted, replaced []dnsprov.Record) {
	mine, wanted = slices.Clone(have), slices.Clone(want)
	if d.Replace {
		for i, h := range mine {
			if h.Purpose != "" || h.ID == "" || h.Name != d.Name || slices.ContainsFunc(want, h.Same) {
				continue
			}
			switch {
			case h.Type == "MX":
				mine[i].Purpose = dnsprov.PurposeMX
			case isSPF(h):
				mine[i].Purpose = dnsprov.PurposeSPF
			default:
				continue
			}
			replaced = append(replaced, h)
		}
	}
	all := store.Domain{Replaced: slices.Clone(d.Replaced)}
	addReplaced(&all, replaced)
	var texts []string
	for _, r := range all.Replaced {
		if isSPF(replacedRecord(r)) {
			texts = append(texts, dnsprov.UnquoteText(r.Value))
		}
	}
	for i, w := range wanted {
		if w.Purpose == dnsprov.PurposeSPF && w.Name == d.Name && len(texts) > 0 {
			if merged := dnsprov.MergeSPF(texts, w); merged != "" {
				wanted[i].Value = merged
			}
		}
	}
	return mine, wanted, replaced
}

func isSPF(r dnsprov.Record) bool {
	return r.Type == "TXT" && spf.IsRecord(dnsprov.UnquoteText(r.Value))
}

// PutBackZoneRecordsIn names the domain whose replaced records are put back.
type PutBackZoneRecordsIn struct {
	DomainID string `path:"domain_id"`
}

// ZoneRecordsPutBack is the answer of put_back_zone_records.
type ZoneRecordsPutBack struct {
	Domain  string           `json:"domain" words:"ours"`
	Records []ReplacedRecord `json:"records"` // What is there again.
}

// PutBackZoneRecords restores the records of others that were replaced for a domain at its DNS
// provider, in place of ours.
func (s *Service) PutBackZoneRecords(ctx context.Context, who core.Actor, in PutBackZoneRecordsIn) (*ZoneRecordsPutBack, error) {
	var d *store.Domain
	err := s.Store.View(func(tx *store.Tx) (err error) {
		d, err = zonedata.ChangeableDomain(tx, who, in.DomainID)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(d.Replaced) == 0 {
		return nil, core.Errorf("not_found", "No records of others were replaced for %s.", d.Name)
	}
	out := &ZoneRecordsPutBack{Domain: d.Name}
	err = s.withZoneLock(ctx, d.ID, func(w *zoneSync) error {
		out.Records = ReplacedOf(w.d)
		return w.putBack(who)
	})
	var fault providerFault
	switch {
	case errors.As(err, &fault):
		return nil, fault.access.failure(d.Name, err)
	case errors.Is(err, errNotAtEdge):
		return nil, core.Errorf("not_found", "No records of others were replaced for %s.", d.Name)
	case err != nil:
		return nil, err
	}
	return out, nil
}

// putBack writes the replaced records in place of ours, and forgets them.
func (w *zoneSync) putBack(who core.Actor) error {
	for range maxChangedTimes {
		have, err := w.read(nil)
		if err != nil {
			return err
		}
		deletes, creates := w.putBackChanges(have)
		if changes := slices.Concat(deletes, creates); len(changes) > 0 {
			_, err = w.provider.Apply(w.ctx, w.at(nil), changes)
		}
		if err != nil {
			err = w.access.fault(err)
		}
		if noted := w.storeOwnRecords(have, deletes, nil, err); noted != nil {
			return noted
		}
		if errors.Is(err, dnsprov.ErrChanged) {
			continue
		}
		if err != nil {
			return err
		}
		return w.s.Store.Update(func(tx *store.Tx) error {
			d, err := store.Domains.Get(tx, w.d.ID)
			if err != nil {
				return err
			}
			d.Replaced, d.Replace, d.UpdatedAt = nil, false, tx.Now()
			if d.Status == store.DomainComplete {
				d.StatusDetail = "zone_conflict: the mail records that were there before were put back, so mail goes where they say. Run setup again with replace to take it over."
			}
			return errors.Join(store.Domains.Put(tx, d), core.Audit(tx, who, core.DomainTarget(d)))
		})
	}
	return w.access.fault(dnsprov.ErrChanged)
}

// putBackChanges returns the changes that put replaced records of others in the place of ours: of
// our MX records, and of our SPF record if one was replaced. A provider that marks our records does
// not mark records without a Purpose; others want one of every record.
func (w *zoneSync) putBackChanges(have []dnsprov.Record) (deletes, creates []dnsprov.Change) {
	given := map[string]bool{} // the purposes of ours that give way
	for _, r := range w.d.Replaced {
		back, purpose := replacedRecord(r), dnsprov.PurposeMX
		if r.Type == "TXT" {
			purpose = dnsprov.PurposeSPF
		}
		given[purpose] = true
		if slices.ContainsFunc(have, back.Same) {
			continue
		}
		if !w.marks() {
			back.Purpose = purpose
		}
		creates = append(creates, dnsprov.Change{Op: dnsprov.Create, Want: &back})
	}
	for i, h := range have {
		kept := slices.ContainsFunc(w.d.Replaced, func(r store.ReplacedRecord) bool { return replacedRecord(r).Same(h) })
		if given[h.Purpose] && h.Name == w.d.Name && !kept {
			deletes = append(deletes, dnsprov.Change{Op: dnsprov.Delete, Have: &have[i]})
		}
	}
	return deletes, creates
}
