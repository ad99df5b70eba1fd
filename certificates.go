package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/config"
)

// certificates picks the certificate of every TLS handshake.
type certificates struct {
	file     atomic.Pointer[tls.Certificate]    // the host's, from files; nil: it comes by ACME
	fallback *tls.Certificate                   // the host's until ACME has given one; nil if it comes from files
	issued   func(name string) *tls.Certificate // by ACME; nil: ACME is off
	host     string
	sandbox  bool
}

// newCertificates reads the files of the settings; nil if TLS is off. issued is set later.
func newCertificates(s *config.Settings, host string) (*certificates, error) {
	if !s.TLS() {
		return nil, nil
	}
	c := &certificates{host: host, sandbox: s.Sandbox()}
	if s.TLSCert != "" {
		return c, c.read(s.TLSCert, s.TLSKey)
	}
	var err error
	c.fallback, err = selfSigned(host)
	return c, err
}

// read loads the host's certificate from files. On an error the previous certificate stays.
func (c *certificates) read(certFile, keyFile string) error {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("load certificate %s: %w", certFile, err)
	}
	c.file.Store(&cert)
	return nil
}

// config is for the TLS listeners of mail; nil without certificates.
func (c *certificates) config() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.pick}
}

// httpsConfig is for HTTPS; nil without certificates.
func (c *certificates) httpsConfig() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.pickForHTTPS, NextProtos: []string{"h2", "http/1.1"}}
}

// pickForHTTPS is pick, but in production a name that the certificate is not for gets none, which
// ends the handshake with unrecognized_name (RFC 6066 section 3). A browser or mail client would
// warn its user of an impostor.
func (c *certificates) pickForHTTPS(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	cert, err := c.pick(hello)
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

// pick gives the certificate for the server name of a handshake (SNI). Without a name, or for a
// name without a certificate, it is the host's, which mail servers and clients expect.
func (c *certificates) pick(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if cert := c.byACME(name); cert != nil {
		return cert, nil
	}
	if cert := c.file.Load(); cert != nil {
		return cert, nil
	}
	if cert := c.byACME(c.host); cert != nil {
		return cert, nil
	}
	return c.fallback, nil
}

func (c *certificates) byACME(name string) *tls.Certificate {
	if c.issued == nil || name == "" {
		return nil
	}
	return c.issued(name)
}

// selfSigned makes a self-signed certificate. Most mail servers do not verify certificates, so with
// it they can use TLS at once.
func selfSigned(host string) (*tls.Certificate, error) {
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
		return nil, fmt.Errorf("make a certificate for %s: %w", host, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// rootCAs are the certificate authorities of the system and of the file; nil: only the system's.
func rootCAs(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read --ca-file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, usageError{fmt.Errorf("--ca-file %s holds no certificate in PEM form", file)}
	}
	return pool, nil
}
