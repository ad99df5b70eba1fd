package certs_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/ca/catest"
	"github.com/mailstead/mailstead/service/certs"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// hostDomain serves the zone of the host's name, signed or not.
func (c *certified) hostDomain(signed bool) *store.Domain {
	c.t.Helper()
	d := &store.Domain{ID: "dom_host", AccountID: "acc_1", Name: "mailstead.test", DNSProvider: dnsprov.Builtin, Status: store.DomainComplete, NSStatus: store.DomainNSVerified}
	if signed {
		if err := c.Zones.GenerateZoneKey(d); err != nil {
			c.t.Fatal(err)
		}
	}
	servicetest.PutTestDomain(c.t, c.Service, d)
	return d
}

// tlsa returns our server's answer about the host's keys.
func (c *certified) tlsa() []string {
	c.t.Helper()
	zone, ok := c.Zones.Zone("_25._tcp.mail.mailstead.test")
	if !ok {
		return nil
	}
	var out []string
	for _, rr := range zone.Answer(new(dns.Msg).SetQuestion("_25._tcp.mail.mailstead.test.", dns.TypeTLSA)).Answer {
		if r := rr.(*dns.TLSA); r.Usage == 3 && r.Selector == 1 && r.MatchingType == 1 {
			out = append(out, r.Certificate)
		}
	}
	return out
}

// digestOf returns the digest of a certificate's key for a TLSA record 3 1 1.
func digestOf(t *testing.T, cert *tls.Certificate) string {
	t.Helper()
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// renew sets the clock to the renewal, at least after a given time, and renews.
func (c *certified) renew(after time.Duration) {
	c.t.Helper()
	before := c.Certs.HostCertificate()
	c.now = c.now.Add(after)
	if c.now.Before(c.row(store.HostCertificate).RenewAt) {
		c.now = c.row(store.HostCertificate).RenewAt
	}
	if err := c.attempt(store.HostCertificate); c.Certs.HostCertificate() == before {
		c.t.Fatalf("not renewed: %v", err)
	}
}

// TestKeyIsInTheDNSBeforeItIsUsed: whatever a sender has looked up in the last two hours includes
// the key in use.
func TestKeyIsInTheDNSBeforeItIsUsed(t *testing.T) {
	for _, life := range []time.Duration{90 * 24 * time.Hour, 6 * 24 * time.Hour, 100 * time.Minute} {
		c := newCertified(t)
		c.ca.Behave(func(m *catest.Manners) { m.Life = life })
		c.hostDomain(true)
		if got := c.tlsa(); got != nil {
			t.Fatalf("before there is a certificate: %v", got)
		}
		_ = c.attempt(store.HostCertificate)
		type look struct {
			at   time.Time
			seen []string
		}
		var looks []look
		keys := map[string]bool{}
		for range 6 {
			seen, shown := c.tlsa(), digestOf(t, c.Certs.HostCertificate())
			if len(seen) != 2 || seen[0] == seen[1] {
				t.Fatalf("of %s: published %v", life, seen)
			}
			looks, keys[shown] = append(looks, look{c.now, seen}), true
			for _, l := range looks {
				if c.now.Sub(l.at) < 2*time.Hour && !slices.Contains(l.seen, shown) {
					t.Errorf("of %s: at %s nobody could know %s", life, l.at, shown)
				}
			}
			c.renew(0)
		}
		if len(keys) < 2 {
			t.Errorf("of %s: the key never changes", life)
		}
	}
}

// TestKeysOfAnOlderStoreArePublishedAhead: a certificate of an older release gets a next key
// without a renewal, and nothing is published until then.
func TestKeysOfAnOlderStoreArePublishedAhead(t *testing.T) {
	c := newCertified(t)
	_ = c.attempt(store.HostCertificate)
	row := c.row(store.HostCertificate)
	row.NextKey, row.NextDigest, row.NextSince = nil, nil, time.Time{}
	if err := c.Core.Store.Update(func(tx *store.Tx) error { return store.Certificates.Put(tx, row) }); err != nil {
		t.Fatal(err)
	}
	c.hostDomain(true)
	if got := c.tlsa(); got != nil {
		t.Errorf("published without the next key: %v", got)
	}
	shown := c.Certs.HostCertificate()
	if _ = c.attempt(store.HostCertificate); c.Certs.HostCertificate() != shown {
		t.Error("it was renewed")
	}
	if got := c.tlsa(); len(got) != 2 || got[0] != digestOf(t, shown) {
		t.Errorf("published %v", got)
	}
}

// TestKeysThatCannotBeReliedOnAreNotPublished: those of an unsigned zone, and of a certificate from
// a file, whose next key is not known here.
func TestKeysThatCannotBeReliedOnAreNotPublished(t *testing.T) {
	c := newCertified(t)
	c.hostDomain(false)
	_ = c.attempt(store.HostCertificate)
	if got := c.tlsa(); got != nil {
		t.Errorf("in an unsigned zone: %v", got)
	}
	d := c.hostDomain(true)
	if got := c.tlsa(); len(got) != 2 {
		t.Errorf("when it has been signed: %v", got)
	}
	c.Core.Config.ACME.Host = false
	servicetest.PutTestDomain(t, c.Service, d)
	if got := c.tlsa(); got != nil {
		t.Errorf("with a certificate from a file: %v", got)
	}
}

// TestUnreadableNextKeyIsReplaced: a next key that cannot be opened does not stop the renewal.
func TestUnreadableNextKeyIsReplaced(t *testing.T) {
	c := newCertified(t)
	c.hostDomain(true)
	_ = c.attempt(store.HostCertificate)
	row := c.row(store.HostCertificate)
	row.NextKey = []byte("broken")
	if err := c.Core.Store.Update(func(tx *store.Tx) error { return store.Certificates.Put(tx, row) }); err != nil {
		t.Fatal(err)
	}
	c.renew(certs.KeyKnownAfter)
	if got := c.tlsa(); len(got) != 2 || got[0] != digestOf(t, c.Certs.HostCertificate()) || got[1] == hex.EncodeToString(row.NextDigest) {
		t.Errorf("published %v", got)
	}
}
