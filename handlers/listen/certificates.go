package listen

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/config"
)

// Certificates finds the certificate for each TLS handshake.
type Certificates struct {
	file atomic.Pointer[tls.Certificate] // the host's certificate from files; nil: ACME issues it
	// A self-signed certificate of the host, used until ACME issues one; nil if file is set.
	selfSigned *tls.Certificate
	Issued     func(name string) *tls.Certificate // returns a certificate that ACME issued; nil: ACME is off
	host       string                             // the host's name
	sandbox    bool
}

// NewCertificates reads the certificate files that the settings name. It returns nil if TLS is off.
// The caller sets Issued.
func NewCertificates(s *config.Settings, host string) (*Certificates, error) {
	if !s.TLS() {
		return nil, nil
	}
	c := &Certificates{host: host, sandbox: s.Sandbox()}
	if s.TLSCert != "" {
		return c, c.Read(s.TLSCert, s.TLSKey)
	}
	var err error
	c.selfSigned, err = selfSignedCertificate(host)
	return c, err
}

// Read loads the host's certificate from files. If that fails, the previous certificate stays in
// use.
func (c *Certificates) Read(certFile, keyFile string) error {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("load the certificate %s: %w", certFile, err)
	}
	c.file.Store(&cert)
	return nil
}

// MailConfig returns the TLS configuration for SMTP and IMAP. It returns nil if c is nil.
func (c *Certificates) MailConfig() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.Pick}
}

// HTTPSConfig returns the TLS configuration for HTTPS. It returns nil if c is nil.
func (c *Certificates) HTTPSConfig() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.pickForHTTPS, NextProtos: []string{"h2", "http/1.1"}}
}

// pickForHTTPS does what Pick does. But in production it returns no certificate if the one that
// Pick returns does not cover the server name. This ends the handshake with unrecognized_name (RFC
// 6066 section 3). With a certificate of another name, browsers and mail clients would warn their
// users of an attack.
func (c *Certificates) pickForHTTPS(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	cert, err := c.Pick(hello)
	if cert == nil || err != nil || c.sandbox || hello.ServerName == "" || strings.EqualFold(strings.TrimSuffix(hello.ServerName, "."), c.host) {
		return cert, err
	}
	leaf := cert.Leaf
	if leaf == nil {
		leaf, err = x509.ParseCertificate(cert.Certificate[0])
	}
	if err != nil || leaf.VerifyHostname(hello.ServerName) != nil {
		return nil, err
	}
	return cert, nil
}

// Pick returns the certificate for the server name of a handshake (SNI). If there is no server
// name, or no certificate for it, Pick returns the host's certificate, because mail servers and
// clients expect that one.
func (c *Certificates) Pick(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if cert := c.acmeCertificate(name); cert != nil {
		return cert, nil
	}
	if cert := c.file.Load(); cert != nil {
		return cert, nil
	}
	if cert := c.acmeCertificate(c.host); cert != nil {
		return cert, nil
	}
	return c.selfSigned, nil
}

// acmeCertificate returns the certificate that ACME issued for a name, nil if there is none.
func (c *Certificates) acmeCertificate(name string) *tls.Certificate {
	if c.Issued == nil || name == "" {
		return nil
	}
	return c.Issued(name)
}

// selfSignedCertificate makes a self-signed certificate. Most mail servers do not verify
// certificates, so they can use TLS with it at once.
func selfSignedCertificate(host string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a self-signed certificate for %s: %w", host, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// FromFile reports whether the host's certificate comes from files.
func (c *Certificates) FromFile() bool { return c.file.Load() != nil }
