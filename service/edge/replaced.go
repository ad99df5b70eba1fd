package edge

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

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

// Limits of the records of others that are replaced for a domain. If there are more, none of them
// is replaced.
const (
	maxReplaced      = 100
	maxReplacedBytes = 64 << 10
)

// mayReplace reports whether records can be added to those that were replaced for a domain.
func mayReplace(d *store.Domain, records []dnsprov.Record) bool {
	all := store.Domain{Replaced: slices.Clone(d.Replaced)}
	addReplaced(&all, records)
	size := 0
	for _, r := range all.Replaced {
		size += len(r.Value)
	}
	return len(all.Replaced) <= maxReplaced && size <= maxReplacedBytes
}

// takeOver returns the records that a provider has and those that are wanted, as they are planned
// with for a domain. If records of others are to be replaced, these count as ours: MX records at
// the domain itself that are not wanted, SPF records there that have to change, and DMARC records
// if the owner has chosen another policy. replaced has them as they are. What replaced SPF records
// permit becomes the owner's part of the SPF record of d.
//
// While other servers take the mail, their MX records are never replaced, an SPF record of others
// is left alone unless it is to be replaced, and a domain without a policy gets none: the default
// policy would be in force at once, also for mail that other servers send.
func takeOver(d *store.Domain, have, want []dnsprov.Record) (mine, wanted, replaced []dnsprov.Record) {
	mine, wanted = slices.Clone(have), slices.Clone(want)
	elsewhere := d.MXMode() == store.MXElsewhere
	var mx, spfs, policies []int // indexes of records of others
	for i, h := range mine {
		switch {
		case h.Purpose != "" || slices.ContainsFunc(want, h.Same):
		case h.Type == "MX" && h.Name == d.Name:
			mx = append(mx, i)
		case h.IsSPF() && h.Name == d.Name:
			spfs = append(spfs, i)
		case isPolicy(d, h):
			policies = append(policies, i)
		}
	}
	claim := func(indexes []int, purpose string) bool {
		var theirs []dnsprov.Record
		for _, i := range indexes {
			if mine[i].ID == "" {
				return false
			}
			theirs = append(theirs, mine[i])
		}
		if !mayReplace(d, append(theirs, replaced...)) {
			return false
		}
		for _, i := range indexes {
			mine[i].Purpose = purpose
		}
		replaced = append(replaced, theirs...)
		return true
	}
	hosts := mxHosts(d, mine, mx)
	if d.Replace && !elsewhere {
		claim(mx, dnsprov.PurposeMX)
	}
	if (d.Replace || d.ReplaceDMARC) && d.DMARC != "" && d.DMARC != d.ForeignDMARC {
		claim(policies, dnsprov.PurposeDMARC)
	}
	var before []string // the SPF records that were replaced
	for _, r := range d.Replaced {
		if replacedRecord(r).IsSPF() {
			before = append(before, dnsprov.UnquoteText(r.Value))
		}
	}
	theirs := slices.Clone(before)
	for _, i := range spfs {
		theirs = append(theirs, dnsprov.UnquoteText(mine[i].Value))
	}
	for i := len(wanted) - 1; i >= 0; i-- {
		switch w := wanted[i]; {
		case w.Purpose == dnsprov.PurposeDMARC && elsewhere && d.DMARC == "":
			wanted = slices.Delete(wanted, i, i+1)
		case w.Purpose == dnsprov.PurposeSPF && w.Name == d.Name:
			if d.Replace && len(spfs) > 0 {
				merged, fits := mergeSPF(d.Name, theirs, hosts, w)
				stays := len(theirs) == 1 && merged == theirs[0]
				if fits && !stays && claim(spfs, dnsprov.PurposeSPF) {
					wanted[i].Value = takenSPF(d, merged, w)
					break
				}
				for _, n := range spfs { // what it permits by mx is not this host, so it may be in the way
					mine[n].Value = spf.WithoutMX(dnsprov.UnquoteText(mine[n].Value), d.Name, hosts)
				}
			}
			if len(spfs) > 0 && elsewhere {
				wanted = slices.Delete(wanted, i, i+1)
			}
		}
	}
	return mine, wanted, replaced
}

// mxHosts returns the hosts of the MX records of others at a domain: those that it had before they
// were replaced, and those of the present ones.
func mxHosts(d *store.Domain, have []dnsprov.Record, present []int) (hosts []string) {
	for _, r := range d.Replaced {
		if r.Type == "MX" && !slices.Contains(hosts, r.Value) {
			hosts = append(hosts, r.Value)
		}
	}
	for _, i := range present {
		if !slices.Contains(hosts, have[i].Value) {
			hosts = append(hosts, have[i].Value)
		}
	}
	return hosts
}

// mergeSPF returns the wanted SPF record of a domain with what the records of others permit; "" if
// there are none, or if it would be too long. Their mx means the hosts of before, not this one.
// fits reports whether receivers accept the record as they accepted the ones of before.
func mergeSPF(domain string, theirs, mxHosts []string, want dnsprov.Record) (merged string, fits bool) {
	if len(theirs) == 0 {
		return "", false
	}
	var texts []string
	lookups := spf.MaxLookups
	for _, text := range theirs {
		lookups = max(lookups, spf.Lookups(text))
		texts = append(texts, spf.WithoutMX(text, domain, mxHosts))
	}
	merged = dnsprov.MergeSPF(texts, want)
	return merged, merged != "" && spf.Lookups(merged) <= lookups
}

// takenSPF makes what the merged SPF record of a domain has beside the wanted one the owner's part
// of it, and returns the record as it is wanted from then on. The ending is the merged one, unless
// the owner has chosen one.
func takenSPF(d *store.Domain, merged string, want dnsprov.Record) string {
	var ours []string
	terms, _ := spf.Parse(want.Value).Split()
	for _, t := range terms {
		ours = append(ours, t.String())
	}
	taken := &store.DomainSPF{}
	taken.Extra, taken.All = dnsprov.OwnersSPF(merged, ours)
	if d.SPF != nil {
		taken.All = d.SPF.All
	}
	d.SPF = addSPF(d.SPF, taken)
	return dnsprov.SPFText(ours, taken.Extra, taken.All)
}

// addSPF returns the owner's part of an SPF record with the terms that another one has beside it.
// An ending that the owner has chosen stays.
func addSPF(now, taken *store.DomainSPF) *store.DomainSPF {
	if now == nil || taken == nil {
		return cmp.Or(now, taken)
	}
	out := &store.DomainSPF{Extra: slices.Clone(now.Extra), All: now.All}
	for _, term := range taken.Extra {
		if !slices.Contains(out.Extra, term) {
			out.Extra = append(out.Extra, term)
		}
	}
	return out
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
		if err := w.restore(w.d.Replaced); err != nil {
			return err
		}
		return w.forgetReplaced(who)
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

// restore writes replaced records of others in place of ours. It returns nil when the provider
// shows them. The domain has them among those that were replaced until the caller removes them, so
// that it can be called again after an error or a crash.
func (w *zoneSync) restore(replaced []store.ReplacedRecord) error {
	for range maxChangedTimes + 1 {
		have, err := w.read(nil)
		if err != nil {
			return err
		}
		deletes, creates := w.restoreChanges(replaced, have)
		changes := slices.Concat(deletes, creates)
		if len(changes) == 0 {
			return nil
		}
		_, err = w.provider.Apply(w.ctx, w.at(nil), changes)
		if err != nil {
			err = w.access.fault(err)
		}
		if noted := w.writeOwn(w.ownRecords(have, deletes, nil, err)); noted != nil {
			return noted
		}
		if err != nil && !errors.Is(err, dnsprov.ErrChanged) {
			return err
		}
	}
	return w.access.fault(dnsprov.ErrChanged)
}

// restoreChanges returns the changes that put replaced records of others in the place of ours. Our
// MTA-STS policy goes with our MX record, since it would forbid the hosts of others. A provider
// that marks our records does not mark records without a Purpose; others want one of every record.
func (w *zoneSync) restoreChanges(replaced []store.ReplacedRecord, have []dnsprov.Record) (deletes, creates []dnsprov.Change) {
	given := map[string]bool{} // the purposes of ours that give way
	for _, r := range replaced {
		back, purpose := replacedRecord(r), replacedPurpose(w.d, r)
		given[purpose] = true
		if slices.ContainsFunc(have, back.Same) {
			continue
		}
		if !w.marks() {
			back.Purpose = purpose
		}
		creates = append(creates, dnsprov.Change{Op: dnsprov.Create, Want: &back})
	}
	given[dnsprov.PurposeMTASTS] = given[dnsprov.PurposeMX]
	for i, h := range have {
		stays := slices.ContainsFunc(replaced, func(r store.ReplacedRecord) bool { return replacedRecord(r).Same(h) })
		if given[h.Purpose] && !stays {
			deletes = append(deletes, dnsprov.Change{Op: dnsprov.Delete, Have: &have[i]})
		}
	}
	return deletes, creates
}

// replacedPurpose returns the purpose of our record that has replaced one of others.
func replacedPurpose(d *store.Domain, r store.ReplacedRecord) string {
	switch {
	case r.Type == "MX":
		return dnsprov.PurposeMX
	case isPolicy(d, replacedRecord(r)):
		return dnsprov.PurposeDMARC
	}
	return dnsprov.PurposeSPF
}

// forgetReplaced notes that the replaced records are at the provider again, and what that means for
// the domain.
func (w *zoneSync) forgetReplaced(who core.Actor) error {
	return w.s.Store.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, w.d.ID)
		if err != nil {
			return err
		}
		var mx []dnsprov.Record
		for _, r := range d.Replaced {
			switch replacedPurpose(d, r) {
			case dnsprov.PurposeMX:
				mx = append(mx, replacedRecord(r))
			case dnsprov.PurposeDMARC:
				d.DMARC, d.DMARCAt, d.ForeignDMARC = "", time.Time{}, clipPolicy(dnsprov.UnquoteText(r.Value)) // the next sync reads it
			}
		}
		d.Replaced, d.Replace, d.ReplaceDMARC, d.UpdatedAt = nil, false, false, tx.Now()
		if len(mx) > 0 {
			d.ForeignMX = storedMX(mx)
		}
		if len(mx) > 0 && d.Status == store.DomainComplete {
			d.StatusDetail = "zone_conflict: the mail records that were there before were put back, so mail goes where they say. " +
				"To bring it here again, call " + ReplaceCall(d) + "."
		}
		return errors.Join(store.Domains.Put(tx, d), core.Audit(tx, who, core.DomainTarget(d)))
	})
}

// leaveMail puts MX records of others back that were replaced before the owner said that the mail
// stays elsewhere.
func (w *zoneSync) leaveMail() error {
	isMX := func(r store.ReplacedRecord) bool { return r.Type == "MX" }
	if w.moving || w.d.MXMode() != store.MXElsewhere || !slices.ContainsFunc(w.d.Replaced, isMX) {
		return nil
	}
	mx := slices.DeleteFunc(slices.Clone(w.d.Replaced), func(r store.ReplacedRecord) bool { return !isMX(r) })
	if err := w.restore(mx); err != nil {
		return err
	}
	return w.s.Store.Update(func(tx *store.Tx) error {
		d, err := w.current(tx)
		if err != nil {
			return err
		}
		d.Replaced = slices.DeleteFunc(d.Replaced, isMX)
		w.d.Replaced = d.Replaced
		return store.Domains.Put(tx, d)
	})
}
