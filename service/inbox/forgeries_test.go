package inbox_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
)

// sign makes a DKIM-Signature by hand (RFC 6376 section 3.7), of the From field, or of all of a
// letter's if the tags name them, and a body of one line, with tags that no library would write.
func sign(t *testing.T, key crypto.Signer, hash crypto.Hash, tags, from, body string) string {
	t.Helper()
	sum := func(text string) []byte {
		if hash == crypto.SHA1 {
			s := sha1.Sum([]byte(text))
			return s[:]
		}
		s := sha256.Sum256([]byte(text))
		return s[:]
	}
	field := "v=1; c=relaxed/relaxed; " + tags + "; bh=" + base64.StdEncoding.EncodeToString(sum(body)) + "; b="
	fields := "from:" + from + "\r\n"
	if strings.Contains(tags, "h=From:To:Subject") {
		fields += "to:ann@example.test\r\nsubject:x\r\n"
	}
	sig, err := key.Sign(rand.Reader, sum(fields+"dkim-signature:"+field), hash)
	if err != nil {
		t.Fatal(err)
	}
	return "DKIM-Signature: " + field + base64.StdEncoding.EncodeToString(sig) + "\r\n"
}

// TestForgeriesAreNotTaken: with from_domain, a waiting request never gets the code of a message
// for which DMARC does not pass here, although nearly all of these messages land in INBOX.
func TestForgeriesAreNotTaken(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0") // to make keys that nobody should have
	r := newWaitRig(t, core.Config{Settings: core.Settings{Spam: core.Spam{TrustedSealers: []string{"list.test"}}}})
	text, _ := servicetest.DKIMKeys()
	key, err := auth.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	short := func(bits int) crypto.Signer {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	key512, key768 := short(512), short(768)
	_, evil, err := auth.GenerateRSA()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"bank.test": "v=spf1 ip4:198.51.100.0/24 -all", "_dmarc.bank.test": "v=DMARC1; p=none; sp=none",
		"s._domainkey.bank.test": auth.KeyRecord(key), "s512._domainkey.bank.test": auth.KeyRecord(key512), "s768._domainkey.bank.test": auth.KeyRecord(key768),
		"evil.test": "v=spf1 ip4:192.0.2.0/24 -all", "_dmarc.evil.test": "v=DMARC1; p=none", "s._domainkey.evil.test": auth.KeyRecord(evil),
		"evilbank.test": "v=spf1 ip4:192.0.2.0/24 -all", "_dmarc.evilbank.test": "v=DMARC1; p=none",
		"_dmarc.strict.bank.test": "v=DMARC1; p=none; adkim=s; aspf=s", "s._domainkey.list.test": auth.KeyRecord(key),
		"_dmarc.nopolicy.test": "", "s._domainkey.nopolicy.test": auth.KeyRecord(key),
	} {
		r.DNS.Txt[name] = value
	}

	const (
		bank = "Bank <no-reply@bank.test>"
		body = "Your code is 482913.\r\n"
		ok   = "a=rsa-sha256; d=bank.test; s=s; h=From:To:Subject"
	)
	letter := func(from string) string {
		return "From: " + from + "\r\nTo: ann@example.test\r\nSubject: x\r\n\r\n" + body
	}
	byBank := func(tags string) string { return sign(t, key, crypto.SHA256, tags, bank, body) }
	sealed := func() string {
		text := "Authentication-Results: mx.list.test; dmarc=pass header.from=bank.test; dkim=pass header.d=bank.test\r\n" + letter(bank)
		set, err := auth.Seal(strings.NewReader(text), auth.SealOptions{Key: auth.Key{Domain: "list.test", Selector: "s", Signer: key}, AuthservID: "mx.list.test", Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return string(set) + text
	}
	stranger, own := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.7")
	cases := []struct {
		name, path, text string
		ip               netip.Addr
		verified         string
		taken            bool // with from_domain=bank.test
	}{
		// The domain's own mail, to prove that the others fail for their own reasons.
		{"its signature", "x@evil.test", byBank(ok) + letter(bank), stranger, "bank.test", true},
		{"its address", "no-reply@bank.test", letter(bank), own, "bank.test", true},
		{"of a domain below it", "x@evil.test", sign(t, key, crypto.SHA256, ok, "a@mail.bank.test", body) + letter("a@mail.bank.test"), stranger, "mail.bank.test", true},

		{"its signature of From alone", "x@evil.test", byBank("a=rsa-sha256; d=bank.test; s=s; h=From") + letter(bank), stranger, "", false},
		{"its signature, another subject above", "x@evil.test", "Subject: Your code is 666666\r\n" + byBank(ok) + letter(bank), stranger, "", false},
		{"its signature, a field added", "x@evil.test", "Reply-To: x@evil.test\r\n" + byBank(ok) + letter(bank), stranger, "", false},
		{"its signature, another type above", "x@evil.test", "Content-Type: text/html\r\n" + byBank(ok) + letter(bank), stranger, "", false},

		{"nothing", "no-reply@bank.test", letter(bank), stranger, "", false},
		{"SPF of another domain", "x@evil.test", letter(bank), stranger, "", false},
		{"signature of another domain", "x@evil.test", sign(t, evil, crypto.SHA256, "a=rsa-sha256; d=evil.test; s=s; h=From", bank, body) + letter(bank), stranger, "", false},
		{"signature of another's key", "x@evil.test", sign(t, evil, crypto.SHA256, ok, bank, body) + letter(bank), stranger, "", false},
		{"name with the address", "x@evil.test", letter(`"no-reply@bank.test" <x@evil.test>`), stranger, "evil.test", false},
		{"comment with the address", "x@evil.test", letter(`x@evil.test (no-reply@bank.test)`), stranger, "evil.test", false},
		{"lookalike", "x@evilbank.test", letter("a@evilbank.test"), stranger, "evilbank.test", false},
		{"as a subdomain", "x@evil.test", letter("a@bank.test.evil.test"), stranger, "bank.test.evil.test", false},
		{"l=0, and a body of the forger's", "x@evil.test", sign(t, key, crypto.SHA256, ok+"; l=0", bank, "") + letter(bank), stranger, "", false},
		{"l= of the whole body", "x@evil.test", byBank(fmt.Sprintf("%s; l=%d", ok, len(body))) + letter(bank), stranger, "", false},
		{"rsa-sha1", "x@evil.test", sign(t, key, crypto.SHA1, "a=rsa-sha1; d=bank.test; s=s; h=From", bank, body) + letter(bank), stranger, "", false},
		{"key of 512 bits", "x@evil.test", sign(t, key512, crypto.SHA256, "a=rsa-sha256; d=bank.test; s=s512; h=From", bank, body) + letter(bank), stranger, "", false},
		{"key of 768 bits", "x@evil.test", sign(t, key768, crypto.SHA256, "a=rsa-sha256; d=bank.test; s=s768; h=From", bank, body) + letter(bank), stranger, "", false},
		{"signature without From", "x@evil.test", byBank("a=rsa-sha256; d=bank.test; s=s; h=Subject") + letter(bank), stranger, "", false},
		{"expired signature", "x@evil.test", byBank(ok+"; t=1000000000; x=1000000001") + letter(bank), stranger, "", false},
		{"another body", "x@evil.test", byBank(ok) + strings.Replace(letter(bank), "482913", "666666", 1), stranger, "", false},
		{"two From fields, its own signed", "x@evil.test", byBank(ok) + "From: x@evil.test\r\n" + letter(bank), stranger, "", false},
		{"two From fields, the other way", "x@evil.test", byBank(ok) + "From: " + bank + "\r\n" + letter("x@evil.test"), stranger, "", false},
		{"two authors", "x@evil.test", sign(t, key, crypto.SHA256, ok, bank+", x@evil.test", body) + letter(bank+", x@evil.test"), stranger, "", false},
		{"a subdomain that nobody signed", "x@evil.test", letter("a@nosuch.bank.test"), stranger, "", false},
		{"strict subdomain, signed above", "x@evil.test", sign(t, key, crypto.SHA256, ok, "a@strict.bank.test", body) + letter("a@strict.bank.test"), stranger, "", false},
		{"ARC of a trusted sealer", "x@list.test", sealed(), stranger, "", false},
		{"forged results", "x@evil.test", "Authentication-Results: mail.mailstead.test; dmarc=pass header.from=bank.test\r\n" + letter(bank), stranger, "", false},
		{"Sender and Resent-From", "x@evil.test", "Sender: no-reply@bank.test\r\nResent-From: no-reply@bank.test\r\n" + letter("x@evil.test"), stranger, "evil.test", false},
		{"HELO in its name", "", letter(bank), stranger, "", false},
		{"no policy", "x@evil.test", sign(t, key, crypto.SHA256, "a=rsa-sha256; d=nopolicy.test; s=s; h=From", "a@nopolicy.test", body) + letter("a@nopolicy.test"), stranger, "", false},
	}
	forged := 0
	since := r.first(r.ann.ID, inbox.WaitFilter{}).Now
	for _, c := range cases {
		if err := r.ComeIn(c.ip, c.path, "ann@example.test", c.text); err != nil {
			if c.taken || !strings.Contains(c.name, "two ") { // some of these are refused at once
				t.Errorf("%s: %v", c.name, err)
			}
			forged++
			continue
		}
		any := r.first(r.ann.ID, inbox.WaitFilter{Since: since})
		verified := ""
		if any.VerifiedDomain != nil {
			verified = *any.VerifiedDomain
		}
		junk := any.Message == nil // quarantine: no waiter sees it
		if verified != c.verified || junk && c.taken {
			t.Errorf("%s: verified %q, want %q (in Junk: %t)", c.name, verified, c.verified, junk)
		}
		if got := r.first(r.ann.ID, inbox.WaitFilter{Since: since, FromDomain: "bank.test", Kind: "code"}); (got.Message != nil) != c.taken || c.taken && *got.Code != "482913" {
			t.Errorf("%s: taken %t", c.name, got.Message != nil)
		}
		if !c.taken {
			forged++
		}
		since = any.Now
	}
	if forged < 15 {
		t.Errorf("%d forgeries", forged)
	}
	t.Logf("%d forgeries", forged)
}
