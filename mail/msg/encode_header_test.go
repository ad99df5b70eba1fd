package msg

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/charset"
)

// TestRawTextInAHeaderIsEncoded: each kind of field in the way that its grammar has, and read back
// as what it was.
func TestRawTextInAHeaderIsEncoded(t *testing.T) {
	for in, want := range map[string]string{
		"Subject: Grüße aus Köln":                                           "Subject: =?utf-8?b?R3LDvMOfZSBhdXMgS8O2bG4=?=",
		"Subject: =?utf-8?q?=C3=A4?= ö":                                     "Subject: =?utf-8?b?w6Qgw7Y=?=",
		"Comments: 日本":                                                      "Comments: =?utf-8?b?5pel5pys?=",
		"From: Jörg <j@a.test>":                                             "From: =?utf-8?b?SsO2cmc=?= <j@a.test>",
		`To: "Möller, Jörg" <j@a.test>, b@b.test`:                           "To: =?utf-8?b?TcO2bGxlciwgSsO2cmc=?= <j@a.test>, b@b.test",
		"Cc: Ann <a@a.test>, Zoë <z@a.test>":                                "Cc: Ann <a@a.test>, =?utf-8?b?Wm/Dqw==?= <z@a.test>",
		"Cc: a@a.test (Zoë)":                                                "Cc: a@a.test (=?utf-8?b?Wm/Dqw==?=)",
		"To: Über uns: a@a.test, B <b@b.test>;":                             "To: =?utf-8?b?w5xiZXIgdW5z?= : a@a.test, B <b@b.test>;",
		"To: <a@bücher.test>":                                               "To: <a@xn--bcher-kva.test>",
		"Reply-To: a@bücher.test":                                           "Reply-To: a@xn--bcher-kva.test",
		"Date: Fri, 1 Jan 2027 00:00:00 +0100 (MEZ)":                        "Date: Fri, 1 Jan 2027 00:00:00 +0100 (MEZ)",
		"Date: Fri, 1 Jan 2027 00:00:00 +0100 (Mitteleuropäisch)":           "Date: Fri, 1 Jan 2027 00:00:00 +0100 (=?utf-8?q?Mitteleurop=C3=A4isch?=)",
		"List-Id: Grüße <l.a.test>":                                         "List-Id: =?utf-8?b?R3LDvMOfZQ==?= <l.a.test>",
		"List-Unsubscribe: <https://a.test/ö>":                              "List-Unsubscribe: <https://a.test/%C3%B6>",
		"Content-Type: application/pdf; name=\"Ü.pdf\"":                     "Content-Type: application/pdf; name*=utf-8''%C3%9C.pdf",
		"Content-Disposition: attachment; size=1; filename=\"Ü.pdf\"":       "Content-Disposition: attachment; size=1; filename*=utf-8''%C3%9C.pdf",
		"Content-Type: multipart/mixed; boundary=\"a'b c\"; name=\"ü\"":     "Content-Type: multipart/mixed; boundary=\"a'b c\"; name*=utf-8''%C3%BC",
		"X-Long: " + strings.Repeat("ü", 40):                                "",
		"Subject: ü\r\nX-Raw:  stays =?x  as it\r\n  is \r\nSubject: again": "Subject: =?utf-8?b?w7w=?=\r\nX-Raw:  stays =?x  as it\r\n  is \r\nSubject: again",
	} {
		block := in + "\r\n\r\n"
		out, err := EncodeHeader([]byte(block))
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if want != "" && string(out) != want+"\r\n\r\n" {
			t.Errorf("%q becomes\n%q, want\n%q", in, out, want+"\r\n\r\n")
		}
		sameWhenRead(t, []byte(block), out)
	}
}

// TestWhatOnlySMTPUTF8CarriesIsNoHeader: the error names the field.
func TestWhatOnlySMTPUTF8CarriesIsNoHeader(t *testing.T) {
	for _, in := range []string{"To: jörg@a.test", "To: J <jörg@a.test>", `To: "jörg"@a.test`, "Message-ID: <ü@a.test>", "References: <a@a.test> <ü@a.test>", "Cc: Jörg", "no fieldü"} {
		name, _, _ := strings.Cut(in, ":")
		if out, err := EncodeHeader([]byte(in + "\r\n\r\n")); !errors.Is(err, ErrHeader) || name != in && !strings.Contains(err.Error(), name) {
			t.Errorf("%q becomes %q, %v", in, out, err)
		}
	}
}

// sameWhenRead compares what readers are given of two headers.
func sameWhenRead(t testing.TB, a, b []byte) {
	t.Helper()
	if !charset.IsASCII(string(b)) {
		t.Fatalf("%q is not ASCII", b)
	}
	before, after := scanBytes(t, a), scanBytes(t, b)
	first, err := Headers(bytes.NewReader(a), before)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Headers(bytes.NewReader(b), after)
	if err != nil || len(first) != len(second) {
		t.Fatalf("%d fields become %d: %q, %v", len(first), len(second), b, err)
	}
	for i, list := range [][]Address{before.Envelope.From, before.Envelope.To, before.Envelope.Cc, before.Envelope.ReplyTo} {
		others := [][]Address{after.Envelope.From, after.Envelope.To, after.Envelope.Cc, after.Envelope.ReplyTo}[i]
		if !slices.EqualFunc(list, others, func(a, b Address) bool { return a.Name == b.Name && a.Mailbox == b.Mailbox }) {
			t.Errorf("%q was read as %q, and is as %q", a, list, others)
		}
	}
	for i := range first {
		name := strings.ToLower(first[i].Name)
		if addressFieldNames[name] || structuredFieldNames[name] || strings.HasPrefix(name, "list-") || strings.HasPrefix(name, "content-") {
			continue
		}
		if first[i].Name != second[i].Name || strings.Join(strings.Fields(first[i].Value), " ") != strings.Join(strings.Fields(second[i].Value), " ") {
			t.Fatalf("%q becomes %q", first[i], second[i])
		}
	}
}

// FuzzEncodeHeader: what comes of a header is ASCII in lines that SMTP takes, and a second time
// changes nothing.
func FuzzEncodeHeader(f *testing.F) {
	for _, s := range []string{
		"Subject: ü\r\n\r\n", "From: \"ü\" <a@b>\r\n (ü)\r\n\r\n", "Content-Type: a/b; x*0=ü; x*1*=%FC\r\n\r\n", "To: ü: a@b;\r\n\r\n", "List-Post: <mailto:ü>\r\n", "To: \"\\ü\r\n\r\n", "Date: (\\ü\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, block []byte) {
		if len(block) > 1<<16 {
			return
		}
		out, err := EncodeHeader(block)
		if err != nil {
			if !errors.Is(err, ErrHeader) {
				t.Fatal(err)
			}
			return
		}
		for rest := out; len(rest) > 0; {
			_, n := firstField(rest)
			if n == 0 {
				break // the body
			}
			if !charset.IsASCII(string(rest[:n])) {
				t.Fatalf("%q becomes %q", block, out)
			}
			rest = rest[n:]
		}
		again, err := EncodeHeader(out)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%q becomes %q, %v", out, again, err)
		}
	})
}
