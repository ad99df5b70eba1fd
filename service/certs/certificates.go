package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// hostSet is the id of the certificate of this host's own name.
const hostSet = "host"

// An issued certificate is one that a TLS handshake may show.
type issued struct {
	Set  string // whose it is
	cert *tls.Certificate
}

// certificates are those that we serve, in memory: a handshake never reads the store. Whoever
// changes them makes a new map.
type certificates struct {
	Index atomic.Pointer[map[string]issued] // by name

	changing sync.Mutex        // the index
	issuers  map[string][]byte // certificates of authorities, which are the same for all; guarded by changing

	mu      sync.Mutex
	answers map[string]string // of http-01 challenges, by token

	joining chan struct{} // holds a value while nobody makes the client
	Client  *ca.Client    // nil: not made yet; guarded by joining
	Orders  *ca.RateLimiter
}

const (
	ordersBurst = 50               // of new orders at once
	ordersEvery = 45 * time.Second // then; an authority may allow 300 in three hours
)

func newCertificates(now func() time.Time) *certificates {
	c := &certificates{
		issuers: map[string][]byte{}, answers: map[string]string{}, joining: make(chan struct{}, 1),
		Orders: ca.NewRateLimiter(ordersBurst, ordersEvery, now),
	}
	c.Index.Store(&map[string]issued{})
	c.joining <- struct{}{}
	return c
}

// CertificateFor gives the certificate that a certificate authority gave us for a name, lower-case,
// without a trailing dot; nil if there is none.
func (s *Service) CertificateFor(name string) *tls.Certificate {
	return (*s.certs.Index.Load())[name].cert
}

// HostCertificate gives the one of this host's own name; nil if there is none.
func (s *Service) HostCertificate() *tls.Certificate { return s.CertificateFor(s.Config.Hostname) }

// ChallengeAnswer gives what a certificate authority is to find under a token (RFC 8555 section
// 8.3).
func (s *Service) ChallengeAnswer(token string) (string, bool) {
	s.certs.mu.Lock()
	defer s.certs.mu.Unlock()
	answer, ok := s.certs.answers[token]
	return answer, ok
}

// LoadCertificates reads every certificate that we have, so that the first handshake sees it.
func (s *Service) LoadCertificates() error {
	if s.Config.ACME == nil {
		return nil
	}
	return s.Store.View(func(tx *store.Tx) error {
		index := map[string]issued{}
		s.certs.changing.Lock()
		defer s.certs.changing.Unlock()
		for c := range store.Certificates.All(tx) {
			if len(c.Chain) == 0 || c.ID == hostSet && !s.Config.ACME.Host {
				continue
			}
			cert, err := s.openCertificate(c)
			if err != nil { // the next one will open
				s.Log.Error("open a certificate", "names", c.Names, "error", err)
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

// openCertificate makes what TLS needs of a record. The caller holds changing.
func (s *Service) openCertificate(c *store.Certificate) (*tls.Certificate, error) {
	text, err := s.Keys.Open(core.CertificatePlace(c.ID), c.Key)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("key of the certificate of %s: %w", c.ID, err)
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

// serveCertificate shows the certificate of a record from now on.
func (s *Service) serveCertificate(c *store.Certificate) {
	s.certs.changing.Lock()
	defer s.certs.changing.Unlock()
	cert, err := s.openCertificate(c)
	if err != nil {
		s.Log.Error("open a certificate", "names", c.Names, "error", err)
		return
	}
	index := s.certs.without(c.ID)
	for _, name := range c.Names {
		index[name] = issued{c.ID, cert}
	}
	s.certs.Index.Store(&index)
}

// without is a copy of the index without the names of a set. The caller holds changing.
func (c *certificates) without(set string) map[string]issued {
	index := maps.Clone(*c.Index.Load())
	maps.DeleteFunc(index, func(_ string, i issued) bool { return i.Set == set })
	return index
}

// dropCertificate forgets the certificate of a set.
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
