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

// keyPublishTime is how long it takes until a newly published key is in every DNS cache that has
// keys of the host (RFC 7671 section 8.1).
const keyPublishTime = 2 * dnsprov.ManagedTTL * time.Second

// orderKey returns the key for a new order. For the host's own certificate, other servers must
// already know the key from the DNS. So it is the key that was published in advance or, if that was
// less than keyPublishTime ago, the key in use.
func (c *certRun) orderKey() (*ecdsa.PrivateKey, []byte, error) {
	binding, sealed := store.CertificateBinding(c.set.id), c.row.NextKey
	if c.s.Now().Before(c.row.NextSince.Add(keyPublishTime)) {
		sealed = c.row.Key
	}
	if len(sealed) > 0 {
		if key, err := c.s.openKey(binding, sealed); err == nil {
			return key, sealed, nil
		}
		c.row.NextKey = nil // the key cannot be opened, so a new one must be published
	}
	return c.s.newKey(binding)
}

// prepareKey generates the next key of the host's certificate, unless there is one. The key is
// published when the row is written, before it is used.
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
		return fmt.Errorf("encode the next public key for the certificate of %s: %w", c.s.Config.Hostname, err)
	}
	digest := sha256.Sum256(public)
	r.NextKey, r.NextDigest, r.NextSince, c.hasNewKey = sealed, digest[:], c.s.Now(), true
	return nil
}

// publishKeys publishes the zone that contains the host's name, with its new keys, if we serve this
// zone.
func (s *Service) publishKeys(tx *store.Tx) error {
	return s.zones.PublishAbove(tx, nil, "_tcp."+s.Config.Hostname)
}
