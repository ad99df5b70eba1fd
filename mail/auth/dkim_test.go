package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
)

const testMessage = "From: User <user@x.com>\r\nTo: you@here.example\r\nSubject: Hello\r\n there\r\n" +
	"Date: Fri, 20 Nov 2026 12:00:00 +0000\r\nMessage-ID: <1@x.com>\r\n\r\nHello  you \r\n\r\nBye\r\n\r\n"

// relaxedTestBody is the body of testMessage by RFC 6376 section 3.4.4, worked out by hand.
const relaxedTestBody = "Hello you\r\n\r\nBye\r\n"

// handSign signs the From field of testMessage with the tags given, without the library: bh= and b=
// are added.
func handSign(t testing.TB, key crypto.Signer, hash crypto.Hash, tags string) string {
	t.Helper()
	return handSignAs(t, "DKIM-Signature", key, hash, tags)
}

// handSignAs is handSign under another field name.
func handSignAs(t testing.TB, name string, key crypto.Signer, hash crypto.Hash, tags string) string {
	t.Helper()
	sum := func(text string) []byte {
		if hash == crypto.SHA1 {
			s := sha1.Sum([]byte(text))
			return s[:]
		}
		s := sha256.Sum256([]byte(text))
		return s[:]
	}
	field := strings.TrimSpace(tags) + "; bh=" + base64.StdEncoding.EncodeToString(sum(relaxedTestBody)) + "; b="
	digest := sum("from:User <user@x.com>\r\n" + strings.ToLower(strings.TrimSpace(name)) + ":" + field)
	var opts crypto.SignerOpts = hash
	if _, ok := key.(ed25519.PrivateKey); ok {
		opts = crypto.Hash(0)
	}
	sig, err := key.Sign(rand.Reader, digest, opts)
	if err != nil {
		t.Fatal(err)
	}
	return name + ": " + field + base64.StdEncoding.EncodeToString(sig) + "\r\n"
}

// testKeys are made once for a test, since RSA keys take their time.
type testKeys struct{ rsa, ed, short crypto.Signer }

func newTestKeys(t testing.TB) testKeys {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0")
	_, long, err := GenerateRSA()
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := GenerateEd25519()
	if err != nil {
		t.Fatal(err)
	}
	short, err := rsa.GenerateKey(rand.Reader, 768)
	if err != nil {
		t.Fatal(err)
	}
	return testKeys{long, ed, short}
}

func (k testKeys) dns(t testing.TB) *fakeDNS {
	return &fakeDNS{t: t, servers: map[string]bool{"down._domainkey.x.com": true}, txt: map[string][]string{
		"rsa._domainkey.x.com":    {KeyRecord(k.rsa)},
		"ed._domainkey.x.com":     {KeyRecord(k.ed)},
		"short._domainkey.x.com":  {KeyRecord(k.short)},
		"strict._domainkey.x.com": {KeyRecord(k.rsa) + "; t=y:s"},
		"plain._domainkey.x.com":  {strings.TrimPrefix(KeyRecord(k.rsa), "v=DKIM1; ")},
		"gone._domainkey.x.com":   {"v=DKIM1; p="},
		"two._domainkey.x.com":    {KeyRecord(k.rsa), KeyRecord(k.rsa)},
		"web._domainkey.x.com":    {KeyRecord(k.rsa) + "; s=web"},
		"sha1._domainkey.x.com":   {KeyRecord(k.rsa) + "; h=sha1"},
		"huge._domainkey.x.com":   {KeyRecord(k.rsa) + "; n=" + strings.Repeat("n", maxKeyRecord)},
		"junk._domainkey.x.com":   {"v=DKIM1; k=rsa; p=AAAA"},
		"_dmarc.x.com":            {"v=DMARC1; p=reject"},
	}}
}

const (
	okTags = " v=1; a=rsa-sha256; c=relaxed/relaxed; d=x.com; h=From"
	x2100  = "; x=4102444800"
)

var dkimCases = []struct {
	name, tags string
	key        string // the selector of the key that signs; empty is rsa
	hash       crypto.Hash
	now        time.Time
	result     Result
	reason     string
}{
	{name: "rsa", tags: okTags + "; s=rsa", result: Pass},
	{name: "ed25519", tags: strings.Replace(okTags, "rsa", "ed25519", 1) + "; s=ed", key: "ed", result: Pass},
	{name: "record without version", tags: okTags + "; s=plain", result: Pass},
	{name: "domain in capitals", tags: strings.Replace(okTags, "x.com", "X.COM", 1) + "; s=rsa", result: Pass},
	{name: "i= in a subdomain", tags: okTags + "; s=rsa; i=u@m.x.com", result: Pass},
	{name: "i= in a subdomain, key t=s", tags: okTags + "; s=strict; i=u@m.x.com", result: PermError, reason: "key forbids i= in a subdomain"},
	{name: "i= in the domain, key t=s", tags: okTags + "; s=strict; i=u@x.com", result: Pass},
	{name: "i= elsewhere", tags: okTags + "; s=rsa; i=u@y.com", result: PermError, reason: "i= is not within the domain d="},
	{name: "i= with the domain as suffix", tags: okTags + "; s=rsa; i=u@evilx.com", result: PermError, reason: "i= is not within the domain d="},
	{name: "not yet expired", tags: okTags + "; s=rsa" + x2100, result: Pass},
	{name: "expired", tags: okTags + "; s=rsa; x=1000000000", result: PermError, reason: "signature has expired"},
	{name: "expired by our clock", tags: okTags + "; s=rsa" + x2100, now: time.Unix(4102444801, 0), result: PermError, reason: "signature has expired"},
	{name: "rsa-sha1", tags: strings.Replace(okTags, "sha256", "sha1", 1) + "; s=rsa", hash: crypto.SHA1, result: PermError, reason: "hash algorithm too weak"},
	{name: "rsa key of 768 bits", tags: okTags + "; s=short", key: "short", result: PermError, reason: "key is too short"},
	{name: "l= tag", tags: okTags + "; s=rsa; l=5", result: Neutral, reason: "body length tag (l=) is not trusted"},
	{name: "l= of the whole body", tags: okTags + "; s=rsa; l=18", result: Neutral, reason: "body length tag (l=) is not trusted"},
	{name: "From is not signed", tags: strings.Replace(okTags, "h=From", "h=To", 1) + "; s=rsa", result: PermError, reason: "no signature of the From field"},
	{name: "another key", tags: okTags + "; s=rsa", key: "short", result: Fail, reason: "signature did not verify"},
	{name: "no such key", tags: okTags + "; s=nosuch", result: PermError, reason: "no key for signature"},
	{name: "revoked key", tags: okTags + "; s=gone", result: PermError, reason: "key revoked"},
	{name: "two keys", tags: okTags + "; s=two", result: PermError, reason: "multiple TXT records found for key"},
	{name: "key for another service", tags: okTags + "; s=web", result: PermError, reason: "key does not apply to email"},
	{name: "key for another hash", tags: okTags + "; s=sha1", result: PermError, reason: "key does not allow the hash algorithm"},
	{name: "key record too large", tags: okTags + "; s=huge", result: PermError, reason: "key record too large"},
	{name: "key is no key", tags: okTags + "; s=junk", result: PermError, reason: "key syntax error"},
	{name: "key of another kind", tags: okTags + "; s=ed", result: PermError, reason: "key has another algorithm than the signature"},
	{name: "resolver fails", tags: okTags + "; s=down", result: TempError, reason: "key unavailable"},
	{name: "selector is no name", tags: okTags + "; s=a b..c", result: PermError, reason: "no key for signature"},
	{name: "repeated tag", tags: okTags + "; s=rsa; d=y.com", result: PermError, reason: "malformed signature tags"},
	{name: "no version", tags: strings.Replace(okTags, " v=1;", "", 1) + "; s=rsa", result: PermError, reason: "incompatible signature version"},
	{name: "unknown canonicalization", tags: strings.Replace(okTags, "relaxed/relaxed", "relaxed/loose", 1) + "; s=rsa", result: PermError, reason: "unsupported body canonicalization algorithm"},
	{name: "too large", tags: okTags + "; s=rsa; n=" + strings.Repeat("n", maxSignature), result: PermError, reason: "signature field too large"},
	{name: "too many names", tags: okTags + strings.Repeat(":To", maxSignedNames) + "; s=rsa", result: PermError, reason: "signature field too large"},
}

func TestDKIMSignaturesAreJudged(t *testing.T) {
	keys := newTestKeys(t)
	now := time.Now()
	for _, tc := range dkimCases {
		t.Run(tc.name, func(t *testing.T) {
			key := map[string]crypto.Signer{"": keys.rsa, "ed": keys.ed, "short": keys.short}[tc.key]
			if tc.hash == 0 {
				tc.hash = crypto.SHA256
			}
			if tc.now.IsZero() {
				tc.now = now
			}
			v := &Verifier{Resolver: keys.dns(t), Now: func() time.Time { return tc.now }}
			msg := handSign(t, key, tc.hash, tc.tags) + testMessage
			got, err := v.Verify(t.Context(), request(msg, "user@x.com"))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Signatures) != 1 || got.Signatures[0].Result != tc.result || got.Signatures[0].Reason != tc.reason || got.DKIM != tc.result {
				t.Fatalf("dkim=%s %+v, want %s %q", got.DKIM, got.Signatures, tc.result, tc.reason)
			}
			if wantDMARC := map[bool]Result{true: Pass, false: Fail}[tc.result == Pass]; tc.result != TempError && got.DMARC != wantDMARC {
				t.Errorf("dmarc=%s, want %s", got.DMARC, wantDMARC)
			}
		})
	}
}

func TestAlteredMessageFails(t *testing.T) {
	keys := newTestKeys(t)
	v := &Verifier{Resolver: keys.dns(t)}
	sigs, err := Sign(strings.NewReader(testMessage), SignOptions{Keys: []Key{{"x.com", "rsa", keys.rsa}, {"x.com", "ed", keys.ed}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, old, new, reason string }{
		{"as it was", "", "", ""},
		{"white space in the body", "Hello  you \r\n", "Hello you\r\n", ""},
		{"folding", "Subject: Hello\r\n there", "Subject:   Hello there", ""},
		{"trace field added", "From: ", "Received: by relay\r\nFrom: ", ""},
		{"body", "Bye", "Buy", "body hash did not verify"},
		{"text added", "Bye\r\n", "Bye\r\nBuy\r\n", "body hash did not verify"},
		{"Subject", "Hello\r\n there", "Hello you", "signature did not verify"},
		{"second From", "From: ", "From: boss@x.com\r\nFrom: ", "signature did not verify"},
		{"second From below", "Date: ", "From: boss@x.com\r\nDate: ", "signature did not verify"},
		{"second Subject", "Date: ", "Subject: Win\r\nDate: ", "signature did not verify"},
		{"Reply-To added", "Date: ", "Reply-To: evil@y.com\r\nDate: ", "signature did not verify"},
		{"Content-Type added", "Date: ", "Content-Type: text/html\r\nDate: ", "signature did not verify"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			msg := string(sigs) + strings.Replace(testMessage, tc.old, tc.new, 1)
			got, err := v.Verify(t.Context(), request(msg, "user@x.com"))
			if err != nil {
				t.Fatal(err)
			}
			want := map[bool]Result{true: Pass, false: Fail}[tc.reason == ""]
			for _, sig := range got.Signatures {
				if sig.Result != want || sig.Reason != tc.reason {
					t.Errorf("%s: %s %q, want %s %q", sig.Selector, sig.Result, sig.Reason, want, tc.reason)
				}
			}
			if len(got.Signatures) != 2 {
				t.Errorf("%d signatures, want 2", len(got.Signatures))
			}
		})
	}
}

func TestOnlyTheFirstSignaturesAreVerified(t *testing.T) {
	keys := newTestKeys(t)
	dns := keys.dns(t)
	v := &Verifier{Resolver: dns, MaxVerifications: 3}
	junk := "DKIM-Signature: v=1; a=rsa-sha256; d=x.com; s=nosuch; h=From; bh=; b=\r\n"
	good := handSign(t, keys.rsa, crypto.SHA256, " v=1; a=rsa-sha256; c=relaxed/relaxed; d=x.com; h=From; s=rsa")
	got, err := v.Verify(t.Context(), request(junk+junk+good+strings.Repeat(junk, 50)+testMessage, "user@x.com"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Signatures) != 3 || got.Signatures[2].Result != Pass || got.DKIM != Pass {
		t.Errorf("dkim=%s %+v, want the third of 3 to pass", got.DKIM, got.Signatures)
	}
	if n := len(dns.asked); n > 6 {
		t.Errorf("%d look-ups, want at most 6: %v", n, dns.asked)
	}
}

// The library takes names to be equal that differ in their bytes (U+017F and s, U+212A and K). A
// forger's good signature under such a name must not lend its result to the forged one after it.
func TestLookalikeFieldNamesShiftNoResults(t *testing.T) {
	keys := newTestKeys(t)
	dns := keys.dns(t)
	dns.txt["rsa._domainkey.evil.com"] = []string{KeyRecord(keys.rsa)}
	v := &Verifier{Resolver: dns}
	forged := handSign(t, keys.short, crypto.SHA256, " v=1; a=rsa-sha256; c=relaxed/relaxed; d=x.com; h=From; s=rsa")
	for _, name := range []string{"DKIM-\u017Fignature", "D\u212AIM-Signature", "DKIM-Signature \t", "DKIM-Signature\u00A0", "\u00A0DKIM-Signature", "DKIM-Signature\v"} {
		good := handSignAs(t, name, keys.rsa, crypto.SHA256, " v=1; a=rsa-sha256; c=relaxed/relaxed; d=evil.com; h=From; s=rsa")
		got, err := v.Verify(t.Context(), request(good+forged+testMessage, "user@x.com"))
		if err != nil {
			t.Fatal(err)
		}
		if got.DMARC != Fail && got.DMARC != PermError { // such a name ends the header for some programs
			t.Errorf("%q: dmarc=%s", name, got.DMARC)
		}
		for _, s := range got.Signatures {
			if s.Domain == "x.com" && s.Result != Fail {
				t.Errorf("%q: %+v, want fail", name, s)
			}
		}
	}
}

// A signature that is turned away must not shift the results of the others.
func TestOversizedSignatureLeavesTheOthersAlone(t *testing.T) {
	keys := newTestKeys(t)
	v := &Verifier{Resolver: keys.dns(t)}
	const tags = " v=1; a=rsa-sha256; c=relaxed/relaxed; d=x.com; h=From; s="
	large := handSign(t, keys.rsa, crypto.SHA256, tags+"rsa; n="+strings.Repeat("n", maxSignature))
	good := handSign(t, keys.rsa, crypto.SHA256, tags+"rsa")
	bad := handSign(t, keys.short, crypto.SHA256, tags+"rsa")
	got, err := v.Verify(t.Context(), request(bad+large+good+testMessage, "user@x.com"))
	if err != nil {
		t.Fatal(err)
	}
	var results []Result
	for _, s := range got.Signatures {
		results = append(results, s.Result)
	}
	if len(results) != 3 || results[0] != Fail || results[1] != PermError || results[2] != Pass {
		t.Errorf("results %v, want fail permerror pass", results)
	}
}

// costly messages make a naive verifier quadratic in their size; each must be judged within
// seconds, also with the race detector.
func TestCostlyMessagesAreCheap(t *testing.T) {
	keys := newTestKeys(t)
	v := &Verifier{Resolver: keys.dns(t)}
	body := sha256.Sum256([]byte("x\r\n")) // a right hash, since the fields are looked at after it
	simple := "DKIM-Signature: v=1; a=rsa-sha256; c=simple/simple; d=x.com; s=rsa; h=From; b=AAAA; bh=" +
		base64.StdEncoding.EncodeToString(body[:]) + "\r\n"
	names := strings.Replace(simple, "h=From", "h=From"+strings.Repeat(":Y", maxSignedNames-20), 1)
	relaxed := strings.ReplaceAll(names, "simple", "relaxed")
	good := handSign(t, keys.rsa, crypto.SHA256, okTags+"; s=rsa")
	folds := "From: a@x.com\r\nX: y\r\n" + strings.Repeat(" \r\n", 300_000)
	for _, tc := range []struct{ name, message, reason string }{
		{"empty lines", good + "From: User <user@x.com>\r\n\r\n" + strings.Repeat("\r\n", 4<<20) + "x\r\n", "body hash did not verify"},
		{"blank lines", strings.Repeat(good, 5) + "From: User <user@x.com>\r\n\r\n" + strings.Repeat(" \r\n", 4<<20) + "x\r\n", "body hash did not verify"},
		{"folded lines, simple", simple + folds + "\r\nx\r\n", "signature did not verify"},
		{"folded lines, relaxed", strings.Repeat(relaxed, 5) + folds + "\r\nx\r\n", "signature did not verify"},
		{"white space, relaxed", strings.Repeat(relaxed, 5) + "From: a@x.com\r\nX:" + strings.Repeat(" ", maxHeader/2) + "\r\n\r\nx\r\n", "signature did not verify"},
		{"white space, simple", strings.Repeat(names, 5) + "From: a@x.com\r\nX:" + strings.Repeat(" ", maxHeader/2) + "\r\n\r\nx\r\n", "signature did not verify"},
		{"white space, simple, in measure", strings.Repeat(names, 5) + "From: a@x.com\r\nX:" + strings.Repeat(" ", 60<<10) + "\r\n\r\nx\r\n", "signature did not verify"},
		{"many fields", strings.Repeat(relaxed, 5) + "From: a@x.com\r\n" + strings.Repeat("X:\r\n", maxFields-10) + "\r\nx\r\n", "signature did not verify"},
		{"many fields, simple", strings.Repeat(names, 5) + "From: a@x.com\r\n" + strings.Repeat("X:\r\n", maxFields-10) + "\r\nx\r\n", "signature did not verify"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start := time.Now()
			got, err := v.Verify(t.Context(), request(tc.message, "a@x.com"))
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %s", took)
			}
			if r := got.Signatures[0].Reason; r != tc.reason {
				t.Errorf("reason %q, want %q", r, tc.reason)
			}
		})
	}
}

// failingReader breaks off in the body, as a disk does.
type failingReader struct {
	text string
	err  error
}

func (f failingReader) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(f.text)) {
		return 0, f.err
	}
	n := copy(p, f.text[off:])
	if n < len(p) {
		return n, f.err
	}
	return n, nil
}

func TestReadErrorsAreReportedAndLeaveNothingBehind(t *testing.T) {
	keys := newTestKeys(t)
	v := &Verifier{Resolver: keys.dns(t)}
	sig := handSign(t, keys.rsa, crypto.SHA256, " v=1; a=rsa-sha256; c=relaxed/relaxed; d=x.com; h=From; s=rsa")
	broken := errors.New("input/output error")
	before := runtime.NumGoroutine()
	for _, text := range []string{"", "From: a", sig + sig + testMessage + strings.Repeat("x\r\n", 50_000)} {
		r := request("", "user@x.com")
		r.Message, r.Size = failingReader{text, broken}, int64(len(text))+10
		if got, err := v.Verify(t.Context(), r); !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v, %v, want %v", len(text), got, err, broken)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := v.Verify(ended, request(sig+sig+testMessage, "user@x.com")); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v, %v", got, err)
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

func TestHeaderIsCutIntoFields(t *testing.T) {
	msg, err := openMessage(strings.NewReader("A: 1\r\n 2\r\nb :3\nNo colon\r\n\r\nbody\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []field{{"A", "A: 1\r\n 2\r\n", 2}, {"b", "b :3\n", 1}, {"No colon", "No colon\r\n", 1}}
	if len(msg.fields) != len(want) {
		t.Fatalf("%+v, want %+v", msg.fields, want)
	}
	for i, f := range msg.fields {
		if f != want[i] {
			t.Errorf("field %d: %+v, want %+v", i, f, want[i])
		}
	}
	if body, err := io.ReadAll(msg.body); err != nil || !bytes.Equal(body, []byte("body\r\n\r\n")) {
		t.Errorf("body %q, %v", body, err)
	}
}
