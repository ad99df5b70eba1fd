package dnsprov

import (
	"errors"
	"slices"

	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/spf"
)

// Compatible returns the wanted records that can be in a zone together with the foreign records
// there. Pass only these to Plan. It leaves out a record whose purpose a foreign record serves
// already, such as an SPF record that also permits our host. It also leaves out an optional record
// whose name a foreign record uses, and with it the whole group of the record. The error joins a
// *Conflict for each foreign record that excludes a required one. A foreign MX at another name is
// no conflict.
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

// excludes reports whether a foreign record cannot be at the same name as a wanted one, or must not
// be because both would apply.
func excludes(h, w Record) bool {
	switch {
	case h.Type == "CNAME" || w.Type == "CNAME":
		return true
	case w.Purpose == PurposeCustom || w.Purpose == PurposeACME:
		return false
	case isAddress(w.Type):
		return isAddress(h.Type) || h.Type == Flattened // visitors must not reach one host by IPv4 and another by IPv6
	case w.Purpose == PurposeSPF:
		return h.Type == "TXT" && spf.IsRecord(unquote(h.Value))
	case w.Purpose == PurposeDMARC:
		return h.Type == "TXT" && dmarc.IsRecord(unquote(h.Value))
	}
	return h.Type == w.Type
}

// serves reports whether a foreign TXT record serves the purpose of the wanted one.
func serves(h, w Record, want []Record) bool {
	return w.Type == "TXT" && h.Type == "TXT" && matches(w, want, []string{unquote(h.Value)})
}

// required reports whether a domain does not work as requested without a record: the records that
// mail depends on, the DMARC policy, what the owner entered, and the addresses of the domain
// itself, where its visitors are expected.
func required(w Record, want []Record) bool {
	switch w.Purpose {
	case PurposeDMARC, PurposeCustom, PurposeACME:
		return true
	case PurposeA:
		return slices.ContainsFunc(want, func(o Record) bool { return o.Purpose == PurposeMX && hostName(o.Name) == hostName(w.Name) })
	}
	return w.Critical
}

// group returns a key for optional records that are useful only together.
func group(w Record) string {
	if w.Purpose == PurposeMTASTS {
		return w.Purpose
	}
	return w.Purpose + " " + hostName(w.Name)
}
