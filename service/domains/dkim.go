package domains

import (
	"context"
	"crypto"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

// A dkimKey is a new key that no domain has yet.
type dkimKey struct {
	selector string
	text     []byte // PKCS#8 PEM
	record   string // the value of its DNS record
}

// generateDKIM generates the keys of one domain: an RSA key, which all verifiers support, and an
// Ed25519 key (RFC 8463). It takes some tenths of a second, so it is called outside of
// transactions.
func (s *Service) generateDKIM() ([]dkimKey, error) {
	var out []dkimKey
	for _, kind := range []struct {
		selector string
		generate func() ([]byte, crypto.Signer, error)
	}{{zonedata.RSASelector, s.GenerateRSA}, {zonedata.Ed25519Selector, auth.GenerateEd25519}} {
		text, key, err := kind.generate()
		if err != nil {
			return nil, err
		}
		out = append(out, dkimKey{kind.selector, text, auth.KeyRecord(key)})
	}
	return out, nil
}

// generateDKIMFor generates the keys of several domains, by name.
func (s *Service) generateDKIMFor(ctx context.Context, names []string) (map[string][]dkimKey, error) {
	var mu sync.Mutex
	out := map[string][]dkimKey{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, name := range names {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			keys, err := s.generateDKIM()
			mu.Lock()
			defer mu.Unlock()
			out[name] = keys
			return err
		})
	}
	return out, g.Wait()
}

// setDKIM gives a domain its keys.
func (s *Service) setDKIM(d *store.Domain, keys []dkimKey) {
	d.DKIM = nil
	for _, k := range keys {
		d.DKIM = append(d.DKIM, store.DKIMKey{Selector: k.selector, Sealed: s.Keys.Seal(store.DKIMBinding(d.ID), k.text), Record: k.record})
	}
}
