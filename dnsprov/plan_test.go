package dnsprov

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// apply changes a zone as a provider would.
func apply(have []Record, changes []Change) []Record {
	out := slices.Clone(have)
	for _, c := range changes {
		if c.Have != nil {
			at := slices.Index(out, *c.Have)
			out = slices.Delete(out, at, at+1)
		}
		if c.Want != nil {
			out = append(out, *c.Want)
		}
	}
	return out
}

func ops(changes []Change) []string {
	var out []string
	for _, c := range changes {
		line := c.Op
		if c.Have != nil {
			line += " " + c.Have.Type + " " + c.Have.Value
		}
		if c.Want != nil {
			line += " → " + c.Want.Type + " " + c.Want.Value
		}
		out = append(out, line)
	}
	return out
}

func TestPlan(t *testing.T) {
	mx := Record{Name: "a.test", Type: "MX", Value: "mail.test", Priority: 10, TTL: 300, Purpose: PurposeMX}
	with := func(change func(*Record)) Record { r := mx; change(&r); return r }
	spf := Record{Name: "a.test", Type: "TXT", Value: "v=spf1 mx ~all", TTL: 300, Purpose: PurposeSPF}
	for _, tc := range []struct {
		name       string
		have, want []Record
		ops        []string
	}{
		{"nothing to do", []Record{mx}, []Record{mx}, nil},
		{"create", nil, []Record{mx}, []string{"create → MX mail.test"}},
		{"update in place", []Record{with(func(r *Record) { r.Value = "old.test" })}, []Record{mx}, []string{"update MX old.test → MX mail.test"}},
		{"a priority is part of the record", []Record{with(func(r *Record) { r.Priority = 20 })}, []Record{mx}, []string{"update MX mail.test → MX mail.test"}},
		{"TTL of ours", []Record{with(func(r *Record) { r.TTL = 60 })}, []Record{mx}, []string{"update MX mail.test → MX mail.test"}},
		{"delete", []Record{mx}, nil, []string{"delete MX mail.test"}},
		{"a stranger's identical record is adopted", []Record{with(func(r *Record) { r.Purpose, r.TTL = "", 60 })}, []Record{mx}, nil},
		{"a stranger's other record stays", []Record{with(func(r *Record) { r.Purpose, r.Value = "", "theirs.test" })}, []Record{mx}, []string{"create → MX mail.test"}},
		{"a stranger's record is not deleted", []Record{with(func(r *Record) { r.Purpose = "" })}, nil, nil},
		{"letter case and final dots", []Record{with(func(r *Record) { r.Name, r.Value = "A.test.", "Mail.Test." })}, []Record{mx}, nil},
		{"quotes", []Record{func() Record { r := spf; r.Value = `"v=spf1 mx" " ~all"`; return r }()}, []Record{spf}, nil},
		{"SPF does not replace the owner's text", []Record{{Name: "a.test", Type: "TXT", Value: "note", Purpose: PurposeCustom}}, []Record{spf},
			[]string{"delete TXT note", "create → TXT v=spf1 mx ~all"}},
		{"ours before the stranger's twin", []Record{with(func(r *Record) { r.Purpose = "" }), mx}, []Record{mx}, nil},
	} {
		if got := ops(Plan(tc.have, tc.want)); !slices.Equal(got, tc.ops) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.ops)
		}
	}
}

// TestPlanConverges plans between random zones: afterwards all wanted records exist, foreign
// records are unchanged, no other records are left, and a second plan is empty.
func TestPlanConverges(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	purposes := []string{"", PurposeMX, PurposeSPF, PurposeCustom}
	zone := func(foreign bool) []Record {
		var out []Record
		for range rnd.IntN(6) {
			p := purposes[rnd.IntN(len(purposes))]
			if p == "" && !foreign {
				p = PurposeCustom
			}
			r := Record{Name: fmt.Sprint("n", rnd.IntN(2)), Type: "TXT", Value: fmt.Sprint(rnd.IntN(3)), TTL: uint32(rnd.IntN(2)), Purpose: p}
			if !slices.ContainsFunc(out, r.Same) {
				out = append(out, r)
			}
		}
		return out
	}
	for range 5000 {
		have, want := zone(true), zone(false)
		after := apply(have, Plan(have, want))
		if again := Plan(after, want); len(again) != 0 {
			t.Fatalf("have %v want %v: a second plan has %q", have, want, ops(again))
		}
		for _, h := range have {
			if h.Purpose == "" && !slices.Contains(after, h) {
				t.Fatalf("have %v want %v: %v is gone", have, want, h)
			}
		}
		for _, w := range want {
			if !slices.ContainsFunc(after, w.Same) {
				t.Fatalf("have %v want %v: %v is not there", have, want, w)
			}
		}
		for _, a := range after {
			if a.Purpose != "" && !slices.ContainsFunc(want, a.Same) {
				t.Fatalf("have %v want %v: %v was left", have, want, a)
			}
		}
	}
}

// applySets changes a zone as a provider would that has one TTL for each set: the TTL of a set of
// which all records are named in the changes is the least that is wanted, else it stays.
func applySets(have []Record, changes []Change) []Record {
	out := apply(have, changes)
	for i, r := range out {
		named, least, there := true, uint32(1<<31), uint32(0)
		for _, h := range have {
			if h.set() == r.set() {
				there = h.TTL
				named = named && slices.ContainsFunc(changes, func(c Change) bool { return c.Have != nil && *c.Have == h })
			}
		}
		for _, c := range changes {
			if c.Want != nil && c.Want.set() == r.set() {
				least = min(least, c.Want.TTL)
			}
		}
		out[i].TTL, out[i].SetTTL = least, true
		if !named {
			out[i].TTL = there
		}
	}
	return out
}

// TestPlanConvergesWithTTLsOfSets is TestPlanConverges for providers that have one TTL for each
// set: foreign records keep it, and among ours the least that is wanted counts.
func TestPlanConvergesWithTTLsOfSets(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	draw := func(purpose string) Record {
		return Record{Name: fmt.Sprint("n", rnd.IntN(2)), Type: "TXT", Value: fmt.Sprint(rnd.IntN(4)), TTL: uint32(1 + rnd.IntN(3)), Purpose: purpose}
	}
	for range 5000 {
		var have, want []Record
		for range rnd.IntN(5) {
			r := draw("")
			r.TTL, r.SetTTL = 9, true
			if rnd.IntN(2) == 0 {
				r.Name, r.TTL, r.Purpose = "ours", 5, PurposeCustom
			}
			if !slices.ContainsFunc(have, r.Same) {
				have = append(have, r)
			}
		}
		for range rnd.IntN(5) {
			r := draw(PurposeCustom)
			if rnd.IntN(2) == 0 {
				r.Name = "ours"
			}
			if !slices.ContainsFunc(want, r.Same) {
				want = append(want, r)
			}
		}
		after := applySets(have, Plan(have, want))
		if again := Plan(after, want); len(again) != 0 {
			t.Fatalf("have %v want %v: a second plan has %q", have, want, ops(again))
		}
		for _, h := range have {
			if h.Purpose == "" && !slices.Contains(after, h) {
				t.Fatalf("have %v want %v: %v is gone", have, want, h)
			}
		}
		for _, a := range after {
			if a.Name == "ours" && a.TTL > 3 {
				t.Fatalf("have %v want %v: %v keeps its TTL", have, want, a)
			}
		}
	}
}

// TestPlanKnowsTheLeastTTL: what the provider does not permit is not wanted again and again.
func TestPlanKnowsTheLeastTTL(t *testing.T) {
	have := Record{Name: "a.test", Type: "TXT", Value: "ours", TTL: 3600, Purpose: PurposeCustom, SetTTL: true, LeastTTL: 3600}
	for wanted, want := range map[uint32]int{60: 0, 3600: 0, 7200: 1} {
		if changes := Plan([]Record{have}, []Record{{Name: "a.test", Type: "TXT", Value: "ours", TTL: wanted, Purpose: PurposeCustom}}); len(changes) != want {
			t.Errorf("TTL %d: %q", wanted, ops(changes))
		}
	}
}

// TestPlanOfLargeZones: the time of a plan grows with the number of records, not with its square.
// Here a plan of pairs would take minutes.
func TestPlanOfLargeZones(t *testing.T) {
	const count = 50_000
	zone := func(purpose string, ttl uint32) []Record {
		out := make([]Record, count)
		for i := range out {
			out[i] = Record{Name: fmt.Sprintf("h%d.a.test", i/2), Type: "A", Value: fmt.Sprintf("192.0.%d.%d", i/250%250, i%250), TTL: ttl, Purpose: purpose}
		}
		return out
	}
	ours := zone(PurposeCustom, 300)
	other := zone(PurposeCustom, 300)
	for i := range other {
		other[i].Value = "198.51.100.1"
		if i%2 == 1 {
			other[i].Value = "198.51.100.2"
		}
	}
	for _, tc := range []struct {
		about      string
		have, want []Record
		changes    int
	}{
		{"the same", ours, ours, 0},
		{"new TTLs", zone(PurposeCustom, 60), ours, count},
		{"other values", other, ours, count},
		{"all new", nil, ours, count},
		{"all gone", ours, nil, count},
		{"beside strangers", zone("", 60), ours, 0},
	} {
		if got := len(Plan(tc.have, tc.want)); got != tc.changes {
			t.Errorf("%s: %d changes, want %d", tc.about, got, tc.changes)
		}
		if fits, err := Compatible(tc.have, tc.want); err != nil || len(fits) != len(tc.want) {
			t.Errorf("%s: %d of %d fit, %v", tc.about, len(fits), len(tc.want), err)
		}
	}
}
