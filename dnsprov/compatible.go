package dnsprov

import (
	"errors"
	"slices"

	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/spf"
)

// Compatible gives the wanted records that can stand in a zone beside the foreign ones there; only
// those are to be planned for. It leaves out records whose work a foreign one does already, such as
// an SPF record that lets our host send too. It also leaves out optional records whose name a
// foreign one uses, with their whole group, which is of no use in part. The error joins a *Conflict
// for each foreign record that excludes a required one; the MX of another name excludes none.
func Compatible(have, want []Record) ([]Record, error) {
	var foreign []Record
	for _, h := range have {
		if h.Purpose == "" && !slices.ContainsFunc(want, h.Same) {
			foreign = append(foreign, h)
		}
	}
	var errs []error
	reported := make([]bool, len(foreign))
	served := make([]bool, len(want))
	dropped := map[string]bool{} // groups of optional records
	for i, w := range want {
		var conflicting []int // of foreign
		for at, h := range foreign {
			if hostName(h.Name) == hostName(w.Name) && excludes(h, w) {
				conflicting = append(conflicting, at)
			}
		}
		switch {
		case len(conflicting) == 0:
		case len(conflicting) == 1 && serves(foreign[conflicting[0]], w, want):
			served[i] = true
		case !required(w, want):
			dropped[group(w)] = true
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
		if !served[i] && (required(w, want) || !dropped[group(w)]) {
			out = append(out, w)
		}
	}
	return out, errors.Join(errs...)
}

// excludes reports whether a foreign record cannot stay beside a wanted one at its name, or must
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

// serves reports whether a foreign text does what the wanted one would.
func serves(h, w Record, want []Record) bool {
	return w.Type == "TXT" && h.Type == "TXT" && matches(w, want, []string{unquote(h.Value)})
}

// required reports whether a domain is not as it was asked for without a record: what mail depends
// on, the policy, what the owner entered, and the addresses of the domain itself, at which its
// visitors are expected.
func required(w Record, want []Record) bool {
	switch w.Purpose {
	case PurposeDMARC, PurposeCustom, PurposeACME:
		return true
	case PurposeA:
		return slices.ContainsFunc(want, func(o Record) bool { return o.Purpose == PurposeMX && hostName(o.Name) == hostName(w.Name) })
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
