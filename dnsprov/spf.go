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

// IsSPF reports whether a record is an SPF record.
func (r Record) IsSPF() bool { return r.Type == "TXT" && spf.IsRecord(unquote(r.Value)) }

func isMX(t spf.Term) bool { return t.Name == "mx" && !t.IsModifier() }

// mayDenyOurHost reports whether an SPF record has a term that denies hosts and needs lookups. Such
// a term may deny our host.
func mayDenyOurHost(text string) bool {
	terms, _ := spf.Parse(text).Split()
	return slices.ContainsFunc(terms, func(t spf.Term) bool { return t.NeedsLookup() && t.Qualifier != '+' })
}

// MergeSPF returns one SPF record that permits everything that the published records permit, and
// our host as w does. A domain may have only one SPF record (RFC 7208 section 3.2). The merged
// record is that of spf.Combine. MergeSPF returns a single published record unchanged if that
// permits our host, and "" if the merged record is too long.
func MergeSPF(published []string, w Record) string {
	if len(published) == 1 && authorizes(published[0], w) && !mayDenyOurHost(published[0]) {
		return published[0]
	}
	ours := spf.Parse(w.Value)
	terms, end := ours.Split()
	isOther := func(t spf.Term) bool {
		return !slices.ContainsFunc(terms, func(o spf.Term) bool { return o.Key() == t.Key() })
	}
	var others []spf.Record
	for _, text := range published {
		record := spf.Parse(text)
		theirs, theirEnd := record.Split()
		if len(published) == 1 || theirEnd != end || slices.ContainsFunc(theirs, isOther) { // it is not one of ours
			others = append(others, record)
		}
	}
	text := fewLookups(spf.Combine(ours, others), terms)
	if len(text) > maxText {
		return ""
	}
	return text
}

// fewLookups returns the text of an SPF record. If it would need more lookups than receivers make,
// it permits our host by the addresses among our terms alone.
func fewLookups(record spf.Record, ours []spf.Term) string {
	text := record.String()
	hasAddress := slices.ContainsFunc(ours, func(t spf.Term) bool { return t.Network.IsValid() })
	if !hasAddress || spf.Lookups(text) <= spf.MaxLookups {
		return text
	}
	record.Terms = slices.DeleteFunc(record.Terms, func(t spf.Term) bool { return t.String() == "mx" })
	return record.String()
}

// SPFText returns the SPF record of a domain with our terms, then those of the owner, and then all
// with a qualifier. That is "~" by default, because with "-" some receivers refuse forwarded mail
// before they check DKIM. A redirect of the owner takes the place of all. If the record would need
// more lookups than receivers make, it permits our host by address alone.
func SPFText(ours, extra []string, all string) string {
	ourTerms := spf.Parse("v=spf1 " + strings.Join(ours, " ")).Terms
	terms := slices.Clone(ourTerms)
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
	return fewLookups(spf.Record{Terms: append(terms, end)}, ourTerms)
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
