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
	same := map[recordID][]int{}    // indexes of have that are not matched; foreign records come last
	replaceable := map[role][]int{} // the same; an update can turn these records into others of their role
	for _, foreign := range []bool{false, true} {
		for i, h := range have {
			if (h.Purpose == "") == foreign {
				same[h.id()] = append(same[h.id()], i)
			}
		}
	}
	matched := make([]bool, len(have))
	open := make([]*Record, 0, len(want))
	var deletes, updates, creates []Change
	for i := range want {
		found := same[want[i].id()]
		if len(found) == 0 {
			open = append(open, &want[i])
			continue
		}
		at := found[0]
		same[want[i].id()] = found[1:]
		matched[at] = true
		if have[at].Purpose != "" && have[at].TTL != want[i].TTL {
			updates = append(updates, Change{Op: Update, Have: &have[at], Want: &want[i]})
		}
	}
	for i, h := range have {
		if !matched[i] && h.Purpose != "" {
			replaceable[h.role()] = append(replaceable[h.role()], i)
		}
	}
	for _, w := range open {
		found := replaceable[w.role()]
		if len(found) == 0 {
			creates = append(creates, Change{Op: Create, Want: w})
			continue
		}
		at := found[0]
		replaceable[w.role()] = found[1:]
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

// role returns the name, type and purpose of the record. An update can turn a record into another
// with the same role.
func (r Record) role() role { return role{r.set(), r.Purpose} }

type role struct {
	set     Set
	purpose string
}
