package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// makeCertificate makes a TLS certificate, and returns the command-line arguments with which
// Mailstead uses it.
func (b *bench) makeCertificate() (args []string, err error) {
	cert, key, err := writeCertificate(b.dir)
	return []string{"--tls-cert", cert, "--tls-key", key}, err
}

// writeCertificate makes a self-signed certificate for loopback addresses, and returns the paths of
// its PEM files in dir.
func writeCertificate(dir string) (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	var loopback []net.IP
	for n := range recipientDomains + 2 {
		loopback = append(loopback, net.IPv4(127, 0, 0, byte(n)))
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mail.mailstead.test"}, DNSNames: []string{"mail.mailstead.test"}, IPAddresses: loopback,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	return cert, key, errors.Join(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}
