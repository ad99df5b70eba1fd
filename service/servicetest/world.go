package servicetest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/service"
)

// A World is the DNS that the installation sees: the answers of the service Ours, unless a test
// sets other values for a name.
type World struct {
	mu     sync.Mutex
	Ours   *service.Service    // the service that answers for the zones that it hosts; nil: none
	Names  map[string][]string // "TYPE name" to values, instead of Ours
	Dead   string              // which lookups time out: "all", or "records" for all but NS
	Hang   chan struct{}       // lookups except NS wait until it is closed
	Late   time.Duration       // how long each lookup takes
	Looked int                 // number of lookups
}

// Set changes fields of the world under its lock.
func (w *World) Set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// Tell sets the values of a name; without values the name does not exist.
func (w *World) Tell(typ, name string, values ...string) {
	w.Set(func() {
		if w.Names == nil {
			w.Names = map[string][]string{}
		}
		w.Names[typ+" "+name] = values
	})
}

func (w *World) ask(ctx context.Context, typ uint16, name string) ([]string, error) {
	w.mu.Lock()
	w.Looked++
	ours, hang, late := w.Ours, w.Hang, w.Late
	dead := w.Dead == "all" || w.Dead == "records" && typ != dns.TypeNS
	name = strings.TrimSuffix(name, ".")
	values, told := w.Names[dns.TypeToString[typ]+" "+name]
	w.mu.Unlock()
	if late > 0 {
		select {
		case <-time.After(late):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if hang != nil && typ != dns.TypeNS {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch {
	case dead:
		return nil, &net.DNSError{Err: "i/o timeout", Name: name, IsTimeout: true}
	case !told && ours != nil:
		values = ourAnswer(ours, typ, name)
	}
	if len(values) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return values, nil
}

// ourAnswer returns what the zones of svc have for a name.
func ourAnswer(svc *service.Service, typ uint16, name string) []string {
	zone, ok := svc.Zones.Zone(name)
	if !ok {
		return nil
	}
	var out []string
	for _, rr := range zone.Answer(new(dns.Msg).SetQuestion(dns.Fqdn(name), typ)).Answer {
		switch rr := rr.(type) {
		case *dns.NS:
			out = append(out, rr.Ns)
		case *dns.MX:
			out = append(out, fmt.Sprintf("%d %s", rr.Preference, rr.Mx))
		case *dns.TXT:
			out = append(out, strings.Join(rr.Txt, ""))
		case *dns.A:
			out = append(out, rr.A.String())
		case *dns.SRV:
			out = append(out, fmt.Sprintf("%d %d %d %s", rr.Priority, rr.Weight, rr.Port, rr.Target))
		}
	}
	return out
}

// LookupTXT implements core.Resolver.
func (w *World) LookupTXT(ctx context.Context, name string) ([]string, error) {
	return w.ask(ctx, dns.TypeTXT, name)
}

// LookupMX implements core.Resolver.
func (w *World) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	var out []*net.MX
	values, err := w.ask(ctx, dns.TypeMX, name)
	for _, v := range values {
		mx := &net.MX{}
		if _, err := fmt.Sscan(v, &mx.Pref, &mx.Host); err != nil {
			return nil, err
		}
		out = append(out, mx)
	}
	return out, err
}

// LookupNS implements core.Resolver.
func (w *World) LookupNS(ctx context.Context, name string) ([]*net.NS, error) {
	var out []*net.NS
	values, err := w.ask(ctx, dns.TypeNS, name)
	for _, v := range values {
		out = append(out, &net.NS{Host: v})
	}
	return out, err
}

// LookupCNAME implements core.Resolver.
func (w *World) LookupCNAME(ctx context.Context, name string) (string, error) {
	values, err := w.ask(ctx, dns.TypeCNAME, name)
	if err != nil {
		return "", err
	}
	return values[0], nil
}

// LookupNetIP implements core.Resolver.
func (w *World) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	var out []netip.Addr
	values, err := w.ask(ctx, dns.TypeA, host)
	for _, v := range values {
		out = append(out, netip.MustParseAddr(v))
	}
	return out, err
}

// LookupIPAddr implements core.Resolver.
func (w *World) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	var out []net.IPAddr
	values, err := w.ask(ctx, dns.TypeA, host)
	for _, v := range values {
		out = append(out, net.IPAddr{IP: net.ParseIP(v)})
	}
	return out, err
}

// LookupSRV implements core.Resolver.
func (w *World) LookupSRV(ctx context.Context, _, _, name string) (string, []*net.SRV, error) {
	var out []*net.SRV
	values, err := w.ask(ctx, dns.TypeSRV, name)
	for _, v := range values {
		srv := &net.SRV{}
		if _, err := fmt.Sscan(v, &srv.Priority, &srv.Weight, &srv.Port, &srv.Target); err != nil {
			return "", nil, err
		}
		out = append(out, srv)
	}
	return "", out, err
}

// LookupAddr implements core.Resolver. Tests set its names as "PTR address".
func (w *World) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	return w.ask(ctx, dns.TypePTR, addr)
}
