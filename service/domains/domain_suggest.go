package domains

import (
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/publicsuffix"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/service/core"
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

// suggestFiller are words that make a name longer and no better.
var suggestFiller = []string{"a", "an", "and", "at", "by", "for", "from", "in", "my", "of", "on", "or", "our", "the", "to", "with"}

// SuggestDomainsIn is the query of suggest_domains.
type SuggestDomainsIn struct {
	Keywords string `query:"keywords" alias:"keyword" required:"true" min:"1" max:"200"`
	TLDs     string `query:"tlds" max:"500"`
	Limit    *int   `query:"limit"`
	Check    *bool  `query:"check"`
}

// DomainSuggestions is the answer of suggest_domains.
type DomainSuggestions struct {
	Keywords    string         `json:"keywords" words:"ours"`
	Suggestions []SearchResult `json:"suggestions"`
	Count       int            `json:"count"`
}

// SuggestDomains makes names of keywords. Unless told not to it looks whether they can be had, and
// leaves out those that cannot.
func (s *Service) SuggestDomains(ctx context.Context, _ core.Actor, in SuggestDomainsIn) (*DomainSuggestions, error) {
	limit, err := core.PageIn{Limit: in.Limit}.PageLimit(20, 50)
	if err != nil {
		return nil, err
	}
	tlds, err := suggestTLDs(in.TLDs)
	if err != nil {
		return nil, err
	}
	words := keywordsOf(in.Keywords)
	if len(words) == 0 {
		return nil, core.Invalid("keywords", "invalid", "must hold at least one word of letters or digits")
	}
	names := suggestNames(words, tlds, maxSearches)
	out := &DomainSuggestions{Keywords: in.Keywords, Suggestions: []SearchResult{}}
	if in.Check == nil || *in.Check {
		out.Suggestions = s.suggestFree(ctx, names, limit)
	} else {
		for _, name := range names[:min(len(names), limit)] {
			out.Suggestions = append(out.Suggestions, s.unsearched(name))
		}
	}
	out.Count = len(out.Suggestions)
	return out, nil
}

// suggestFree leaves out names that are taken, and asks for no more than it takes to find enough
// that are not.
func (s *Service) suggestFree(ctx context.Context, names []string, limit int) []SearchResult {
	ctx, cancel := context.WithTimeout(ctx, searchesFor)
	defer cancel()
	out := []SearchResult{}
	for len(names) > 0 && len(out) < limit && ctx.Err() == nil {
		some := names[:min(len(names), limit+limit/2)]
		names = names[len(some):]
		for _, r := range s.search(ctx, some) {
			if taken := r.Available != nil && !*r.Available; !taken && len(out) < limit {
				out = append(out, r)
			}
		}
	}
	return out
}

// suggestTLDs reads a list of endings with commas between.
func suggestTLDs(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return []string{"com", "net", "org", "io", "dev"}, nil
	}
	var out []string
	for given := range strings.SplitSeq(list, ",") {
		tld := strings.Trim(strings.TrimSpace(given), ".")
		ascii, _, err := idn.Registrable("example." + tld)
		if err != nil || tld == "" || dnsprov.RegisteredName(ascii) != ascii {
			return nil, core.Invalid("tlds", "invalid", "%.80q is not an ending under which domains are registered, such as com or co.uk", given)
		}
		if tld = strings.TrimPrefix(ascii, "example."); !slices.Contains(out, tld) {
			out = append(out, tld)
		}
	}
	if len(out) > maxTLDs {
		return nil, core.Invalid("tlds", "too_many_items", "must have at most %d items", maxTLDs)
	}
	return out, nil
}

// keywordsOf are the words of a text, each once, lower-case. Of a domain name its ending is none of
// them.
func keywordsOf(text string) []string {
	if ascii, _, err := idn.Registrable(text); err == nil {
		if _, known := publicsuffix.PublicSuffix(ascii); known {
			_, own, _ := idn.Registrable(dnsprov.RegisteredName(ascii)) // a part of a name that is one
			text, _, _ = strings.Cut(own, ".")
		}
	}
	var out []string
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }) {
		if len(out) < maxSuggestWord && utf8.RuneCountInString(w) <= 40 && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	filler := func(w string) bool { return slices.Contains(suggestFiller, w) }
	if better := slices.DeleteFunc(slices.Clone(out), filler); len(better) > 0 {
		return better
	}
	return out
}

// suggestNames makes up to limit names, the plainest first: each label under every ending before
// the next label.
func suggestNames(words, tlds []string, limit int) []string {
	var out []string
	for _, label := range suggestLabels(words) {
		for _, tld := range tlds {
			ascii, _, err := idn.Registrable(label + "." + tld)
			if err != nil || mixesScripts(label) || dnsprov.RegisteredName(ascii) != ascii || slices.Contains(out, ascii) {
				continue
			}
			if out = append(out, ascii); len(out) == limit {
				return out
			}
		}
	}
	return out
}

// mixesScripts tells whether letters of ours and of another script stand together, which no
// registry takes.
func mixesScripts(label string) bool {
	latin := strings.ContainsFunc(label, func(r rune) bool { return unicode.Is(unicode.Latin, r) })
	return latin && strings.ContainsFunc(label, func(r rune) bool { return unicode.IsLetter(r) && !unicode.Is(unicode.Latin, r) })
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
		if i < len(suggestBefore) && words[0] != suggestBefore[i] {
			out = append(out, suggestBefore[i]+joined)
		}
		if i < len(suggestBehind) && words[len(words)-1] != suggestBehind[i] {
			out = append(out, joined+suggestBehind[i])
		}
	}
	if len(words) == 1 {
		return out
	}
	out = append(out, words...)
	for _, w := range words {
		for _, behind := range suggestBehind {
			if w != behind {
				out = append(out, w+behind)
			}
		}
	}
	return out
}
