package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/store"
)

const addressTimeout = 20 * time.Second // time limit for the lookup of one name's IP addresses

// A servedCertificate is a certificate for one name, ready for TLS handshakes.
type servedCertificate struct {
	Set  string // ID of its nameSet
	cert *tls.Certificate
}

// certificates holds the served certificates in memory, so that handshakes do not read the store. A
// change replaces the whole map.
type certificates struct {
	Index atomic.Pointer[map[string]servedCertificate] // by domain name

	changing sync.Mutex        // held while Index is replaced
	issuers  map[string][]byte // intermediate certificates, so that chains share the same bytes; guarded by changing

	mu      sync.Mutex
	answers map[string]string // answers to http-01 challenges, by token

	clientLock chan struct{}   // a lock: contains a value while it is free
	Client     *ca.Client      // nil before its first use; guarded by clientLock
	Orders     *ca.RateLimiter // limits new orders
}

const (
	maxOrderBurst = 50               // new orders that may start at the same time
	orderInterval = 45 * time.Second // after that, one order per interval; an authority may allow 300 in three hours
)

func newCertificates(now func() time.Time) *certificates {
	c := &certificates{
		issuers: map[string][]byte{}, answers: map[string]string{}, clientLock: make(chan struct{}, 1),
		Orders: ca.NewRateLimiter(maxOrderBurst, orderInterval, now),
	}
	c.Index.Store(&map[string]servedCertificate{})
	c.clientLock <- struct{}{}
	return c
}

// CertificateFor returns the served certificate for a name; nil if there is none. The name must be
// in lower case, without a dot at the end.
func (s *Service) CertificateFor(name string) *tls.Certificate {
	return (*s.certs.Index.Load())[name].cert
}

// HostCertificate returns the certificate of this host's own name; nil if there is none.
func (s *Service) HostCertificate() *tls.Certificate { return s.CertificateFor(s.Config.Hostname) }

// FirstExpiry returns the earliest expiry of all served certificates, except that of this host's
// own name. It returns the zero time if there is none.
func (s *Service) FirstExpiry() (first time.Time) {
	for name, one := range *s.certs.Index.Load() {
		if name == s.Config.Hostname || one.cert == nil {
			continue
		}
		leaf, err := x509.ParseCertificate(one.cert.Certificate[0])
		if err == nil && (first.IsZero() || leaf.NotAfter.Before(first)) {
			first = leaf.NotAfter
		}
	}
	return first
}

// ChallengeAnswer returns the answer to the http-01 challenge with the given token (RFC 8555
// section 8.3).
func (s *Service) ChallengeAnswer(token string) (answer string, found bool) {
	s.certs.mu.Lock()
	defer s.certs.mu.Unlock()
	answer, found = s.certs.answers[token]
	return answer, found
}

// LoadCertificates reads all certificates from the store. It must be called before the first
// handshake.
func (s *Service) LoadCertificates() error {
	if s.Config.ACME == nil {
		return nil
	}
	return s.Store.View(func(tx *store.Tx) error {
		index := map[string]servedCertificate{}
		s.certs.changing.Lock()
		defer s.certs.changing.Unlock()
		for c := range store.Certificates.All(tx) {
			if len(c.Chain) == 0 || c.ID == store.HostCertificate && !s.Config.ACME.Host {
				continue
			}
			cert, err := s.openCertificate(c)
			if err != nil { // the other certificates are served, and this one can be renewed
				s.Log.Error("could not open a certificate", "names", c.Names, "error", err)
				continue
			}
			for _, name := range c.Names {
				index[name] = servedCertificate{c.ID, cert}
			}
		}
		s.certs.Index.Store(&index)
		return nil
	})
}

// openCertificate converts a stored certificate for use in TLS. The caller must hold the mutex
// certificates.changing.
func (s *Service) openCertificate(c *store.Certificate) (*tls.Certificate, error) {
	text, err := s.Keys.Open(store.CertificateBinding(c.ID), c.Key)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("parse the private key for the certificate of %s: %w", c.ID, err)
	}
	out := &tls.Certificate{PrivateKey: key}
	for i, der := range c.Chain {
		if i > 0 {
			if same, ok := s.certs.issuers[string(der)]; ok {
				der = same
			} else {
				s.certs.issuers[string(der)] = der
			}
		}
		out.Certificate = append(out.Certificate, der)
	}
	return out, nil
}

// serveCertificate replaces the served certificates of a nameSet by a stored one.
func (s *Service) serveCertificate(c *store.Certificate) {
	s.certs.changing.Lock()
	defer s.certs.changing.Unlock()
	cert, err := s.openCertificate(c)
	if err != nil {
		s.Log.Error("could not open a certificate", "names", c.Names, "error", err)
		return
	}
	index := s.certs.indexWithout(c.ID)
	for _, name := range c.Names {
		index[name] = servedCertificate{c.ID, cert}
	}
	s.certs.Index.Store(&index)
}

// indexWithout returns a copy of Index without the names of a nameSet. The caller must hold the
// mutex c.changing.
func (c *certificates) indexWithout(set string) map[string]servedCertificate {
	index := maps.Clone(*c.Index.Load())
	maps.DeleteFunc(index, func(_ string, i servedCertificate) bool { return i.Set == set })
	return index
}

// DropCertificate deletes the certificate of a nameSet. After the commit it is no longer served.
func (s *Service) DropCertificate(tx *store.Tx, set string) error {
	_, err := store.Certificates.Get(tx, set)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	tx.After(func() {
		s.certs.changing.Lock()
		defer s.certs.changing.Unlock()
		index := s.certs.indexWithout(set)
		s.certs.Index.Store(&index)
	})
	return store.Certificates.Delete(tx, set)
}

const challengeLabel = "_acme-challenge." // prefix of the name of a dns-01 challenge (RFC 8555 section 8.4)

// A nameSet has the names for one certificate: names of one domain, or the name of this host.
type nameSet struct {
	id      string   // the domain's ID, or store.HostCertificate
	kind    string   // the kind of challenge: ca.DNS01 or ca.HTTP01
	names   []string // names that point to this host
	unknown []string // names whose lookup failed, so that it is not known where they point
}

// hostedNames returns the names of a domain under which this host offers an HTTPS service.
func (s *Service) hostedNames(d *store.Domain) []string {
	if s.Config.ACME == nil || !s.Config.HTTPS || d.Status != store.DomainComplete || d.Claim != store.ClaimProven || d.DNSProvider == store.DomainProviderExternal {
		return nil
	}
	var out []string
	if d.RedirectURL != "" {
		out = append(out, d.Name)
	}
	if d.RedirectsWWW() {
		out = append(out, "www."+d.Name)
	}
	out = append(out, "mta-sts."+d.Name, "autoconfig."+d.Name, "autodiscover."+d.Name)
	return slices.DeleteFunc(out, func(name string) bool { return name == s.Config.Hostname })
}

// candidateNames returns the hosted names of a domain that may get a certificate. If we serve the
// domain's zone, these are the names that the zone points to this host. Otherwise it returns all
// hosted names, and domainNameSet looks them up. Names that are connected as domains of their own
// are left out.
func (s *Service) candidateNames(tx *store.Tx, d *store.Domain) ([]string, error) {
	names := s.hostedNames(d)
	names = slices.DeleteFunc(names, func(name string) bool { return name != d.Name && isOwnDomain(tx, d.AccountID, name) })
	if len(names) == 0 || d.DNSProvider != dnsprov.Builtin {
		return names, nil
	}
	if d.NSStatus != store.DomainNSVerified {
		return nil, nil
	}
	zone := s.zones.Records(tx, d)
	return slices.DeleteFunc(names, func(name string) bool { return !s.pointsHere(zone, name) }), nil
}

// pointsHere reports whether a zone points a name to this host, and does not redirect the dns-01
// challenge for the name to another zone.
func (s *Service) pointsHere(zone []dnsprov.Record, name string) bool {
	here := false
	for _, r := range zone {
		switch {
		case r.Name == challengeLabel+name && r.Type == "CNAME":
			return false
		case r.Name != name:
		case r.Type == "CNAME":
			return r.Value == s.Config.Hostname
		case r.Type == "A" || r.Type == "AAAA":
			ip, err := netip.ParseAddr(r.Value)
			if err != nil || !s.isOwnAddress(ip) {
				return false
			}
			here = true
		}
	}
	return here
}

// isOwnAddress reports whether an IP address is one of this host's.
func (s *Service) isOwnAddress(ip netip.Addr) bool {
	return slices.ContainsFunc(s.Config.PublicIPs, func(own netip.Addr) bool { return own.Unmap() == ip.Unmap() })
}

// domainNameSet returns the names of a domain that point to this host now. If we do not serve the
// domain's zone, it looks them up.
func (s *Service) domainNameSet(ctx context.Context, d *store.Domain, candidates []string) (*nameSet, error) {
	set := &nameSet{id: d.ID, kind: ca.DNS01, names: candidates}
	if d.DNSProvider == dnsprov.Builtin {
		return set, nil
	}
	set.kind, set.names = ca.HTTP01, nil
	err := s.zones.WithLookupSlot(ctx, d.AccountID, d.Name, func() error {
		for _, name := range candidates {
			addrs, err := s.addressesOf(ctx, name)
			switch {
			case err != nil:
				set.unknown = append(set.unknown, name)
			case len(addrs) > 0 && !slices.ContainsFunc(addrs, func(ip netip.Addr) bool { return !s.isOwnAddress(ip) }):
				set.names = append(set.names, name)
			}
		}
		return ctx.Err()
	})
	return set, err
}

// addressesOf looks up the IP addresses of a name. If the name does not exist, it returns no
// addresses and no error.
func (s *Service) addressesOf(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, addressTimeout)
	defer cancel()
	addrs, err := s.Resolver.LookupNetIP(lookup.Fresh(ctx), "ip", name+".")
	if lookup.IsNotFound(err) {
		return nil, nil
	}
	return addrs, err
}

// hostNameSet returns the nameSet of this host. It contains the host's name only if the DNS has an
// IP address for it, because otherwise the authority could not reach this host.
func (s *Service) hostNameSet(ctx context.Context) (*nameSet, error) {
	set := &nameSet{id: store.HostCertificate, kind: ca.HTTP01}
	addrs, err := s.addressesOf(ctx, s.Config.Hostname)
	switch {
	case err != nil:
		set.unknown = []string{s.Config.Hostname}
	case len(addrs) > 0:
		set.names = []string{s.Config.Hostname}
	}
	return set, ctx.Err()
}

// isOwnDomain reports whether a name is connected as a domain of its own: by the account, or by
// another account that has proven its claim.
func isOwnDomain(tx *store.Tx, accountID, name string) bool {
	for _, o := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
		if o.AccountID == accountID || o.Claim == store.ClaimProven {
			return true
		}
	}
	return false
}
