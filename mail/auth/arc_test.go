package auth

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"
)

const arcHost = "mx.here.example"

// forward does what a forwarder does: it verifies a message, puts what it found before it,
// and seals that.
func forward(t *testing.T, keys testKeys, message string) string {
	t.Helper()
	verified := verifyARC(t, keys, message).Header + message
	set, err := Seal(strings.NewReader(verified), sealOptions(keys))
	if err != nil {
		t.Fatal(err)
	}
	return string(set) + verified
}

func sealOptions(keys testKeys) SealOptions {
	return SealOptions{Key: Key{"x.com", "rsa", keys.rsa}, AuthservID: arcHost, Now: time.Unix(1_795_000_000, 0)}
}

func verifyARC(t *testing.T, keys testKeys, message string) *Verdict {
	t.Helper()
	v := &Verifier{Resolver: keys.dns(t)}
	verdict, err := v.Verify(t.Context(), Request{
		IP: netip.MustParseAddr("192.0.2.1"), Helo: "client.example", MailFrom: "user@x.com", AuthservID: arcHost,
		Message: strings.NewReader(message), Size: int64(len(message)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return verdict
}

// TestChainsGrow forwards each message three times; strip is what a server does with results that
// claim to be its own.
func TestChainsGrow(t *testing.T) {
	keys := newTestKeys(t)
	for name, message := range messages() {
		for hop := 1; hop <= 3; hop++ {
			var b bytes.Buffer
			if err := StripResults(&b, strings.NewReader(message), arcHost); err != nil {
				t.Fatal(err)
			}
			message = forward(t, keys, "Received: from there\r\n"+b.String())
			if c := verifyARC(t, keys, message).ARC; c.Result != Pass || c.Sets != hop || c.Sealer != "x.com" {
				t.Errorf("%s: after hop %d: %+v", name, hop, c)
			}
		}
		for _, line := range strings.Split(strings.Split(message, "\r\n\r\n")[0], "\r\n") {
			if len(line) > 998 || strings.HasPrefix(line, "\tARC-") { // base64 has no "-"
				t.Errorf("%s: line %q", name, line)
			}
		}
	}
}

func TestBrokenChainsFail(t *testing.T) {
	keys := newTestKeys(t)
	once := forward(t, keys, messages()["plain"])
	twice := forward(t, keys, stripped(t, once))
	field := func(message, name string, i int) string {
		msg, err := openMessage(strings.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		return fieldsNamed(msg.fields, name)[i].raw
	}
	without := func(name string, i int) string { return strings.Replace(twice, field(twice, name, i), "", 1) }
	for name, message := range map[string]string{
		"changed body":              strings.Replace(twice, "Hello", "Hellp", 1),
		"changed subject":           strings.Replace(twice, "Many", "Few", 1),
		"changed old results":       strings.Replace(twice, field(twice, arcResults, 1), strings.Replace(field(twice, arcResults, 1), "spf=", "spf=x", 1), 1),
		"changed new results":       strings.Replace(twice, field(twice, arcResults, 0), strings.Replace(field(twice, arcResults, 0), "spf=", "spf=x", 1), 1),
		"seal taken away":           without(arcSeal, 0),
		"old seal taken away":       without(arcSeal, 1),
		"old set taken away":        strings.NewReplacer(field(twice, arcSeal, 1), "", field(twice, arcMessage, 1), "", field(twice, arcResults, 1), "").Replace(twice),
		"results taken away":        without(arcResults, 1),
		"seal twice":                field(twice, arcSeal, 0) + twice,
		"seal says none":            strings.Replace(twice, "cv=pass", "cv=none", 1),
		"seal says fail":            strings.Replace(twice, "cv=pass", "cv=fail", 1),
		"instance 0":                strings.Replace(once, "i=1", "i=0", 3),
		"instance of a word":        strings.Replace(once, "i=1", "i=one", 3),
		"instance 200":              "ARC-Seal: i=200; cv=pass\r\n" + twice,
		"nothing but a seal":        "ARC-Seal: i=1; a=rsa-sha256; cv=none; d=x.com; s=rsa; b=\r\n" + messages()["plain"],
		"unknown selector":          strings.ReplaceAll(once, "s=rsa", "s=none"),
		"revoked key":               strings.ReplaceAll(once, "s=rsa", "s=gone"),
		"key of another algorithm":  strings.ReplaceAll(once, "s=rsa", "s=ed"),
		"short key":                 strings.ReplaceAll(once, "s=rsa", "s=short"),
		"length tag":                strings.Replace(once, "c=relaxed/relaxed", "l=1; c=relaxed/relaxed", 1),
		"unknown canonicalisation":  strings.Replace(once, "c=relaxed/relaxed", "c=tight/relaxed", 1),
		"signature without From":    strings.Replace(once, "h=From:", "h=", 1),
		"names in a seal":           strings.Replace(once, "cv=none;", "cv=none; h=From;", 1),
		"algorithm of another hash": strings.ReplaceAll(once, "a=rsa-sha256", "a=rsa-sha1"),
	} {
		if message == once || message == twice {
			t.Errorf("%s: nothing was changed", name)
		}
		v := verifyARC(t, keys, message)
		if v.ARC.Result != Fail || v.ARC.Reason == "" || !strings.Contains(v.Header, "\tarc=fail") {
			t.Errorf("%s: %+v\n%s", name, v.ARC, v.Header)
		}
		sealable := v.Header + stripped(t, message)
		if set, err := Seal(strings.NewReader(sealable), sealOptions(keys)); err == nil {
			t.Errorf("%s: sealed all the same: %s", name, set)
		}
	}
	if v := verifyARC(t, keys, strings.ReplaceAll(once, "s=rsa", "s=down")); v.ARC.Result != TempError || strings.Contains(v.Header, "\tarc=") {
		t.Errorf("dead DNS: %+v", v.ARC)
	}
	if v := verifyARC(t, keys, messages()["plain"]); v.ARC.Result != None || strings.Contains(v.Header, "\tarc=") {
		t.Errorf("no chain: %+v", v.ARC)
	}
}

func stripped(t *testing.T, message string) string {
	t.Helper()
	var b strings.Builder
	if err := StripResults(&b, strings.NewReader(message), arcHost); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestChainsHaveAnEnd(t *testing.T) {
	keys := newTestKeys(t)
	message := messages()["plain"]
	for range maxARCSets {
		message = stripped(t, forward(t, keys, message))
	}
	v := verifyARC(t, keys, message)
	if v.ARC.Result != Pass || v.ARC.Sets != maxARCSets {
		t.Fatalf("%+v", v.ARC)
	}
	if _, err := Seal(strings.NewReader(v.Header+message), sealOptions(keys)); err == nil {
		t.Error("the longest chain was made longer")
	}
}

func TestSealNeedsOurResultsAndAnRSAKey(t *testing.T) {
	keys := newTestKeys(t)
	message := messages()["plain"]
	if _, err := Seal(strings.NewReader("Authentication-Results: mx.there.example; spf=pass\r\n"+message), sealOptions(keys)); err == nil {
		t.Error("sealed what another server says")
	}
	for name, key := range map[string]Key{"none": {}, "ed25519": {"x.com", "ed", keys.ed}, "short": {"x.com", "short", keys.short}, "no domain": {"", "rsa", keys.rsa}} {
		o := sealOptions(keys)
		o.Key = key
		if _, err := Seal(strings.NewReader("Authentication-Results: mx.here.example; spf=pass\r\n"+message), o); err == nil {
			t.Errorf("sealed with the key %s", name)
		}
	}
}

// TestDKIMPyVerifiesOurChains has Debian's python3-dkim validate chains of one and two sets.
func TestDKIMPyVerifiesOurChains(t *testing.T) {
	keys := newTestKeys(t)
	record, all := KeyRecord(keys.rsa), map[string]string{}
	for name, message := range messages() {
		if name == "few fields" || name == "no body" || name == "repeated field" {
			continue // dkimpy refuses messages that RFC 5322 would not have
		}
		all[name] = forward(t, keys, message)
		all[name+", twice"] = forward(t, keys, stripped(t, all[name]))
	}
	got := map[string]string{}
	runDKIMPy(t, `
import sys, json, dkim
given = json.load(sys.stdin)
out = {}
for name, text in given["messages"].items():
    cv, results, reason = dkim.arc_verify(text.encode("utf-8"), dnsfunc=lambda *a, **k: given["record"].encode())
    out[name] = "%s %s" % (cv.decode() if cv else cv, reason)
json.dump(out, sys.stdout)
`, map[string]any{"messages": all, "record": record}, &got)
	for name := range all {
		if !strings.HasPrefix(got[name], "pass ") {
			t.Errorf("%s: %s\n%.600s", name, got[name], all[name])
		}
	}
}

// TestWeVerifyDKIMPysChains validates what python3-dkim has sealed, over plain messages and over a
// chain of ours.
func TestWeVerifyDKIMPysChains(t *testing.T) {
	keys := newTestKeys(t)
	given := map[string]string{}
	for _, name := range []string{"plain", "empty body", "trailing blanks", "multipart", "long"} {
		given[name] = "Authentication-Results: mx.there.example; spf=pass smtp.mailfrom=x.com\r\n" + messages()[name]
		ours := forward(t, keys, messages()[name])
		given[name+", after ours"] = "Authentication-Results: mx.there.example; arc=pass; spf=pass smtp.mailfrom=x.com\r\n" + ours
	}
	got := map[string]string{}
	runDKIMPy(t, `
import sys, json, dkim
given = json.load(sys.stdin)
out = {}
for name, text in given["messages"].items():
    lines = dkim.arc_sign(text.encode("utf-8"), b"rsa", b"x.com", given["key"].encode(), b"mx.there.example", standardize=True)
    out[name] = b"".join(lines).decode("utf-8") + text
json.dump(out, sys.stdout)
`, map[string]any{"messages": given, "key": pkcs1(keys)}, &got)
	for name, message := range got {
		want := 1
		if strings.HasSuffix(name, "ours") {
			want = 2
		}
		if v := verifyARC(t, keys, message); v.ARC.Result != Pass || v.ARC.Sets != want {
			t.Errorf("%s: %+v\n%.1500s", name, v.ARC, message)
		}
	}
	if len(got) != len(given) {
		t.Errorf("%d of %d messages were sealed", len(got), len(given))
	}
}

// FuzzChain holds chains of foreign bytes to their bounds: no panic, no pass without a signature by
// the key.
func FuzzChain(f *testing.F) {
	f.Add("ARC-Seal: i=1; a=rsa-sha256; cv=none; d=x.com; s=rsa; b=AAAA\r\nARC-Message-Signature: i=1; a=rsa-sha256; c=relaxed/simple; d=x.com; s=rsa; h=from; bh=; b=\r\nARC-Authentication-Results: i=1; x; spf=pass\r\nFrom: a@b\r\n\r\n x \r\n\r\n")
	f.Add("ARC-Seal: i=1\r\nARC-Seal: i=21\r\narc-seal :b=;i=2;b\r\n\r\n")
	f.Add("ARC-Authentication-Results: i=1\r\n\r\n")
	keys := newTestKeys(f)
	f.Fuzz(func(t *testing.T, message string) {
		v := &Verifier{Resolver: keys.dns(t)}
		msg, err := openMessage(strings.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		look, cancel := v.newLookups(t.Context())
		defer cancel()
		c, err := v.checkARC(t.Context(), look, msg)
		if err != nil || c.Result == Pass || len(c.Reason) > maxReason {
			t.Errorf("%+v, %v", c, err)
		}
		if _, err := Seal(strings.NewReader("Authentication-Results: mx.here.example; x=y\r\n"+message), sealOptions(keys)); err != nil && c.Result == None && !msg.tooLarge {
			t.Errorf("seal: %v", err)
		}
	})
}

// FuzzCanonicalBody compares the canonical body with a slow twin that has the whole text.
func FuzzCanonicalBody(f *testing.F) {
	for _, seed := range []string{"", "\r\n", " \r\n\r\n", "a \t b \r\n\r\nc\r\n\r\n", "a\rb\n", "\r", " x", "a\r\n \r\nb"} {
		f.Add(seed, 3)
	}
	f.Fuzz(func(t *testing.T, body string, cut int) {
		for _, relaxed := range []bool{false, true} {
			var got bytes.Buffer
			c := &canonicalBody{to: &got, relaxed: relaxed}
			at := max(0, min(cut, len(body)))
			for _, part := range []string{body[:at], body[at:]} {
				if _, err := c.Write([]byte(part)); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if want := slowCanonical(body, relaxed); got.String() != want {
				t.Errorf("relaxed %t: %q became %q, want %q", relaxed, body, got.String(), want)
			}
		}
	})
}

func slowCanonical(body string, relaxed bool) string {
	lines := strings.Split(strings.ReplaceAll(body, "\r\n", "\n"), "\n")
	for i, line := range lines {
		if !relaxed {
			continue
		}
		line = strings.TrimRight(line, " \t")
		for _, old := range []string{"\t", "  "} {
			for strings.Contains(line, old) {
				line = strings.ReplaceAll(line, old, " ")
			}
		}
		lines[i] = line
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if len(lines) == 0 && relaxed {
		return ""
	}
	return strings.Join(lines, "\r\n") + "\r\n"
}

func TestChainsWithBadTagListsFail(t *testing.T) {
	keys := newTestKeys(t)
	whole := forward(t, keys, testMessage)
	for name, with := range map[string]string{"a bad name": "ARC-Seal: 1x=y; ", "a repeated tag": "ARC-Seal: i=1; ", "an empty tag": "ARC-Seal: ; "} {
		if v := verifyARC(t, keys, strings.Replace(whole, "ARC-Seal: ", with, 1)); v.ARC.Result != Fail || v.ARC.Reason != errMalformedSet.Error() {
			t.Errorf("%s: %s, %s", name, v.ARC.Result, v.ARC.Reason)
		}
	}
}
