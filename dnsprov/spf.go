package dnsprov

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/spf"
)

// authorizes reports whether an SPF record lets our host send. w is the record that we want. The
// existing record must pass our host before it says anything else about it: by the domain's MX,
// which is our host, or by each address in w. If w passes the addresses of the name itself, the
// record must pass these too. Everything else in the record is the owner's choice.
func authorizes(there string, w Record) bool {
	record := spf.Parse(there)
	if !record.WellFormed {
		return false
	}
	var open []netip.Addr          // our addresses that no term has passed yet
	ofName, passed := false, false // whether w names the name's own addresses, and whether the record passes them
	for _, t := range spf.Parse(w.Value).Terms {
		if t.Network.IsValid() {
			open = append(open, t.Network.Addr())
		}
		ofName = ofName || t.Name == "a" && t.Value == ""
	}
	named := len(open) > 0 || ofName
	all := func() bool { return named && len(open) == 0 && (passed || !ofName) }
	terms, end := record.Split()
	for _, t := range terms {
		if all() {
			return true
		}
		if ofName && t.Name == "a" && !t.Modifier() && (t.Value == "" || hostName(t.Value) == w.Name) {
			if t.Qualifier != '+' {
				return false
			}
			passed = true
			continue
		}
		if !ofName && isMX(t) && (t.Value == "" || hostName(t.Value) == w.Name) {
			return t.Qualifier == '+'
		}
		count := len(open)
		open = slices.DeleteFunc(open, func(ip netip.Addr) bool { return t.Network.IsValid() && t.Network.Contains(ip) })
		if len(open) < count && t.Qualifier != '+' {
			return false
		}
	}
	return end.Name == "all" && end.Qualifier == '+' || all()
}

func isMX(t spf.Term) bool { return t.Name == "mx" && !t.Modifier() }

// mayDenyOurHost reports whether a record refuses hosts that only lookups determine; ours may be
// one of them.
func mayDenyOurHost(text string) bool {
	terms, _ := spf.Parse(text).Split()
	return slices.ContainsFunc(terms, func(t spf.Term) bool { return t.Asks() && t.Qualifier != '+' })
}

// mergeSPF returns one record that passes what the existing records pass, and our host as w does,
// since there may be only one record (RFC 7208 section 3.2). A single record that already lets our
// host send is returned unchanged. Otherwise our terms come first, so that nothing denies them,
// then the existing terms in order, without duplicates, and at the end the owner's verdict on
// everybody else. The result is empty if the record would be too long.
func mergeSPF(there []string, w Record) string {
	if len(there) == 1 && authorizes(there[0], w) && !mayDenyOurHost(there[0]) {
		return there[0]
	}
	var merged []spf.Term
	seen := map[string]bool{}
	add := func(terms ...spf.Term) {
		for _, t := range terms {
			if key := spfKey(t); !seen[key] {
				seen[key] = true
				merged = append(merged, t)
			}
		}
	}
	ours, ourEnd := spf.Parse(w.Value).Split()
	add(ours...)
	var owners [][]spf.Term
	var ends []spf.Term
	for _, text := range there {
		terms, end := spf.Parse(text).Split()
		isOurs := end == ourEnd && !slices.ContainsFunc(terms, func(t spf.Term) bool { return !seen[spfKey(t)] })
		if len(there) == 1 || !isOurs {
			owners, ends = append(owners, terms), append(ends, end)
		}
	}
	for i, terms := range owners {
		add(terms...)
		if ends[i].Name == "redirect" && len(owners) > 1 {
			add(spf.Term{Qualifier: '+', Name: "include", Value: ends[i].Value})
		}
	}
	record := spf.Record{Terms: append(merged, mergedEnd(ends, ourEnd))}
	text := record.String()
	if spf.Lookups(text) > spf.MaxLookups && slices.ContainsFunc(ours, func(t spf.Term) bool { return t.Network.IsValid() }) {
		// Receivers would stop before the last lookup, so name our host only by its addresses.
		record.Terms = slices.DeleteFunc(record.Terms, func(t spf.Term) bool { return isMX(t) && t.Value == "" && t.Lengths == "" })
		text = record.String()
	}
	if len(text) > maxText {
		return ""
	}
	return text
}

// mergedEnd returns the end of a merged record. Of several ends it takes the mildest, so that
// nobody loses mail.
func mergedEnd(ends []spf.Term, ours spf.Term) spf.Term {
	if len(ends) == 1 && ends[0].Name == "redirect" {
		return ends[0]
	}
	const mildest = "+?~-"
	out := spf.Term{}
	for _, end := range ends {
		if end.Name == "all" && (out.Name == "" || strings.IndexByte(mildest, end.Qualifier) < strings.IndexByte(mildest, out.Qualifier)) {
			out = end
		}
	}
	if out.Name == "" {
		return ours
	}
	return out
}

// spfKey returns a key that is equal for terms of which only the first has an effect.
func spfKey(t spf.Term) string {
	switch {
	case t.Modifier():
		return t.Name + "="
	case t.Network.IsValid():
		return t.Name + ":" + t.Network.String()
	}
	return t.Name + ":" + strings.ToLower(t.Value) + t.Lengths
}
