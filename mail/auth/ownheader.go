package auth

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
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
// of one that verifies is as its signer wrote it. Of the signatures the first 5 count; those that
// expired are as good as others, since a report may take its time.
func VerifyHeader(block []byte, record func(domain, selector string) (string, bool)) []HeaderSignature {
	fields, err := readHeader(bufio.NewReader(bytes.NewReader(block)))
	if err != nil {
		return nil
	}
	var out []HeaderSignature
	signatures := named(fields, "DKIM-Signature")
	for _, f := range signatures[:min(len(signatures), defaultVerifications)] {
		sig, tags := describe(f)
		if sig.Result != "" {
			continue
		}
		text, known := record(sig.Domain, sig.Selector)
		names := strings.Split(strings.ToLower(compact(tags["h"])), ":")
		if known && slices.Contains(names, "from") && headerVerifies(fields, f, tags, names, text) {
			out = append(out, HeaderSignature{sig.Domain, sig.Selector, names})
		}
	}
	return out
}

func headerVerifies(fields []field, f field, tags map[string]string, names []string, record string) bool {
	key, err := parsePublicKey(record, compact(tags["a"]))
	if err != nil {
		return false
	}
	text, ok := signedText(fields, names, f, relaxesHeader(tags))
	digest := sha256.Sum256([]byte(text))
	return ok && verifies(key, digest[:], tags["b"]) == nil
}
