package deliver

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func parse(s string) (reply, error) {
	return readReply(bufio.NewReaderSize(strings.NewReader(s), maxReplyLine))
}

func TestReplyOnOneLine(t *testing.T) {
	for in, want := range map[string][2]string{
		"250 Ok 0102018f-abc\r\n": {"250 Ok 0102018f-abc", ""},
		"250\r\n":                 {"250", ""},
		"250 \n":                  {"250", ""},
		"550 5.1.1 unknown\r\n":   {"550 5.1.1 unknown", "5.1.1"},
		"550-5.1.1 The address\r\n550 5.1.1 is unknown\r\n": {"550 5.1.1 The address is unknown", "5.1.1"},
		"550-no\r\n550-\r\n550 way\r\n":                     {"550 no way", ""},
		"550 4.1.1 mixed up\r\n":                            {"550 4.1.1 mixed up", ""},
		"550 5.1 short\r\n":                                 {"550 5.1 short", ""},
		"550 5.1.x\r\n":                                     {"550 5.1.x", ""},
		"550 5..1\r\n":                                      {"550 5..1", ""},
		"550 5.1.1000\r\n":                                  {"550 5.1.1000", ""},
		"450 a\tb\x1b[31m\x00\xff\u202egnp\r\n":             {"450 a b?[31m???gnp", ""},
		"450 grüße\r\n":                                     {"450 grüße", ""},
	} {
		r, err := parse(in)
		if err != nil || r.String() != want[0] || r.enhancedCode() != want[1] {
			t.Errorf("%q is %q, %q (%v), want %q", in, r, r.enhancedCode(), err, want)
		}
	}
}

func TestLongReplyTextIsCutBetweenRunes(t *testing.T) {
	r, err := parse("550 x" + strings.Repeat("é", 1500) + "\r\n")
	if got := r.String(); err != nil || len(got) > maxReplyText || len(got) < maxReplyText-1 || !utf8.ValidString(got) {
		t.Errorf("%d bytes, valid %v, %v", len(got), utf8.ValidString(got), err)
	}
}

// FuzzReply: no bytes of a host break the parser, its bounds, or the one printable line that people
// see.
func FuzzReply(f *testing.F) {
	for _, s := range []string{"250 ok\r\n", "250-a\r\n250 b\r\n", "550 5.1.1 no\n", "250-a\r\n550 b\r\n", "999\r\n", "250", "250-\xff\u2028\r\n250\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		src := bytes.NewReader(in)
		br := bufio.NewReaderSize(src, maxReplyLine)
		r, err := readReply(br)
		if used := len(in) - src.Len() - br.Buffered(); used > maxReplyBytes+maxReplyLine {
			t.Fatalf("read %d bytes", used)
		}
		if err != nil {
			return
		}
		if r.code < 200 || r.code > 599 || len(r.lines) == 0 || len(r.lines) > maxReplyLines {
			t.Fatalf("reply %+v", r)
		}
		s := r.String()
		if len(s) > maxReplyText || !utf8.ValidString(s) || strings.IndexFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) >= 0 {
			t.Fatalf("shown as %q", s)
		}
		if e := r.enhancedCode(); e != "" && e[0] != s[0] {
			t.Fatalf("enhanced code %q of %q", e, s)
		}
		parseExtensions(r.lines)
	})
}
