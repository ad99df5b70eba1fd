// Package rfc2136 keeps the records of domains at a nameserver that takes dynamic updates (RFC
// 2136), which are signed with a key that both sides know (TSIG, RFC 8945). It does not know which
// records a domain should have, nor which of those that it finds are ours.
package rfc2136

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/dnsprov/rrset"
)

const (
	defaultPort      = "53"
	defaultAlgorithm = dns.HmacSHA256
	workTimeout      = 60 * time.Second // for one call of Records, Apply or Check
	answerTimeout    = 15 * time.Second // for connecting, and for each answer
)

// Errors beside those of dnsprov.
var (
	ErrNoAnswer = errors.New("the nameserver does not answer")
	ErrClock    = errors.New("the clocks of the nameserver and of this host differ too much")
)

// Config configures a Client.
type Config struct {
	Server    string   // host or host:port; 53 is the default port
	KeyName   string   // a domain name, which the server has for the key
	Algorithm string   // hmac-sha224, hmac-sha256, hmac-sha384 or hmac-sha512; empty: hmac-sha256
	Secret    string   // base64
	Zones     []string // the zones that the key may change, in the form of dnsprov.Record.Name
	// Dial connects to the server over TCP; nil: net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// A Client changes zones at one nameserver with one key. It is a dnsprov.Provider, and any number
// of goroutines may use it. It connects anew for each call.
type Client struct {
	server string // host:port
	key    *builtin.TSIGKey
	zones  []string
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// New returns a client, or a *dnsprov.FieldError. It sends nothing yet.
func New(c Config) (*Client, error) {
	server, ok := address(c.Server)
	if !ok {
		return nil, &dnsprov.FieldError{Field: "server", Why: "must be the host name or address of a nameserver, with or without a port, such as ns1.example.com:53"}
	}
	key, err := newKey(c)
	if err != nil {
		return nil, err
	}
	if len(c.Zones) == 0 {
		return nil, &dnsprov.FieldError{Field: "zones", Why: "must name the zones that the key may change"}
	}
	out := &Client{server: server, key: key, dial: c.Dial}
	for _, given := range c.Zones {
		zone := strings.ToLower(strings.TrimSuffix(strings.TrimSpace(given), "."))
		if _, ok := dns.IsDomainName(zone); !ok || zone == "" {
			return nil, &dnsprov.FieldError{Field: "zones", Why: fmt.Sprintf("has %.80q, which is not the name of a zone", given)}
		}
		if !slices.Contains(out.zones, zone) {
			out.zones = append(out.zones, zone)
		}
	}
	if out.dial == nil {
		out.dial = new(net.Dialer).DialContext
	}
	return out, nil
}

// address returns host:port.
func address(server string) (string, bool) {
	host, port, err := net.SplitHostPort(strings.TrimSpace(server))
	if err != nil {
		host, port = strings.Trim(strings.TrimSpace(server), "[]"), defaultPort
	}
	number, err := strconv.ParseUint(port, 10, 16)
	_, notIP := netip.ParseAddr(host)
	_, isName := dns.IsDomainName(host)
	if err != nil || number == 0 || host == "" || notIP != nil && (!isName || strings.ContainsAny(host, " :/@")) {
		return "", false
	}
	return net.JoinHostPort(host, port), true
}

func newKey(c Config) (*builtin.TSIGKey, error) {
	name := dns.CanonicalName(strings.TrimSpace(c.KeyName))
	if _, ok := dns.IsDomainName(name); !ok || name == "." {
		return nil, &dnsprov.FieldError{Field: "key_name", Why: "must be the name of the key, as the nameserver has it"}
	}
	algorithm := dns.CanonicalName(strings.TrimSpace(c.Algorithm))
	switch algorithm {
	case ".":
		algorithm = defaultAlgorithm
	case dns.HmacSHA224, dns.HmacSHA256, dns.HmacSHA384, dns.HmacSHA512:
	case dns.HmacSHA1, "hmac-md5.", "hmac-md5.sig-alg.reg.int.":
		return nil, &dnsprov.FieldError{Field: "algorithm", Why: fmt.Sprintf("%s is too weak: give the nameserver a key for hmac-sha256", strings.TrimSuffix(algorithm, "."))}
	default:
		return nil, &dnsprov.FieldError{Field: "algorithm", Why: "must be hmac-sha224, hmac-sha256, hmac-sha384 or hmac-sha512"}
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(c.Secret))
	if err != nil || len(secret) == 0 {
		return nil, &dnsprov.FieldError{Field: "secret", Why: "must be the key's secret in base64"}
	}
	return &builtin.TSIGKey{Name: name, Algorithm: algorithm, Secret: secret}, nil
}

// zone returns the longest of the zones that a domain is in.
func (c *Client) zone(domain string) (string, error) {
	found := ""
	for _, zone := range c.zones {
		if dnsprov.IsWithin(domain, zone) && len(zone) > len(found) {
			found = zone
		}
	}
	if found == "" {
		return "", fmt.Errorf("rfc2136: %w: %s is in none of %s", dnsprov.ErrZoneNotFound, domain, strings.Join(c.zones, ", "))
	}
	return found, nil
}

// FindZone returns the name of the zone that a domain is in: the longest one of Config.Zones. It
// does not ask the server.
func (c *Client) FindZone(_ context.Context, domain string) (string, error) { return c.zone(domain) }

// Check asks the server whether it takes updates of each zone with the key, by an update that
// requires that the zone's name is in use and changes nothing (RFC 2136 section 2.4.4). A server
// that compares each record with a policy may still refuse some changes. The errors are
// ErrNoAnswer, ErrClock, dnsprov.ErrCredential, dnsprov.ErrZoneNotFound, and others.
func (c *Client) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	return c.session(ctx, func(s *session) error {
		for _, zone := range c.zones {
			if err := s.try(zone); err != nil {
				return err
			}
		}
		return nil
	})
}

// Records lists the zone's records at the domain and below it, all of them as foreign, without
// those that the server makes itself: the SOA and those of DNSSEC. If the server refuses the
// transfer of the zone (RFC 5936), it asks for the sets of at.Ask; without any, the refusal is the
// error. A record has its Key as ID, unless it is in another form than Apply writes it, such as a
// text that is split elsewhere.
func (c *Client) Records(ctx context.Context, at dnsprov.ZoneRef) ([]dnsprov.Record, error) {
	zone, err := c.zone(at.Domain)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	var found []dns.RR
	err = c.session(ctx, func(s *session) error {
		found, err = s.transfer(zone, at.Domain)
		return err
	})
	var refused *refusal
	if errors.As(err, &refused) && refused.mayAsk() && len(at.Ask) > 0 {
		err = c.session(ctx, func(s *session) error {
			found, err = s.read(zone, at.Domain, at.Ask)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	out := make([]dnsprov.Record, 0, len(found))
	seen := map[string]bool{}
	for _, rr := range found {
		k := keyOf(rr)
		r := rrset.Of(rr).Record(dnsprov.Set{Name: strings.TrimSuffix(k.name, "."), Type: dns.Type(k.typ).String()})
		if r.ID == "" || !seen[r.ID] {
			seen[r.ID] = true
			out = append(out, r)
		}
	}
	return out, nil
}
