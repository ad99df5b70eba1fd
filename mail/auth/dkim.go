package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mailstead/mailstead/mail/idn"
)

// checkDKIM verifies the signatures that signaturesToVerify chooses (RFC 6376 section 6). It reads
// the body only if the result of a signature depends on it. It returns an error only if the body
// cannot be read.
func (v *Verifier) checkDKIM(ctx context.Context, walks *treeWalker, msg *message, from ...string) ([]Signature, error) {
	if msg.tooLarge {
		return []Signature{{Result: PermError, Reason: errHeader.Error()}}, nil
	}
	fields := v.signaturesToVerify(walks, msg, from)
	out := make([]Signature, len(fields))
	read := make([]*signedField, len(fields))
	errs := make([]error, len(fields))
	var ask []func()
	for i, f := range fields {
		out[i] = describeSignature(f)
		s, err := readSignature(f, v.now())
		errs[i] = err
		if err != nil {
			continue
		}
		read[i] = s
		ask = append(ask, func() { s.key, s.keyErr = publicKey(walks.look, s.tags) })
	}
	runAll(ask...)

	var simple, relaxed bool
	for i, s := range read {
		if s == nil {
			continue
		}
		errs[i] = s.verify(msg.fields)
		if errs[i] == nil {
			simple = simple || !s.relaxedBody
			relaxed = relaxed || s.relaxedBody
		}
	}
	sums, err := hashBodies(ctx, msg.body, simple, relaxed)
	if err != nil {
		return nil, fmt.Errorf("read message body for DKIM: %w", err)
	}
	for i, s := range read {
		var key keyRecord
		if s != nil {
			key = s.key
			if errs[i] == nil {
				errs[i] = s.checkBody(sums)
			}
			out[i].signed = s.names
		}
		out[i].Result, out[i].Reason = resultOf(errs[i], key)
		out[i].Covers = msg.unambiguous && msg.repeated == "" && out[i].covers(msg.shownNames)
	}
	return out, nil
}

// resultOf converts the error of a signature to a result of RFC 8601 section 2.7.1 and the reason
// for it. A signature with l= is Neutral; the RFC calls its result "policy".
func resultOf(err error, key keyRecord) (Result, string) {
	switch {
	case err == nil:
		return Pass, ""
	case isTemporary(err):
		return TempError, "key unavailable"
	case errors.Is(err, errPartial):
		return Neutral, err.Error()
	case !errors.Is(err, errSignature) && !errors.Is(err, errBody):
		return PermError, err.Error()
	case key.testing: // t=y (RFC 6376 section 3.6.1)
		return Neutral, errTestMode.Error()
	}
	return Fail, err.Error()
}

// signaturesToVerify returns the DKIM-Signature fields to verify, at most MaxVerifications, in the
// order of the header. If there are more, it prefers signatures by organisations in from, the
// possible From domains, since others prove nothing for DMARC.
func (v *Verifier) signaturesToVerify(walks *treeWalker, msg *message, from []string) []field {
	fields := fieldsNamed(msg.fields, "DKIM-Signature")
	most := orDefault(v.MaxVerifications, defaultVerifications)
	if len(fields) <= most {
		return fields
	}
	orgs := make([]string, len(from))
	for i, domain := range from {
		orgs[i], _ = walks.lookUpOrganisation(domain)
	}
	chosen := make([]bool, len(fields))
	for _, wanted := range []bool{true, false} {
		for i := 0; i < len(fields) && most > 0; i++ {
			if !chosen[i] && isSignedByAny(fields[i], orgs) == wanted {
				chosen[i] = true
				most--
			}
		}
	}
	var out []field
	for i, f := range fields {
		if chosen[i] {
			out = append(out, f)
		}
	}
	return out
}

// isSignedByAny reports whether the signature's domain is within one of the organisations.
func isSignedByAny(f field, orgs []string) bool {
	domain := describeSignature(f).Domain
	return slices.ContainsFunc(orgs, func(org string) bool { return isWithin(domain, org) })
}

// describeSignature reads those properties of a signature that are reported even if it does not
// pass.
func describeSignature(f field) Signature {
	if len(f.raw) > maxSignature {
		return Signature{}
	}
	tags := parseTags(f.value())
	sig := Signature{}
	sig.Domain, _ = idn.Host(removeSpace(tags["d"]))
	sig.Selector, _ = idn.Host(removeSpace(tags["s"]))
	if a := removeSpace(tags["a"]); isToken(a) && len(a) <= 32 {
		sig.algorithm = a
	}
	if b := removeSpace(tags["b"]); isBase64(b) {
		sig.hint = b[:min(8, len(b))]
	}
	return sig
}

// overallResult returns the most significant result of the signatures: pass if any passes, None
// without signatures.
func overallResult(sigs []Signature) Result {
	for _, r := range []Result{Pass, Fail, TempError, Neutral, PermError} {
		for _, s := range sigs {
			if s.Result == r {
				return r
			}
		}
	}
	return None
}
