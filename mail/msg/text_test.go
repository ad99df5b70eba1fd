package msg

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/buffers"
	"github.com/mailstead/mailstead/mail/charset"
)

func TestDecodeText(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                             "plain",
		"=?utf-8?q?a_b=3D?=":                "a b=",
		"=?UTF-8?B?w6Q?=":                   "ä",
		"=?utf-8?q?=C3?= =?utf-8?q?=A4?=":   "ä",
		"=?utf-8?q?a?= =?latin1?q?=E4?=":    "aä",
		"=?utf-8?q?a?= b =?utf-8?q?c?=":     "a b c",
		"=?utf-8?q?a?=\r\n =?utf-8?q?b?=":   "ab",
		"=?utf-8?x?a?=":                     "=?utf-8?x?a?=",
		"=?utf-8?q?unclosed":                "=?utf-8?q?unclosed",
		"=??q?a?=":                          "=??q?a?=",
		"=?shift_jis?B?k/qWew==?=":          "日本",
		"=?euc-kr?B?x9GxuQ==?=":             "한국",
		"=?big5?B?pKSk5Q==?=":               "中文",
		"=?windows-1251?Q?=CF=F0?=":         "Пр",
		"=?iso-8859-15?q?=A4?=":             "€",
		"=?utf-7?q?x?=":                     "x",
		"=?utf-8?q??=":                      "",
		"caf\xe9":                           "café",
		"café":                              "café",
		"=?utf-8?q?a=0D=0Ab=00?=":           "a  b",
		"=?utf-8?q?=C3=A4=FF?=":             "ä\uFFFD",
		"x =?us-ascii?q?y?= z":              "x y z",
		"=?utf-8?b?4p2k?==?utf-8?b?4p2k?=":  "❤❤",
		"=?gb18030?B?hDGkNw==?= done":       "\uFFFD done",
		"  spaces \t around  ":              "spaces \t around",
		"=?hz-gb-2312?q?=7E=7BVPND=7E=7D?=": "中文",
		// What cannot be decoded stays as it came.
		"=?x-nowhere?q?caf=E9?=":                        "=?x-nowhere?q?caf=E9?=",
		"=?x-nowhere?b?Y2Fm6Q==?= =?utf-8?q?=C3=A4?=":   "=?x-nowhere?b?Y2Fm6Q==?= ä",
		"=?utf-8?q?=C3=A4?=\r\n =?x-nowhere?q?caf=E9?=": "ä =?x-nowhere?q?caf=E9?=",
		"=?utf-8?b?*not base64*?= b":                    "=?utf-8?b?*not base64*?= b",
		"=?utf-8?b?w6Q?= =?utf-8?b?w6!?=":               "ä =?utf-8?b?w6!?=",
		"=?utf-8?b?w 6 Q?=":                             "ä",
		"=?unknown-8bit?q?caf=E9?=":                     "café",
	} {
		want = strings.ReplaceAll(want, "\t", " ")
		if got := decodeText([]byte(in), "", MaxText); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// TestEncodeWordsRoundTrip also checks the length of each word.
func TestEncodeWordsRoundTrip(t *testing.T) {
	for _, s := range []string{"ä", "Grüße aus Köln", strings.Repeat("ä", 300), strings.Repeat("日本語", 100), "a =?utf-8?q?b?= c",
		strings.Repeat("plain words and one ü ", 20) + "end", "two  spaces", "_=?", "😀 " + strings.Repeat("😀", 40)} {
		enc := encodeText(s)
		for word := range strings.SplitSeq(enc, " ") {
			if len(word) > maxWord || !charset.IsASCII(word) {
				t.Errorf("word of %d: %q", len(word), word)
			}
		}
		if got := decodeText([]byte(enc), "", 1<<20); got != s {
			t.Errorf("%q became %q by %q", s, got, enc)
		}
	}
}

func TestParseDate(t *testing.T) {
	want := time.Date(2026, 11, 20, 20, 0, 5, 0, time.UTC)
	for _, s := range []string{
		"Fri, 20 Nov 2026 21:00:05 +0100", "20 Nov 2026 20:00:05 GMT", "Fri,20 Nov 2026 15:00:05 EST", "fri, 20 nov 26 20:00:05 UT",
		"Fri, 20 November 2026 20:00:05 +0000 (UTC (really))", "Fri Nov 20 20:00:05 2026", "20-Nov-2026 20:00:05 -0000",
		"2026-11-20T20:00:05Z", "Nov 20, 2026 8:00:05 PM", "Fri, 20 Nov 2026 20:00:05", "Fri, 20 Nov 2026 20:00:05.123 Z",
		"20 Nov 2026 20:00:05 +9999", "20 Nov 2026 20:00:05 +0160", "21 Nov 2026 10:30:05 +1430",
	} {
		if got := parseDate(s); got.Unix() != want.Unix() {
			t.Errorf("%q: %v", s, got)
		}
	}
	for _, s := range []string{"", "yesterday", "31 Feb 2026 10:00:00 +0000", "20 Nov 2026 25:00:00 +0000", "20 Nov 99999 10:00:00",
		"1 2 3 4 5", "20 Nov 2026 ::: +0000", "20 Nov 1200 10:00:00 +0000"} {
		if got := parseDate(s); !got.IsZero() {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func TestParseAddressList(t *testing.T) {
	for in, want := range map[string]string{
		"a@b.example":                            "a@b.example",
		"Ann <a@b.example>":                      "Ann <a@b.example>",
		`"Doe, John" <j@b.example>, x@Y.Example`: `"Doe, John" <j@b.example>|x@y.example`,
		`"a b"@c.example`:                        `"a b"@c.example`,
		"jøran@blåbær.example":                   "jøran@xn--blbr-roah.example",
		"a+tag@b.example (Ann)":                  "Ann <a+tag@b.example>",
		"a@[192.0.2.1]":                          "a@[192.0.2.1]",
		"O'Brien <o'brien@b.example>":            "O'Brien <o'brien@b.example>",
	} {
		list, err := ParseAddressList(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		var got []string
		for _, a := range list {
			got = append(got, a.String())
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	for _, in := range []string{"", " , ", "a", "Ann", "a@", "@b", "<>", "a b@c d", "Ann <a@b.example", "\"Ann <a@b.example>", "team: a@b.example;",
		"a@b.example\r\nBcc: c@d.example", "a@b..example", "a..b@c.example", "a@b@c.example", "a@-b.example", "a@b_c.example",
		strings.Repeat("x", 65) + "@b.example", "a@" + strings.Repeat("x.", 130) + "example", "a\x00@b.example", "a@[nonsense]", "a@b.example <c@d.example> <e@f.example>"} {
		if list, err := ParseAddressList(in); !errors.Is(err, ErrAddress) {
			t.Errorf("%q: %v, %v", in, list, err)
		}
	}
	if _, err := ParseAddress("a@b.example, c@d.example"); !errors.Is(err, ErrAddress) {
		t.Errorf("two addresses: %v", err)
	}
}

func TestNormalizeEmail(t *testing.T) {
	for in, want := range map[string]string{
		"Ann@EXAMPLE.org":      "ann@example.org",
		"ann@bücher.example":   "ann@xn--bcher-kva.example",
		"ann@example.org.":     "ann@example.org",
		"JØRAN@example.org":    "jøran@example.org",
		"a\u0308@x.example":    "ä@x.example",
		`"A@b"@x.example`:      `"a@b"@x.example`,
		"postmaster@localhost": "postmaster@localhost",
	} {
		if got, err := NormalizeEmail(in); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
		if again, err := NormalizeEmail(want); err != nil || again != want {
			t.Errorf("%q again: %q, %v", want, again, err)
		}
	}
	for _, in := range []string{"", "a", "a@", "@b", "a b@c", "a\t@c", `"a"b"@c`, "a@b c", "a@\x7f", "<a@b>", "a@b:25", "a@b\xff.test"} {
		if got, err := NormalizeEmail(in); !errors.Is(err, ErrAddress) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func TestSplitEmail(t *testing.T) {
	if local, domain, ok := SplitEmail(`"a@b"@c`); local != `"a@b"` || domain != "c" || !ok {
		t.Error(local, domain, ok)
	}
	for _, s := range []string{"", "a", "@", "a@", "@b"} {
		if _, _, ok := SplitEmail(s); ok {
			t.Errorf("%q split", s)
		}
	}
}

func TestHeaders(t *testing.T) {
	raw := "From x Fri\r\nSubject: =?utf-8?q?=C3=A4?=\r\n folded\r\nX-A : 1\r\nx-a: 2\r\n\r\nbody: no\r\n"
	r := strings.NewReader(raw)
	root := scanBytes(t, []byte(raw))
	got, err := Headers(r, root)
	if err != nil || len(got) != 3 || got[0] != (Header{"Subject", "ä folded"}) || got[1] != (Header{"X-A", "1"}) {
		t.Errorf("%q, %v", got, err)
	}
	for _, tc := range []struct {
		names  []string
		except bool
		want   string
	}{
		{[]string{"X-a", "none"}, false, "X-A : 1\r\nx-a: 2\r\n\r\n"},
		{[]string{"x-A"}, true, "Subject: =?utf-8?q?=C3=A4?=\r\n folded\r\n\r\n"},
		{nil, false, "\r\n"},
	} {
		if b, err := HeaderFields(r, root, tc.names, tc.except); err != nil || string(b) != tc.want {
			t.Errorf("%v: %q, %v", tc.names, b, err)
		}
	}
	if _, err := RawHeader(strings.NewReader("short"), root); err == nil {
		t.Error("no error for a message cut short")
	}
}

func TestReadRawBodyTruncates(t *testing.T) {
	raw := []byte("Content-Type: text/plain; charset=utf-8\r\n\r\n" + strings.Repeat("ä", 100))
	root := scanBytes(t, raw)
	for n := int64(0); n < 8; n++ {
		body, err := ReadRawBody(bytes.NewReader(raw), root, n)
		if err != nil || !body.Truncated || body.Text != strings.Repeat("ä", int(n/2)) {
			t.Errorf("max %d: %+v, %v", n, body, err)
		}
	}
	if body, err := ReadRawBody(bytes.NewReader(raw), root, 200); err != nil || body.Truncated {
		t.Errorf("whole: %+v, %v", body, err)
	}
	if _, err := ReadRawBody(bytes.NewReader(nil), root, 200); err != nil {
		t.Errorf("message gone: %v", err)
	}
}

func TestPreviewLength(t *testing.T) {
	raw := []byte("Content-Type: text/html; charset=utf-8\r\n\r\n<style>" + strings.Repeat("x{}", 20000) + "</style><p>" + strings.Repeat("日本 &#8204; ", 300))
	s, err := Summarize(bytes.NewReader(raw), scanBytes(t, raw))
	if err != nil {
		t.Fatal(err)
	}
	if n := len([]rune(s.Preview)); n < 190 || n > 200 || !strings.HasPrefix(s.Preview, "日本 日本") {
		t.Errorf("%d: %q", n, s.Preview)
	}
}

func TestAutomation(t *testing.T) {
	for header, want := range map[string][3]bool{ // auto, list, bounce
		"Subject: x":                                    {},
		"Auto-Submitted: no":                            {},
		"Auto-Submitted: auto-generated; x=y":           {true, false, false},
		"X-Autoreply: yes":                              {true, false, false},
		"Precedence: bulk":                              {true, false, false},
		"Precedence: list":                              {false, true, false},
		"Precedence: bulk\r\nList-Id: <x>":              {false, true, false},
		"List-Unsubscribe: <mailto:x@x>":                {false, true, false},
		"From: MAILER-DAEMON@x.example":                 {true, false, true},
		"Return-Path: <>\r\nFrom: postmaster@x.example": {true, false, true},
		"From: postmaster@x.example":                    {},
	} {
		raw := []byte(header + "\r\n\r\nx")
		s, err := Summarize(bytes.NewReader(raw), scanBytes(t, raw))
		if err != nil || [3]bool{s.AutoReply, s.List, s.Bounce} != want {
			t.Errorf("%q: auto %v list %v bounce %v, %v", header, s.AutoReply, s.List, s.Bounce, err)
		}
	}
}

func TestSafeFilename(t *testing.T) {
	for in, want := range map[string]string{
		"a.pdf": "a.pdf", `C:\x\a.pdf`: "a.pdf", "../../etc/passwd": "passwd", "..": "attachment-1.pdf", "": "attachment-1.pdf", "/": "attachment-1.pdf",
		"gnp\u202efdp.exe": "gnpfdp.exe", "a\r\nb": "ab", `a"b<c>.txt`: "a_b_c_.txt", strings.Repeat("ä", 300) + ".docx": strings.Repeat("ä", 97) + ".docx",
	} {
		p := &Part{Type: "application", Subtype: "pdf", Params: map[string]string{"name": in}}
		if got := safeFilename(p.filename(), "", p.MediaType(), 1); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestNormalizeLines(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a": "a", "a\r\nb": "a\r\nb", "a\nb": "a\r\nb", "a\rb": "a\r\nb", "a\r": "a\r\n", "a\n": "a\r\n", "\r\r\n\n": "\r\n\r\n\r\n",
		"a\x00b\x00": "ab", "a\r\x00\nb": "a\r\nb", "\n.\n": "\r\n.\r\n", "a\r\n.\r\n": "a\r\n.\r\n",
	} {
		if got := string(withCRLF(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	w := NormalizeLines(failingWriter{errors.New("full")})
	if _, err := w.Write(bytes.Repeat([]byte("x"), 2*buffers.Size)); err == nil {
		t.Error("write error lost")
	}
	if w.Close() == nil {
		t.Error("write error lost at close")
	}
	var b bytes.Buffer
	w = NormalizeLines(&b)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := w.Write([]byte("late")); err == nil || b.Len() > 0 {
		t.Errorf("written after the end: %q, %v", b.String(), err)
	}
	if err := w.Close(); err == nil {
		t.Error("closed twice without the error of what came in between")
	}
}
