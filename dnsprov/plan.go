package dnsprov

import "slices"

// Operations of a Change.
const (
	Create = "create"
	Update = "update"
	Delete = "delete"
)

// Change is one change of a record in a zone.
type Change struct {
	Op   string  // Create, Update or Delete
	Have *Record // the present record; nil for Create
	Want *Record // the new record; nil for Delete
}

// Plan returns the changes that turn the records have of a zone into want. Once they are applied, a
// second plan is empty. A record in have without a Purpose is foreign: Plan adopts it if it has the
// wanted content, and never changes it otherwise. Deletions come first, so that a name is free
// before a record is created there. If the provider has one TTL for a whole set, the TTL of foreign
// records stays.
func Plan(have, want []Record) []Change {
	want = withSetTTLs(have, want)
	matched := make([]bool, len(have))
	open := make([]*Record, 0, len(want))
	var deletes, updates, creates []Change
	for i := range want {
		at := findSame(have, matched, want[i])
		if at < 0 {
			open = append(open, &want[i])
			continue
		}
		matched[at] = true
		if have[at].Purpose != "" && have[at].TTL != want[i].TTL {
			updates = append(updates, Change{Op: Update, Have: &have[at], Want: &want[i]})
		}
	}
	for _, w := range open {
		at := findReplaceable(have, matched, *w)
		if at < 0 {
			creates = append(creates, Change{Op: Create, Want: w})
			continue
		}
		matched[at] = true
		updates = append(updates, Change{Op: Update, Have: &have[at], Want: w})
	}
	for i := range have {
		if !matched[i] && have[i].Purpose != "" {
			deletes = append(deletes, Change{Op: Delete, Have: &have[i]})
		}
	}
	return append(append(deletes, updates...), creates...)
}

// withSetTTLs returns the wanted records with the TTLs that they get from a provider with one TTL
// for each set (RFC 2181 section 5.2): the TTL of the foreign records in the set, or else the
// shortest TTL that is wanted there and permitted by the provider.
func withSetTTLs(have, want []Record) []Record {
	if !slices.ContainsFunc(have, func(h Record) bool { return h.SetTTL }) {
		return want
	}
	foreign, shortest := map[Set]uint32{}, map[Set]uint32{}
	least := uint32(0)
	for _, h := range have {
		least = max(least, h.LeastTTL)
		if h.Purpose == "" {
			foreign[h.set()] = h.TTL
		}
	}
	for _, w := range want {
		ttl, seen := shortest[w.set()]
		if !seen || w.TTL < ttl {
			shortest[w.set()] = w.TTL
		}
	}
	out := slices.Clone(want)
	for i, w := range out {
		ttl, shared := foreign[w.set()]
		if !shared {
			ttl = max(shortest[w.set()], least)
		}
		out[i].TTL = ttl
	}
	return out
}

// set returns the set that the record belongs to.
func (r Record) set() Set { return Set{Name: hostName(r.Name), Type: r.Type} }

// findSame returns the index of a record in have that publishes the same data as w, or -1. It
// prefers a record that is not foreign, and skips records that are taken.
func findSame(have []Record, taken []bool, w Record) int {
	found := -1
	for i, h := range have {
		if taken[i] || !h.Same(w) {
			continue
		}
		if h.Purpose != "" {
			return i
		}
		if found < 0 {
			found = i
		}
	}
	return found
}

// findReplaceable returns the index of a record in have with the name, type and purpose of w, or
// -1. An update can turn that record into w.
func findReplaceable(have []Record, taken []bool, w Record) int {
	for i, h := range have {
		if !taken[i] && h.Purpose == w.Purpose && h.Type == w.Type && hostName(h.Name) == hostName(w.Name) {
			return i
		}
	}
	return -1
}
