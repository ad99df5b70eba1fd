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

// errSPFRecord says that a record breaks the grammar.
var errSPFRecord = errors.New("malformed SPF record")

// checkSPF evaluates SPF for the reverse-path, or for postmaster@helo with the null sender (RFC
// 7208 section 2.4). It returns the domain that was judged, whether that is the one of HELO, and
// whether it passes by a host of the domain's own.
func checkSPF(look *lookups, r Request) (result Result, domain string, helo, own bool) {
	local, name := splitAddress(r.MailFrom)
	if name == "" {
		helo = true
		local, name = "postmaster", r.Helo
	}
	domain, ok := idn.Host(name)
	if !ok || !strings.Contains(domain, ".") {
		// RFC 7208 section 4.3: a malformed or single-label domain has no SPF.
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
	if result == Pass && names.others {
		own = false
		within := &spfLookups{lookups: look, macros: macros, within: orgDomain(domain)}
		if again, byHost := within.evaluate(); again == Pass {
			own = byHost
		}
	}
	return result, domain, helo, own && result == Pass
}

// evaluate gives the result for the domain, and whether it was found by ip4, ip6, a or mx.
func (l *spfLookups) evaluate() (result Result, byHost bool) {
	domain := l.macros.domain
	got, err := evaluator.CheckHostWithSender(net.IP(l.macros.ip.AsSlice()), domain, "postmaster@"+domain, evaluator.WithContext(l.ctx), evaluator.WithResolver(l))
	switch err {
	case evaluator.ErrMatchedIP, evaluator.ErrMatchedA, evaluator.ErrMatchedMX:
		byHost = true
	}
	return Result(got), byHost
}

// spfLookups shows the library the records that keep to the grammar, their macros expanded. The
// library reads a record as far as the first match, but one that is wrong anywhere is no record
// (RFC 7208 section 4.6): its author did not write what he meant. Names that it would not carry,
// such as those with a slash, go by stand-ins.
type spfLookups struct {
	*lookups
	macros   spfMacros
	replaced []string // names behind stand-ins

	others bool   // a record of another organisational domain was asked for
	within string // an organisational domain: records of others are not followed; "": all are
}

func (l *spfLookups) LookupTXT(ctx context.Context, name string) ([]string, error) {
	name = l.realName(name)
	if orgDomain(strings.ToLower(strings.TrimSuffix(name, "."))) != orgDomain(l.macros.domain) {
		l.others = true
	}
	txts, err := lookUpAny(ctx, l, name, l.resolver.LookupTXT)
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
			return nil, errSPFRecord // not of DNS, so that the library takes it for permanent
		}
		if l.expand(ctx, record, strings.ToLower(strings.TrimSuffix(name, "."))) {
			out[i] = record.String()
		}
		if l.within != "" {
			record.Terms = slices.DeleteFunc(record.Terms, l.leavesDomain)
			out[i] = record.String()
		}
	}
	return out, nil
}

// leavesDomain tells a term that has the record of another organisational domain decide.
func (l *spfLookups) leavesDomain(t spf.Term) bool {
	return (t.Name == "include" || t.Name == "redirect") && orgDomain(strings.ToLower(strings.TrimSuffix(l.realName(t.Value), "."))) != l.within
}

func (l *spfLookups) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	return lookUpAny(ctx, l, l.realName(name), l.resolver.LookupMX)
}

func (l *spfLookups) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	return lookUpAny(ctx, l, l.realName(host), l.resolver.LookupIPAddr)
}

// lookUpAny looks up names too that no host has.
func lookUpAny[T any](ctx context.Context, l *spfLookups, name string, f func(context.Context, string) ([]T, error)) ([]T, error) {
	if _, ok := idn.Host(name); !ok && isOddName(name) {
		return ask(ctx, l.lookups, strings.TrimSuffix(name, ".")+".", f)
	}
	return lookUp(ctx, l.lookups, name, f)
}

// isOddName tells a name that DNS can carry though no host has it: with any printable characters in
// its labels (RFC 2181 section 11). Macros make such of a sender's local part.
func isOddName(name string) bool {
	name = strings.TrimSuffix(name, ".")
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool { return r < ' ' || r > '~' || r == '\\' }) {
			return false
		}
	}
	return len(name) <= idn.MaxName
}

// expand replaces each name in a record of domain by what it stands for, and reports whether there
// was any to replace.
func (l *spfLookups) expand(ctx context.Context, record spf.Record, domain string) (changed bool) {
	for i, t := range record.Terms {
		if t.Asks() && strings.ContainsAny(t.Value, "%/") {
			record.Terms[i].Value = l.standIn(l.macros.expandName(ctx, t.Value, domain))
			changed = true
		}
	}
	return changed
}

const standIns = ".stand-in.invalid"

// standIn gives what the library calls a name.
func (l *spfLookups) standIn(name string) string {
	if _, ok := idn.Host(name); ok {
		return name
	}
	l.replaced = append(l.replaced, name)
	return fmt.Sprint(len(l.replaced)-1, standIns)
}

// realName gives the name that the library calls so.
func (l *spfLookups) realName(name string) string {
	number, ok := strings.CutSuffix(name, standIns)
	i, err := strconv.Atoi(number)
	if !ok || err != nil || i < 0 || i >= len(l.replaced) {
		return name
	}
	return l.replaced[i]
}
