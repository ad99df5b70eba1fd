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

// keyKnownAfter is how long after it was published a key is in every cache that has records of the
// host's keys at all (RFC 7671 section 8.1).
const keyKnownAfter = 2 * dnsprov.ManagedTTL * time.Second

// orderKey gives the key for a new order. That of the host's own certificate is one by which other
// servers know the host already: the one published ahead, and while that is not known everywhere
// the one in use.
func (c *certRun) orderKey() (*ecdsa.PrivateKey, []byte, error) {
	place, sealed := store.CertificatePlace(c.set.id), c.row.NextKey
	if c.s.Now().Before(c.row.NextSince.Add(keyKnownAfter)) {
		sealed = c.row.Key
	}
	if len(sealed) > 0 {
		if key, err := c.s.openKey(place, sealed); err == nil {
			return key, sealed, nil
		}
		c.row.NextKey = nil // it cannot be used, so that another is published
	}
	return c.s.newKey(place)
}

// prepareKey makes the key of the host's certificate after this one, unless there is one, so that
// it is known before it is used. It is kept, and published, with the row.
func (c *certRun) prepareKey() error {
	r := c.row
	if c.set.id != store.HostCertificate || len(r.Chain) == 0 || len(r.NextKey) > 0 && !bytes.Equal(r.NextKey, r.Key) {
		return nil
	}
	key, sealed, err := c.s.newKey(store.CertificatePlace(c.set.id))
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("public half of the next key of %s: %w", c.s.Config.Hostname, err)
	}
	digest := sha256.Sum256(public)
	r.NextKey, r.NextDigest, r.NextSince, c.prepared = sealed, digest[:], c.s.Now(), true
	return nil
}

// publishKeys serves the zone again that has the host's name, if it is one of ours.
func (s *Service) publishKeys(tx *store.Tx) error {
	return s.zones.PublishAbove(tx, nil, "_tcp."+s.Config.Hostname)
}
