package msg

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/charset"
)

// A reading is what must be found in a message that its writer made otherwise than the rules say.
type reading struct {
	file, raw           string // in testdata/reading without its extension, or the message itself
	subject, from, date string
	text, html, files   []string
	content             string // of the first attachment
}

var readings = []reading{
	{file: "alt-mixed-html-pdf-html", text: []string{"ALPHA"}, html: []string{"ALPHA", "BETA"}},
	{file: "alt-only-mixed-3html", html: []string{"UNO", "DUE", "TRE"}},
	{file: "alt-mixed-related-and-html", html: []string{"REL", "AFTER"}},
	{file: "inline-named-text", text: []string{"BODY"}},
	{file: "name-only-related-html", html: []string{"BODY"}},
	{file: "iso2022jp-no-charset", text: []string{"次の会議は水曜日です。"}},
	{file: "iso2022jp-raw-subject", subject: "会議の件", text: []string{"次の会議は水曜日です。"}},
	{file: "iso2022jp-html-meta", html: []string{"次の会議は水曜日です。"}},
	{file: "declared-iso2022jp-body-utf8", text: []string{"ほげ"}},
	{file: "raw8bit-subject-koi8-r", subject: "Привет мир", text: []string{"Привет мир"}},
	{file: "raw8bit-subject-windows-1251", subject: "Добрый день", text: []string{"Добрый день"}},
	{file: "raw8bit-subject-big5", subject: "會議通知", text: []string{"會議通知"}},
	{file: "raw8bit-subject-euc-kr", subject: "회의 안내", text: []string{"회의 안내"}},
	{file: "raw8bit-subject-windows-1253", subject: "Καλημέρα", text: []string{"Καλημέρα"}},
	{file: "raw8bit-subject-windows-1255", subject: "שלום", text: []string{"שלום"}},
	{file: "raw8bit-subject-iso-8859-9", subject: "ışık", text: []string{"ışık"}},
	{file: "2231-words-over-continuations", files: []string{"żółć.txt"}},
	{file: "2231-starts-at-1", files: []string{"naïve.txt"}},
	{file: "raw-gbk-filename", files: []string{"会议.txt"}},
	{file: "date-colon-zone-negative", date: "2019-03-05T13:30:00"},
	{file: "date-js-tostring", date: "2013-11-18T08:26:24"},
	{file: "date-iso-with-space", date: "2019-04-12T07:14:22"},
	{file: "date-iso-with-space-no-zone", date: "2019-04-12T09:14:22"},
	{file: "cte-base-64", text: []string{"coded"}},
	{file: "cte-x-uuencode", content: "Cat"},
	{file: "multipart-missing-semicolon", text: []string{"BODY"}, files: []string{"doc.pdf"}},
	{file: "word-utf7", subject: "Hi Mom ☺!"},
	{file: "header-line-without-field", subject: "space in a field name", from: "boss@other.test", text: []string{"hello"}},
	{file: "header-line-without-colon", subject: "bad line", from: "boss@other.test", text: []string{"hello"}},
	{file: "header-begins-with-mbox-line", subject: "mbox line quoted", from: "boss@other.test", text: []string{"hello"}},
	{file: "header-begins-with-bom", subject: "byte order mark", from: "boss@other.test", text: []string{"hello"}},
}

// message is a message with a header that is in order, but for what is given.
func message(fields, body string) string {
	return "From: Ada <ada@outside.test>\nSubject: s\n" + fields + "\n" + body
}

// mixed is a message of parts, each with its header.
func mixed(subtype string, parts ...string) string {
	return message("Content-Type: multipart/"+subtype+"; boundary=b\n", "--b\n"+strings.Join(parts, "\n--b\n")+"\n--b--\n")
}

// nested is a part of parts.
func nested(subtype, boundary string, parts ...string) string {
	return "Content-Type: multipart/" + subtype + "; boundary=" + boundary + "\n\n--" + boundary + "\n" + strings.Join(parts, "\n--"+boundary+"\n") + "\n--" + boundary + "--\n"
}

const (
	plainA   = "Content-Type: text/plain\n\nplain A"
	plainB   = "Content-Type: text/plain\n\nplain B"
	htmlA    = "Content-Type: text/html\n\n<p>rich A</p>"
	htmlB    = "Content-Type: text/html\n\n<p>rich B</p>"
	picture  = "Content-Type: image/png; name=p.png\nContent-Disposition: inline\n\nx"
	attached = "Content-Disposition: attachment; filename=notes.txt\nContent-Type: text/plain\n\nnotes"
)

func named(part, name string) string { return strings.Replace(part, "\n\n", "; name="+name+"\n\n", 1) }

var sloppy = []reading{
	// Alternatives.
	{file: "several texts in the first branch", raw: mixed("alternative", nested("mixed", "i", plainA, picture, plainB), htmlA), text: []string{"plain A", "plain B"}, html: []string{"rich A"}, files: []string{"p.png"}},
	{file: "text behind the HTML of a branch", raw: mixed("alternative", plainA, nested("mixed", "i", htmlA, picture, plainB)), text: []string{"plain A"}, html: []string{"rich A", "plain B"}},
	{file: "one branch with both", raw: mixed("alternative", nested("mixed", "i", plainA, htmlA)), text: []string{"plain A", "rich A"}, html: []string{"plain A", "rich A"}},
	{file: "alternatives inside one branch", raw: mixed("alternative", nested("related", "r", nested("alternative", "i", plainA, htmlA), picture)), text: []string{"plain A"}, html: []string{"rich A"}},
	{file: "alternatives between texts", raw: mixed("mixed", plainA, nested("alternative", "i", plainB, nested("mixed", "j", htmlB, htmlA)), plainA), text: []string{"plain A", "plain B", "plain A"}, html: []string{"plain A", "rich B", "rich A", "plain A"}},
	{file: "signed alternatives", raw: mixed("signed", nested("alternative", "i", plainA, nested("mixed", "j", htmlA, attached, htmlB)), "Content-Type: application/pgp-signature\n\nx"), text: []string{"plain A"}, html: []string{"rich A", "rich B"}, files: []string{"notes.txt"}},
	{file: "HTML before text", raw: mixed("alternative", htmlA, plainA), text: []string{"plain A"}, html: []string{"rich A"}},
	// Names.
	{file: "named text and HTML", raw: mixed("alternative", named(plainA, "a.txt"), named(htmlA, "a.html")), text: []string{"plain A"}, html: []string{"rich A"}, files: []string{}},
	{file: "a named text beside another is a file", raw: mixed("mixed", plainA, named(plainB, "b.txt")), text: []string{"plain A"}, files: []string{"b.txt"}},
	{file: "the first of named texts is read", raw: mixed("mixed", picture, named(plainA, "a.txt"), named(plainB, "b.txt")), text: []string{"plain A"}, files: []string{"p.png", "b.txt"}},
	{file: "each alternative by itself", raw: mixed("alternative", plainA, nested("related", "r", named(htmlA, "a.html"), picture)), text: []string{"plain A"}, html: []string{"rich A"}, files: []string{"p.png"}},
	{file: "an attachment is never read", raw: mixed("mixed", picture, attached), files: []string{"p.png", "notes.txt"}},
	// Headers.
	{file: "several bad lines", raw: "one\ntwo words: x\n folded: y\nFrom: b@other.test\nthree\nSubject: found\n\nbody", subject: "found", from: "b@other.test", text: []string{"body"}},
	{file: "bad line in the header of a part", raw: mixed("mixed", "Content-Type: text/html\nbad line here\nContent-Transfer-Encoding: base64\n\nPGI+WU9VPC9iPg=="), html: []string{"<b>YOU</b>"}},
	{file: "text without a header", raw: "Dear all,\nNote: no header\n\nbye", text: []string{"Dear all", "Note: no header", "bye"}},
	{file: "text behind the header without a blank line", raw: "From: b@other.test\nSubject: s\nDear all\nhow are you: fine\n\nbye", subject: "s", text: []string{"Dear all", "bye"}},
	{file: "mbox line in the middle", raw: "Received: x\nFrom someone Fri Nov 27 10:00:00 2026\nFrom: b@other.test\n\nbody", from: "b@other.test", text: []string{"body"}},
	{file: "byte order mark in the middle", raw: "Received: x\n\ufeffSubject: found\nFrom: b@other.test\n\nbody", subject: "found", from: "b@other.test"},
	// Charsets.
	{file: "meta names the charset", raw: message("Content-Type: text/html\n", "<meta charset=koi8-r><p>\xf0\xd2\xc9\xd7\xc5\xd4"), html: []string{"Привет"}},
	{file: "the label counts more than meta", raw: message("Content-Type: text/html; charset=windows-1251\n", "<meta charset=koi8-r>\xcf\xf0\xe8"), html: []string{"При"}},
	{file: "byte order mark of UTF-16", raw: message("Content-Type: text/plain\nContent-Transfer-Encoding: base64\n", "//54AOQA"), text: []string{"xä"}},
	{file: "byte order mark of UTF-8", raw: message("Content-Type: text/plain; charset=utf-8\n", "\ufeffhello"), text: []string{"hello"}},
	{file: "raw name in an address", raw: "From: \xc4\xee\xe1\xf0\xfb\xe9 <b@other.test>\nSubject: \xc4\xe5\xed\xfc\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain; charset=windows-1251\n\n\xc4\n--b--\n", subject: "День", from: "b@other.test"},
	{file: "Korean escapes without a label", raw: message("", "\x1b$)C\x0eGQ19>n\x0f"), text: []string{"한국어"}},
	// Transfer encodings.
	{file: "quoted_printable", raw: message("Content-Transfer-Encoding: Quoted_Printable\n", "a=3Db"), text: []string{"a=b"}},
	{file: "quoted printable with a blank", raw: message("Content-Transfer-Encoding: \"quoted printable\"; x=y\n", "a=3Db"), text: []string{"a=b"}},
	{file: "encoding behind a comment", raw: message("Content-Transfer-Encoding: (c) BASE64 (d)\n", "Y29kZWQ="), text: []string{"coded"}},
	{file: "uue", raw: mixed("mixed", plainA, "Content-Type: application/x\nContent-Transfer-Encoding: uue\n\nx\n\nbegin 644 a\n#0V%T\n`\nend\nmore"), content: "Cat"},
	// Parameters.
	{file: "type without subtype", raw: message("Content-Type: text; charset=koi8-r\n", "\xf0\xd2\xc9"), text: []string{"При"}},
	{file: "trailing semicolons", raw: message("Content-Type: text/html;;\n", "<b>x</b>"), html: []string{"<b>x</b>"}},
	{file: "blanks at the slash", raw: message("Content-Type: text / html ; charset = utf-8\n", "<b>x</b>"), html: []string{"<b>x</b>"}},
	{file: "comments", raw: message("Content-Type: text/plain (c); (d) charset=(e)koi8-r (f)\n", "x"), text: []string{"x"}},
	{file: "no semicolon between parameters", raw: mixed("mixed", plainA, "Content-Type: application/x charset=utf-8 name=\"a b.pdf\" size=3\n\nx"), files: []string{"a b.pdf"}},
	{file: "no semicolon behind a bare name", raw: mixed("mixed", plainA, "Content-Disposition: attachment filename=a b.pdf size=3\nContent-Type: application/x\n\nx"), files: []string{"a b.pdf"}},
	{file: "no second quote", raw: mixed("mixed", plainA, "Content-Disposition: attachment; filename=\"a.pdf; size=3\nContent-Type: application/x\n\nx"), files: []string{"a.pdf"}},
	{file: "no first quote", raw: mixed("mixed", plainA, "Content-Disposition: attachment; filename=a.pdf\"\nContent-Type: application/x\n\nx"), files: []string{"a.pdf"}},
	{file: "no disposition before the name", raw: mixed("mixed", plainA, "Content-Disposition: filename=a.pdf\nContent-Type: application/x\n\nx"), files: []string{"a.pdf"}},
	{file: "a name twice", raw: mixed("mixed", plainA, "Content-Disposition: attachment; filename=a.pdf; filename=b.pdf\nContent-Type: application/x\n\nx"), files: []string{"a.pdf"}},
	{file: "an extended name beside a plain one", raw: mixed("mixed", plainA, "Content-Disposition: attachment; filename=a.pdf; filename*=utf-8''%C3%A4.pdf\nContent-Type: application/x\n\nx"), files: []string{"ä.pdf"}},
	{file: "pieces encoded and not", raw: mixed("mixed", plainA, "Content-Disposition: attachment; filename*0*=koi8-r''%F0; filename*1=\"a.p\"; filename*2*=df\nContent-Type: application/x\n\nx"), files: []string{"Пa.pdf"}},
}

func TestSloppyPartsAreRead(t *testing.T) {
	for _, want := range sloppy {
		t.Run(want.file, func(t *testing.T) { want.check(t, []byte(want.raw)) })
	}
}

func TestSloppyDatesAreRead(t *testing.T) {
	for in, want := range map[string]string{
		"Tue, 5 Mar 2019 10:00:00 +02:00":                              "2019-03-05T08:00:00",
		"Tue, 5 Mar 2019 10:00:00 +2":                                  "2019-03-05T08:00:00",
		"Tue, 5 Mar 2019 10:00:00 GMT+02:00":                           "2019-03-05T08:00:00",
		"Tue, 5 Mar 2019 10:00:00 UTC-0330":                            "2019-03-05T13:30:00",
		"Tue, 5 Mar 2019 10:00:00+0200":                                "2019-03-05T08:00:00",
		"Tue, 5 Mar 2019 10:00:00Z":                                    "2019-03-05T10:00:00",
		"Tue, 5 Mar 2019 10:00:00 0200":                                "2019-03-05T08:00:00",
		"Tue, 5 Mar 2019 10:00:00 +0200 EST":                           "2019-03-05T08:00:00",
		"Tue, 5 Mar 2019 10:00:00 CEST":                                "2019-03-05T08:00:00",
		"Tue, 05-Mar-19 10:00:00 GMT":                                  "2019-03-05T10:00:00",
		"Tue Mar 5 10:00:00 2019":                                      "2019-03-05T10:00:00",
		"Tue Mar 05 2019 10:00:00 GMT+0100 (Central European Standard": "2019-03-05T09:00:00",
		"2019-03-05T10:00:00":                                          "2019-03-05T10:00:00",
		"2019-03-05T10:00:00+0200":                                     "2019-03-05T08:00:00",
		"2019-03-05T10:00:00.123Z":                                     "2019-03-05T10:00:00",
		"2019-03-05 10:00:00.5 +02:00":                                 "2019-03-05T08:00:00",
		"2019/03/05 10:00":                                             "2019-03-05T10:00:00",
		"3/5/2019 1:00:00 PM":                                          "2019-03-05T13:00:00",
		"3/5/2019 1:00PM":                                              "2019-03-05T13:00:00",
		"25/12/2019 10:00":                                             "2019-12-25T10:00:00",
		"05.03.2019 10:00:00 +0100":                                    "2019-03-05T09:00:00",
		"Tue, 5 Mar 2019 10:00:00 +9999":                               "2019-03-05T10:00:00",
		"2019-13-05 10:00":                                             "0001-01-01T00:00:00",
		"2019-02-30 10:00":                                             "0001-01-01T00:00:00",
		"yesterday":                                                    "0001-01-01T00:00:00",
	} {
		if got := parseDate(in).UTC().Format("2006-01-02T15:04:05"); got != want {
			t.Errorf("%q is %s, want %s", in, got, want)
		}
	}
}

func TestCharsetsOfManySetsAreDecoded(t *testing.T) {
	for _, c := range []struct{ charset, in, want string }{
		{"iso-2022-jp", "\x1b$BF|K\\\x1b(B abc \x1b(IJ]6\x1b(B", "日本 abc ﾊﾝｶ"},
		{"iso-2022-jp-2", "\x1b$A::WV\x1b(B \x1b$(CGQ19>n\x1b(B caf\x1b.A\x1bNi", "汉字 한국어 café"},
		{"iso-2022-cn", "\x1b$)A\x0e::WV\x0f abc", "汉字 abc"},
		{"iso-2022-jp", "\x1b$BF", "\ufffd"},
		{"utf-7", "a +- b +AGEAYg-c +2D3eAA- +", "a + b abc 😀 +"},
		{"utf-7", "äö", "äö"},
		{"utf-16", "\xff\xfea\x00", "a"},
		{"utf-16", "a\x00b\x00", "ab"},
		{"utf-16", "\x00a\x00b", "ab"},
		{"johab", "\xd0e\x8a\x82\xb4\xe1 \xe0\x31", "한국어 伽"},
		{"ISO_8859-1:1987", "\x80\xe4", "€ä"},
		{"never-heard-of", "\xe4", "ä"},
	} {
		if got := strings.TrimPrefix(charset.Decode([]byte(c.in), c.charset), "\ufeff"); got != c.want {
			t.Errorf("%s %q is %q, want %q", c.charset, c.in, got, c.want)
		}
	}
}

// TestBadLinesLeaveTheAuthorUnclear keeps what is read from what is proven: a From field that some
// programs find behind a bad line, and some do not, is nobody's that DMARC could pass for.
func TestBadLinesLeaveTheAuthorUnclear(t *testing.T) {
	for _, name := range []string{"header-line-without-field", "header-line-without-colon", "header-begins-with-bom"} {
		raw, err := os.ReadFile("testdata/reading/" + name + ".eml")
		if err != nil {
			t.Fatal(err)
		}
		if got := ReadPossibleAuthors(raw); !got.Unclear || !slices.Contains(got.Domains, "other.test") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestBadLinesAreReadOnce has a header of bad lines with a field behind each, and one without any.
func TestBadLinesAreReadOnce(t *testing.T) {
	for _, raw := range []string{
		strings.Repeat("x\nX-A:\n", 1<<19),
		strings.Repeat("x\n", 1<<21),
		"Subject: s\n" + strings.Repeat("x\n", 1<<21) + "\n",
		strings.Repeat(strings.Repeat("x", 30<<10)+"\nX-A: \n", 100),
	} {
		began := time.Now()
		scanBytes(t, []byte(raw))
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%d bytes took %s", len(raw), took)
		}
	}
}

func (want reading) check(t *testing.T, raw []byte) {
	t.Helper()
	r := bytes.NewReader(raw)
	root := scanBytes(t, raw)
	s, err := Summarize(r, root)
	if err != nil {
		t.Fatal(err)
	}
	body, err := ReadRawBody(r, root, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if want.subject != "" && s.Subject != want.subject {
		t.Errorf("subject %q, want %q", s.Subject, want.subject)
	}
	if want.from != "" && (len(s.From) != 1 || s.From[0].Email() != want.from) {
		t.Errorf("from %v, want %s", s.From, want.from)
	}
	if got := s.Date.UTC().Format("2006-01-02T15:04:05"); want.date != "" && got != want.date {
		t.Errorf("date %s, want %s", got, want.date)
	}
	hasInOrder(t, "text", body.Text, want.text)
	hasInOrder(t, "HTML", body.HTML, want.html)
	var files []string
	for _, a := range s.Attachments {
		files = append(files, a.Filename)
	}
	if want.files != nil && !slices.Equal(files, want.files) {
		t.Errorf("attachments %q, want %q", files, want.files)
	}
	if want.content != "" {
		if len(s.Attachments) == 0 {
			t.Fatal("no attachment")
		}
		content, err := io.ReadAll(Open(r, s.Attachments[0].Part))
		if err != nil || string(content) != want.content || s.Attachments[0].Size != int64(len(content)) {
			t.Errorf("content %q of size %d, %v, want %q", content, s.Attachments[0].Size, err, want.content)
		}
	}
}

func hasInOrder(t *testing.T, what, got string, want []string) {
	t.Helper()
	rest := got
	for _, w := range want {
		_, after, ok := strings.Cut(rest, w)
		if !ok {
			t.Errorf("%s %q has no %q in its place", what, got, w)
			return
		}
		rest = after
	}
}

func TestSloppyMessagesAreRead(t *testing.T) {
	for _, want := range readings {
		t.Run(want.file, func(t *testing.T) {
			raw, err := os.ReadFile("testdata/reading/" + want.file + ".eml")
			if err != nil {
				t.Fatal(err)
			}
			want.check(t, raw)
		})
	}
}

func TestCharsetLabelsAreKnown(t *testing.T) {
	raw, err := os.ReadFile("testdata/reading/charset-labels.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Label  string `json:"label"`
		Body   []byte `json:"body_base64"`
		Expect string `json:"expect"`
	}
	if err := json.Unmarshal(raw, &rows); err != nil || len(rows) != 67 {
		t.Fatal(len(rows), err)
	}
	for _, row := range rows {
		if got := charset.Decode(row.Body, row.Label); got != row.Expect {
			t.Errorf("%s: %q, want %q", row.Label, got, row.Expect)
		}
		raw := message("Content-Type: text/plain; charset="+row.Label+"\nContent-Transfer-Encoding: base64\n", base64.StdEncoding.EncodeToString(row.Body)+"\n")
		if body, err := ReadRawBody(strings.NewReader(raw), scanBytes(t, []byte(raw)), 1<<20); err != nil || body.Text != row.Expect {
			t.Errorf("a message in %s: %q, want %q", row.Label, body.Text, row.Expect)
		}
	}
}
