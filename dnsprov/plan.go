package dnsprov

// Operations of a Change.
const (
	Create = "create"
	Update = "update"
	Delete = "delete"
)

// Change is one step from the records of a zone to the wanted records. Create has Want, Delete has
// Have, Update both.
type Change struct {
	Op         string
	Have, Want *Record
}

// Plan lists the changes from have to want; once they are applied, a second plan is empty. A record
// in have without a Purpose is foreign: it is adopted if it already has the wanted content, and
// otherwise never touched. Deletions come first, so that a name is free before another record is
// put there.
func Plan(have, want []Record) []Change {
	matched := make([]bool, len(have))
	open := make([]*Record, 0, len(want))
	var deletes, updates, creates []Change
	for i := range want {
		at := match(have, matched, want[i])
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
		at := replaceable(have, matched, *w)
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

// match returns the index of a record in have with the content of w, preferably one of ours, or -1.
func match(have []Record, taken []bool, w Record) int {
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

// replaceable returns the index of a record of ours with the name, type and purpose of w, or -1.
func replaceable(have []Record, taken []bool, w Record) int {
	for i, h := range have {
		if !taken[i] && h.Purpose == w.Purpose && h.Type == w.Type && hostName(h.Name) == hostName(w.Name) {
			return i
		}
	}
	return -1
}
