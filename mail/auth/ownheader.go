package auth

import (
	"bufio"
	"bytes"
	"time"
)

// A HeaderSignature is a DKIM signature of a header whose own part of it is right.
type HeaderSignature struct {
	Domain   string   // d=
	Selector string   // s=
	Names    []string // h=, in lower case
}

// VerifyHeader verifies the DKIM signatures of a header alone, by the key records that record knows
// of a domain and a selector. It is for what comes back to us of a message, often without its body
// or with another: a signature covers the body only by a hash that stands in it, so that the header
// of one that verifies is as its signer wrote it. Of the signatures the first 10 count; those that
// expired are as good as others, since a report may take its time.
func VerifyHeader(block []byte, record func(domain, selector string) (string, bool)) []HeaderSignature {
	fields, err := readHeader(bufio.NewReader(bytes.NewReader(block)))
	if err != nil {
		return nil
	}
	var out []HeaderSignature
	signatures := named(fields, "DKIM-Signature")
	for _, f := range signatures[:min(len(signatures), defaultVerifications)] {
		s, err := readSignature(f, time.Time{})
		if err != nil {
			continue
		}
		sig := describe(f)
		text, known := record(sig.Domain, sig.Selector)
		if !known {
			continue
		}
		s.key, s.keyErr = parsePublicKey(text, compact(s.tags["a"]))
		if s.verify(fields) == nil {
			out = append(out, HeaderSignature{sig.Domain, sig.Selector, s.names})
		}
	}
	return out
}
