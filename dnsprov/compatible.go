package dnsprov

import (
	"errors"
	"slices"

	"github.com/mailstead/mailstead/mail/dmarc"
)

// Compatible returns the wanted records that can be added to a zone without replacing foreign
// records, for Plan. It leaves out:
//   - a record whose purpose a foreign record already serves, such as an SPF record that permits
//     our host;
//   - the DMARC policy, if there is a foreign one, whatever it says: receivers ignore a domain with
//     two policies (RFC 7489 section 6.6.3);
//   - the group of an optional record, if a foreign record conflicts with one of the group.
//
// The error joins a *Conflict for each foreign record that conflicts with a required record.
func Compatible(have, want []Record) ([]Record, error) {
	wanted := make(map[recordID]bool, len(want))
	for _, w := range want {
		wanted[w.id()] = true
	}
	var foreign []Record
	byName := map[string][]int{} // indexes of foreign
	for _, h := range have {
		if h.Purpose == "" && !wanted[h.id()] {
			byName[hostName(h.Name)] = append(byName[hostName(h.Name)], len(foreign))
			foreign = append(foreign, h)
		}
	}
	var errs []error
	reported := make([]bool, len(foreign))
	served := make([]bool, len(want))
	dropped := map[string]bool{} // keys of the groups of optional records to leave out
	for i, w := range want {
		var conflicting []int // indexes of foreign
		for _, at := range byName[hostName(w.Name)] {
			if excludes(foreign[at], w) {
				conflicting = append(conflicting, at)
			}
		}
		switch {
		case len(conflicting) == 0:
		case w.Purpose == PurposeDMARC:
			served[i] = true
		case len(conflicting) == 1 && serves(foreign[conflicting[0]], w, want):
			served[i] = true
		case !isRequired(w, want):
			dropped[groupKey(w)] = true
		default:
			for _, at := range conflicting {
				if !reported[at] {
					reported[at] = true
					errs = append(errs, &Conflict{Have: foreign[at], Want: w})
				}
			}
		}
	}
	var out []Record
	for i, w := range want {
		if !served[i] && (isRequired(w, want) || !dropped[groupKey(w)]) {
			out = append(out, w)
		}
	}
	return out, errors.Join(errs...)
}

// excludes reports whether the foreign record h conflicts with the wanted record w at the same
// name: DNS forbids both, or clients would use both.
func excludes(h, w Record) bool {
	switch {
	case h.Type == "CNAME" || w.Type == "CNAME":
		return true
	case w.Purpose == PurposeCustom || w.Purpose == PurposeACME:
		return false
	case isAddress(w.Type):
		return isAddress(h.Type) || h.Type == Flattened // or visitors would reach different hosts over IPv4 and IPv6
	case w.Purpose == PurposeSPF:
		return h.IsSPF()
	case w.Purpose == PurposeDMARC:
		return h.Type == "TXT" && dmarc.IsRecord(unquote(h.Value))
	}
	return h.Type == w.Type
}

// serves reports whether the foreign record h is a TXT record that serves the purpose of the wanted
// record w, so that w is not needed.
func serves(h, w Record, want []Record) bool {
	return w.Type == "TXT" && h.Type == "TXT" && matches(w, want, []string{unquote(h.Value)})
}

// isRequired reports whether the domain does not work as requested without the record w. These are
// the records that mail depends on, custom records, ACME challenges, and the addresses of the
// domain itself.
func isRequired(w Record, want []Record) bool {
	switch w.Purpose {
	case PurposeCustom, PurposeACME:
		return true
	case PurposeA:
		return slices.ContainsFunc(want, func(o Record) bool {
			return (o.Purpose == PurposeMX || o.Purpose == PurposeSPF && o.Critical) && hostName(o.Name) == hostName(w.Name)
		})
	}
	return w.Critical
}

// groupKey returns a key that is equal for optional records that are useful only together.
func groupKey(w Record) string {
	if w.Purpose == PurposeMTASTS {
		return w.Purpose
	}
	return w.Purpose + " " + hostName(w.Name)
}
