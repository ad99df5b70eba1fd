package dnsprov

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/spf"
)

// authorizes reports whether the SPF record there lets our host send: before anything else is said
// of them, it passes the domain's MX, which is our host, or each address that our own record w
// names, with those of the name itself if w passes these. Whatever else it allows is the owner's
// choice.
func authorizes(there string, w Record) bool {
	record := spf.Parse(there)
	if !record.WellFormed {
		return false
	}
	var open []netip.Addr          // our addresses that no term has passed yet
	ofName, passed := false, false // the addresses of the name itself
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

// mayDeny reports whether a record refuses somebody whom only look-ups tell; that may be us.
func mayDeny(text string) bool {
	terms, _ := spf.Parse(text).Split()
	return slices.ContainsFunc(terms, func(t spf.Term) bool { return t.Asks() && t.Qualifier != '+' })
}

// mergeSPF gives one record that passes whom the records there pass, and our host as w does: there
// may be only one (RFC 7208 section 3.2). A single record that lets our host send stays as it is.
// Else what we need comes first, so that nothing denies it, then the terms there in their order,
// each once, and at the end what the owner says of everybody else. It is empty where no record of a
// sensible length would do.
func mergeSPF(there []string, w Record) string {
	if len(there) == 1 && authorizes(there[0], w) && !mayDeny(there[0]) {
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
		// Receivers would not follow them all: our host stands there by its addresses alone.
		record.Terms = slices.DeleteFunc(record.Terms, func(t spf.Term) bool { return isMX(t) && t.Value == "" && t.Lengths == "" })
		text = record.String()
	}
	if len(text) > maxText {
		return ""
	}
	return text
}

// mergedEnd is how a merged record ends. Of several owner's endings the mildest is taken, so that
// nobody loses mail by it.
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

// spfKey is the same for terms of which only the first one counts.
func spfKey(t spf.Term) string {
	switch {
	case t.Modifier():
		return t.Name + "="
	case t.Network.IsValid():
		return t.Name + ":" + t.Network.String()
	}
	return t.Name + ":" + strings.ToLower(t.Value) + t.Lengths
}
