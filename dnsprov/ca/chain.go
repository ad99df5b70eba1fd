package ca

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"fmt"
	"time"
)

const (
	maxChain     = 6         // maximum number of certificates in a chain
	maxClockSkew = time.Hour // how far the clock of an authority may be ahead of ours
)

// Check returns an error that wraps ErrUnfit if a chain of DER certificates cannot be used. The
// leaf must be for every name and for the key, every certificate must be valid now, and each must
// be signed by the next. Check does not check whether the root is trusted.
func Check(chain [][]byte, names []string, key crypto.PublicKey, now time.Time) error {
	if len(chain) == 0 || len(chain) > maxChain {
		return fmt.Errorf("%w: the chain has %d certificates", ErrUnfit, len(chain))
	}
	var below *x509.Certificate
	for i, der := range chain {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("%w: parse certificate %d of the chain: %w", ErrUnfit, i, err)
		}
		if now.Add(maxClockSkew).Before(cert.NotBefore) || !now.Before(cert.NotAfter) {
			return fmt.Errorf("%w: certificate %d of the chain is valid from %s to %s", ErrUnfit, i, cert.NotBefore, cert.NotAfter)
		}
		if below == nil {
			err = checkLeaf(cert, names, key)
		} else {
			err = below.CheckSignatureFrom(cert)
		}
		if err != nil {
			return fmt.Errorf("%w: certificate %d of the chain: %w", ErrUnfit, i, err)
		}
		below = cert
	}
	return nil
}

// checkLeaf returns an error unless a certificate is for every name and for the key.
func checkLeaf(cert *x509.Certificate, names []string, key crypto.PublicKey) error {
	for _, name := range names {
		if err := cert.VerifyHostname(name); err != nil {
			return err
		}
	}
	ours, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return err
	}
	theirs, err := x509.MarshalPKIXPublicKey(cert.PublicKey)
	if err != nil {
		return err
	}
	if !bytes.Equal(ours, theirs) {
		return fmt.Errorf("the certificate is for another key")
	}
	return nil
}
