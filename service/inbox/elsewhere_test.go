package inbox_test

import (
	"crypto"
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestOwnMailFromElsewhere: mail from outside with an own domain as author has the domain's origin
// only if it comes from a place that the domain declares, with that place's signature.
func TestOwnMailFromElsewhere(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	text, _ := servicetest.DKIMKeys()
	key, err := auth.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	r.DNS.Txt["example.test"], r.DNS.Txt["_dmarc.example.test"] = "v=spf1 ip4:198.51.100.0/24 ip4:203.0.113.0/24 -all", "v=DMARC1; p=none"
	r.DNS.Txt["else._domainkey.example.test"], r.DNS.Txt["other._domainkey.example.test"] = auth.KeyRecord(key), auth.KeyRecord(key)
	r.Update(func(tx *store.Tx) error {
		d, err := store.DomainByName.Get(tx, "example.test")
		if err != nil {
			return err
		}
		d.SendsElsewhere = []store.SendingPlace{{Network: "198.51.100.0/24", Selector: "else"}}
		return store.Domains.Put(tx, d)
	})
	for _, c := range []struct{ subject, selector, ip, want string }{
		{"declared", "else", "198.51.100.7", "elsewhere example.test"},
		{"another selector", "other", "198.51.100.7", "author example.test"},
		{"another network", "else", "203.0.113.7", "author example.test"},
		{"no SPF", "else", "192.0.2.1", "author example.test"},
	} {
		letter := "From: boss@example.test\r\nTo: ann@example.test\r\nSubject: " + c.subject + "\r\nMessage-ID: <" + c.selector + c.ip + "@else.test>\r\n\r\nHello.\r\n"
		signature := signLetter(t, key, "example.test", c.selector, letter)
		if err := r.ComeIn(netip.MustParseAddr(c.ip), "boss@example.test", "ann@example.test", signature+letter); err != nil {
			t.Fatal(err)
		}
		if got := r.words(r.ann, "INBOX", c.subject); got != c.want {
			t.Errorf("%s: %q, want %q", c.subject, got, c.want)
		}
	}
}

func signLetter(t *testing.T, key crypto.Signer, domain, selector, letter string) string {
	t.Helper()
	fields, err := auth.Sign(strings.NewReader(letter), auth.SignOptions{Keys: []auth.Key{{Domain: domain, Selector: selector, Signer: key}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(fields)
}
