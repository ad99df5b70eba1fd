package rrset

import (
	"fmt"

	"github.com/mailstead/mailstead/dnsprov"
)

// An Edit is what changes in one set.
type Edit struct {
	Set  dnsprov.Set
	Want *dnsprov.Record // the first that is wanted; nil if all of ours are deleted

	There []Value          // what the set had when it was planned
	Gone  []Value          // what is deleted of it
	Stale []Value          // what is kept of it with another TTL
	Add   []Value          // what is added
	TTL   uint32           // of the set afterwards
	Made  []dnsprov.Record // what Apply returns of the set

	have, want []wish
}

// A wish is a record of a change as a value.
type wish struct {
	record dnsprov.Record
	value  Value
}

// NewEdits sorts changes by sets. It returns an error for changes that touch anything but our own
// records of the domain, whatever they were planned from, and a *dnsprov.Refused for a record that
// cannot be written.
func NewEdits(zone string, at dnsprov.ZoneRef, changes []dnsprov.Change) ([]*Edit, error) {
	var out []*Edit
	edits := map[dnsprov.Set]*Edit{}
	editOf := func(r dnsprov.Record) *Edit {
		set := dnsprov.Set{Name: r.Name, Type: r.Type}
		if edits[set] == nil {
			edits[set] = &Edit{Set: set}
			out = append(out, edits[set])
		}
		return edits[set]
	}
	for _, ch := range changes {
		h, w := ch.Have, ch.Want
		if (ch.Op != dnsprov.Create) != (h != nil) || (ch.Op != dnsprov.Delete) != (w != nil) {
			return nil, fmt.Errorf("the change %.20q is not complete", ch.Op)
		}
		if h != nil {
			rr, err := h.RR()
			if err != nil || h.Purpose == "" || h.ID != h.Key() || !ours(zone, at, *h) {
				return nil, fmt.Errorf("cannot %s %s %s, which is not a record of ours", ch.Op, h.Name, h.Type)
			}
			e := editOf(*h)
			e.have = append(e.have, wish{*h, Of(rr)})
		}
		if w != nil {
			if w.Purpose == "" || !ours(zone, at, *w) {
				return nil, fmt.Errorf("cannot %s %s %s, which does not belong to %s", ch.Op, w.Name, w.Type, at.Domain)
			}
			rr, err := w.RR()
			if err == nil && !dnsprov.RecordOf(rr).Same(*w) { // it would be made anew again and again
				err = fmt.Errorf("the value is to be written as %.80q", dnsprov.RecordOf(rr).Value)
			}
			if err != nil {
				return nil, &dnsprov.Refused{Want: *w, Err: err}
			}
			e := editOf(*w)
			if e.Want == nil {
				e.Want = w
			}
			e.want = append(e.want, wish{*w, Of(rr)})
		}
	}
	return out, nil
}

// ours reports whether a record can be of the domain. The nameservers of the zone itself never
// are.
func ours(zone string, at dnsprov.ZoneRef, r dnsprov.Record) bool {
	return dnsprov.IsWithin(r.Name, at.Domain) && (r.Type != "NS" || r.Name != zone) && r.Type != "SOA"
}

// Plan finds out what is deleted and added, now that it is known what the set has. A set with
// values of others keeps its TTL; one of ours alone gets the shortest that is wanted, but not less
// than leastTTL. The error is dnsprov.ErrChanged if a record of ours is not there any more.
func (e *Edit) Plan(there []Value, leastTTL uint32) error {
	have, want, is := map[string]bool{}, map[string]bool{}, map[string]Value{}
	for _, h := range e.have {
		have[h.value.data] = true
	}
	for i, w := range e.want {
		want[w.value.data] = true
		if i == 0 || w.record.TTL < e.TTL {
			e.TTL = w.record.TTL
		}
	}
	e.TTL = max(e.TTL, leastTTL)
	e.There = there
	for _, v := range there {
		is[v.data] = v
		if !have[v.data] { // the set is shared, and keeps its TTL
			e.TTL = v.TTL
		}
	}
	for _, h := range e.have {
		now, exists := is[h.value.data]
		switch {
		case !exists:
			return fmt.Errorf("%s %s: %w", e.Set.Name, e.Set.Type, dnsprov.ErrChanged)
		case !want[h.value.data]:
			e.Gone = append(e.Gone, now)
		}
	}
	for _, w := range e.want {
		if !want[w.value.data] { // it is wanted twice
			continue
		}
		delete(want, w.value.data)
		made := w.record
		made.ID, made.TTL, made.SetTTL, made.LeastTTL = made.Key(), e.TTL, true, leastTTL
		now, exists := is[w.value.data]
		switch {
		case !exists:
			v := w.value
			v.TTL = e.TTL
			v.RR.Header().Ttl = e.TTL
			e.Add = append(e.Add, v)
		case !have[w.value.data]:
			made.Purpose = ""
		case now.TTL != e.TTL:
			e.Stale = append(e.Stale, now)
		}
		e.Made = append(e.Made, made)
	}
	return nil
}

// isDone reports whether the set is as it shall be.
func (e *Edit) isDone() bool { return len(e.Gone)+len(e.Stale)+len(e.Add) == 0 }

// After returns the values that the set has afterwards.
func (e *Edit) After() []Value {
	var out []Value
	for _, v := range e.There {
		if !contains(e.Gone, v) {
			out = append(out, v)
		}
	}
	return append(out, e.Add...)
}

func contains(values []Value, v Value) bool {
	for _, o := range values {
		if o.Same(v) {
			return true
		}
	}
	return false
}

// Plan plans all edits. It returns those with something to do, and the wanted records that are
// there already. The error is dnsprov.ErrChanged, or a *dnsprov.Conflict if a record that stays
// excludes a wanted one at its name: no other record can be beside a CNAME.
func Plan(edits []*Edit, zone Sets, leastTTL uint32) (todo []*Edit, there []dnsprov.Record, err error) {
	for _, e := range edits {
		if err := e.Plan(zone[e.Set], leastTTL); err != nil {
			return nil, nil, err
		}
		if e.isDone() {
			there = append(there, e.Made...)
			continue
		}
		todo = append(todo, e)
	}
	return todo, there, conflict(todo, zone)
}

// conflict returns a *dnsprov.Conflict if a record of the zone that stays excludes one that is
// added.
func conflict(todo []*Edit, zone Sets) error {
	gone, atName := map[dnsprov.Set][]Value{}, map[string][]dnsprov.Set{}
	for _, e := range todo {
		gone[e.Set] = e.Gone
	}
	for set := range zone {
		atName[set.Name] = append(atName[set.Name], set)
	}
	for _, e := range todo {
		for _, set := range atName[e.Set.Name] {
			if len(e.Add) == 0 || set.Type != "CNAME" && e.Set.Type != "CNAME" {
				continue
			}
			for _, v := range zone[set] {
				if !contains(gone[set], v) {
					return &dnsprov.Conflict{Have: v.Record(set), Want: *e.Want}
				}
			}
		}
	}
	return nil
}

// Changed reports whether the zone differs from the one that the edits were planned for, so that
// they cannot be made: a set has other values, or what is added is excluded.
func Changed(todo []*Edit, zone Sets) bool {
	for _, e := range todo {
		if len(zone[e.Set]) != len(e.There) {
			return true
		}
		for _, v := range zone[e.Set] {
			if !contains(e.There, v) {
				return true
			}
		}
	}
	return conflict(todo, zone) != nil
}
