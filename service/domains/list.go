package domains

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
)

// ListDomainsIn is the query of list_domains.
type ListDomainsIn struct {
	page.Query
	Status      string `query:"status" enum:"pending|pending_ns|pending_dns_records|in_progress|complete|error|deleting|"`
	Tag         string `query:"tag" max:"50"`
	Q           string `query:"q" max:"254"` // Text to search for.
	DNSProvider string `query:"dns_provider" enum:"builtin|cloudflare|rfc2136|route53|hetzner|desec|manual|external|"`
	// Only domains whose setup has failed or waits for you, or whose DNS records are wrong.
	Problems bool `query:"problems"`
	// The order: by creation, newest first unless given, or by name; `-` is descending. `-problems`
	// lists the domains of `problems` first, and otherwise the newest.
	Sort string `query:"sort" enum:"-created_at|created_at|domain|-domain|-problems|"`
}

// ListDomains lists the account's domains. q searches the ASCII and the Unicode form of the names.
func (s *Service) ListDomains(_ context.Context, who core.Actor, in ListDomainsIn) (*page.Page[Domain], error) {
	q := strings.ToLower(in.Q)
	texts, name := page.HasTexts(in.Status, in.Tag, in.DNSProvider), page.HasTexts(q)
	l := page.Listing[store.Domain, Domain]{
		Operation: "domains", Index: store.DomainsByAccount, Prefix: who.AccountID,
		Filters:   []string{in.Status, in.Tag, q, in.DNSProvider},
		Prefilter: func(row []byte) bool { return texts(row) && (name(row) || bytes.Contains(row, []byte("xn--"))) },
		Keep: func(d *store.Domain) bool {
			return (in.Status == "" || d.Status == in.Status) && (in.Tag == "" || slices.Contains(d.Tags, in.Tag)) &&
				(in.DNSProvider == "" || d.DNSProvider == in.DNSProvider) &&
				(q == "" || strings.Contains(d.Name, q) || strings.Contains(core.UnicodeName(d.Name), q))
		},
		Out: s.domainOut,
	}
	switch strings.TrimPrefix(in.Sort, "-") {
	case "domain":
		l.Index, l.Prefix = store.DomainOfAccount, store.AccountDomainKey(who.AccountID, "")
	case "problems":
		l.Index = store.DomainsByTrouble
	}
	l.SortBy(in.Sort)
	if in.Problems {
		l.Filters = append(l.Filters, "problems")
		if l.Index == store.DomainOfAccount {
			keep := l.Keep
			l.Keep = func(d *store.Domain) bool { return d.Troubled() && keep(d) }
		} else {
			l.Index, l.Prefix = store.DomainsByTrouble, store.TroubleKey(who.AccountID, true)
		}
	}
	return l.Page(s.Core, who, in.Query)
}
