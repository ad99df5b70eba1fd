package config

import (
	"crypto/x509"
	"fmt"
	"os"
)

// RootCAs returns the certificate authorities of the system and those in the PEM file. If file is
// "", it returns nil, which means those of the system.
func RootCAs(file string) (*x509.CertPool, error) {
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
		return nil, Error{fmt.Errorf("--ca-file %s contains no certificate in PEM form", file)}
	}
	return pool, nil
}
