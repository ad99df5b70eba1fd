package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
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

const addressesFor = 20 * time.Second // for the lookup of one name's addresses, with the wait for its turn

// An issued is a certificate that a TLS handshake can use.
type issued struct {
	Set  string // id of its nameSet
	cert *tls.Certificate
}

// certificates holds the served certificates in memory: a handshake never reads the store. A change
// replaces the whole map.
type certificates struct {
	Index atomic.Pointer[map[string]issued] // by name

	changing sync.Mutex        // held while the index changes
	issuers  map[string][]byte // intermediate certificates, shared by all chains; guarded by changing

	mu      sync.Mutex
	answers map[string]string // of http-01 challenges, by token

	clientLock chan struct{} // a lock; it holds a value while nobody has it
	Client     *ca.Client    // nil: not made yet; guarded by clientLock
	Orders     *ca.RateLimiter
}

const (
	ordersBurst = 50               // new orders at once
	ordersEvery = 45 * time.Second // then one in this time; an authority may allow 300 in three hours
)

func newCertificates(now func() time.Time) *certificates {
	c := &certificates{
		issuers: map[string][]byte{}, answers: map[string]string{}, clientLock: make(chan struct{}, 1),
		Orders: ca.NewRateLimiter(ordersBurst, ordersEvery, now),
	}
	c.Index.Store(&map[string]issued{})
	c.clientLock <- struct{}{}
	return c
}

// CertificateFor returns the certificate from the authority for a name, lower-case, without a
// trailing dot; nil if there is none.
func (s *Service) CertificateFor(name string) *tls.Certificate {
	return (*s.certs.Index.Load())[name].cert
}

// HostCertificate returns the certificate of this host's own name; nil if there is none.
func (s *Service) HostCertificate() *tls.Certificate { return s.CertificateFor(s.Config.Hostname) }

// FirstExpiry returns the earliest expiry of all certificates from the authority, except this
// host's; zero: there is none.
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

// ChallengeAnswer returns the answer to an http-01 challenge with this token (RFC 8555 section
// 8.3).
func (s *Service) ChallengeAnswer(token string) (string, bool) {
	s.certs.mu.Lock()
	defer s.certs.mu.Unlock()
	answer, ok := s.certs.answers[token]
	return answer, ok
}

// LoadCertificates reads all certificates from the store, before the first handshake.
func (s *Service) LoadCertificates() error {
	if s.Config.ACME == nil {
		return nil
	}
	return s.Store.View(func(tx *store.Tx) error {
		index := map[string]issued{}
		s.certs.changing.Lock()
		defer s.certs.changing.Unlock()
		for c := range store.Certificates.All(tx) {
			if len(c.Chain) == 0 || c.ID == store.HostCertificate && !s.Config.ACME.Host {
				continue
			}
			cert, err := s.openCertificate(c)
			if err != nil { // the renewed one can be opened
				s.Log.Error("could not open a certificate", "names", c.Names, "error", err)
				continue
			}
			for _, name := range c.Names {
				index[name] = issued{c.ID, cert}
			}
		}
		s.certs.Index.Store(&index)
		return nil
	})
}

// openCertificate makes a TLS certificate from a record. The caller holds changing.
func (s *Service) openCertificate(c *store.Certificate) (*tls.Certificate, error) {
	text, err := s.Keys.Open(store.CertificateBinding(c.ID), c.Key)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("read the key of the certificate of %s: %w", c.ID, err)
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

// serveCertificate makes handshakes use the certificate of a record from now on.
func (s *Service) serveCertificate(c *store.Certificate) {
	s.certs.changing.Lock()
	defer s.certs.changing.Unlock()
	cert, err := s.openCertificate(c)
	if err != nil {
		s.Log.Error("could not open a certificate", "names", c.Names, "error", err)
		return
	}
	index := s.certs.without(c.ID)
	for _, name := range c.Names {
		index[name] = issued{c.ID, cert}
	}
	s.certs.Index.Store(&index)
}

// without returns a copy of the index without the names of a set. The caller holds changing.
func (c *certificates) without(set string) map[string]issued {
	index := maps.Clone(*c.Index.Load())
	maps.DeleteFunc(index, func(_ string, i issued) bool { return i.Set == set })
	return index
}

// DropCertificate deletes the certificate of a set, and stops serving it after the commit.
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
		index := s.certs.without(set)
		s.certs.Index.Store(&index)
	})
	return store.Certificates.Delete(tx, set)
}

const acmeLabel = "_acme-challenge." // RFC 8555 section 8.4

// A nameSet is the names for one certificate: of a domain or of this host.
type nameSet struct {
	id     string
	kind   string // the kind of its challenges
	names  []string
	unsure []string // names whose lookup failed
}

// hostedNames returns the names of a domain at which this host serves something.
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

// candidates returns the hosted names of a domain that may get a certificate. For a domain that we
// serve, these are the names that its zone points here; for others, all of them, since only a
// lookup shows that. Names that are connected as domains themselves are left out.
func (s *Service) candidates(tx *store.Tx, d *store.Domain) ([]string, error) {
	names := s.hostedNames(d)
	names = slices.DeleteFunc(names, func(name string) bool { return name != d.Name && isOwnDomain(tx, d.AccountID, name) })
	if len(names) == 0 || d.DNSProvider != dnsprov.Builtin {
		return names, nil
	}
	if d.NSStatus != store.DomainNSVerified {
		return nil, nil
	}
	zone := s.zones.Records(tx, d)
	return slices.DeleteFunc(names, func(name string) bool { return !s.zoneLeadsHere(zone, name) }), nil
}

// zoneLeadsHere reports whether the records of a zone point a name to this host, and allow a
// challenge there.
func (s *Service) zoneLeadsHere(zone []dnsprov.Record, name string) bool {
	here := false
	for _, r := range zone {
		switch {
		case r.Name == acmeLabel+name && r.Type == "CNAME":
			return false
		case r.Name != name:
		case r.Type == "CNAME":
			return r.Value == s.Config.Hostname
		case r.Type == "A" || r.Type == "AAAA":
			ip, err := netip.ParseAddr(r.Value)
			if err != nil || !s.ownAddress(ip) {
				return false
			}
			here = true
		}
	}
	return here
}

func (s *Service) ownAddress(ip netip.Addr) bool {
	return slices.ContainsFunc(s.Config.PublicIPs, func(own netip.Addr) bool { return own.Unmap() == ip.Unmap() })
}

// domainSet returns the names of a domain that point here now. If others serve the domain, it looks
// them up.
func (s *Service) domainSet(ctx context.Context, d *store.Domain, candidates []string) (*nameSet, error) {
	set := &nameSet{id: d.ID, kind: ca.DNS01, names: candidates}
	if d.DNSProvider == dnsprov.Builtin {
		return set, nil
	}
	set.kind, set.names = ca.HTTP01, nil
	err := s.zones.WithLookupSlot(ctx, func() error {
		for _, name := range candidates {
			addrs, err := s.addressesOf(ctx, name)
			switch {
			case err != nil:
				set.unsure = append(set.unsure, name)
			case len(addrs) > 0 && !slices.ContainsFunc(addrs, func(ip netip.Addr) bool { return !s.ownAddress(ip) }):
				set.names = append(set.names, name)
			}
		}
		return ctx.Err()
	})
	return set, err
}

// addressesOf looks up a name. A name that does not exist has no addresses, and no error.
func (s *Service) addressesOf(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, addressesFor)
	defer cancel()
	addrs, err := s.Resolver.LookupNetIP(lookup.Fresh(ctx), "ip", name+".")
	if e := (*net.DNSError)(nil); errors.As(err, &e) && e.IsNotFound {
		return nil, nil
	}
	return addrs, err
}

// hostSetOf returns the set of this host's own name. It has no name while the DNS has no address
// for it, since the authority could not reach it.
func (s *Service) hostSetOf(ctx context.Context) (*nameSet, error) {
	set := &nameSet{id: store.HostCertificate, kind: ca.HTTP01}
	addrs, err := s.addressesOf(ctx, s.Config.Hostname)
	switch {
	case err != nil:
		set.unsure = []string{s.Config.Hostname}
	case len(addrs) > 0:
		set.names = []string{s.Config.Hostname}
	}
	return set, ctx.Err()
}

// isOwnDomain reports whether a name is connected as a domain itself: by the account, or with
// proof by any account.
func isOwnDomain(tx *store.Tx, accountID, name string) bool {
	for _, o := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
		if o.AccountID == accountID || o.Claim == store.ClaimProven {
			return true
		}
	}
	return false
}
