package rfc2136

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rrset"
)

const (
	maxUpdate    = 64_000   // bytes of the records of one update; the rest of 64 KiB is for its head and signature
	maxEmptySize = 255 + 10 // bytes of a record without data: name, type, class, TTL and length (RFC 1035 section 3.2.1)
)

// Apply sends the changes in as few updates as they fit into. Each is made whole or not at all, and
// only if every set that it touches still has the values that Apply has read just before; else the
// error is dnsprov.ErrChanged. It adds and deletes single values (RFC 2136 sections 2.5.1 and
// 2.5.4). If the server refuses an update, Apply sends the sets one by one, and the error is a
// *dnsprov.Refused for the first that is refused. With an error, Apply returns the records made
// before it.
func (c *Client) Apply(ctx context.Context, at dnsprov.ZoneRef, changes []dnsprov.Change) ([]dnsprov.Record, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	zone, err := c.zone(at.Domain)
	if err != nil {
		return nil, err
	}
	edits, err := rrset.NewEdits(zone, at, changes)
	if err != nil {
		return nil, fmt.Errorf("rfc2136: %w", err)
	}
	var sets []dnsprov.Set
	for _, e := range edits {
		sets = append(sets, e.Set)
	}
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	var made []dnsprov.Record
	err = c.session(ctx, func(s *session) error {
		found, err := s.read(zone, at.Domain, sets)
		if err != nil {
			return err
		}
		steps, there, err := newSteps(edits, found)
		if err != nil {
			return err
		}
		w := &writer{session: s, zone: zone, made: there}
		err = w.write(steps)
		made = w.made
		return err
	})
	return made, err
}

// An edit is what changes in one set.
type edit struct {
	*rrset.Edit
	key  setKey
	gone []dns.RR // what is deleted
	add  []dns.RR
}

// newEdit translates an edit. Values that get another TTL are deleted and added again: Knot ignores
// another TTL of a value that is there (RFC 2136 section 3.4.2.2).
func newEdit(e *rrset.Edit) *edit {
	out := &edit{Edit: e, key: keyOfSet(e.Set), gone: rrs(e.Gone), add: rrs(e.Add)}
	for _, rr := range rrs(e.Stale) {
		again := dns.Copy(rr)
		again.Header().Ttl = e.TTL
		out.gone, out.add = append(out.gone, rr), append(out.add, again)
	}
	return out
}

func rrs(values []rrset.Value) []dns.RR {
	var out []dns.RR
	for _, v := range values {
		out = append(out, v.RR)
	}
	return out
}

// clears reports whether nothing is left of the set.
func (e *edit) clears() bool { return len(e.After()) == 0 }

// A step is the change of one set, or of several at one name that must come at once.
type step struct {
	require []dns.RR // prerequisites (RFC 2136 section 2.4)
	gone    []dns.RR
	add     []dns.RR
	want    *dnsprov.Record // the first that is wanted; nil if all are deleted
	made    []dnsprov.Record
	late    bool // it comes after all others
}

// newSteps plans the edits. found has the sets of the edits, and what else is at names that get or
// have a CNAME. A record there that excludes a wanted one is a *dnsprov.Conflict. It returns the
// wanted records that are there already too.
func newSteps(planned []*rrset.Edit, found []dns.RR) (out []*step, there []dnsprov.Record, err error) {
	sets, atName := map[setKey][]dns.RR{}, map[string][]setKey{}
	for _, rr := range found {
		k := keyOf(rr)
		if sets[k] == nil {
			atName[k.name] = append(atName[k.name], k)
		}
		sets[k] = append(sets[k], rr)
	}
	cleared := map[setKey]bool{}
	var edits []*edit
	for _, p := range planned {
		var there []rrset.Value
		for _, rr := range sets[keyOfSet(p.Set)] {
			there = append(there, rrset.Of(rr))
		}
		if err := p.Plan(there, 0); err != nil {
			return nil, nil, fmt.Errorf("rfc2136: %w", err)
		}
		e := newEdit(p)
		cleared[e.key] = e.clears()
		edits = append(edits, e)
	}
	joined := map[string]*step{} // by name: other records take the place of a CNAME
	for _, e := range edits {
		if len(e.gone)+len(e.add) == 0 {
			there = append(there, e.Made...)
			continue
		}
		alias := setKey{e.key.name, dns.TypeCNAME}
		st := &step{}
		if cleared[alias] {
			if joined[e.key.name] == nil {
				joined[e.key.name] = st
			}
			st = joined[e.key.name]
		}
		if st.made == nil && st.gone == nil {
			out = append(out, st)
		}
		if len(e.add) > 0 {
			for _, k := range atName[e.key.name] {
				excludes := e.key.typ == dns.TypeCNAME || k == alias
				if rr := e.keeps(sets[k]); excludes && !cleared[k] && rr != nil {
					return nil, nil, &dnsprov.Conflict{Have: dnsprov.RecordOf(rr), Want: *e.Want}
				}
				st.late = st.late || k != e.key && e.key.typ == dns.TypeCNAME // the server ignores a CNAME while other records are there
			}
		}
		st.include(e, cleared[alias])
	}
	slices.SortStableFunc(out, func(a, b *step) int {
		switch {
		case a.late == b.late:
			return 0
		case a.late:
			return 1
		}
		return -1
	})
	return out, there, nil
}

// keeps returns a record that is neither deleted nor added again by the edit, or nil.
func (e *edit) keeps(rrs []dns.RR) dns.RR {
	for _, rr := range rrs {
		same := func(o dns.RR) bool { return keyOf(o) == keyOf(rr) && rrset.Data(o) == rrset.Data(rr) }
		if !slices.ContainsFunc(e.gone, same) && !slices.ContainsFunc(e.add, same) {
			return rr
		}
	}
	return nil
}

// include adds an edit to the step. A set must have exactly the values that were read. A new one
// must not exist, and its name must have no CNAME, unless aliasGone says that the step deletes it.
func (st *step) include(e *edit, aliasGone bool) {
	switch {
	case len(e.There) > 0:
		for _, rr := range rrs(e.There) {
			rr = dns.Copy(rr)
			rr.Header().Class, rr.Header().Ttl = dns.ClassINET, 0
			st.require = append(st.require, rr)
		}
	case e.key.typ == dns.TypeCNAME:
		st.require = append(st.require, setKey{e.key.name, dns.TypeANY}.empty(dns.ClassNONE))
	default:
		st.require = append(st.require, e.key.empty(dns.ClassNONE))
		if !aliasGone {
			st.require = append(st.require, setKey{e.key.name, dns.TypeCNAME}.empty(dns.ClassNONE))
		}
	}
	for _, rr := range e.gone {
		rr = dns.Copy(rr)
		rr.Header().Class, rr.Header().Ttl = dns.ClassNONE, 0
		st.gone = append(st.gone, rr)
	}
	st.add = append(st.add, e.add...)
	st.made = append(st.made, e.Made...)
	if st.want == nil {
		st.want = e.Want
	}
}

// size returns the number of bytes of the step's records, without compression.
func (st *step) size() int {
	n := 0
	for _, rr := range slices.Concat(st.require, st.gone, st.add) {
		n += dns.Len(rr)
	}
	return n
}

// A writer sends the steps of one Apply.
type writer struct {
	*session
	zone string
	made []dnsprov.Record
	done bool // the server has taken an update
}

func (w *writer) write(steps []*step) error {
	for len(steps) > 0 {
		n, size := 1, steps[0].size()
		if size > maxUpdate {
			return w.refused(steps[0], fmt.Errorf("rfc2136: a set of %d bytes is too large for an update", size))
		}
		for n < len(steps) && steps[n].late == steps[0].late && size+steps[n].size() <= maxUpdate {
			size += steps[n].size()
			n++
		}
		if err := w.send(steps[:n]); err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

// send sends steps as one update, or one by one if the server refuses that.
func (w *writer) send(steps []*step) error {
	m := newUpdate(w.zone)
	for _, st := range steps {
		m.Answer = append(m.Answer, st.require...)
		m.Ns = slices.Concat(m.Ns, st.gone, st.add)
	}
	err := w.exchange(w.zone, m)
	var no *refusal
	switch {
	case err == nil:
		for _, st := range steps {
			w.made = append(w.made, st.made...)
		}
		w.done = true
		return nil
	case !errors.As(err, &no) || no.unsigned || no.code != dns.RcodeRefused && no.code != dns.RcodeFormatError:
		return err
	case len(steps) > 1:
		for _, st := range steps {
			if err := w.send([]*step{st}); err != nil {
				return err
			}
		}
		return nil
	case !w.done:
		if err := w.try(w.zone); err != nil { // then it is not because of the records
			return err
		}
	}
	no.ofRecord = true
	return w.refused(steps[0], no)
}

// refused returns the error for a step that cannot be made.
func (w *writer) refused(st *step, err error) error {
	if st.want == nil {
		return err
	}
	return &dnsprov.Refused{Want: *st.want, Err: err}
}
