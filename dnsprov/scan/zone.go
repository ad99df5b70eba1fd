package scan

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
)

const zoneTimeout = 10 * time.Minute

// Ask asks the servers, one after the other until one answers, for the records of a name and type,
// such as AAAA or TYPE65. CNAME records that lead to them come first. The error is ErrNoServer if
// none answers, or that of ctx.
func (c *Client) Ask(ctx context.Context, s *Servers, name, typ string) ([]dnsprov.Record, error) {
	number, ok := dnsprov.TypeNumber(typ)
	if !ok {
		return nil, fmt.Errorf("there is no type %.20q of DNS records", typ)
	}
	r, err := c.session("", s.Addrs).ask(ctx, dns.CanonicalName(name), number, false)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, ErrNoServer
	}
	var out []dnsprov.Record
	for _, rr := range slices.Concat(r.set, r.led) {
		if len(out) < maxAnswer {
			out = append(out, dnsprov.RecordOf(rr))
		}
	}
	return out, nil
}

const maxAnswer = 100 // records of one answer

// Zone reads the zone of a domain, or the part at and below the domain of a larger zone. It takes
// 10 minutes at most; what was found until then is the result, which is then partial. The method is
// MethodNone if the servers have no names. It calls progress, unless that is nil, with the number
// of names that were asked for and of those that are known to be asked for, one call after the
// other; only a transfer has none. The error is ErrNoServer if none answers for the domain, or that
// of ctx.
func (c *Client) Zone(ctx context.Context, s *Servers, domain string, progress func(done, total int)) (*Result, error) {
	out := &Result{Nameservers: s.Names, Method: MethodNone, DS: s.DS, NSTTL: s.NSTTL, DSTTL: s.DSTTL}
	if len(s.Names) == 0 {
		out.Complete = true
		return out, nil
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, zoneTimeout)
	defer cancel()
	domain = dns.CanonicalName(domain)
	z, err := c.survey(ctx, s, domain)
	if outer.Err() != nil {
		return nil, outer.Err()
	}
	if err != nil {
		return nil, ErrNoServer
	}

	found := z.transfer(ctx, domain)
	if found != nil {
		out.Method, out.Complete = MethodAXFR, true
	} else {
		names, broken := z.walk(ctx, domain)
		e := z.explorer(domain, progress)
		found = e.found
		if broken == nil {
			out.Method = MethodNSEC
			err = e.run(ctx, walked(names, true))
			out.Complete = err == nil && !e.missed
		} else {
			out.Method = MethodQuestions
			err = e.findWildcard(ctx)
			if err == nil {
				err = e.run(ctx, slices.Concat(walked(names, false), usual(domain)))
			}
		}
		out.Partial = err != nil || e.missed
	}
	if outer.Err() != nil {
		return nil, outer.Err()
	}
	out.Records = found.sorted()
	domain = strings.TrimSuffix(domain, ".")
	for _, r := range out.Records {
		out.Wildcard = out.Wildcard || r.Name == "*."+domain
		if r.Name == domain && r.Type == "NS" {
			out.NSTTL = max(out.NSTTL, time.Duration(r.TTL)*time.Second)
		}
	}
	return out, nil
}

// walked returns the names of a walk as targets. exact: the walk has found all names.
func walked(names map[string][]uint16, exact bool) []target {
	var out []target
	for _, name := range slices.Sorted(maps.Keys(names)) {
		t := target{name: name, types: names[name], exact: exact}
		if !exact {
			t.more = slices.Concat(hostTypes, moreHostTypes)
		}
		out = append(out, t)
	}
	return out
}
