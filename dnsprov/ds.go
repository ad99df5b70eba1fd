package dnsprov

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	dsTimeout  = 5 * time.Second // of one try of a look-up
	dsUDPSize  = 1232            // bytes that pass everywhere without fragments
	resolvConf = "/etc/resolv.conf"
)

// DS says at a parent which key signs a zone (RFC 4034 section 5).
type DS struct {
	KeyTag     uint16
	Algorithm  uint8
	DigestType uint8
	Digest     string // lower-case hexadecimal
}

// String is the data of the record in a zone file.
func (d DS) String() string {
	return fmt.Sprintf("%d %d %d %s", d.KeyTag, d.Algorithm, d.DigestType, d.Digest)
}

// LookupDS asks the resolver at addr, host:port or a host for port 53, which keys the parent of a domain names: none for
// a domain that is not there too. addr "" is the system's first resolver. An error says that the look-up failed.
func LookupDS(ctx context.Context, addr, domain string) ([]DS, error) {
	if addr == "" {
		system, err := dns.ClientConfigFromFile(resolvConf)
		if err != nil {
			return nil, fmt.Errorf("look up DS of %s: %w", domain, err)
		}
		if len(system.Servers) == 0 {
			return nil, fmt.Errorf("look up DS of %s: %s names no resolver", domain, resolvConf)
		}
		addr = system.Servers[0]
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		addr = net.JoinHostPort(addr, "53")
	}
	m, err := askDS(ctx, addr, dns.Fqdn(domain))
	if err != nil {
		return nil, fmt.Errorf("look up DS of %s: %w", domain, err)
	}
	if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return nil, fmt.Errorf("look up DS of %s: %s answers %s", domain, addr, dns.RcodeToString[m.Rcode])
	}
	var out []DS
	for _, rr := range m.Answer {
		if ds, ok := rr.(*dns.DS); ok && hostName(ds.Hdr.Name) == hostName(domain) {
			out = append(out, DS{KeyTag: ds.KeyTag, Algorithm: ds.Algorithm, DigestType: ds.DigestType, Digest: strings.ToLower(ds.Digest)})
		}
	}
	return out, nil
}

// askDS asks over UDP, once more if nothing comes back, and over TCP if the answer did not fit.
func askDS(ctx context.Context, addr, name string) (*dns.Msg, error) {
	q := new(dns.Msg).SetQuestion(name, dns.TypeDS)
	q.SetEdns0(dsUDPSize, false)
	c := dns.Client{Timeout: dsTimeout}
	m, _, err := c.ExchangeContext(ctx, q, addr)
	if err != nil {
		m, _, err = c.ExchangeContext(ctx, q, addr)
	}
	if err == nil && m.Truncated {
		c.Net = "tcp"
		m, _, err = c.ExchangeContext(ctx, q, addr)
	}
	return m, err
}
