package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/taglist"
)

// maxARCSets is the maximum number of ARC sets in a message (RFC 8617 section 4.2.1). Each set
// costs a DNS look-up.
const maxARCSets = 50

// The fields of an ARC set (RFC 8617 section 4.1).
const (
	arcResults = "ARC-Authentication-Results"
	arcMessage = "ARC-Message-Signature"
	arcSeal    = "ARC-Seal"
)

// A Chain is the result of validating the Authenticated Received Chain (ARC) of a message (RFC 8617
// section 5.2). In a chain, forwarders record the authentication results that they saw.
type Chain struct {
	Result Result // None, Pass, Fail, or TempError if DNS did not answer
	Reason string // why Result is Fail, in a few printable ASCII words
	Sealer string // d= of the newest seal, in lower-case A-labels; "" if there is none
	Sets   int

	results string // the authentication results that the newest set records
}

var (
	errIncomplete     = errors.New("the ARC chain is incomplete")
	errSealedAsFailed = errors.New("the ARC chain is sealed as failed")
	errTooManySets    = errors.New("the ARC chain has too many sets")
	errMalformedSet   = errors.New("an ARC set is malformed")
)

// An arcSet holds the three fields that one forwarder added.
type arcSet struct{ results, message, seal field }

// slotFor returns a pointer to the field of s that has the name of f, nil if f is not an ARC field.
func (s *arcSet) slotFor(f field) *field {
	switch {
	case f.is(arcResults):
		return &s.results
	case f.is(arcMessage):
		return &s.message
	case f.is(arcSeal):
		return &s.seal
	}
	return nil
}

// arcSets returns the ARC sets of a header in the order of their instance numbers. It returns an
// error unless the numbers begin at 1 without a gap and each set is complete and occurs once.
func arcSets(fields []field) ([]arcSet, error) {
	var sets [maxARCSets]arcSet
	found, highest := 0, 0
	for _, f := range fields {
		if new(arcSet).slotFor(f) == nil {
			continue
		}
		n, err := instanceNumber(f)
		if err != nil {
			return nil, err
		}
		at := sets[n-1].slotFor(f)
		if at.raw != "" {
			return nil, errIncomplete
		}
		*at = f
		found++
		highest = max(highest, n)
	}
	if found != 3*highest {
		return nil, errIncomplete
	}
	return sets[:highest], nil
}

// instanceNumber reads the instance number (i=) of an ARC field.
func instanceNumber(f field) (int, error) {
	if len(f.raw) > maxSignature || strings.Count(f.raw, ":") > maxSignedNames {
		return 0, errMalformedSet
	}
	value := f.value()
	if f.is(arcResults) { // the text after i= is not a tag list
		value, _, _ = strings.Cut(value, ";")
	}
	n, err := strconv.ParseUint(removeSpace(parseTags(value)["i"]), 10, 8)
	switch {
	case err != nil || n == 0:
		return 0, errMalformedSet
	case n > maxARCSets:
		return 0, errTooManySets
	}
	return int(n), nil
}

// checkARC validates the ARC chain of a message (RFC 8617 section 5.2). It returns an error only if
// the body cannot be read.
func (v *Verifier) checkARC(ctx context.Context, look *lookups, msg *message) (Chain, error) {
	if msg.tooLarge {
		return Chain{Result: Fail, Reason: errHeader.Error()}, nil
	}
	sets, err := arcSets(msg.fields)
	if err == nil && len(sets) == 0 {
		return Chain{Result: None}, nil
	}
	c := Chain{Result: Pass, Sets: len(sets)}
	if len(sets) > 0 {
		newest := sets[len(sets)-1]
		c.Sealer, _ = idn.Host(removeSpace(parseTags(newest.seal.value())["d"]))
		c.results = newest.results.value()
	}
	if err == nil {
		err = checkSeals(look, sets, v.now())
	}
	if err == nil {
		err = checkARCMessageSignature(ctx, look, sets[len(sets)-1].message, msg, v.now())
	}
	var body *bodyError
	switch {
	case errors.As(err, &body):
		return Chain{}, fmt.Errorf("read message body for ARC: %w", body.error)
	case err != nil && isTemporary(err):
		c.Result = TempError
	case err != nil:
		c.Result, c.Reason = Fail, printable(err.Error())
	}
	return c, nil
}

// checkARCOfRequest validates the ARC chain of a message. If the header has ARC fields,
// checkARCOfRequest reads the message a second time.
func (v *Verifier) checkARCOfRequest(ctx context.Context, look *lookups, r Request, fields []field) (Chain, error) {
	if len(fieldsNamed(fields, arcSeal))+len(fieldsNamed(fields, arcMessage))+len(fieldsNamed(fields, arcResults)) == 0 {
		return Chain{Result: None}, nil
	}
	msg, err := openMessage(io.NewSectionReader(r.Message, 0, r.Size))
	if err != nil {
		return Chain{}, err
	}
	defer msg.free()
	return v.checkARC(ctx, look, msg)
}

// bodyError is an error in reading the body of a message. It tells such errors from those of an
// invalid chain.
type bodyError struct{ error }

// isTemporary reports whether err means that DNS did not answer.
func isTemporary(err error) bool {
	var dns interface{ Temporary() bool }
	return errors.As(err, &dns) && dns.Temporary()
}

// checkSeals validates the seals of all sets, the newest first.
func checkSeals(look *lookups, sets []arcSet, now time.Time) error {
	tags := make([]map[string]string, len(sets))
	for i, s := range sets {
		seal, isSeal := taglist.ParseStrict(s.seal.value())
		if _, isMessage := taglist.ParseStrict(s.message.value()); !isSeal || !isMessage {
			return errMalformedSet
		}
		tags[i] = seal
		_, signsNames := tags[i]["h"]
		switch cv := strings.ToLower(removeSpace(tags[i]["cv"])); {
		case cv == "fail":
			return errSealedAsFailed
		case signsNames, i == 0 && cv != "none", i > 0 && cv != "pass":
			return errMalformedSet
		}
		if err := checkTimes(tags[i], now); err != nil {
			return err
		}
	}
	for i := len(sets) - 1; i >= 0; i-- {
		key, err := publicKey(look, tags[i])
		if err != nil {
			return err
		}
		digest := sha256.Sum256([]byte(sealedText(sets[:i+1])))
		if err := checkSignature(key.public, digest[:], tags[i]["b"]); err != nil {
			return err
		}
	}
	return nil
}

// sealedText returns the text that is signed by the seal of the last set (RFC 8617 section 5.1.1).
func sealedText(sets []arcSet) string {
	var b strings.Builder
	for i, s := range sets {
		b.WriteString(s.results.relaxedForm())
		b.WriteString(s.message.relaxedForm())
		if i < len(sets)-1 {
			b.WriteString(s.seal.relaxedForm())
		}
	}
	b.WriteString(strings.TrimSuffix(sets[len(sets)-1].seal.withoutSignature().relaxedForm(), "\r\n"))
	return b.String()
}

// checkARCMessageSignature validates f, the newest ARC-Message-Signature.
func checkARCMessageSignature(ctx context.Context, look *lookups, f field, msg *message, now time.Time) error {
	s, err := readSignature(f, now)
	if err != nil {
		return err
	}
	s.key, s.keyErr = publicKey(look, s.tags)
	if err := s.verify(msg.fields); err != nil {
		return err
	}
	sums, err := hashBodies(ctx, msg.body, !s.relaxedBody, s.relaxedBody)
	if err != nil {
		return &bodyError{err}
	}
	return s.checkBody(sums)
}
