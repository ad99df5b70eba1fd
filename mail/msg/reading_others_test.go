package msg

import (
	"strings"
	"testing"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
)

func encoded(t *testing.T, by encoding.Encoding, text string) string {
	t.Helper()
	out, err := by.NewEncoder().String(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestNamedTextThatComesFirstIsRead: what a list adds behind it does not hide it.
func TestNamedTextThatComesFirstIsRead(t *testing.T) {
	for _, want := range []reading{
		{file: "by its disposition", raw: mixed("mixed", strings.Replace(named(plainA, "a.txt"), "\n\n", "\nContent-Disposition: inline; filename=a.txt\n\n", 1), plainB), text: []string{"plain A", "plain B"}, files: []string{}},
		{file: "by its type", raw: mixed("mixed", named(plainA, "a.txt"), picture, plainB), text: []string{"plain A", "plain B"}, files: []string{"p.png"}},
		{file: "HTML", raw: mixed("mixed", nested("related", "r", named(htmlA, "a.html"), picture), plainB), html: []string{"rich A", "plain B"}, text: []string{"rich A", "plain B"}, files: []string{"p.png"}},
		{file: "in a branch", raw: mixed("alternative", plainB, nested("mixed", "r", named(htmlA, "a.html"), picture, htmlB)), html: []string{"rich A", "rich B"}, text: []string{"plain B"}, files: []string{"p.png"}},
		{file: "not behind another part", raw: mixed("mixed", picture, named(plainA, "a.txt"), plainB), text: []string{"plain B"}, files: []string{"p.png", "a.txt"}},
	} {
		t.Run(want.file, func(t *testing.T) { want.check(t, []byte(want.raw)) })
	}
}

// TestCharsetsThatAreNotAsTheySay has texts whose bytes show that the label is wrong.
func TestCharsetsThatAreNotAsTheySay(t *testing.T) {
	const meeting = "会議の件"
	jis, sjis, euc := encoded(t, japanese.ISO2022JP, meeting), encoded(t, japanese.ShiftJIS, meeting), encoded(t, japanese.EUCJP, meeting)
	koi8 := encoded(t, charmap.KOI8R, "Привет")
	for _, c := range []struct{ contentType, body, want string }{
		{"text/plain; charset=iso-8859-1", jis, meeting},
		{"text/plain; charset=shift_jis", jis, meeting},
		{"text/plain; charset=euc-jp", jis, meeting},
		{"text/plain; charset=iso-2022-jp", sjis, meeting},
		{"text/plain; charset=iso-2022-jp", euc, meeting},
		{"text/plain; charset=iso-2022-jp", "\xb6\xc5", "ｶﾅ"},
		{"text/plain; charset=iso-2022-jp", "\x1b(J\\100~\x1b(B \x1b$B$\"\x1b(B", "¥100~ あ"},
		{"text/plain; charset=gb2312", "Grüße 会议", "Grüße 会议"},
		{"text/plain; charset=big5", "會議", "會議"},
		{"text/plain; charset=euc-kr", "Grüße 회의", "Grüße 회의"},
		{"text/plain; charset=shift_jis", "Grüße 会議", "Grüße 会議"},
		{"text/plain; charset=gb2312", "\xc1\xaa\xcd\xa8", "联通"}, // which could be UTF-8 of two bytes
		{"text/plain; charset=iso-8859-1", "Grüße", "GrÃ¼ÃŸe"},
		{"text/plain; charset=utf-8", "Gr\xfc\xdfe", "Grüße"},
		{"text/plain; charset=utf-8", "caf\xe9", "café"},
		{"text/plain; charset=utf-8", "Grüße \xff", "Grüße \ufffd"},
		{"text/plain; charset=utf-16", "hello there\n", "hello there"},
		{"text/plain; charset=utf-32", "hello there\n", "hello there"},
		{"text/plain; charset=utf-7", "Hi Mom +Jjo-!", "Hi Mom ☺!"},
		{"text/html", "<style>" + strings.Repeat("p{}\n", 1500) + "</style><meta charset=koi8-r>" + koi8, "Привет"},
		{"text/html", "<!-- <meta charset=windows-1251> --><meta charset=koi8-r>" + koi8, "Привет"},
		{"text/html", `<meta name=description content="about charset=windows-1251"><meta charset=koi8-r>` + koi8, "Привет"},
		{"text/html", `<meta charset="nonsense"><meta charset="koi8-r">` + koi8, "Привет"},
		{"text/html; charset=utf-8", `<meta charset="koi8-r">` + koi8, "Привет"},
	} {
		t.Run(c.contentType+" "+c.body, func(t *testing.T) {
			want := reading{text: []string{c.want}}
			if strings.HasPrefix(c.contentType, "text/html") {
				want = reading{html: []string{c.want}}
			}
			want.check(t, []byte(message("Content-Type: "+c.contentType+"\n", c.body)))
		})
	}
}

// TestMoreNamesOfOtherWriters adds to TestNamesOfOtherWriters.
func TestMoreNamesOfOtherWriters(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{"Content-Disposition: attachment; filename*0*=utf-8''%C3%A4; filename*3*=%C3%B6.pdf", "äö.pdf"},
		{"Content-Disposition: attachment; filename*0*=UTF-8''%C3%A4; filename*1*=UTF-8''%C3%B6.txt", "äö.txt"},
		{"Content-Disposition: attachment; filename*=\"=?utf-8?B?w6QucGRm?=\"", "ä.pdf"},
		{"Content-Disposition: attachment; filename*=utf-8''=?utf-8?B?w6QucGRm?=", "ä.pdf"},
		{"Content-Disposition: attachment; filename*=utf-8'%C3%A4.pdf", "ä.pdf"},
		{"Content-Disposition: attachment; filename*=it's", "it's"},
		{"Content-Disposition: attachment; filename*=iso-8859-1''\xe4.pdf", "ä.pdf"},
		{"Content-Disposition: attachment; filename='a;b.pdf'; size=3", "a;b.pdf"},
		{"Content-Disposition: attachment; filename='a'b.pdf", "'a'b.pdf"},
		{"Content-Disposition: attachment; filename=\"'a.pdf'\"", "'a.pdf'"},
		{"Content-Disposition: attachment; filename=\"\"a.pdf\"\"", "a.pdf"},
		{"Content-Disposition: attachment; filename=\"\"; size=3", "attachment-1"},
		{"Content-Disposition: attachment; filename=\\\"a.pdf\\\"", "a.pdf"},
		{"Content-Disposition: attachment; size=\"3; filename=\"a.pdf\"", "a.pdf"},
		{"Content-Disposition: attachment; x=\"a;b=\"; filename=a.pdf", "a.pdf"},
		{"Content-Type: application/x: name=a.pdf", "a.pdf"},
		{"Content-Type: application/x,name=a.pdf", "a.pdf"},
		{"Content-Type: \"application/x\"; name=a.pdf", "a.pdf"},
	} {
		raw := mixed("mixed", plainA, c.header+"\nContent-Type: application/x\n\nx")
		if !strings.Contains(c.header, "isposition") {
			raw = mixed("mixed", plainA, c.header+"\n\nx")
		}
		t.Run(c.header, func(t *testing.T) { reading{files: []string{c.want}}.check(t, []byte(raw)) })
	}
}

// TestTypesOfOtherWriters has the boundary and the charset of sloppy fields.
func TestTypesOfOtherWriters(t *testing.T) {
	body := "--bnd\n" + plainA + "\n--bnd\n" + attached + "\n--bnd--\n"
	want := reading{text: []string{"plain A"}, files: []string{"notes.txt"}}
	for _, value := range []string{
		"multipart/mixed: boundary=bnd", "multipart/mixed,boundary=bnd", "\"multipart/mixed\"; boundary=bnd", "multipart/mixed; boundary='bnd'", "multipart/mixed; boundary=\"'bnd'\"",
		"multipart/mixed; boundary=\\\"bnd\\\"", "multipart/mixed; boundary=\"\"bnd\"\"", "multipart/mixed; charset=\"utf-8; boundary=\"bnd\"", "multipart/mixed; boundary=bnd (comment)",
	} {
		t.Run(value, func(t *testing.T) { want.check(t, []byte(message("Content-Type: "+value+"\n", body))) })
	}
	for _, boundary := range []string{"'bnd'", "=_(abc)", "(b)", "----=_Part_1?x=(1)", "a'b"} {
		raw := message("Content-Type: multipart/mixed; boundary="+boundary+"\n", strings.ReplaceAll(body, "bnd", boundary))
		t.Run(boundary, func(t *testing.T) { want.check(t, []byte(raw)) })
	}
	for _, value := range []string{
		"text/plain; charset=(c)koi8-r", "; charset=koi8-r", "charset=koi8-r", "text/plain,charset=koi8-r", "\"text/plain\"; charset=koi8-r", "text/plain: charset=koi8-r", "text/plain; charset=koi8-r,utf-8",
		"text/plain; charset='koi8-r'", "text/plain; charset=ru_RU.KOI8-R", "text/plain; charset=x-x-koi8-r",
	} {
		t.Run(value, func(t *testing.T) {
			reading{text: []string{"Привет"}}.check(t, []byte(message("Content-Type: "+value+"\n", "\xf0\xd2\xc9\xd7\xc5\xd4")))
		})
	}
}

// TestMoreDatesOfOtherWriters adds to TestDatesOfOtherWriters.
func TestMoreDatesOfOtherWriters(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"Tue, 05 Mar 2019 10:00:00 EST5EDT", "2019-03-05T15:00:00"},
		{"Fri, 05 Jul 2019 10:00:00 EST5EDT", "2019-07-05T14:00:00"},
		{"2019-07-05 10:00:00 America/New_York", "2019-07-05T14:00:00"},
		{"Fri, 05 Jul 2019 10:00:00 +0100 Europe/Berlin", "2019-07-05T09:00:00"},
		{"Fri, 05 Jul 2019 10:00:00 ../../etc/passwd", "2019-07-05T10:00:00"},
		{"20190305T100000Z", "2019-03-05T10:00:00"},
		{"20190305T100000+0100", "2019-03-05T09:00:00"},
		{"20190305 10:00:00", "2019-03-05T10:00:00"},
		{"20190305100000", "2019-03-05T10:00:00"},
		{"2019-03-05T10Z", "2019-03-05T10:00:00"},
		{"2019-03-05t10:00:00z", "2019-03-05T10:00:00"},
		{"Tue, 5 Mar 2019 1000 +0100", "2019-03-05T09:00:00"},
		{"Tue, 5 Mar 2019 10:00:00,123 +0100", "2019-03-05T09:00:00"},
		{"Tue, 5 Mar 2019 10:00:00 p.m. +0000", "2019-03-05T22:00:00"},
		{"Tue, 5 Mar 2019 24:00:00 +0000", "2019-03-06T00:00:00"},
		{"Tue, 5 Mar 2019 24:00:01 +0000", "0001-01-01T00:00:00"},
		{"Tue, 5 Mar 2019 10:00:00 +0100GMT", "2019-03-05T09:00:00"},
		{"Tue, 5 Mar 2019 10:00:00 +0100;", "2019-03-05T09:00:00"},
		{"Tue, 5 Mar 2019 10:00:00 \u22120300", "2019-03-05T13:00:00"},
	} {
		if got := parseDate(c.in).UTC().Format("2006-01-02T15:04:05"); got != c.want {
			t.Errorf("%q is %s, want %s", c.in, got, c.want)
		}
	}
}

// TestMoreEncodingsOfOtherWriters adds to TestEncodingsOfOtherWriters.
func TestMoreEncodingsOfOtherWriters(t *testing.T) {
	for _, c := range []struct{ encoding, body, want string }{
		{"base64:", "Y29kZWQ=", "coded"},
		{"<base64>", "Y29kZWQ=", "coded"},
		{"base64/8bit", "Y29kZWQ=", "coded"},
		{"quoted-printeable", "a=3Db", "a=b"},
		{"quoted-printable:", "a=3Db", "a=b"},
		{"x-quoted-printable", "a=3Db", "a=b"},
		{"quoted", "a=3Db", "a=b"},
		{"uuencode", "begin\n#0V%T\n`\nend", "Cat"},
		{"x-uuencode", "Begin 644 a.txt\n#0V%T\n`\nEnd", "Cat"},
	} {
		raw := message("Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: "+c.encoding+"\n", c.body)
		t.Run(c.encoding, func(t *testing.T) { reading{text: []string{c.want}}.check(t, []byte(raw)) })
	}
}

// TestEncodedWordsOfOtherWriters has words in a subject, and in the name of an address.
func TestEncodedWordsOfOtherWriters(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{"=?utf8?Q?=C3?= =?utf-8?Q?=A4?=", "ä"},
		{"=?utf-8?Q?caf=E9?=", "café"},
		{"=?utf-8?Q?what?=3D?=", "what?="},
		{"=?UTF-8?Q?a?=20b?= =?utf-8?Q?c?=", "a? bc"},
		{"=?UTF-8?Q?a?=20b =?utf-8?Q?c?=", "a20b c"},
		{"=?utf-8?Q?Doe, J?=", "Doe, J"},
		{"=?utf-8?Q?Doe,_(J):;?=", "Doe, (J):;"},
	} {
		root := scanBytes(t, []byte("From: "+strings.ReplaceAll(c.raw, "a?=20b ", "x ")+" <a@b.test>\nSubject: "+c.raw+"\n\nbody"))
		if got := root.Envelope.Subject; got != c.want {
			t.Errorf("subject %s is %q, want %q", c.raw, got, c.want)
		}
		if f := root.Envelope.From; len(f) != 1 || f[0].Email() != "a@b.test" || f[0].Name != c.want && !strings.Contains(c.raw, "20b ") {
			t.Errorf("name %s is %q, want %q", c.raw, f, c.want)
		}
	}
	// What could be an address stays one.
	root := scanBytes(t, []byte("From: =?utf-8?Q?a, b@c.test, d?= <e@f.test>\n\n"))
	if f := root.Envelope.From; len(f) != 3 {
		t.Errorf("%q", f)
	}
}

// TestBadLinesBeforeBase64AreNoContent: a line that is no field and stands last in a header is not
// decoded with what follows.
func TestBadLinesBeforeBase64AreNoContent(t *testing.T) {
	for _, line := range []string{
		"X-Filter Result: clean", "this is no field", "From someone Fri Nov 27 10:00:00 2026", ">From someone Fri Nov 27 10:00:00 2026", "\ufeff", ": x", "X-Bad\x01: y", "Über: x", "nocolon", "a\nb c\nd", "<html>",
	} {
		for _, end := range []string{"\n", "\r\n"} {
			text := "From: a@b.test\nContent-Transfer-Encoding: base64\n" + line + "\n\naGVsbG8=\n"
			file := mixed("mixed", plainA, "Content-Disposition: attachment; filename=a.bin\nContent-Transfer-Encoding: base64\n"+line+"\n\nQ2F0")
			t.Run(line+end, func(t *testing.T) {
				reading{text: []string{"hello"}}.check(t, []byte(strings.ReplaceAll(text, "\n", end)))
				reading{text: []string{"plain A"}, files: []string{"a.bin"}, content: "Cat"}.check(t, []byte(strings.ReplaceAll(file, "\n", end)))
			})
		}
	}
	// Base64 without an empty line before it is content, and so is text.
	reading{text: []string{"hello"}}.check(t, []byte("Content-Transfer-Encoding: base64\naGVsbG8=\n\n"))
	reading{text: []string{"hello all", "bye"}}.check(t, []byte("From: a@b.test\nhello all\n\nbye\n"))
}
