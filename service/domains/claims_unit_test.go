package domains

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// someDNS knows MX and address records.
type someDNS struct {
	core.Resolver
	mx, ip map[string]string
}

func (d someDNS) LookupMX(_ context.Context, name string) ([]*net.MX, error) {
	if d.mx[name] == "" {
		return nil, &net.DNSError{IsNotFound: true}
	}
	return []*net.MX{{Host: d.mx[name]}}, nil
}

func (d someDNS) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	return "", nil, &net.DNSError{IsNotFound: true}
}

func (d someDNS) LookupNetIP(_ context.Context, _, name string) ([]netip.Addr, error) {
	if d.ip[name] == "" {
		return nil, &net.DNSError{IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr(d.ip[name])}, nil
}

// A login proves a claim only at a server of the domain: an account may name a server of its own.
func TestALoginElsewhereProvesNothing(t *testing.T) {
	dns := someDNS{
		mx: map[string]string{"big.com.": "aspmx.l.google.com.", "own.com.": "mx.own.com.", "hosted.com.": "mx.host.net."},
		ip: map[string]string{"imap.evil.com.": "198.51.100.1", "imap.gmail.com.": "198.51.100.2", "mx.own.com.": "198.51.100.3",
			"imap.own.com.": "198.51.100.4", "mail.alias.org.": "198.51.100.5", "mx.host.net.": "198.51.100.5", "inside.evil.com.": "10.0.0.1",
			"later.evil.com.": "198.51.100.5", "vps7.host.net.": "198.51.100.7", "box.own.com.": "198.51.100.8"},
	}
	for _, tc := range []struct {
		domain, host, user, security string
		private, want                bool
		at                           string // where the connection led; "": the address of the name
	}{
		{"big.com", "imap.evil.com", "ceo@big.com", "tls", false, false, ""},
		{"big.com", "198.51.100.9", "ceo@big.com", "tls", false, false, ""},
		{"big.com", "imap.gmail.com", "ceo@big.com", "tls", false, true, ""},
		{"big.com", "imap.gmail.com", "evil@gmail.com", "tls", false, false, ""},
		{"big.com", "imap.gmail.com", "ceo@big.com", "none", false, false, ""},
		{"own.com", "imap.own.com", "ceo", "tls", false, true, ""},
		{"own.com", "imap.own.com", "ceo", "none", false, false, ""},
		{"hosted.com", "mail.alias.org", "CEO@hosted.com", "starttls", false, true, ""},
		{"big.com", "inside.evil.com", "ceo", "none", false, false, ""},
		{"big.com", "10.0.0.1", "ceo", "none", true, true, ""},
		{"big.com", "imap.evil.com", "ceo", "tls", true, false, ""},
		// After the login the name points to the domain's server, or to a private address.
		{"hosted.com", "later.evil.com", "ceo@hosted.com", "tls", false, false, "198.51.100.1"},
		{"hosted.com", "inside.evil.com", "ceo@hosted.com", "tls", true, false, "198.51.100.1"},
		// A customer's machine has a name below the operator's domain.
		{"hosted.com", "vps7.host.net", "ceo@hosted.com", "tls", false, false, ""},
		{"hosted.com", "imap.vps7.host.net", "ceo@hosted.com", "tls", false, false, ""},
		{"hosted.com", "imap.host.net", "ceo@hosted.com", "tls", false, true, ""},
		{"host.net", "vps7.host.net", "ceo@host.net", "tls", false, false, ""},
		{"own.com", "box.own.com", "ceo@own.com", "tls", false, false, ""},
		{"own.com", "mx.own.com", "ceo@own.com", "tls", false, true, ""},
	} {
		s := &Service{Core: &core.Core{Resolver: dns, Config: core.Config{AllowPrivate: tc.private}}}
		mb := &store.Mailbox{Email: "ceo@" + tc.domain, External: &store.External{IMAP: store.Server{Host: tc.host, Username: tc.user, Security: tc.security}}}
		at, err := netip.ParseAddr(tc.at)
		if err != nil {
			at, err = netip.ParseAddr(tc.host)
			if err != nil {
				at, _ = netip.ParseAddr(dns.ip[tc.host+"."])
			}
		}
		if got := s.isServerOf(t.Context(), tc.domain, mb, at); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}
