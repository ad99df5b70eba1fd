package spf

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/lookup"
)

// Limits of one Merge.
const (
	maxMergeNames = 60               // names whose records are looked up
	mergeTimeout  = 20 * time.Second // for all lookups
)

// Resolver looks up TXT records. Callers add a trailing dot to names.
type Resolver interface {
	LookupTXT(ctx context.Context, name string) ([]string, error)
}

// Merged is one SPF record made of several.
type Merged struct {
	Text    string
	Lookups map[string]int // how many lookups each term needs, with those of the records that it includes
}

// TooManyLookups is the error that receivers would refuse a record, because it needs more than
// MaxLookups lookups (RFC 7208 section 4.6.4).
type TooManyLookups struct {
	Lookups map[string]int // as in Merged
}

func (e *TooManyLookups) Error() string {
	total, terms := 0, make([]string, 0, len(e.Lookups))
	for _, term := range slices.Sorted(maps.Keys(e.Lookups)) {
		total += e.Lookups[term]
		terms = append(terms, fmt.Sprintf("%s needs %d", term, e.Lookups[term]))
	}
	return fmt.Sprintf("the SPF record needs %d DNS lookups, and receivers make at most %d: %s", total, MaxLookups, strings.Join(terms, ", "))
}

// Merge returns one SPF record that permits what ours permits and what the present records of the
// domain permit. ours are the terms of our record, in order; old are the texts of the present TXT
// records, of which it uses the SPF records. mxHosts are the hosts of the present MX records.
//
// It is that of Combine, but with a mechanism mx of the domain itself replaced by an a for each of
// mxHosts, because its MX records are about to change. Malformed terms are left out.
//
// Merge counts the lookups of the record with those of included records. It returns
// *TooManyLookups if they are more than MaxLookups, and another error if it cannot count them: if a
// lookup fails, or they take more than 20 seconds. A term with a macro that depends on the message
// counts as one lookup. It looks up at most 60 names.
func Merge(ctx context.Context, r Resolver, domain string, ours, old, mxHosts []string) (Merged, error) {
	var present []Record
	for _, text := range old {
		if IsRecord(text) {
			present = append(present, Record{Terms: replaceMX(Parse(text).Terms, domain, mxHosts)})
		}
	}
	record := Combine(Parse("v=spf1 "+strings.Join(ours, " ")), present)
	lookups, err := countLookups(ctx, r, domain, record)
	if err != nil {
		return Merged{}, err
	}
	return Merged{Text: record.String(), Lookups: lookups}, nil
}

// Combine returns one record that permits what ours and the others permit: our terms first, then
// theirs in order without duplicates, then their ending. A redirect stays the ending if there is
// one other record; of several records it becomes an include, and the ending is the mildest of
// their all, so that no mail is refused that one of the records permits. If the others have no
// ending, ours is used, or else ~all.
func Combine(ours Record, others []Record) Record {
	var merged []Term
	seen := map[string]bool{} // the keys of merged
	add := func(terms ...Term) {
		for _, t := range terms {
			if key := t.Key(); !seen[key] {
				seen[key] = true
				merged = append(merged, t)
			}
		}
	}
	ourTerms, end := ours.Split()
	add(ourTerms...)
	var ends []Term
	for _, record := range others {
		terms, theirs := record.Split()
		add(terms...)
		if theirs.Name == "redirect" && len(others) > 1 {
			add(Term{Qualifier: '+', Name: "include", Value: theirs.Value})
			continue
		}
		ends = append(ends, theirs)
	}
	if theirs := mildest(ends); theirs.Name != "" {
		end = theirs
	}
	if end.Name == "" {
		end = Term{Qualifier: '~', Name: "all"}
	}
	return Record{Terms: append(merged, end)}
}

// WithoutMX returns an SPF record of a domain that stays true when the MX records of the domain
// change: an mx of the domain itself is replaced by an a for each of mxHosts, the hosts of the
// present MX records. The text stays as it is if it has no such term, or if there are no hosts.
func WithoutMX(text, domain string, mxHosts []string) string {
	record := Parse(text)
	isOwn := func(t Term) bool { return isOwnMX(t, domain) }
	if len(mxHosts) == 0 || !slices.ContainsFunc(record.Terms, isOwn) {
		return text
	}
	return Record{Terms: replaceMX(record.Terms, domain, mxHosts)}.String()
}

// isOwnMX reports whether a term stands for the MX records of the domain whose record it is in.
func isOwnMX(t Term, domain string) bool {
	of := strings.TrimSuffix(strings.ToLower(t.Value), ".")
	return !t.IsModifier() && t.Name == "mx" && (of == "" || of == domain || of == "%{d}" || of == "%{o}")
}

// replaceMX returns terms with an a for each MX host in the place of an mx of the domain itself.
func replaceMX(terms []Term, domain string, mxHosts []string) []Term {
	var out []Term
	for _, t := range terms {
		if !isOwnMX(t, domain) {
			out = append(out, t)
			continue
		}
		for _, host := range mxHosts {
			host = strings.ToLower(strings.TrimSuffix(host, "."))
			if isDomainSpec(host) { // a null MX has none (RFC 7505)
				out = append(out, Term{Qualifier: t.Qualifier, Name: "a", Value: host, Lengths: t.Lengths})
			}
		}
	}
	return out
}

// mildest returns the redirect, if it is the only end, or else the all with the mildest qualifier.
// It returns the zero Term if there is none.
func mildest(ends []Term) Term {
	if len(ends) == 1 {
		return ends[0]
	}
	const order = "+?~-"
	out := Term{}
	for _, end := range ends {
		if end.Name == "all" && (out.Name == "" || strings.IndexByte(order, end.Qualifier) < strings.IndexByte(order, out.Qualifier)) {
			out = end
		}
	}
	return out
}

// countLookups returns the lookups that each term of a record of domain needs.
func countLookups(ctx context.Context, r Resolver, domain string, record Record) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, mergeTimeout)
	defer cancel()
	c := counter{ctx: ctx, resolver: r, domain: domain, known: map[string]int{}}
	lookups, total := map[string]int{}, 0
	terms, end := record.Split()
	for _, t := range append(terms, end) {
		if !t.NeedsLookup() {
			continue
		}
		n, err := c.term(t, domain)
		if err != nil {
			return nil, err
		}
		lookups[t.String()] = n
		total += n
	}
	if total > MaxLookups {
		return nil, &TooManyLookups{Lookups: lookups}
	}
	return lookups, nil
}

// counter counts lookups of included records.
type counter struct {
	ctx      context.Context
	resolver Resolver
	domain   string         // the domain of the sender
	known    map[string]int // lookups of the records of names; of those that are being counted: tooMany
	names    int            // how many names were looked up
}

// tooMany is the count of a record that includes itself, which receivers never finish. Counts do
// not rise above it.
const tooMany = 100

// term returns the lookups of one term of the record at a name.
func (c *counter) term(t Term, at string) (int, error) {
	if t.Name != "include" && t.Name != "redirect" {
		return 1, nil
	}
	static := true
	name := Expand(t.Value, func(letter byte) string {
		switch letter {
		case 'd':
			return at
		case 'o':
			return c.domain
		}
		static = false
		return ""
	})
	if !static {
		return 1, nil
	}
	n, err := c.record(strings.ToLower(strings.TrimSuffix(name, ".")))
	return min(1+n, tooMany), err
}

// record returns the lookups of the record of a name.
func (c *counter) record(name string) (int, error) {
	if n, ok := c.known[name]; ok {
		return n, nil
	}
	c.known[name] = tooMany
	if c.names == maxMergeNames {
		return tooMany, nil
	}
	c.names++
	texts, err := c.resolver.LookupTXT(c.ctx, name+".")
	if err != nil && !lookup.IsNotFound(err) {
		return 0, fmt.Errorf("look up the SPF record of %.80q: %w", name, err)
	}
	total := 0
	texts = slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return !IsRecord(text) })
	if len(texts) == 1 { // otherwise receivers end with an error here
		terms, end := Parse(texts[0]).Split()
		for _, t := range append(terms, end) {
			if !t.NeedsLookup() {
				continue
			}
			n, err := c.term(t, name)
			if err != nil {
				return 0, err
			}
			total = min(total+n, tooMany)
		}
	}
	c.known[name] = total
	return total, nil
}
