package auth

import (
	"bufio"
	"bytes"
	"time"
)

// A HeaderSignature is a DKIM signature that is valid for the header of a message. The body was not
// checked.
type HeaderSignature struct {
	Domain   string   // d=
	Selector string   // s=
	Names    []string // h=, in lower case
}

// VerifyHeader returns the DKIM signatures that are valid for a header, without the body. It is for
// returned messages, which often have no body or a changed one. That works since a signature covers
// the body only by a hash within the signature field. record returns the key record of a domain and
// selector, false if it knows none. VerifyHeader verifies only the first 10 signatures. Expired
// ones count too, since a report may arrive late.
func VerifyHeader(block []byte, record func(domain, selector string) (string, bool)) []HeaderSignature {
	fields, err := readHeader(bufio.NewReader(bytes.NewReader(block)))
	if err != nil {
		return nil
	}
	var out []HeaderSignature
	signatures := fieldsNamed(fields, "DKIM-Signature")
	for _, f := range signatures[:min(len(signatures), defaultVerifications)] {
		s, err := readSignature(f, time.Time{})
		if err != nil {
			continue
		}
		sig := describeSignature(f)
		text, known := record(sig.Domain, sig.Selector)
		if !known {
			continue
		}
		s.key, s.keyErr = parsePublicKey(text, removeSpace(s.tags["a"]))
		if s.verify(fields) == nil {
			out = append(out, HeaderSignature{sig.Domain, sig.Selector, s.names})
		}
	}
	return out
}
