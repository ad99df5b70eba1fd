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
