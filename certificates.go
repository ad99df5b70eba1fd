package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
)

// certificates holds the certificate of all TLS listeners, and reads it again when told to.
type certificates struct {
	certFile, keyFile string
	current           atomic.Pointer[tls.Certificate]
}

// loadCertificates reads the files; nil if none are named.
func loadCertificates(certFile, keyFile string) (*certificates, error) {
	if certFile == "" {
		return nil, nil
	}
	c := &certificates{certFile: certFile, keyFile: keyFile}
	return c, c.reload()
}

// reload reads the files again; the certificate before stays if they are bad.
func (c *certificates) reload() error {
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("load certificate %s: %w", c.certFile, err)
	}
	c.current.Store(&cert)
	return nil
}

// config is for every TLS listener; nil without a certificate.
func (c *certificates) config() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}

// rootCAs are the system's authorities and those of the file; nil means just the system's.
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
