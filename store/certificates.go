package store

import "time"

// A Certificate is the TLS certificate of one set of names, and what is known of getting the next.
type Certificate struct {
	ID        string   // host, or the id of the domain that the names are of
	Directory string   // of the authority that all else here is about
	Names     []string // that the certificate is for; none while there is none
	Chain     [][]byte // DER, the leaf first
	Key       []byte   // PKCS#8, sealed
	NotBefore time.Time
	NotAfter  time.Time
	RenewAt   time.Time

	NextKey    []byte    // of the certificate after this one, PKCS#8, sealed; host only
	NextDigest []byte    // SHA-256 of its public half (SubjectPublicKeyInfo)
	NextSince  time.Time // it is in the DNS

	Order    CertificateOrder
	Refused  map[string]Refusal // names that the authority did not take, by name
	Failures int                // attempts in a row that came to nothing
	Error    string             // of the newest of them
	NextTry  time.Time          // after it; zero: whenever there is a need
	TriedAt  time.Time
}

// A CertificateOrder is one that was begun at the authority and has no end yet; it has no URL if
// there is none.
type CertificateOrder struct {
	URL     string
	Names   []string
	Key     []byte // of the certificate, PKCS#8, sealed
	BegunAt time.Time
}

// A Refusal is a name that a certificate authority did not take.
type Refusal struct {
	Why   string
	Times int // in a row
	At    time.Time
}

// Certificates keeps them.
var Certificates = newTable("certificate", func(c *Certificate) string { return c.ID })

// A CertificateAccount is ours at a certificate authority.
type CertificateAccount struct {
	Directory string // URL of the authority's directory
	Key       []byte // PKCS#8, sealed
	URL       string // the authority's name for the account; "" until it is registered
	CreatedAt time.Time
}

// CertificateAccounts keeps them under the authority's directory.
var CertificateAccounts = newTable("certificate_account", func(a *CertificateAccount) string { return a.Directory })
