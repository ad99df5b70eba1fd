package service

import (
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/dnsprov"
)

const (
	maxTLDs        = 20
	maxSuggestWord = 8 // words of the keywords that are used
)

// Words that stand before or behind the keywords in a suggestion.
var (
	suggestBefore = []string{"get", "try", "my", "the", "go", "hello", "use", "join", "meet"}
	suggestBehind = []string{"hq", "mail", "app", "team", "group", "labs", "hub", "online", "works", "now", "co"}
)

// SuggestDomainsIn is the query of suggest_domains.
type SuggestDomainsIn struct {
	Keywords string `query:"keywords" alias:"keyword" required:"true" min:"1" max:"200"`
	TLDs     string `query:"tlds" max:"500"`
	Limit    *int   `query:"limit"`
	Check    *bool  `query:"check"`
}

// DomainSuggestions is the answer of suggest_domains.
type DomainSuggestions struct {
	Keywords    string         `json:"keywords"`
	Suggestions []SearchResult `json:"suggestions"`
	Count       int            `json:"count"`
}

// SuggestDomains makes names of keywords. Unless told not to it looks whether they can be had, and leaves out those that
// cannot.
func (s *Service) SuggestDomains(ctx context.Context, _ Actor, in SuggestDomainsIn) (*DomainSuggestions, error) {
	limit, err := PageIn{Limit: in.Limit}.limit(20, 50)
	if err != nil {
		return nil, err
	}
	tlds, err := suggestTLDs(in.TLDs)
	if err != nil {
		return nil, err
	}
	words := keywordsOf(in.Keywords)
	if len(words) == 0 {
		return nil, Invalid("keywords", "invalid", "must hold at least one word of letters or digits")
	}
	out := &DomainSuggestions{Keywords: in.Keywords, Suggestions: []SearchResult{}}
	names := suggestNames(words, tlds, min(2*limit, maxSearches))
	var results []SearchResult
	if in.Check == nil || *in.Check {
		results = s.search(ctx, names)
	} else {
		for _, name := range names {
			results = append(results, s.unsearched(name))
		}
	}
	for _, r := range results {
		if taken := r.Available != nil && !*r.Available; !taken && len(out.Suggestions) < limit {
			out.Suggestions = append(out.Suggestions, r)
		}
	}
	out.Count = len(out.Suggestions)
	return out, nil
}

// suggestTLDs reads a list of endings with commas between.
func suggestTLDs(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return []string{"com", "net", "org", "io", "dev"}, nil
	}
	var out []string
	for given := range strings.SplitSeq(list, ",") {
		tld := strings.Trim(strings.TrimSpace(given), ".")
		ascii, _, err := dnsprov.NormalizeDomain("example." + tld)
		if err != nil || tld == "" || dnsprov.Registrable(ascii) != ascii {
			return nil, Invalid("tlds", "invalid", "%.80q is not an ending under which domains are registered, such as com or co.uk", given)
		}
		if tld = strings.TrimPrefix(ascii, "example."); !slices.Contains(out, tld) {
			out = append(out, tld)
		}
	}
	if len(out) > maxTLDs {
		return nil, Invalid("tlds", "too_many_items", "must have at most %d items", maxTLDs)
	}
	return out, nil
}

// keywordsOf are the words of a text, each once, lower-case.
func keywordsOf(text string) []string {
	var out []string
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }) {
		if len(out) < maxSuggestWord && utf8.RuneCountInString(w) <= 40 && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// suggestNames makes up to limit names, the plainest first: each label under every ending before the next label.
func suggestNames(words, tlds []string, limit int) []string {
	var out []string
	for _, label := range suggestLabels(words) {
		for _, tld := range tlds {
			ascii, _, err := dnsprov.NormalizeDomain(label + "." + tld)
			if err != nil || dnsprov.Registrable(ascii) != ascii || slices.Contains(out, ascii) {
				continue
			}
			if out = append(out, ascii); len(out) == limit {
				return out
			}
		}
	}
	return out
}

// suggestLabels combines the words with each other and with words of ours.
func suggestLabels(words []string) []string {
	joined := strings.Join(words, "")
	out := []string{joined}
	if len(words) > 1 {
		reversed := slices.Clone(words)
		slices.Reverse(reversed)
		out = append(out, strings.Join(words, "-"), strings.Join(reversed, ""))
	}
	for i := range max(len(suggestBefore), len(suggestBehind)) {
		if i < len(suggestBefore) {
			out = append(out, suggestBefore[i]+joined)
		}
		if i < len(suggestBehind) {
			out = append(out, joined+suggestBehind[i])
		}
	}
	if len(words) > 1 {
		for _, w := range words {
			out = append(out, w)
			for _, behind := range suggestBehind {
				out = append(out, w+behind)
			}
		}
	}
	return out
}
