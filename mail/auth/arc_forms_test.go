package auth

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// signSimple puts a signature behind a field that lacks b=, over the text before it, as the
// simple canonicalization has it; bh= is added of a body where there is one.
func signSimple(t testing.TB, key crypto.Signer, field, before, body string) string {
	t.Helper()
	if body != "" {
		sum := sha256.Sum256([]byte(body))
		field += "; bh=" + base64.StdEncoding.EncodeToString(sum[:])
	}
	field += "; b="
	return field + signatureOf(t, key, before+field) + "\r\n"
}

func signatureOf(t testing.TB, key crypto.Signer, text string) string {
	t.Helper()
	digest := sha256.Sum256([]byte(text))
	var opts crypto.SignerOpts = crypto.SHA256
	if _, ok := key.(ed25519.PrivateKey); ok {
		opts = crypto.Hash(0)
	}
	sig, err := key.Sign(rand.Reader, digest[:], opts)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(sig)
}

// A chainForm says how one set differs from a plain one. What is changed before a signature is made
// is signed, so that nothing but the form is wrong.
type chainForm struct {
	results, message, seal func(string) string // the values before they are signed, without b=
	after                  func(string) string // the whole message
	tail                   string              // what follows b= of the seal
	key                    crypto.Signer
}

func applied(change func(string) string, value string) string {
	if change == nil {
		return value
	}
	return change(value)
}

const (
	chainBody  = "Hi  there \r\n\r\nBye\r\n\r\n"
	chainHead  = "From: User <user@x.com>\r\nTo: you@here.example\r\nSubject: A  word\r\n\tmore\r\nComments: one\r\nComments: two\r\n"
	chainNames = "from:to:subject"
)

// chained is a message with a set for each form, the last one newest. It signs by itself, with none
// of the code under test but the canonical forms, which FuzzCanonicalBody compares with a twin.
func chained(t testing.TB, keys testKeys, forms ...chainForm) string {
	t.Helper()
	fields, err := splitFields(chainHead)
	if err != nil {
		t.Fatal(err)
	}
	var sets []arcSet
	for i, form := range forms {
		key := form.key
		if key == nil {
			key = keys.rsa
		}
		algorithm := "rsa-sha256"
		selector := "rsa"
		if _, ok := key.(ed25519.PrivateKey); ok {
			algorithm, selector = "ed25519-sha256", "ed"
		}
		cv := "pass"
		if i == 0 {
			cv = "none"
		}
		var set arcSet
		set.results = newField(arcResults+": "+applied(form.results, fmt.Sprintf("i=%d; mx.there.example; spf=pass smtp.mailfrom=x.com", i+1))+"\r\n", 1)
		value := applied(form.message, fmt.Sprintf("i=%d; a=%s; c=relaxed/relaxed; d=x.com; s=%s; t=1795000000; h=%s", i+1, algorithm, selector, chainNames))
		tags := parseTags(value)
		head, body, _ := strings.Cut(tags["c"], "/")
		if _, given := tags["bh"]; !given {
			sum, err := hashBody(t.Context(), strings.NewReader(chainBody), body == "relaxed")
			if err != nil {
				t.Fatal(err)
			}
			value += "; bh=" + base64.StdEncoding.EncodeToString(sum)
		}
		unsigned := newField(arcMessage+": "+value+"; b=\r\n", 1)
		text, _ := signedText(append([]field{set.results}, fields...), fieldNamesIn(tags["h"]), unsigned, head == "relaxed")
		set.message = newField(strings.TrimSuffix(unsigned.raw, "\r\n")+signatureOf(t, key, text)+"\r\n", 1)
		value = applied(form.seal, fmt.Sprintf("i=%d; a=%s; cv=%s; d=x.com; s=%s; t=1795000000", i+1, algorithm, cv, selector))
		set.seal = newField(arcSeal+": "+value+"; b="+form.tail+"\r\n", 1)
		sets = append(sets, set)
		set.seal = newField(strings.TrimSuffix(set.seal.raw, form.tail+"\r\n")+signatureOf(t, key, sealedText(sets))+form.tail+"\r\n", 1)
		sets[i] = set
		fields = append([]field{set.seal, set.message, set.results}, fields...)
	}
	message := ""
	for _, f := range fields {
		message += f.raw
	}
	message += "\r\n" + chainBody
	for _, form := range forms {
		message = applied(form.after, message)
	}
	return message
}

// The categories are those of the public test suite of ARC: structure, format and fields of each of
// the three parts, canonical forms, keys.
func TestChainsOfTheirForms(t *testing.T) {
	keys := newTestKeys(t)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	swap := func(old, new string) func(string) string {
		return func(s string) string {
			if !strings.Contains(s, old) {
				t.Errorf("nothing of %q in %.200q", old, s)
			}
			return strings.Replace(s, old, new, 1)
		}
	}
	add := func(more string) func(string) string { return func(s string) string { return s + more } }
	plain := chainForm{}
	message := func(old, new string) []chainForm { return []chainForm{{message: swap(old, new)}} }
	seal := func(old, new string) []chainForm { return []chainForm{{seal: swap(old, new)}} }
	results := func(old, new string) []chainForm { return []chainForm{{results: swap(old, new)}} }
	after := func(old, new string) []chainForm { return []chainForm{{after: swap(old, new)}} }
	onSecond := func(f chainForm) []chainForm { return []chainForm{plain, f} }
	pass, fail := "", "fail"
	for _, c := range []struct {
		name, want string // want is why it fails, pass, or fail for any reason
		forms      []chainForm
	}{
		{"one set", pass, []chainForm{plain}},
		{"two sets", pass, []chainForm{plain, plain}},
		{"five sets", pass, []chainForm{plain, plain, plain, plain, plain}},
		{"fifty sets", pass, make([]chainForm, 50)},
		{"fifty-one sets", errTooManySets.Error(), make([]chainForm, 51)},
		{"an older message signature is broken, as forwarders do", pass, []chainForm{{message: swap("h=from", "h=comments:from")}, {message: swap("h=from", "h=from"), after: swap("Comments: two", "Comments: 2")}}},

		{"gap in the instances", errIncomplete.Error(), []chainForm{plain, {results: swap("i=2", "i=3"), message: swap("i=2", "i=3"), seal: swap("i=2", "i=3")}}},
		{"results without instance", errMalformedSet.Error(), results("i=1; ", "")},
		{"results with instance not first", errMalformedSet.Error(), results("i=1; mx.there.example", "mx.there.example; i=1")},
		{"results without a semicolon", errMalformedSet.Error(), results("i=1;", "i=1")},
		{"results with instance 0", errMalformedSet.Error(), results("i=1", "i=0")},
		{"results of another instance", errIncomplete.Error(), results("i=1", "i=2")},
		{"message signature without instance", errMalformedSet.Error(), message("i=1; ", "")},
		{"message signature with an empty instance", errMalformedSet.Error(), message("i=1", "i=")},
		{"message signature with instance 0", errMalformedSet.Error(), message("i=1", "i=0")},
		{"message signature with instance x", errMalformedSet.Error(), message("i=1", "i=x")},
		{"seal without instance", errMalformedSet.Error(), seal("i=1; ", "")},
		{"seal with an empty instance", errMalformedSet.Error(), seal("i=1", "i=")},
		{"seal with instance 0", errMalformedSet.Error(), seal("i=1", "i=0")},
		{"seal with instance -1", errMalformedSet.Error(), seal("i=1", "i=-1")},
		{"seal with instance 51", errTooManySets.Error(), seal("i=1", "i=51")},
		{"seal with instance 300", errMalformedSet.Error(), seal("i=1", "i=300")},

		{"message signature, blanks around semicolons", pass, message("; a=", " \r\n\t;  a=")},
		{"message signature, blanks around equals", pass, message("a=rsa", "a  =  rsa")},
		{"message signature, unknown tag", pass, message("; a=", "; w=catparty; a=")},
		{"message signature, bad name", fail, message("; a=", "; 1w=catparty; a=")},
		{"message signature, repeated tag", fail, message("; a=", "; s=rsa; a=")},
		{"message signature, empty tag", fail, message("; a=", ";; a=")},
		{"message signature, names in capitals", errMissing.Error(), message("d=", "D=")},
		{"seal, blanks around semicolons", pass, seal("; a=", " \r\n\t;  a=")},
		{"seal, blanks around equals", pass, seal("a=rsa", "a  =  rsa")},
		{"seal, unknown tag", pass, seal("; a=", "; w=catparty; a=")},
		{"seal, a semicolon at the end", pass, []chainForm{{tail: ";"}}},
		{"seal, bad name", errMalformedSet.Error(), seal("; a=", "; 1w=catparty; a=")},
		{"seal, repeated tag", errMalformedSet.Error(), seal("; a=", "; s=rsa; a=")},
		{"seal, empty tag", errMalformedSet.Error(), seal("; a=", ";; a=")},
		{"seal, names in capitals", errNoKey.Error(), seal("d=", "D=")},

		{"message signature, sha1", errWeakHash.Error(), message("sha256", "sha1")},
		{"message signature, unknown algorithm", errAlgorithm.Error(), message("rsa-sha256", "poem")},
		{"message signature, empty algorithm", errAlgorithm.Error(), message("rsa-sha256", "")},
		{"message signature, no algorithm", errMissing.Error(), message("a=rsa-sha256; ", "")},
		{"message signature, no domain", errMissing.Error(), message("d=x.com; ", "")},
		{"message signature, empty domain", errNoKey.Error(), message("d=x.com", "d=")},
		{"message signature, bad domain", errNoKey.Error(), message("d=x.com", "d=^x..com")},
		{"message signature, no selector", errMissing.Error(), message("s=rsa; ", "")},
		{"message signature, empty selector", errNoKey.Error(), message("s=rsa", "s=")},
		{"message signature, no time", pass, message("t=1795000000; ", "")},
		{"message signature, empty time", errTime.Error(), message("t=1795000000", "t=")},
		{"message signature, time of words", errTime.Error(), message("t=1795000000", "t=noon")},
		{"message signature, time with a blank", errTime.Error(), message("t=1795000000", "t=1795 000000")},
		{"message signature, negative time", errTime.Error(), message("t=1795000000", "t=-1")},
		{"message signature, not expired", pass, message("t=1795000000", "x=4102444800")},
		{"message signature, expired", errExpired.Error(), message("t=1795000000", "x=1000000000")},
		{"message signature, no names", errMissing.Error(), message("h="+chainNames, "w=")},
		{"message signature, empty names", errFrom.Error(), message("h="+chainNames, "h=")},
		{"message signature, blanks among names", pass, message("from:to", "from :\r\n\t to")},
		{"message signature, names in capitals", pass, message("from:to", "From:TO")},
		{"message signature, a blank name", pass, message("from:to", "from::to")},
		{"message signature, repeated field", pass, message("from:to", "from:comments:comments:to")},
		{"message signature, absent field", pass, message("from:to", "from:mime-version:mime-version:to")},
		{"message signature, absent field is added", errSignature.Error(), []chainForm{{message: swap("from:to", "from:mime-version:to"), after: swap("Subject:", "MIME-Version: 1.0\r\nSubject:")}}},
		{"message signature, repeated fields in another order", errSignature.Error(), []chainForm{{message: swap("from:to", "from:comments:comments:to"), after: swap("Comments: one\r\nComments: two", "Comments: two\r\nComments: one")}}},
		{"message signature covers its results", pass, message("from:to", "arc-authentication-results:from:to")},
		{"message signature covers an older one", pass, onSecond(chainForm{message: swap("from:to", "arc-message-signature:from:to")})},
		{"message signature covers a seal", errSeals.Error(), onSecond(chainForm{message: swap("from:to", "arc-seal:from:to")})},
		{"message signature of a part of the body", errPartial.Error(), message("; h=", "; l=3; h=")},
		{"message signature, empty body hash", errBody.Error(), message("; h=", "; bh=; h=")},
		{"message signature, body hash no base64", errTagList.Error(), message("; h=", "; bh=*; h=")},
		{"message signature, another body hash", errBody.Error(), message("; h=", "; bh=AAAA; h=")},
		{"message signature, changed", errSignature.Error(), after("c=relaxed/relaxed; d", "c=relaxed/relaxed; w=x; d")},
		{"message signature, no base64", errSignature.Error(), []chainForm{{after: func(s string) string {
			i := strings.Index(s, arcMessage)
			return s[:i] + strings.Replace(s[i:], " b=", " b=*", 1)
		}}}},

		{"relaxed/relaxed", pass, message("c=relaxed/relaxed", "c=relaxed/relaxed")},
		{"relaxed/simple", pass, message("c=relaxed/relaxed", "c=relaxed/simple")},
		{"simple/relaxed", pass, message("c=relaxed/relaxed", "c=simple/relaxed")},
		{"simple/simple", pass, message("c=relaxed/relaxed", "c=simple/simple")},
		{"relaxed alone", pass, message("c=relaxed/relaxed", "c=relaxed")},
		{"no form is simple/simple", pass, message("c=relaxed/relaxed; ", "")},
		{"empty form", errHeadForm.Error(), message("c=relaxed/relaxed", "c=")},
		{"empty form of the body", errBodyForm.Error(), message("c=relaxed/relaxed", "c=relaxed/")},
		{"unknown form", errHeadForm.Error(), message("c=relaxed/relaxed", "c=tight/relaxed")},
		{"unknown form of the body", errBodyForm.Error(), message("c=relaxed/relaxed", "c=relaxed/tight")},
		{"field name in capitals", pass, after("Subject:", "SUBJECT:")},
		{"fields unfolded", pass, after("A  word\r\n\tmore", "A word more")},
		{"blanks at the line's end", pass, after("you@here.example", "you@here.example  \t")},
		{"blanks around the colon", pass, after("Subject: ", "Subject  :")},
		{"body, blanks at the line's end", pass, after("there \r\n", "there\r\n")},
		{"body, blanks within", pass, after("Hi  there", "Hi\tthere")},
		{"body, empty lines at the end", pass, after("Bye\r\n\r\n", "Bye\r\n\r\n\r\n\r\n")},
		{"body without a line end", pass, after("Bye\r\n\r\n", "Bye")},
		{"body, another word", errBody.Error(), after("Bye", "Buy")},
		{"simple body, blanks within", errBody.Error(), []chainForm{{message: swap("relaxed/relaxed", "relaxed/simple"), after: swap("Hi  there", "Hi there")}}},
		{"simple body, empty lines at the end", pass, []chainForm{{message: swap("relaxed/relaxed", "relaxed/simple"), after: swap("Bye\r\n\r\n", "Bye\r\n\r\n\r\n")}}},
		{"simple header, folding", errSignature.Error(), []chainForm{{message: swap("relaxed/relaxed", "simple/relaxed"), after: swap("A  word\r\n\tmore", "A word more")}}},

		{"first seal says pass", errMalformedSet.Error(), seal("cv=none", "cv=pass")},
		{"first seal says fail", errSealedAsFailed.Error(), seal("cv=none", "cv=fail")},
		{"seal without cv", errMalformedSet.Error(), seal("cv=none; ", "")},
		{"seal with an empty cv", errMalformedSet.Error(), seal("cv=none", "cv=")},
		{"seal with another cv", errMalformedSet.Error(), seal("cv=none", "cv=perfect")},
		{"second seal says none", errMalformedSet.Error(), onSecond(chainForm{seal: swap("cv=pass", "cv=none")})},
		{"second seal says fail", errSealedAsFailed.Error(), onSecond(chainForm{seal: swap("cv=pass", "cv=fail")})},
		{"an old seal says fail", errSealedAsFailed.Error(), []chainForm{plain, {seal: swap("cv=pass", "cv=fail")}, plain}},
		{"an old seal says pass first", errMalformedSet.Error(), []chainForm{{seal: swap("cv=none", "cv=pass")}, plain}},
		{"seal with names", errMalformedSet.Error(), []chainForm{{seal: add("; h=from")}}},
		{"seal, sha1", errWeakHash.Error(), seal("sha256", "sha1")},
		{"seal, unknown algorithm", errAlgorithm.Error(), seal("rsa-sha256", "poem")},
		{"seal, empty algorithm", errAlgorithm.Error(), seal("rsa-sha256", "")},
		{"seal, no algorithm", errAlgorithm.Error(), seal("a=rsa-sha256; ", "")},
		{"seal, no domain", errNoKey.Error(), seal("d=x.com; ", "")},
		{"seal, empty domain", errNoKey.Error(), seal("d=x.com", "d=")},
		{"seal, bad domain", errNoKey.Error(), seal("d=x.com", "d=^x..com")},
		{"seal, no selector", errNoKey.Error(), seal("s=rsa; ", "")},
		{"seal, empty selector", errNoKey.Error(), seal("s=rsa", "s=")},
		{"seal, no time", pass, seal("; t=1795000000", "")},
		{"seal, empty time", errTime.Error(), seal("t=1795000000", "t=")},
		{"seal, bad time", errTime.Error(), seal("t=1795000000", "t=-123.4")},
		{"seal, changed", errSignature.Error(), after("cv=none; d", "cv=none; w=x; d")},
		{"seal over changed results", errSignature.Error(), after("spf=pass", "spf=fail")},
		{"old results changed", errSignature.Error(), []chainForm{plain, plain, {after: swap("i=1; mx.there.example; spf=pass", "i=1; mx.there.example; spf=fail")}}},
		{"old seal taken away", errIncomplete.Error(), []chainForm{plain, {after: swap("ARC-Seal: i=1", "X-Seal: i=1")}}},
		{"old message signature taken away", errIncomplete.Error(), []chainForm{plain, {after: swap("ARC-Message-Signature: i=1", "X-Message: i=1")}}},
		{"old results taken away", errIncomplete.Error(), []chainForm{plain, {after: swap("ARC-Authentication-Results: i=1", "X-Results: i=1")}}},
		{"old set taken away", errIncomplete.Error(), []chainForm{plain, {after: func(s string) string {
			return strings.NewReplacer("ARC-Seal: i=1", "X: i=1", "ARC-Message-Signature: i=1", "X: i=1", "ARC-Authentication-Results: i=1", "X: i=1").Replace(s)
		}}}},
		{"a second seal", errIncomplete.Error(), after("From:", "ARC-Seal: i=1; a=rsa-sha256; cv=none; d=x.com; s=rsa; b=AAAA\r\nFrom:")},
		{"a second message signature", errIncomplete.Error(), after("From:", "ARC-Message-Signature: i=1; a=rsa-sha256; d=x.com; s=rsa; h=from; bh=; b=\r\nFrom:")},
		{"second results", errIncomplete.Error(), after("From:", "ARC-Authentication-Results: i=1; mx.there.example; none\r\nFrom:")},

		{"unknown key", errNoKey.Error(), []chainForm{{seal: swap("s=rsa", "s=none")}}},
		{"unknown key of the message signature", errNoKey.Error(), message("s=rsa", "s=none")},
		{"revoked key", errRevoked.Error(), seal("s=rsa", "s=gone")},
		{"revoked key of the message signature", errRevoked.Error(), message("s=rsa", "s=gone")},
		{"malformed key", errBadKey.Error(), seal("s=rsa", "s=junk")},
		{"key record of another shape", errBadKey.Error(), seal("s=rsa", "s=words")},
		{"two keys", errManyKeys.Error(), seal("s=rsa", "s=two")},
		{"key for another service", errService.Error(), seal("s=rsa", "s=web")},
		{"key for another hash", errKeyHash.Error(), seal("s=rsa", "s=sha1")},
		{"key of another kind", errKeyKind.Error(), seal("s=rsa", "s=ed")},
		{"short key", errShortKey.Error(), seal("s=rsa", "s=short")},
		{"key of 1024 bits", pass, []chainForm{{key: small, seal: swap("s=rsa", "s=small"), message: swap("s=rsa", "s=small")}}},
		{"ed25519", pass, []chainForm{{key: keys.ed}}},
		{"other domain and key for the seal", pass, []chainForm{plain, {seal: swap("d=x.com", "d=y.com")}}},
	} {
		dns := keys.dns(t)
		dns.txt["small._domainkey.x.com"] = []string{KeyRecord(small)}
		dns.txt["words._domainkey.x.com"] = []string{"v=DKIM1; k=rsa; omgwhat"}
		dns.txt["rsa._domainkey.y.com"] = []string{KeyRecord(keys.rsa)}
		text := chained(t, keys, c.forms...)
		got, err := (&Verifier{Resolver: dns}).Verify(t.Context(), request(text, "user@x.com"))
		if err != nil {
			t.Fatal(err)
		}
		ok := got.ARC.Result == Fail && (c.want == fail || got.ARC.Reason == c.want)
		if c.want == pass {
			ok = got.ARC.Result == Pass && got.ARC.Sets == len(c.forms)
		}
		if !ok {
			t.Errorf("%s: %s (%s) of %d sets, want %q", c.name, got.ARC.Result, got.ARC.Reason, got.ARC.Sets, c.want)
		}
	}
}

// A resolver that does not answer for one key of a chain leaves it undecided.
func TestChainsWithoutAnswerAreUndecided(t *testing.T) {
	keys := newTestKeys(t)
	down := func(s string) string { return strings.Replace(s, "s=rsa", "s=down", 1) }
	for name, forms := range map[string][]chainForm{
		"seal": {{seal: down}}, "message signature": {{message: down}}, "old seal": {{seal: down}, {}},
	} {
		if v := verifyARC(t, keys, chained(t, keys, forms...)); v.ARC.Result != TempError || v.ARC.AttestsDMARC("x.com") {
			t.Errorf("%s: %+v", name, v.ARC)
		}
	}
}
