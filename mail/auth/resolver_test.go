package auth

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
)

// fakeDNS answers from tables by names without a final dot. It insists on absolute names.
type fakeDNS struct {
	t       testing.TB
	txt     map[string][]string
	mx      map[string][]string
	ip      map[string][]string
	ptr     map[string][]string
	servers map[string]bool // names whose server fails

	mu    sync.Mutex
	asked []string
}

func (f *fakeDNS) find(name string, table map[string][]string) ([]string, error) {
	bare, absolute := strings.CutSuffix(name, ".")
	if !absolute {
		f.t.Errorf("asked for %q, which is not absolute", name)
	}
	f.mu.Lock()
	f.asked = append(f.asked, bare)
	f.mu.Unlock()
	if f.servers[bare] {
		return nil, &net.DNSError{Err: "server misbehaving", Name: name, IsTemporary: true}
	}
	if found, ok := table[bare]; ok {
		return found, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (f *fakeDNS) LookupTXT(_ context.Context, name string) ([]string, error) {
	return f.find(name, f.txt)
}

func (f *fakeDNS) LookupMX(_ context.Context, name string) ([]*net.MX, error) {
	hosts, err := f.find(name, f.mx)
	var out []*net.MX
	for _, h := range hosts {
		out = append(out, &net.MX{Host: h, Pref: 10})
	}
	return out, err
}

func (f *fakeDNS) LookupIPAddr(_ context.Context, host string) ([]net.IPAddr, error) {
	addrs, err := f.find(host, f.ip)
	var out []net.IPAddr
	for _, a := range addrs {
		out = append(out, net.IPAddr{IP: net.ParseIP(a)})
	}
	return out, err
}

func (f *fakeDNS) LookupAddr(_ context.Context, addr string) ([]string, error) {
	return f.find(addr+".", f.ptr)
}

// deadDNS never answers, as a resolver behind a firewall, or fails at once with fault.
type deadDNS struct{ fault error }

var errRefused = errors.New("connection refused")

func (d deadDNS) wait(ctx context.Context) error {
	if d.fault != nil {
		return d.fault
	}
	<-ctx.Done()
	return ctx.Err()
}

func (d deadDNS) LookupTXT(ctx context.Context, _ string) ([]string, error)  { return nil, d.wait(ctx) }
func (d deadDNS) LookupMX(ctx context.Context, _ string) ([]*net.MX, error)  { return nil, d.wait(ctx) }
func (d deadDNS) LookupAddr(ctx context.Context, _ string) ([]string, error) { return nil, d.wait(ctx) }
func (d deadDNS) LookupIPAddr(ctx context.Context, _ string) ([]net.IPAddr, error) {
	return nil, d.wait(ctx)
}
