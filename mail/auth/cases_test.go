package auth

import (
	"crypto"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// readCases reads a table of testdata/cases.
func readCases(t *testing.T, name string, rows any) {
	t.Helper()
	text, err := os.ReadFile("testdata/cases/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, rows); err != nil {
		t.Fatal(err)
	}
}

// i= is in dkim-quoted-printable, and its domain compares without case (RFC 6376 section 3.5).
func TestSignatureIdentities(t *testing.T) {
	type row struct{ D, I, Expect string }
	var rows []row
	readCases(t, "33-dkim-identity.json", &rows)
	if len(rows) != 4 {
		t.Fatalf("%d rows", len(rows))
	}
	rows = append(rows, []row{
		{"outside.test", "@OUTSIDE.TEST", "pass"},
		{"outside.test", "x@Sub.Outside.Test", "pass"},
		{"outside.test", "x@sub=2Eoutside.test", "pass"},
		{"outside.test", `"a@b"@outside.test`, "pass"},
		{"outside.test", "a=3Db@outside.test", "pass"},
		{"outside.test", "x @ out\r\n\tside.test", "pass"},
		{"münchen.test", "x@MÜNCHEN.test", "pass"},
		{"münchen.test", "x@xn--mnchen-3ya.test", "pass"},
		{"sub.outside.test", "x@outside.test", "permerror"},
		{"outside.test", "x@eviloutside.test", "permerror"},
		{"outside.test", "x@outside.test=40evil.test", "permerror"},
		{"outside.test", "outside.test", "permerror"},
		{"outside.test", "sub.outside.test", "permerror"},
		{"outside.test", "x@", "permerror"},
		{"outside.test", "", "permerror"},
		{"outside.test", "x@outside.test=", "permerror"},
		{"outside.test", "x@outside.test=4", "permerror"},
		{"outside.test", "x@outside.test=zz", "permerror"},
		{"outside.test", "x@outside.test=+4", "permerror"},
	}...)
	keys := newTestKeys(t)
	for _, row := range rows {
		dns := keys.dns(t)
		for _, domain := range []string{"outside.test", "sub.outside.test", "xn--mnchen-3ya.test"} {
			dns.txt["s._domainkey."+domain] = []string{KeyRecord(keys.rsa)}
		}
		tags := " v=1; a=rsa-sha256; c=simple/relaxed; s=s; h=From; d=" + row.D + "; i=" + row.I
		message := signedSimply(t, keys.rsa, tags) + testMessage
		got, err := (&Verifier{Resolver: dns}).Verify(t.Context(), request(message, "user@x.com"))
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Signatures[0].Result) != row.Expect {
			t.Errorf("d=%s i=%q: %s (%s), want %s", row.D, row.I, got.Signatures[0].Result, got.Signatures[0].Reason, row.Expect)
		}
	}
}

// signedSimply signs the From field of testMessage with a simple header, so that the tags may be
// folded.
func signedSimply(t *testing.T, key crypto.Signer, tags string) string {
	t.Helper()
	return signSimple(t, key, "DKIM-Signature:"+tags, "From: User <user@x.com>\r\n", relaxedTestBody)
}

func TestAlignedSignatureBehindOthers(t *testing.T) {
	var rows []struct {
		Signatures int
		Aligned    int `json:"aligned_is"`
		Expect     string
	}
	readCases(t, "34-dkim-sixth-signature.json", &rows)
	keys := newTestKeys(t)
	good := handSign(t, keys.rsa, crypto.SHA256, okTags+"; s=rsa")
	for _, row := range rows {
		message := ""
		for i := 1; i <= row.Signatures; i++ {
			if i == row.Aligned {
				message += good
				continue
			}
			message += fmt.Sprintf("DKIM-Signature: v=1; a=rsa-sha256; d=other%d.test; s=s; h=from; bh=AAAA; b=AAAA\r\n", i)
		}
		got, err := (&Verifier{Resolver: keys.dns(t)}).Verify(t.Context(), request(message+testMessage, "user@x.com"))
		if err != nil {
			t.Fatal(err)
		}
		if s := "dmarc=" + string(got.DMARC); s != row.Expect || len(got.Signatures) != row.Signatures {
			t.Errorf("%+v: %s of %d signatures", row, s, len(got.Signatures))
		}
	}
	if len(rows) != 3 {
		t.Errorf("%d rows", len(rows))
	}
}

// The rows are names of cases in the table of TestChainsOfTheirForms.
func TestSealTagLists(t *testing.T) {
	var rows []struct {
		Test   string `json:"suite_test"`
		Expect string
	}
	readCases(t, "39-arc-seal-tag-list.json", &rows)
	with := map[string]string{"as_format_inv_tag_key": "1a=x; ", "as_format_tags_dup": "i=1; ", "as_format_tags_sc": "; "}
	keys := newTestKeys(t)
	for _, row := range rows {
		seal := with[row.Test]
		message := chained(t, keys, chainForm{seal: func(s string) string { return seal + s }})
		if v := verifyARC(t, keys, message); "arc="+string(v.ARC.Result) != row.Expect || v.ARC.Reason != errTagList.Error() && v.ARC.Reason != errMalformedSet.Error() {
			t.Errorf("%s: %+v", row.Test, v.ARC)
		}
	}
	if len(rows) != 3 {
		t.Errorf("%d rows", len(rows))
	}
}

// What RFC 9989 decides: np=, t=y, and domains of other organisations.
func TestTreeWalkCases(t *testing.T) {
	var rows []struct {
		Zone     map[string]string
		From     string
		MailFrom string `json:"mail_from"`
		Expect   string
	}
	readCases(t, "35-dmarc-9989.json", &rows)
	if len(rows) != 4 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		dns := &fakeDNS{t: t, txt: map[string][]string{}}
		for name, text := range row.Zone {
			dns.txt[name] = []string{strings.Replace(text, "…", "v=DMARC1; p=none; sp=none; ", 1)}
		}
		message := "From: " + row.From + "\r\nTo: you@here.example\r\n\r\nHi\r\n"
		r := request(message, row.From)
		r.IP, r.MailFrom = netip.MustParseAddr("127.0.0.1"), row.MailFrom
		got, err := (&Verifier{Resolver: dns}).Verify(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		want, _, _ := strings.Cut(row.Expect, " ")
		if want == "accept" {
			want = "none"
		}
		if got.DMARC != Fail || got.Policy != want {
			t.Errorf("%s: dmarc=%s policy=%s, want %s", row.From, got.DMARC, got.Policy, row.Expect)
		}
	}
}
