package auth

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/idn"
)

// FuzzStripResults holds StripResults to a slow twin that has the whole message: it removes whole
// fields, only those of that name, never one of another server, and nothing is left to remove.
func FuzzStripResults(f *testing.F) {
	for _, seed := range []string{
		"Authentication-Results: mx.here.example; spf=pass\r\nFrom: x\r\n\r\nbody",
		"A: b\r\nAuthentication-Results:\r\n (c) \"mx.here.example\" 1; x\r\n\r\nAuthentication-Results: mx.here.example; x\r\n",
		"authentication-results : mx.there.example; (\r\n\t)\nTo: y\n\nz", " x\r\n\r\n", "\r\n", "Authentication-Results",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		got := strip(t, string(message))
		if again := strip(t, got); again != got {
			t.Errorf("%q, stripped again %q", got, again)
		}
		if len(message) > maxHeader {
			return
		}
		had, hasNow := mustFields(t, message), mustFields(t, []byte(got))
		for _, field := range had {
			name, value, _ := strings.Cut(field.raw, ":")
			isOther := strings.ToLower(strings.TrimRight(name, " \t\r\n")) != "authentication-results" ||
				strings.HasPrefix(strings.TrimLeft(value, " "), "mx.there.example;") && !strings.ContainsAny(value, `("\`)
			if len(hasNow) > 0 && hasNow[0] == field {
				hasNow = hasNow[1:]
			} else if isOther && len(field.raw) < maxResultsField {
				t.Errorf("%q is gone from %q: %q", field.raw, message, got)
			}
		}
		if len(hasNow) > 0 {
			t.Errorf("%q came from nowhere in %q", hasNow[0].raw, message)
		}
		if body := bodyOf(message); !bytes.HasSuffix([]byte(got), body) {
			t.Errorf("body %q is not the end of %q", body, got)
		}
	})
}

func mustFields(t *testing.T, message []byte) []field {
	msg, err := openMessage(bytes.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	return msg.fields
}

func bodyOf(message []byte) []byte {
	for rest := message; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			return nil
		}
		if len(bytes.TrimRight(rest[:end], "\r\n")) == 0 {
			return rest[end:]
		}
		rest = rest[end:]
	}
	return nil
}

// FuzzDMARCRecord holds that a record asks for one of three policies whatever it says, and never
// for more than it says.
func FuzzDMARCRecord(f *testing.F) {
	for _, seed := range []string{"v=DMARC1; p=reject; sp=none; pct=20; adkim=s; aspf=r; rua=mailto:a@b.c!10m", "v=DMARC1", "v = DMARC1 ;p=x;rua=x:y", "=;v=DMARC1", "v=DMARC1; p=none; p=reject"} {
		f.Add(seed, "mail.x.co.uk")
	}
	f.Fuzz(func(t *testing.T, txt, from string) {
		domain, ok := idn.Host(from)
		if !ok {
			return
		}
		if again, ok := idn.Host(domain); !ok || again != domain {
			t.Errorf("domain %q, again %q", domain, again)
		}
		dns := &fakeDNS{t: t, txt: map[string][]string{"_dmarc." + orgDomain(domain): {txt}}}
		v := &Verifier{Resolver: dns}
		look, cancel := v.newLookups(t.Context())
		defer cancel()
		got := Verdict{SPF: Fail, SPFDomain: domain}
		a := authorsOf([]string{"u@" + domain}, &message{header: []byte("From: u@" + domain + "\r\n")})
		evaluateDMARC(newTreeWalker(look), &got, a)
		if (got.DMARC == Fail) != dmarc.IsPolicy(got.Policy) || got.DMARC == Pass {
			t.Errorf("dmarc=%s policy=%q of %q", got.DMARC, got.Policy, txt)
		}
		if got.Policy != "" && got.Policy != dmarc.PolicyNone && !strings.Contains(strings.ToLower(txt), got.Policy) {
			t.Errorf("policy=%q of %q", got.Policy, txt)
		}
	})
}

// FuzzVerify holds that nothing that is not signed by x.com's key passes for x.com, and that the
// field made of it can be read back.
func FuzzVerify(f *testing.F) {
	_, key, err := GenerateEd25519()
	if err != nil {
		f.Fatal(err)
	}
	_, other, err := GenerateEd25519()
	if err != nil {
		f.Fatal(err)
	}
	for _, k := range []Key{{"x.com", "ed", other}, {"evil.com", "ed", key}, {"x.com", "none", key}} {
		fields, err := Sign(strings.NewReader(testMessage), SignOptions{Keys: []Key{k, k}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(string(fields)+testMessage), "user@evil.com", "user@x.com")
	}
	f.Add([]byte("DKIM-Signature: v=1; a=rsa-sha1; d=x.com; s=ed; h=From:; l=1; bh=; b=\n\n"), "@", "\"@")
	f.Add([]byte("\xff\r\nDKIM-Signature\r\n :\r\n"), "a@"+strings.Repeat("x.", 200), "")
	f.Fuzz(func(t *testing.T, message []byte, mailFrom, headerFrom string) {
		dns := &fakeDNS{t: t, txt: map[string][]string{
			"ed._domainkey.x.com": {KeyRecord(key)}, "x.com": {"v=spf1 -all"}, "_dmarc.x.com": {"v=DMARC1; p=reject"},
		}}
		got, err := (&Verifier{Resolver: dns}).Verify(t.Context(), Request{
			IP: netip.MustParseAddr("2001:db8::1"), Helo: mailFrom, MailFrom: mailFrom, AuthservID: ourID,
			Message: bytes.NewReader(message), Size: int64(len(message)), HeaderFrom: []string{headerFrom},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, sig := range got.Signatures {
			if sig.Result == Pass && sig.Domain == "x.com" {
				t.Errorf("passed: %+v of %q", sig, message)
			}
		}
		if got.DMARC == Pass {
			t.Errorf("dmarc=pass: %+v of %q", got, message)
		}
		checkField(t, got.Header)
		if stripped := strip(t, got.Header); stripped != "" {
			t.Errorf("our own field is not stripped: %q", stripped)
		}
	})
}

// FuzzSign holds that a message is signed so that it verifies, or refused.
func FuzzSign(f *testing.F) {
	_, key, err := GenerateEd25519()
	if err != nil {
		f.Fatal(err)
	}
	for _, msg := range messages() {
		if len(msg) < 10_000 {
			f.Add([]byte(msg))
		}
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		fields, err := Sign(bytes.NewReader(message), SignOptions{Keys: []Key{{"x.com", "ed", key}}})
		if err != nil {
			return
		}
		whole := append(fields, message...)
		dns := &fakeDNS{t: t, txt: map[string][]string{"ed._domainkey.x.com": {KeyRecord(key)}}}
		got, err := (&Verifier{Resolver: dns}).Verify(t.Context(), request(string(whole), "user@x.com"))
		if err != nil {
			t.Fatal(err)
		}
		if got.Signatures[0].Result != Pass {
			t.Errorf("%+v of %q", got.Signatures[0], whole)
		}
	})
}

// FuzzReadSignature holds a signature that is taken to what verifying depends on.
func FuzzReadSignature(f *testing.F) {
	for _, seed := range []string{
		" v=1; a=rsa-sha256; c=relaxed/simple; d=x.com; i=u=40X.com; s=s; t=1; x=9; q=dns/txt; h=from:to; bh=AA==; b=AA==",
		" i=1; a=rsa-sha256; d=x.com; s=s; h=from; bh=; b=", " v=1;;", " v=1; i=@=", " v=1; d=x.com; i=@sub.x.com; a=; s=; h=from; bh=; b=",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, name := range []string{"DKIM-Signature", arcMessage} {
			s, err := readSignature(newField(name+":"+value, 1), time.Unix(5, 0))
			if err != nil {
				continue
			}
			domain, _ := idn.Host(removeSpace(s.tags["d"]))
			identity, given := s.tags["i"]
			text, ok := unquoteDKIM(identity)
			_, agent := splitAddress(text)
			agent, isHost := idn.Host(agent)
			if name == "DKIM-Signature" && given && (!ok || !isHost || agent != domain && !strings.HasSuffix(agent, "."+domain) || s.subdomain != (agent != domain)) {
				t.Errorf("i=%q of d=%q was taken", identity, domain)
			}
			if len(s.names) > maxSignedNames+1 || !slices.Contains(s.names, "from") || len(s.raw) > maxSignature {
				t.Errorf("%.200q was taken", value)
			}
			if err := s.verify([]field{s.field}); err == nil {
				t.Errorf("%.200q verifies without a key", value)
			}
		}
	})
}

// FuzzKeyRecord holds that a key is given without an error only.
func FuzzKeyRecord(f *testing.F) {
	keys := newTestKeys(f)
	for _, seed := range []string{KeyRecord(keys.rsa), KeyRecord(keys.ed) + "; t=s:y", "v=DKIM1; k=rsa; p=", "p=AAAA", "v=DKIM1;;k=x"} {
		f.Add(seed, "rsa-sha256")
		f.Add(seed, "ed25519-sha256")
	}
	f.Fuzz(func(t *testing.T, record, algorithm string) {
		key, err := parsePublicKey(record, algorithm)
		if (err == nil) != (key.public != nil) {
			t.Errorf("%+v, %v", key, err)
		}
		if err == nil && checkSignature(key.public, make([]byte, 32), "AAAA") == nil {
			t.Error("anything verifies")
		}
	})
}
