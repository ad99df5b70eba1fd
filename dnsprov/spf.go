package dnsprov

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/spf"
)

// authorizes reports whether the published SPF record permits our host, as the wanted record w
// does. It must permit our host by the mechanism mx of the domain, or by each address in w, and no
// earlier term may deny our host. If w has the mechanism a, the record must permit the addresses of
// the name too. Other terms do not matter.
func authorizes(published string, w Record) bool {
	record := spf.Parse(published)
	if !record.WellFormed {
		return false
	}
	var open []netip.Addr        // our addresses that no term has permitted yet
	wantsA, hasA := false, false // whether w has the mechanism a, and whether the record has it
	for _, t := range spf.Parse(w.Value).Terms {
		if t.Network.IsValid() {
			open = append(open, t.Network.Addr())
		}
		wantsA = wantsA || t.Name == "a" && t.Value == ""
	}
	hasHost := len(open) > 0 || wantsA
	permitted := func() bool { return hasHost && len(open) == 0 && (hasA || !wantsA) }
	terms, end := record.Split()
	for _, t := range terms {
		if permitted() {
			return true
		}
		if wantsA && t.Name == "a" && !t.IsModifier() && (t.Value == "" || hostName(t.Value) == w.Name) {
			if t.Qualifier != '+' {
				return false
			}
			hasA = true
			continue
		}
		if !wantsA && isMX(t) && (t.Value == "" || hostName(t.Value) == w.Name) {
			return t.Qualifier == '+'
		}
		count := len(open)
		open = slices.DeleteFunc(open, func(ip netip.Addr) bool { return t.Network.IsValid() && t.Network.Contains(ip) })
		if len(open) < count && t.Qualifier != '+' {
			return false
		}
	}
	return end.Name == "all" && end.Qualifier == '+' || permitted()
}

func isMX(t spf.Term) bool { return t.Name == "mx" && !t.IsModifier() }

// mayDenyOurHost reports whether an SPF record has a term that denies hosts and needs lookups. Such
// a term may deny our host.
func mayDenyOurHost(text string) bool {
	terms, _ := spf.Parse(text).Split()
	return slices.ContainsFunc(terms, func(t spf.Term) bool { return t.NeedsLookup() && t.Qualifier != '+' })
}

// MergeSPF returns one SPF record that permits everything that the published records permit, and
// our host as w does. A domain may have only one SPF record (RFC 7208 section 3.2). The merged
// record has our terms first, then the published terms without duplicates, and then the published
// "all" or "redirect". MergeSPF returns a single published record unchanged if that permits our
// host, and "" if the merged record is too long.
func MergeSPF(published []string, w Record) string {
	if len(published) == 1 && authorizes(published[0], w) && !mayDenyOurHost(published[0]) {
		return published[0]
	}
	var merged []spf.Term
	seen := map[string]bool{}
	add := func(terms ...spf.Term) {
		for _, t := range terms {
			if key := t.Key(); !seen[key] {
				seen[key] = true
				merged = append(merged, t)
			}
		}
	}
	ours, ourEnd := spf.Parse(w.Value).Split()
	add(ours...)
	var owners [][]spf.Term
	var ends []spf.Term
	for _, text := range published {
		terms, end := spf.Parse(text).Split()
		isOurs := end == ourEnd && !slices.ContainsFunc(terms, func(t spf.Term) bool { return !seen[t.Key()] })
		if len(published) == 1 || !isOurs {
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
		// Receivers reject a record that needs too many lookups, so permit our host only by its
		// addresses.
		record.Terms = slices.DeleteFunc(record.Terms, func(t spf.Term) bool { return isMX(t) && t.Value == "" && t.Lengths == "" })
		text = record.String()
	}
	if len(text) > maxText {
		return ""
	}
	return text
}

// mergedEnd returns the last term of a merged record: "redirect" if that is the only end, or else
// the "all" with the mildest qualifier, so that no mail is refused that one of the records permits.
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

// SPFText returns the SPF record of a domain with our terms, then those of the owner, and then all
// with a qualifier. That is "~" by default, because with "-" some receivers refuse forwarded mail
// before they check DKIM. A redirect of the owner takes the place of all. If the record would need
// more look-ups than receivers make, it permits our host by address alone.
func SPFText(ours, extra []string, all string) string {
	terms := spf.Parse("v=spf1 " + strings.Join(ours, " ")).Terms
	hasAddress := slices.ContainsFunc(terms, func(t spf.Term) bool { return t.Network.IsValid() })
	end := spf.Term{Qualifier: '~', Name: "all"}
	if all != "" {
		end.Qualifier = all[0]
	}
	for _, t := range spf.Parse("v=spf1 " + strings.Join(extra, " ")).Terms {
		isSame := func(o spf.Term) bool { return o.String() == t.String() }
		switch {
		case t.Name == "redirect" && t.IsModifier():
			end = t
		case !slices.ContainsFunc(terms, isSame):
			terms = append(terms, t)
		}
	}
	record := spf.Record{Terms: append(terms, end)}
	if text := record.String(); !hasAddress || spf.Lookups(text) <= spf.MaxLookups {
		return text
	}
	record.Terms = slices.DeleteFunc(record.Terms, func(t spf.Term) bool { return t.String() == "mx" })
	return record.String()
}

// OwnersSPF returns the part of a merged SPF record that is its owner's: the terms that are not
// among ours, in order, with a redirect at the end, and the qualifier of all. That is "-" or "~":
// an owner's +all would permit everybody, and with ?all the record would say nothing about others,
// so both become ~all.
func OwnersSPF(merged string, ours []string) (extra []string, all string) {
	terms, end := spf.Parse(merged).Split()
	for _, t := range terms {
		if text := t.String(); !slices.Contains(ours, text) {
			extra = append(extra, text)
		}
	}
	if end.Name == "redirect" {
		extra = append(extra, end.String())
	}
	if end.Name == "all" && end.Qualifier == '-' {
		return extra, "-"
	}
	return extra, "~"
}

// LooseEnd returns the last term of an SPF record if OwnersSPF does not keep it: ?all or +all. It
// returns "" for other records.
func LooseEnd(text string) string {
	_, end := spf.Parse(text).Split()
	if end.Name == "all" && (end.Qualifier == '?' || end.Qualifier == '+') {
		return string(end.Qualifier) + "all"
	}
	return ""
}
