package dnsprov

import (
	"errors"
	"slices"

	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/spf"
)

// Fit says which of the wanted records can stand in a zone beside what strangers have there; the
// others are not to be planned for. Left out are those whose work a stranger's record does already,
// such as an SPF record that lets our host send too, and optional ones, in groups that are of use
// only whole, whose name a stranger uses. A *Conflict for each stranger's record in the place of
// one that is needed, joined; the MX of another name is in nobody's place.
func Fit(have, want []Record) ([]Record, error) {
	f := fitting{want: want}
	for _, h := range have {
		if h.Purpose == "" && !slices.ContainsFunc(want, h.Same) {
			f.strangers = append(f.strangers, h)
		}
	}
	var conflicts []error
	told := make([]bool, len(f.strangers))
	done := make([]bool, len(want))
	out := map[string]bool{}
	for i, w := range want {
		rivals := f.rivals(w)
		switch {
		case len(rivals) == 0:
		case f.serves(w, rivals):
			done[i] = true
		case !f.needed(w):
			out[group(w)] = true
		default:
			for _, at := range rivals {
				if !told[at] {
					told[at] = true
					conflicts = append(conflicts, &Conflict{Have: f.strangers[at], Want: w})
				}
			}
		}
	}
	var fits []Record
	for i, w := range want {
		if !done[i] && (f.needed(w) || !out[group(w)]) {
			fits = append(fits, w)
		}
	}
	return fits, errors.Join(conflicts...)
}

// fitting is one use of Fit.
type fitting struct {
	strangers []Record // those that say something else than every wanted record
	want      []Record
}

// rivals lists the strangers in the place of a wanted record.
func (f *fitting) rivals(w Record) []int {
	var out []int
	for i, h := range f.strangers {
		if hostName(h.Name) == hostName(w.Name) && excludes(h, w) {
			out = append(out, i)
		}
	}
	return out
}

// excludes tells whether a stranger's record cannot stay beside a wanted one at its name, or must
// not since both would count.
func excludes(h, w Record) bool {
	switch {
	case h.Type == "CNAME" || w.Type == "CNAME":
		return true
	case w.Purpose == PurposeCustom || w.Purpose == PurposeACME:
		return false
	case isAddress(w.Type):
		return isAddress(h.Type) || h.Type == Flattened // visitors must not come to one host by IPv4 and to another by IPv6
	case w.Purpose == PurposeSPF:
		return h.Type == "TXT" && spf.IsRecord(unquote(h.Value))
	case w.Purpose == PurposeDMARC:
		return h.Type == "TXT" && dmarc.IsRecord(unquote(h.Value))
	}
	return h.Type == w.Type
}

// serves tells whether the only rival does what the wanted text would.
func (f *fitting) serves(w Record, rivals []int) bool {
	if len(rivals) != 1 || w.Type != "TXT" {
		return false
	}
	h := f.strangers[rivals[0]]
	return h.Type == "TXT" && matches(w, f.want, []string{unquote(h.Value)})
}

// needed tells whether a domain is not as it was asked for without a record: what mail depends on,
// the policy, what the owner entered, and the addresses of the domain itself, at which its visitors
// are awaited.
func (f *fitting) needed(w Record) bool {
	switch w.Purpose {
	case PurposeDMARC, PurposeCustom, PurposeACME:
		return true
	case PurposeA:
		return slices.ContainsFunc(f.want, func(o Record) bool { return o.Purpose == PurposeMX && hostName(o.Name) == hostName(w.Name) })
	}
	return w.Critical
}

// group names the optional records that are of use only together.
func group(w Record) string {
	if w.Purpose == PurposeMTASTS {
		return w.Purpose
	}
	return w.Purpose + " " + hostName(w.Name)
}
