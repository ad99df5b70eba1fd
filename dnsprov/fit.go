package dnsprov

import "errors"

// Fit stands in until the provider's own is merged.
func Fit(have, want []Record) (fits []Record, err error) {
	var all []error
	for _, w := range want {
		c := inTheWay(have, w)
		switch {
		case c == nil || w.Purpose == PurposeCustom:
			fits = append(fits, w)
		case w.Critical || w.Purpose == PurposeDMARC:
			all = append(all, c)
		}
	}
	return fits, errors.Join(all...)
}

func inTheWay(have []Record, w Record) error {
	for _, h := range have {
		if h.Purpose != "" || hostName(h.Name) != hostName(w.Name) || h.Same(w) {
			continue
		}
		other := w.Purpose == PurposeSPF && !isSPF(unquote(h.Value)) || w.Purpose == PurposeDMARC && !isDMARC(unquote(h.Value))
		if h.Type == w.Type && !other {
			return &Conflict{h, w}
		}
	}
	return nil
}
