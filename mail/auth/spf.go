package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	evaluator "blitiri.com.ar/go/spf"

	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/spf"
)

// errSPFRecord is returned for an SPF record with a syntax error.
var errSPFRecord = errors.New("malformed SPF record")

// checkSPF evaluates SPF for the reverse-path, or for postmaster@helo if the reverse-path is null
// (RFC 7208 section 2.4). domain is the domain that was evaluated, helo says that this is the HELO
// domain, and own that SPF passes for a host of that domain itself (see Verdict.SPFOwn).
func checkSPF(look *lookups, r Request) (result Result, domain string, helo, own bool) {
	local, name := splitAddress(r.MailFrom)
	if name == "" {
		helo = true
		local, name = "postmaster", r.Helo
	}
	domain, ok := idn.Host(name)
	if !ok || !strings.Contains(domain, ".") {
		// A malformed or single-label domain has no SPF record (RFC 7208 section 4.3).
		return None, domain, helo, false
	}
	if net.ParseIP(domain) != nil || !r.IP.IsValid() {
		return None, domain, helo, false
	}
	if local == "" {
		local = "postmaster"
	}
	macros := spfMacros{look: look, ip: r.IP.Unmap(), helo: r.Helo, local: local, domain: domain}
	names := &spfLookups{lookups: look, macros: macros}
	result, own = names.evaluate()
	if result == Pass && names.otherOrganisation {
		own = false
		within := &spfLookups{lookups: look, macros: macros, within: orgDomain(domain)}
		if again, byHost := within.evaluate(); again == Pass {
			own = byHost
		}
	}
	return result, domain, helo, own && result == Pass
}

// evaluate returns the SPF result for the domain. byHost reports whether ip4, ip6, a or mx matched.
func (l *spfLookups) evaluate() (result Result, byHost bool) {
	domain := l.macros.domain
	got, err := evaluator.CheckHostWithSender(net.IP(l.macros.ip.AsSlice()), domain, "postmaster@"+domain, evaluator.WithContext(l.ctx), evaluator.WithResolver(l))
	switch err {
	case evaluator.ErrMatchedIP, evaluator.ErrMatchedA, evaluator.ErrMatchedMX:
		byHost = true
	}
	return Result(got), byHost
}

// spfLookups is the resolver for the SPF library. It returns SPF records with their macros
// expanded, and an error for a record with a syntax error: RFC 7208 section 4.6 makes the whole
// record invalid, while the library would use it up to the first match. Names that the library
// would not look up, such as names with a slash, are replaced by placeholders.
type spfLookups struct {
	*lookups
	macros       spfMacros
	placeholders []string // the name for which each placeholder stands; a placeholder has the index

	otherOrganisation bool   // a record of another organisational domain was looked up
	within            string // use only records of this organisational domain; "" means all
}

func (l *spfLookups) LookupTXT(ctx context.Context, name string) ([]string, error) {
	name = l.realName(name)
	if orgDomain(strings.ToLower(strings.TrimSuffix(name, "."))) != orgDomain(l.macros.domain) {
		l.otherOrganisation = true
	}
	txts, err := lookUpAnyName(ctx, l, name, l.resolver.LookupTXT)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(txts))
	for i, txt := range txts {
		out[i] = txt
		if !spf.IsRecord(txt) {
			continue
		}
		record := spf.Parse(txt)
		if !record.WellFormed {
			return nil, errSPFRecord // not a DNS error, so that the library takes it for permanent
		}
		if l.expandNames(ctx, record, strings.ToLower(strings.TrimSuffix(name, "."))) {
			out[i] = record.String()
		}
		if l.within != "" {
			record.Terms = slices.DeleteFunc(record.Terms, l.leavesDomain)
			out[i] = record.String()
		}
	}
	return out, nil
}

// leavesDomain reports whether a term (include or redirect) refers to a record of another
// organisational domain than l.within.
func (l *spfLookups) leavesDomain(t spf.Term) bool {
	return (t.Name == "include" || t.Name == "redirect") && orgDomain(strings.ToLower(strings.TrimSuffix(l.realName(t.Value), "."))) != l.within
}

func (l *spfLookups) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	return lookUpAnyName(ctx, l, l.realName(name), l.resolver.LookupMX)
}

func (l *spfLookups) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	return lookUpAnyName(ctx, l, l.realName(host), l.resolver.LookupIPAddr)
}

// lookUpAnyName looks up a name, even one that is valid in DNS but no host name.
func lookUpAnyName[T any](ctx context.Context, l *spfLookups, name string, f func(context.Context, string) ([]T, error)) ([]T, error) {
	if _, ok := idn.Host(name); !ok && isDNSName(name) {
		return ask(ctx, l.lookups, strings.TrimSuffix(name, ".")+".", f)
	}
	return lookUp(ctx, l.lookups, name, f)
}

// isDNSName reports whether a name is valid in DNS (RFC 2181 section 11): its labels have printable
// characters only. It need not be a host name: macros can put a sender's local part into a name.
func isDNSName(name string) bool {
	name = strings.TrimSuffix(name, ".")
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool { return r < ' ' || r > '~' || r == '\\' }) {
			return false
		}
	}
	return len(name) <= idn.MaxName
}

// expandNames replaces the names in a record that have macros or a slash by their expansions.
// domain is the domain of the record. changed is true if it replaced any.
func (l *spfLookups) expandNames(ctx context.Context, record spf.Record, domain string) (changed bool) {
	for i, t := range record.Terms {
		if t.NeedsLookup() && strings.ContainsAny(t.Value, "%/") {
			record.Terms[i].Value = l.placeholder(l.macros.expandName(ctx, t.Value, domain))
			changed = true
		}
	}
	return changed
}

const placeholderSuffix = ".stand-in.invalid"

// placeholder returns a name that the library looks up in place of name: name itself if it is a
// host name, otherwise a new placeholder.
func (l *spfLookups) placeholder(name string) string {
	if _, ok := idn.Host(name); ok {
		return name
	}
	l.placeholders = append(l.placeholders, name)
	return fmt.Sprint(len(l.placeholders)-1, placeholderSuffix)
}

// realName returns the name for which a placeholder stands. It returns other names unchanged.
func (l *spfLookups) realName(name string) string {
	number, ok := strings.CutSuffix(name, placeholderSuffix)
	i, err := strconv.Atoi(number)
	if !ok || err != nil || i < 0 || i >= len(l.placeholders) {
		return name
	}
	return l.placeholders[i]
}
