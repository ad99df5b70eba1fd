package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/store"
)

// authorityClient returns the ACME client of the certificate authority. If there is no account at
// the authority yet, it registers one.
func (s *Service) authorityClient(ctx context.Context) (*ca.Client, error) {
	select {
	case <-s.certs.clientLock:
		defer func() { s.certs.clientLock <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.certs.Client != nil {
		return s.certs.Client, nil
	}
	row, key, err := s.acmeAccount()
	if err != nil {
		return nil, err
	}
	client := ca.New(s.acmeConfig(), ca.Account{Key: key, URL: row.URL})
	if row.URL == "" {
		url, err := client.Register(ctx)
		if err != nil {
			return nil, err
		}
		if err := s.setAccountURL(row.Directory, url); err != nil {
			return nil, err
		}
		s.LogOf(ctx).Info("registered with the certificate authority, which agrees to its terms of service", "directory", row.Directory, "account", url)
	}
	s.certs.Client = client
	return client, nil
}

// forgetAuthority drops the ACME account, so that the next call of authorityClient registers a new
// one.
func (s *Service) forgetAuthority() error {
	<-s.certs.clientLock
	defer func() { s.certs.clientLock <- struct{}{} }()
	s.certs.Client = nil
	return s.setAccountURL(s.Config.ACME.Directory, "")
}

// setAccountURL stores the URL of the ACME account; "" if the account must be registered again.
func (s *Service) setAccountURL(directory, url string) error {
	return s.Store.Update(func(tx *store.Tx) error {
		row, err := store.CertificateAccounts.Get(tx, directory)
		if err != nil {
			return err
		}
		row.URL = url
		return store.CertificateAccounts.Put(tx, row)
	})
}

// acmeConfig returns the configuration of the ACME client. The operator has chosen the authority,
// so it may have a private IP address.
func (s *Service) acmeConfig() ca.Config {
	a := s.Config.ACME
	t := (&netguard.Guard{AllowPrivate: true}).Transport(s.Resolver, s.Config.RootCAs)
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout, t.IdleConnTimeout = 10*time.Second, 30*time.Second, 30*time.Second
	t.MaxIdleConns, t.ForceAttemptHTTP2 = 4, true
	return ca.Config{
		Directory: a.Directory, Email: a.Email, EABKeyID: a.EABKeyID, EABKey: a.EABKey, Agent: "mailstead/" + s.Config.Version, Now: s.Now,
		HTTP: t,
	}
}

// acmeAccount returns the stored ACME account and its key. If there is none, it creates an account
// that is not registered yet.
func (s *Service) acmeAccount() (*store.CertificateAccount, *ecdsa.PrivateKey, error) {
	directory := s.Config.ACME.Directory
	fresh, sealed, err := s.newKey(store.CertificateAccountBinding(directory))
	if err != nil {
		return nil, nil, err
	}
	var row *store.CertificateAccount
	err = s.Store.Update(func(tx *store.Tx) (err error) {
		row, err = store.CertificateAccounts.Get(tx, directory)
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		row = &store.CertificateAccount{Directory: directory, Key: sealed, CreatedAt: tx.Now()}
		return store.CertificateAccounts.Put(tx, row)
	})
	if err != nil {
		return nil, nil, err
	}
	if string(row.Key) == string(sealed) {
		return row, fresh, nil
	}
	key, err := s.openKey(store.CertificateAccountBinding(directory), row.Key)
	return row, key, err
}

// newKey generates a key and seals it.
func (s *Service) newKey(binding string) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, s.Keys.Seal(binding, text), nil
}

// openKey opens a key that newKey has sealed.
func (s *Service) openKey(binding string, sealed []byte) (*ecdsa.PrivateKey, error) {
	text, err := s.Keys.Open(binding, sealed)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("parse the private key of %s: %w", binding, err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("parse the private key of %s: it is a %T, not an ECDSA key", binding, key)
	}
	return ec, nil
}

const (
	secondaryTimeout  = time.Minute     // how long to wait until nameservers have the challenges
	secondaryInterval = 2 * time.Second // time between two queries to a nameserver
)

// answerChallenges makes our HTTP listeners answer http-01 challenges until withdraw is called.
func (c *certificates) answerChallenges(all []ca.Challenge) (withdraw func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range all {
		c.answers[ch.Token] = ch.Answer
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, ch := range all {
			delete(c.answers, ch.Token)
		}
	}
}

// publishChallenges adds dns-01 challenges to the zone of a domain, and waits until all nameservers
// of the zone have them.
func (s *Service) publishChallenges(ctx context.Context, domainID string, all []ca.Challenge) error {
	var texts []store.DNSChallenge
	for _, ch := range all {
		texts = append(texts, store.DNSChallenge{Name: challengeLabel + ch.Name, Value: ch.Answer})
	}
	if err := s.setChallenges(domainID, texts); err != nil {
		return err
	}
	s.awaitSecondaries(ctx, texts)
	return ctx.Err()
}

// withdrawChallenges removes the dns-01 challenges from the zone of a domain.
func (s *Service) withdrawChallenges(domainID string) error {
	d, err := s.DomainByID(domainID)
	if errors.Is(err, store.ErrNotFound) || err == nil && len(d.Challenges) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return s.setChallenges(domainID, nil)
}

// setChallenges replaces the dns-01 challenges in the zone of a domain.
func (s *Service) setChallenges(domainID string, texts []store.DNSChallenge) error {
	give := func(put func(*store.Tx, *store.Domain) error) func(tx *store.Tx) error {
		return func(tx *store.Tx) error {
			d, err := store.Domains.Get(tx, domainID)
			if errors.Is(err, store.ErrNotFound) && len(texts) == 0 {
				return nil
			}
			if err != nil {
				return err
			}
			d.Challenges = texts
			return put(tx, d)
		}
	}
	if len(texts) > 0 {
		err := s.Store.View(give(func(tx *store.Tx, d *store.Domain) error {
			if err := s.zones.CheckZone(tx, d); err != nil { // checked before the domain is written, so that the present zone is served if this fails
				return fmt.Errorf("add challenges to the zone of %s: %w", d.Name, err)
			}
			return nil
		}))
		if err != nil {
			return err
		}
	}
	err := s.Store.Update(give(s.zones.PutZone))
	s.zones.MakeZones()
	return err
}

// awaitSecondaries waits until each of our nameservers on another host answers with the challenges,
// but for at most secondaryTimeout. After that it returns, too, because the authority may ask
// another nameserver.
func (s *Service) awaitSecondaries(ctx context.Context, texts []store.DNSChallenge) {
	ctx, cancel := context.WithTimeout(ctx, secondaryTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range s.Config.Nameservers {
		wg.Go(func() {
			addrs, _ := s.addressesOf(ctx, name) // if the lookup fails, do not wait for this nameserver
			for _, ip := range addrs {
				if !s.isOwnAddress(ip) {
					s.awaitSecondary(ctx, ip, texts)
				}
			}
		})
	}
	wg.Wait()
}

// awaitSecondary waits until the nameserver with an IP address answers with the challenges, or ctx
// ends.
func (s *Service) awaitSecondary(ctx context.Context, ip netip.Addr, texts []store.DNSChallenge) {
	resolver := lookup.New(lookup.Options{Servers: []string{net.JoinHostPort(ip.Unmap().String(), "53")}, MaxBytes: -1})
	defer resolver.Close()
	for _, t := range texts {
		for {
			found, err := resolver.LookupTXT(ctx, t.Name+".")
			if slices.Contains(found, t.Value) {
				break
			}
			select {
			case <-time.After(secondaryInterval):
			case <-ctx.Done():
				s.LogOf(ctx).Warn("a nameserver does not have the ACME challenge yet", "nameserver", ip, "name", t.Name, "error", err)
				return
			}
		}
	}
}
