package scan

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"github.com/mailstead/mailstead/dnsprov"
)

const ownTimeout = 8 * time.Second // for all answers of one server to OwnTexts

// OwnTexts asks each server of a domain for the TXT records that the zone of the domain itself has
// at names below the domain. It returns those that all servers have which answer for the domain, by
// the name as it was given. It leaves out what a CNAME or DNAME leads to, what a wildcard makes
// (RFC 4592), and what is in a zone that begins between the domain and the name, even if the same
// server has that zone. A server that does not answer within eight seconds does not count. The
// error is ErrNoServer if none answers, or that of ctx.
func (c *Client) OwnTexts(ctx context.Context, s *Servers, domain string, names ...string) (map[string][]string, error) {
	addrs := s.Addrs[:min(len(s.Addrs), maxHosts)]
	answers := make([]map[string][]string, len(addrs))
	var g errgroup.Group
	for i := range addrs {
		g.Go(func() error {
			within, cancel := context.WithTimeout(ctx, ownTimeout)
			defer cancel()
			z := c.session("", addrs[i:i+1])
			r, err := z.ask(within, dns.CanonicalName(domain), dns.TypeSOA, false)
			if err != nil || r.soa == nil {
				return nil
			}
			found := map[string][]string{}
			for _, name := range names {
				found[name], err = z.ownTexts(within, r.soa.Hdr.Name, dns.CanonicalName(name))
				if err != nil {
					return nil
				}
			}
			answers[i] = found
			return nil
		})
	}
	_ = g.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	answers = slices.DeleteFunc(answers, func(found map[string][]string) bool { return found == nil })
	if len(answers) == 0 {
		return nil, ErrNoServer
	}
	out := answers[0]
	for _, found := range answers[1:] {
		for name := range out {
			out[name] = slices.DeleteFunc(out[name], func(text string) bool { return !slices.Contains(found[name], text) })
		}
	}
	return out, nil
}

// ownTexts asks the server for the TXT records of a name that are in a zone. A name that the server
// has delegated to others has none. The error is that of ask, but not errLame.
func (z *session) ownTexts(ctx context.Context, zone, name string) ([]string, error) {
	texts, err := z.texts(ctx, name)
	if err != nil || len(texts) == 0 {
		return nil, err
	}
	r, err := z.ask(ctx, name, dns.TypeSOA, false) // the answer that there is none names the zone
	if err == errLame || err == nil && (r.soa == nil || r.soa.Hdr.Name != zone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(name, ".")
	wild, err := z.texts(ctx, "x"+strings.ToLower(rand.Text())+"."+rest) // no zone has it but by a wildcard
	return slices.DeleteFunc(texts, func(text string) bool { return slices.Contains(wild, text) }), err
}

// texts asks for the TXT records of a name, without those that a CNAME leads to. There are none if
// the server does not answer for the name.
func (z *session) texts(ctx context.Context, name string) ([]string, error) {
	r, err := z.ask(ctx, name, dns.TypeTXT, false)
	if err == errLame {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, rr := range r.set[:min(len(r.set), maxAnswer)] {
		if rr.Header().Rrtype == dns.TypeTXT {
			out = append(out, dnsprov.RecordOf(rr).Value)
		}
	}
	return out, nil
}
