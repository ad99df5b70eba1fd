package store

import (
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// A DNSCredential lets us change the records of an account's domains at a DNS provider.
type DNSCredential struct {
	ID         string // dnsc_…
	AccountID  string
	Provider   string // one of the DomainProvider… constants
	Name       string
	Zones      []string  // the zones that it is for; empty: the provider knows them
	Sealed     []byte    // its secret fields as a JSON object of texts, sealed
	Error      string    // why the provider refused it; "": it was accepted the last time
	LastUsedAt time.Time // may lag by a minute; zero: it was not used since it was made
	CreatedAt  time.Time
	UpdatedAt  time.Time // when its fields last changed
}

// DNSCredentials keeps the DNS credentials of every account.
var (
	DNSCredentials = engine.NewTable("dns_credential", func(c *DNSCredential) string { return c.ID }).
			Watched(func(_ *engine.Tx, c *DNSCredential) Change { return Change{Account: c.AccountID, ID: c.ID} }).Sealed((*DNSCredential).visitSecrets)
	DNSCredentialsByAccount = DNSCredentials.Index("account", func(c *DNSCredential) string { return c.AccountID })
)

// DNSCredentialBinding returns the associated data with which the secret fields of a DNS credential
// are encrypted.
func DNSCredentialBinding(id string) string { return "dns credential " + id }

func (c *DNSCredential) visitSecrets(visit engine.SecretVisitor) {
	visit(DNSCredentialBinding(c.ID), &c.Sealed)
}
