package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/store"
)

// keyKnownAfter is how long after its publication a key is in every DNS cache that has records of
// the host's keys (RFC 7671 section 8.1).
const keyKnownAfter = 2 * dnsprov.ManagedTTL * time.Second

// orderKey returns the key for a new order. For the host's own certificate it must be a key that
// other servers know already: the one published in advance or, until caches have that one, the one
// in use.
func (c *certRun) orderKey() (*ecdsa.PrivateKey, []byte, error) {
	binding, sealed := store.CertificateBinding(c.set.id), c.row.NextKey
	if c.s.Now().Before(c.row.NextSince.Add(keyKnownAfter)) {
		sealed = c.row.Key
	}
	if len(sealed) > 0 {
		if key, err := c.s.openKey(binding, sealed); err == nil {
			return key, sealed, nil
		}
		c.row.NextKey = nil // it cannot be opened, so another one must be published
	}
	return c.s.newKey(binding)
}

// prepareKey generates the next key of the host's certificate, unless there is one, so that it is
// published before it is used. Writing the row stores and publishes it.
func (c *certRun) prepareKey() error {
	r := c.row
	if c.set.id != store.HostCertificate || len(r.Chain) == 0 || len(r.NextKey) > 0 && !bytes.Equal(r.NextKey, r.Key) {
		return nil
	}
	key, sealed, err := c.s.newKey(store.CertificateBinding(c.set.id))
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode the next public key of %s: %w", c.s.Config.Hostname, err)
	}
	digest := sha256.Sum256(public)
	r.NextKey, r.NextDigest, r.NextSince, c.prepared = sealed, digest[:], c.s.Now(), true
	return nil
}

// publishKeys publishes again the zone that has the host's name, if we serve it.
func (s *Service) publishKeys(tx *store.Tx) error {
	return s.zones.PublishAbove(tx, nil, "_tcp."+s.Config.Hostname)
}
