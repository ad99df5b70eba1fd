package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/emersion/go-msgauth/dkim"

	"github.com/mailstead/mailstead/mail/idn"
)

// Bounds of what the DKIM library is given. It joins folded lines one by one, looks through all
// fields for each name in h=, and keeps a run of empty lines in memory until the next text: each of
// them costs the square of its input.
const (
	maxSignature   = 16 << 10  // bytes of one DKIM-Signature field
	maxSignedNames = 200       // names in its h=
	maxSimple      = 256 << 10 // bytes of a header that is signed without relaxing it
	maxSimpleWork  = 64 << 20  // bytes of it to be moved to join folded lines, and read again for each name in h=
	maxEmptyRun    = 64 << 10  // bytes of line ends without text between them
	maxKeyRecord   = 4 << 10   // a key record; an RSA key of 16 384 bits has 2.8 KiB
)

// errKeyRecord says that a key record is beyond maxKeyRecord: verifying by a key that large is work
// for the sender's ask.
var errKeyRecord = errors.New("key record too large")

// errEmptyRun ends the reading of a body that has too many line ends in a row.
var errEmptyRun = errors.New("too many empty lines in a row")

// checkDKIM verifies the signatures of a message that signaturesOf chooses (RFC 6376 section 6).
// The error is that of reading the body.
func (v *Verifier) checkDKIM(ctx context.Context, look *lookups, msg *message, from ...string) ([]Signature, error) {
	if msg.tooLarge {
		return []Signature{{Result: PermError, Reason: errHeader.Error()}}, nil
	}
	fields := v.signaturesOf(msg, from)
	if len(fields) == 0 {
		return nil, nil
	}
	left := slices.DeleteFunc(slices.Clone(msg.fields), func(f field) bool { return f.is("DKIM-Signature") && !slices.Contains(fields, f) })
	shown, repeated, clear := shownNames(msg)
	once := clear && repeated == ""
	sigs := make([]Signature, len(fields))
	tags := make([]map[string]string, len(fields))
	relaxed, names, count := true, 0, 0
	for i, f := range fields {
		if sigs[i], tags[i] = describe(f); sigs[i].Result == "" {
			count++
			names += strings.Count(f.raw, ":")
			relaxed = relaxed && relaxesHeader(tags[i])
		}
	}
	if count == 0 {
		return sigs, nil
	}
	header, ok := headerText(left, relaxed, names)
	if !ok {
		return judged(sigs, PermError, "header too large for its canonicalization"), nil
	}
	keys := &keyRecords{look: look, strict: make(map[string]bool)}
	guard := &bodyGuard{ctx: ctx, r: msg.body}
	got, err := dkim.VerifyWithOptions(io.MultiReader(strings.NewReader(header), guard), &dkim.VerifyOptions{
		LookupTXT: keys.lookUp, MaxVerifications: count,
	})
	switch {
	case errors.Is(guard.err, errEmptyRun):
		return judged(sigs, PermError, guard.err.Error()), nil
	case guard.err != nil:
		return nil, fmt.Errorf("read message: %w", guard.err)
	case err != nil && !errors.Is(err, dkim.ErrTooManySignatures):
		return judged(sigs, PermError, reason(err)), nil
	}
	v.takeResults(sigs, tags, got, keys)
	for i := range sigs {
		sigs[i].signed = namesIn(tags[i]["h"])
		sigs[i].Covers = once && sigs[i].covers(shown)
	}
	return sigs, nil
}

// signaturesOf gives the signatures to look at, in the order of the message: first those whose
// domain is aligned with one that the message may be from, since others prove nothing for DMARC.
func (v *Verifier) signaturesOf(msg *message, from []string) []field {
	fields := named(msg.fields, "DKIM-Signature")
	most := orDefault(v.MaxVerifications, defaultVerifications)
	if len(fields) <= most {
		return fields
	}
	chosen := make([]bool, len(fields))
	for _, wanted := range []bool{true, false} {
		for i := 0; i < len(fields) && most > 0; i++ {
			if !chosen[i] && signsFor(fields[i], from) == wanted {
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

// signsFor tells whether a signature is by a domain that is aligned with one of some.
func signsFor(f field, from []string) bool {
	sig, _ := describe(f)
	return slices.ContainsFunc(from, func(domain string) bool { return aligned(sig.Domain, domain, false) })
}

// takeResults fills in what the library found. It saw the same signatures in the same order, but
// for those that describe has already judged.
func (v *Verifier) takeResults(sigs []Signature, tags []map[string]string, got []*dkim.Verification, keys *keyRecords) {
	for i := range sigs {
		if sigs[i].Result != "" {
			continue
		}
		if len(got) == 0 || got[0].Domain != "" && got[0].Domain != compact(tags[i]["d"]) {
			sigs[i].Result, sigs[i].Reason = PermError, "signature cannot be read"
			continue
		}
		sigs[i].Result, sigs[i].Reason = v.outcome(tags[i], got[0], keys)
		got = got[1:]
	}
}

func (v *Verifier) outcome(tags map[string]string, got *dkim.Verification, keys *keyRecords) (Result, string) {
	_, partial := tags["l"]
	_, agent := splitAddress(strings.ToLower(got.Identifier))
	switch {
	case got.Err != nil && dkim.IsTempFail(got.Err):
		return TempError, reason(got.Err)
	case got.Err != nil && dkim.IsPermFail(got.Err):
		return PermError, reason(got.Err)
	case partial:
		// RFC 8601 section 2.7.1 calls it "policy": whatever follows the signed length could be
		// anyone's.
		return Neutral, "body length tag (l=) is not trusted"
	case got.Err != nil:
		return Fail, reason(got.Err)
	case !got.Expiration.IsZero() && v.now().After(got.Expiration):
		return PermError, "signature has expired"
	case keys.isStrict(tags) && agent != strings.ToLower(got.Domain):
		// RFC 6376 section 3.6.1, t=s.
		return PermError, "key forbids i= in a subdomain"
	}
	return Pass, ""
}

// describe reads what can be told of a signature before it is verified. Its Result is empty unless
// it must not be verified at all.
func describe(f field) (Signature, map[string]string) {
	if len(f.raw) > maxSignature || strings.Count(f.raw, ":") > maxSignedNames {
		return Signature{Result: PermError, Reason: "signature field too large"}, nil
	}
	tags := parseTags(f.value())
	sig := Signature{}
	sig.Domain, _ = idn.Host(compact(tags["d"]))
	sig.Selector, _ = idn.Host(compact(tags["s"]))
	if a := compact(tags["a"]); isToken(a) && len(a) <= 32 {
		sig.algorithm = a
	}
	if b := compact(tags["b"]); isBase64(b) {
		sig.hint = b[:min(8, len(b))]
	}
	return sig, tags
}

func relaxesHeader(tags map[string]string) bool {
	header, _, _ := strings.Cut(compact(tags["c"]), "/")
	return header == "relaxed"
}

// headerText is the header for the library, without the signatures that describe turns away, and
// whether it is small enough for signatures with that many names in h=. When all of them are
// relaxed the fields are unfolded, which those cannot tell from the original.
func headerText(fields []field, relaxed bool, names int) (string, bool) {
	var b strings.Builder
	work := 0
	for _, f := range fields {
		if f.is("DKIM-Signature") && (len(f.raw) > maxSignature || strings.Count(f.raw, ":") > maxSignedNames) {
			continue
		}
		if relaxed {
			b.WriteString(f.unfolded())
			continue
		}
		b.WriteString(f.raw)
		work += len(f.raw) * (f.lines/2 + names)
	}
	b.WriteString("\r\n")
	return b.String(), relaxed || b.Len() <= maxSimple && work <= maxSimpleWork
}

// judged gives the same result to every signature that has none yet.
func judged(sigs []Signature, result Result, reason string) []Signature {
	for i := range sigs {
		if sigs[i].Result == "" {
			sigs[i].Result, sigs[i].Reason = result, reason
		}
	}
	return sigs
}

// overall picks the most telling result of all signatures.
func overall(sigs []Signature) Result {
	for _, r := range []Result{Pass, Fail, TempError, Neutral, PermError} {
		for _, s := range sigs {
			if s.Result == r {
				return r
			}
		}
	}
	return None
}

// reason is the library's error up to the details, which can name our resolver or repeat the
// sender's bytes.
func reason(err error) string {
	text, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "dkim: "), ": ")
	return printable(text)
}

// keyRecords looks up keys for one message and remembers which of them have the flag t=s. The
// library calls it from several goroutines.
type keyRecords struct {
	look   *lookups
	mu     sync.Mutex
	strict map[string]bool // by name
}

func (k *keyRecords) lookUp(name string) ([]string, error) {
	txts, err := k.look.LookupTXT(k.look.ctx, name)
	if err != nil {
		return nil, err
	}
	for _, txt := range txts {
		if len(txt) > maxKeyRecord {
			return nil, errKeyRecord
		}
		k.note(name, parseTags(txt)["t"])
	}
	return txts, nil
}

func (k *keyRecords) note(name, flags string) {
	for flag := range strings.SplitSeq(flags, ":") {
		if strings.TrimSpace(flag) == "s" {
			k.mu.Lock()
			k.strict[name] = true
			k.mu.Unlock()
		}
	}
}

func (k *keyRecords) isStrict(tags map[string]string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.strict[compact(tags["s"])+"._domainkey."+compact(tags["d"])]
}

// bodyGuard reads a body for the DKIM library. It ends early, as a clean end, and keeps the error
// for itself: the library leaves goroutines behind when a read fails. Only the caller's context can
// end it, never the time limit of DNS, or a sender could turn the verdict on a forged signature
// into temperror with a slow name of its own.
type bodyGuard struct {
	ctx context.Context
	r   io.Reader
	run emptyRun
	err error
}

func (g *bodyGuard) Read(p []byte) (int, error) {
	if g.err == nil {
		g.err = g.ctx.Err()
	}
	if g.err != nil {
		return 0, io.EOF
	}
	n, err := g.r.Read(p)
	if _, g.err = g.run.Write(p[:n]); g.err != nil {
		return 0, io.EOF
	}
	if err != nil && err != io.EOF {
		g.err, err = err, io.EOF
	}
	return n, err
}

// emptyRun refuses, with errEmptyRun, a body that has more than maxEmptyRun bytes of line ends with
// nothing but white space between them. It is the number of those seen last.
type emptyRun int

func (run *emptyRun) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		text := bytes.IndexFunc(rest, func(r rune) bool { return !isFold(r) })
		if text < 0 {
			text = len(rest)
		}
		if *run += emptyRun(text); *run > maxEmptyRun {
			return 0, errEmptyRun
		}
		if text == len(rest) {
			break
		}
		*run = 0
		next := bytes.IndexByte(rest[text:], '\n')
		if next < 0 {
			break
		}
		rest = rest[text+next:]
	}
	return len(p), nil
}
