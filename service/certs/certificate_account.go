package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// authority gives the client that speaks to the certificate authority, with an account that it
// knows. The account is made once, whoever asks first.
func (s *Service) authority(ctx context.Context) (*ca.Client, error) {
	select {
	case <-s.certs.joining:
		defer func() { s.certs.joining <- struct{}{} }()
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
		if err := s.nameAccount(row.Directory, url); err != nil {
			return nil, err
		}
		s.Log.Info("registered with the certificate authority, which agrees to its terms of service", "directory", row.Directory, "account", url)
	}
	s.certs.Client = client
	return client, nil
}

// forgetAuthority has the next one who asks register again.
func (s *Service) forgetAuthority() error {
	<-s.certs.joining
	defer func() { s.certs.joining <- struct{}{} }()
	s.certs.Client = nil
	return s.nameAccount(s.Config.ACME.Directory, "")
}

func (s *Service) nameAccount(directory, url string) error {
	return s.Store.Update(func(tx *store.Tx) error {
		row, err := store.CertificateAccounts.Get(tx, directory)
		if err != nil {
			return err
		}
		row.URL = url
		return store.CertificateAccounts.Put(tx, row)
	})
}

// acmeConfig says how the authority is reached: as the operator's own choice it may be anywhere.
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

// acmeAccount reads the account at the authority, or makes its key.
func (s *Service) acmeAccount() (*store.CertificateAccount, *ecdsa.PrivateKey, error) {
	directory := s.Config.ACME.Directory
	fresh, sealed, err := s.newKey(core.AccountPlace(directory))
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
	key, err := s.openKey(core.AccountPlace(directory), row.Key)
	return row, key, err
}

// newKey makes a key and seals it.
func (s *Service) newKey(place string) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, s.Keys.Seal(place, text), nil
}

func (s *Service) openKey(place string, sealed []byte) (*ecdsa.PrivateKey, error) {
	text, err := s.Keys.Open(place, sealed)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("key of %s: %w", place, err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("key of %s: it is a %T", place, key)
	}
	return ec, nil
}
