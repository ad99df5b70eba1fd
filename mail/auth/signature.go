package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/buffers"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/taglist"
)

// Limits on one signature. The sender chooses its length and the number of names, and each name
// costs a search of the header.
const (
	maxSignature   = 16 << 10 // bytes of the field
	maxSignedNames = 200      // names in its h=
)

// Reasons why a signature does not pass, as they stand in the Authentication-Results field.
var (
	errLarge     = errors.New("signature field too large")
	errTagList   = errors.New("malformed signature tags")
	errVersion   = errors.New("incompatible signature version")
	errMissing   = errors.New("signature missing required tag")
	errIdentity  = errors.New("i= is not within the domain d=")
	errStrict    = errors.New("key forbids i= in a subdomain")
	errFrom      = errors.New("no signature of the From field")
	errSeals     = errors.New("signature covers a seal")
	errTime      = errors.New("malformed time in t= or x=")
	errExpired   = errors.New("signature has expired")
	errQuery     = errors.New("unsupported public key query method")
	errHeadForm  = errors.New("unsupported header canonicalization algorithm")
	errBodyForm  = errors.New("unsupported body canonicalization algorithm")
	errPartial   = errors.New("body length tag (l=) is not trusted")
	errTestMode  = errors.New("key is in test mode")
	errBody      = errors.New("body hash did not verify")
	errSignature = errors.New("signature did not verify")
)

// A signedField is a DKIM-Signature (RFC 6376 section 3.5) or an ARC-Message-Signature (RFC 8617
// section 4.1.2). The latter differs only in its name, version and instance.
type signedField struct {
	field
	tags                     map[string]string
	names                    []string // h=, in lower case
	relaxedHead, relaxedBody bool     // from c=
	bodyHash                 []byte   // from bh=
	subdomain                bool     // i= is in a subdomain of d=, which a key with t=s forbids
	key                      keyRecord
	keyErr                   error
}

// readSignature parses a signature field and checks everything that can be checked without the key.
func readSignature(f field, now time.Time) (*signedField, error) {
	if len(f.raw) > maxSignature || strings.Count(f.raw, ":") > maxSignedNames {
		return nil, errLarge
	}
	tags, wellFormed := taglist.ParseStrict(f.value())
	s := &signedField{field: f, tags: tags}
	chained := f.is(arcMessage)
	required := []string{"a", "b", "bh", "d", "h", "s"}
	switch version, ok := s.tags["v"]; {
	case !wellFormed:
		return nil, errTagList
	case !chained && (!ok || version != "1"):
		return nil, errVersion
	case slices.ContainsFunc(required, func(tag string) bool { _, ok := s.tags[tag]; return !ok }):
		return nil, errMissing
	}
	if !chained {
		if err := s.readIdentity(); err != nil {
			return nil, err
		}
	}
	s.names = fieldNamesIn(s.tags["h"])
	switch {
	case !slices.Contains(s.names, "from"):
		return nil, errFrom
	case chained && slices.Contains(s.names, strings.ToLower(arcSeal)):
		return nil, errSeals
	}
	if err := checkTimes(s.tags, now); err != nil {
		return nil, err
	}
	if q, ok := s.tags["q"]; ok && !slices.Contains(strings.Split(strings.ToLower(removeSpace(q)), ":"), "dns/txt") {
		return nil, errQuery
	}
	if err := s.readCanonicalization(); err != nil {
		return nil, err
	}
	var err error
	s.bodyHash, err = base64.StdEncoding.DecodeString(removeSpace(s.tags["bh"]))
	if err != nil {
		return nil, errTagList
	}
	return s, nil
}

// readCanonicalization parses c=. An algorithm that is missing there is simple.
func (s *signedField) readCanonicalization() error {
	forms, present := s.tags["c"]
	head, body, both := strings.Cut(strings.ToLower(removeSpace(forms)), "/")
	if !present {
		head = "simple"
	}
	if !both {
		body = "simple"
	}
	s.relaxedHead, s.relaxedBody = head == "relaxed", body == "relaxed"
	switch {
	case !s.relaxedHead && head != "simple":
		return errHeadForm
	case !s.relaxedBody && body != "simple":
		return errBodyForm
	}
	return nil
}

// readIdentity checks that the domain of i= is the domain of d= or below it (RFC 6376 section 3.5).
// i= is in dkim-quoted-printable, and letter case does not count.
func (s *signedField) readIdentity() error {
	identity, ok := s.tags["i"]
	if !ok {
		return nil
	}
	text, ok := unquoteDKIM(identity)
	at := strings.LastIndexByte(text, '@')
	if !ok || at < 0 {
		return errIdentity
	}
	agent, isAgent := idn.Host(text[at+1:])
	domain, isDomain := idn.Host(removeSpace(s.tags["d"]))
	if !isAgent || !isDomain || !isWithin(agent, domain) {
		return errIdentity
	}
	s.subdomain = agent != domain
	return nil
}

// unquoteDKIM decodes dkim-quoted-printable (RFC 6376 section 2.11) and ignores white space. It
// returns false if a "=" is not followed by two hexadecimal digits.
func unquoteDKIM(s string) (_ string, ok bool) {
	s = removeSpace(s)
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '=' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), true
}

// checkTimes checks t= and x=, which are seconds since 1970 in decimal. It returns errExpired if x=
// is before now.
func checkTimes(tags map[string]string, now time.Time) error {
	for _, tag := range []string{"t", "x"} {
		text, ok := tags[tag]
		if !ok {
			continue
		}
		seconds, err := strconv.ParseUint(text, 10, 62)
		if err != nil {
			return errTime
		}
		if tag == "x" && now.Unix() > int64(seconds) {
			return errExpired
		}
	}
	return nil
}

// verify checks the signature over the header fields with s.key. It does not check the hash of the
// body; checkBody does.
func (s *signedField) verify(fields []field) error {
	_, partial := s.tags["l"]
	switch {
	case s.keyErr != nil:
		return s.keyErr
	case s.subdomain && s.key.strict:
		return errStrict
	case partial: // the text after the signed length could be by anyone
		return errPartial
	}
	text, ok := signedText(fields, s.names, s.field, s.relaxedHead)
	if !ok {
		return errHeader
	}
	digest := sha256.Sum256([]byte(text))
	return checkSignature(s.key.public, digest[:], s.tags["b"])
}

// signedText returns the text over which a header signature is computed (RFC 6376 section 3.7). If
// names has a name several times, the fields with that name are taken from the last to the first.
// It returns false if the text is longer than maxHeader.
func signedText(fields []field, names []string, signature field, relaxed bool) (_ string, ok bool) {
	form := func(f field) string { return f.raw }
	if relaxed {
		form = field.relaxedForm
	}
	byName := make(map[string][]field, len(names))
	for _, name := range names {
		byName[name] = nil
	}
	for _, f := range fields {
		name := strings.ToLower(f.name)
		if _, signed := byName[name]; signed {
			byName[name] = append(byName[name], f)
		}
	}
	var b strings.Builder
	for _, name := range names {
		if left := byName[name]; len(left) > 0 {
			b.WriteString(form(left[len(left)-1]))
			byName[name] = left[:len(left)-1]
		}
		if b.Len() > maxHeader {
			return "", false
		}
	}
	b.WriteString(strings.TrimSuffix(form(signature.withoutSignature()), "\r\n"))
	return b.String(), true
}

// bodyHashes are the hashes of a body in its two canonical forms. A hash is nil if it was not
// requested.
type bodyHashes struct{ simple, relaxed []byte }

// hashBodies reads the whole body once and returns the requested hashes. ctx must not have the time
// limit of DNS look-ups: a sender could use a slow DNS name to turn the result of a forged
// signature from fail into temperror.
func hashBodies(ctx context.Context, body io.Reader, simple, relaxed bool) (out bodyHashes, err error) {
	var forms []io.Writer
	var ends []func() error
	for _, form := range []struct {
		wanted, relaxed bool
		sum             *[]byte
	}{{simple, false, &out.simple}, {relaxed, true, &out.relaxed}} {
		if !form.wanted {
			continue
		}
		h := sha256.New()
		c := &canonicalBody{to: h, relaxed: form.relaxed}
		forms = append(forms, c)
		ends = append(ends, func() error {
			if err := c.Close(); err != nil {
				return err
			}
			*form.sum = h.Sum(nil)
			return nil
		})
	}
	if len(forms) == 0 {
		return out, nil
	}
	if _, err := buffers.Copy(io.MultiWriter(forms...), contextReader{ctx, body}); err != nil {
		return bodyHashes{}, err
	}
	for _, end := range ends {
		if err := end(); err != nil {
			return bodyHashes{}, err
		}
	}
	return out, nil
}

func hashBody(ctx context.Context, body io.Reader, relaxed bool) ([]byte, error) {
	sums, err := hashBodies(ctx, body, !relaxed, relaxed)
	if relaxed {
		return sums.relaxed, err
	}
	return sums.simple, err
}

// checkBody compares the hash of the body with bh=. It returns errBody if they differ.
func (s *signedField) checkBody(sums bodyHashes) error {
	sum := sums.simple
	if s.relaxedBody {
		sum = sums.relaxed
	}
	if subtle.ConstantTimeCompare(sum, s.bodyHash) != 1 {
		return errBody
	}
	return nil
}

// contextReader is a reader that fails once its context has ended.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
