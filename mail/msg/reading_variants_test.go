package msg

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDatesOfOtherWriters has dates of the shapes that writers are seen to use.
func TestDatesOfOtherWriters(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"Mon, 02 Mar 2020 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"Mon,02 Mar 2020 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00 +0100", "2020-03-02T09:00:00"},
		{"2 Mar 2020 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"2 Mar 20 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"2 Mar 99 10:00:00 GMT", "1999-03-02T10:00:00"},
		{"2 Mar 120 10:00:00 GMT", "2020-03-02T10:00:00"},
		{"Monday, 2 March 2020 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"Monday, March 2, 2020 10:00:00 AM GMT", "2020-03-02T10:00:00"},
		{"Mon, Mar 2 2020 10:00:00 GMT", "2020-03-02T10:00:00"},
		{"March 2, 2020 10:00 PM", "2020-03-02T22:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 PM +0000", "2020-03-02T22:00:00"},
		{"Mon, 2 Mar 2020 12:00:00 AM +0000", "2020-03-02T00:00:00"},
		{"Mon, 2 Mar 2020 12:30 PM", "2020-03-02T12:30:00"},
		{"Mon, 2 Mar 2020 10:00:00 EST", "2020-03-02T15:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 edt", "2020-03-02T14:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 PST", "2020-03-02T18:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 CET", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 MEZ", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 JST", "2020-03-02T01:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 UT", "2020-03-02T10:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 UTC", "2020-03-02T10:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 (CET)", "2020-03-02T10:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 +0100 (CET)", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 +0100 (GMT+01:00)", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 (comment) +0100", "2020-03-02T09:00:00"},
		{"Mon (x), 2 (y) Mar 2020 10 : 00 : 00 +0100", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 -0000", "2020-03-02T10:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 +-0100", "2020-03-02T10:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 +01", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 +1:00", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 +100", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 + 0100", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 GMT+1", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 GMT +0100", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 GMT-5", "2020-03-02T15:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 UTC+05:30", "2020-03-02T04:30:00"},
		{"Mon, 2 Mar 2020 10:00:00.123 +0100", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10.00.00 +0100", "2020-03-02T09:00:00"},
		{"Mon, 2-Mar-2020 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"Mon, 2/Mar/2020 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar, 2020 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020, 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"Mon. 2 Mar. 2020 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"Mon, 2nd Mar 2020 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"Mon Mar  2 10:00:00 2020 +0100", "2020-03-02T09:00:00"},
		{"Mon Mar  2 10:00:00 GMT 2020", "2020-03-02T10:00:00"},
		{"Mon Mar  2 10:00:00 +0100 2020", "2020-03-02T09:00:00"},
		{"Mon Mar  2 10:00:00 CET 2020", "2020-03-02T09:00:00"},
		{"2020-03-02T10:00:00Z", "2020-03-02T10:00:00"},
		{"2020-03-02T10:00:00+01:00", "2020-03-02T09:00:00"},
		{"2020-03-02T10:00+01", "2020-03-02T09:00:00"},
		{"2020-03-02 10:00:00 UTC", "2020-03-02T10:00:00"},
		{"2020-03-02 10:00:00 CET", "2020-03-02T09:00:00"},
		{"2020-03-02", "2020-03-02T00:00:00"},
		{"Mon, 2 Mar 2020", "2020-03-02T00:00:00"},
		{"2.3.2020 10:00", "2020-03-02T10:00:00"},
		{"\tMon, 2 Mar 2020 10:00:00 +0100 ", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020\t10:00:00\t+0100", "2020-03-02T09:00:00"},
		{"\"Mon, 2 Mar 2020 10:00:00 +0100\"", "2020-03-02T09:00:00"},
		{"lun., 2 mars 2020 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"Mon, 2 Sept 2020 10:00:00 +0100", "2020-09-02T09:00:00"},
		{"Mon, 2 MAR 2020 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"mon, 2 mar 2020 10:00:00 z", "2020-03-02T10:00:00"},
		{"Xyz, 2 Mar 2020 10:00:00 +0100", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 A", "2020-03-02T10:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 +0100 +0200", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 =?utf-8?q?+0100?=", "2020-03-02T10:00:00"},
		{"Mon, 02 Mar 2020 10:00:00 Europe/Berlin", "2020-03-02T09:00:00"},
		{"Mon, 2 Mar 2020 23:59:60 +0000", "2020-03-03T00:00:00"},
		{"Mon, 2 Mar 2020 10:00:00 --0100", "2020-03-02T10:00:00"},
		{"Mon, 2 Mar 2020 25:00:00 +0000", "0001-01-01T00:00:00"},
		{"1583143200", "0001-01-01T00:00:00"},
	} {
		if got := parseDate(c.in).UTC().Format("2006-01-02T15:04:05"); got != c.want {
			t.Errorf("%q is %s, want %s", c.in, got, c.want)
		}
	}
}

// TestNamesOfOtherWriters has the ways in which a file is given its name; none leads out of a
// directory, nor ends a quoted string.
func TestNamesOfOtherWriters(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{"Content-Disposition: attachment; filename=\"=?utf-8?B?w6QucGRm?=\"", "ä.pdf"},
		{"Content-Disposition: attachment; filename==?utf-8?B?w6QucGRm?=", "ä.pdf"},
		{"Content-Disposition: attachment; filename=\"=?utf-8?Q?=C3=A4?= =?utf-8?Q?=C3=B6.pdf?=\"", "äö.pdf"},
		{"Content-Disposition: attachment; filename=\"=?utf-8?Q?=C3=A4?=\n =?utf-8?Q?=C3=B6.pdf?=\"", "äö.pdf"},
		{"Content-Disposition: attachment; filename=\"=?iso-8859-1?Q?=E4_b?=.pdf\"", "ä b.pdf"},
		{"Content-Disposition: attachment; filename=\"a =?utf-8?Q?=C3=A4?=.pdf\"", "a ä.pdf"},
		{"Content-Disposition: attachment; filename*=UTF-8''%c3%a4%20b.pdf", "ä b.pdf"},
		{"Content-Disposition: attachment; filename*=\"UTF-8''%c3%a4.pdf\"", "ä.pdf"},
		{"Content-Disposition: attachment; filename*=iso-8859-1'en'%E4.pdf", "ä.pdf"},
		{"Content-Disposition: attachment; filename*=''%C3%A4.pdf", "ä.pdf"},
		{"Content-Disposition: attachment; filename*=%C3%A4.pdf", "ä.pdf"},
		{"Content-Disposition: attachment; filename*=plain.pdf", "plain.pdf"},
		{"Content-Disposition: attachment; filename*=utf-8''100%.pdf", "100%.pdf"},
		{"Content-Disposition: attachment; filename*=utf-8''%zz.pdf", "%zz.pdf"},
		{"Content-Disposition: attachment; filename*0*=utf-8''%C3; filename*1*=%A4.pdf", "ä.pdf"},
		{"Content-Disposition: attachment; filename*1*=%A4.pdf; filename*0*=utf-8''%C3", "ä.pdf"},
		{"Content-Disposition: attachment; filename*0=a; filename*1=b; filename*2=c.pdf", "abc.pdf"},
		{"Content-Disposition: attachment; filename*0=\"a b\"; filename*1=\" c.pdf\"", "a b c.pdf"},
		{"Content-Disposition: attachment; filename*00=a; filename*01=b.pdf", "ab.pdf"},
		{"Content-Disposition: attachment; filename*0=a; filename*2=c.pdf", "ac.pdf"},
		{"Content-Disposition: attachment; FILENAME=a.pdf", "a.pdf"},
		{"Content-Disposition: ATTACHMENT; FileName=\"a.pdf\"", "a.pdf"},
		{"Content-Disposition: attachment; filename = \"a.pdf\"", "a.pdf"},
		{"Content-Disposition: attachment;filename=a.pdf", "a.pdf"},
		{"Content-Disposition: attachment;\n\tfilename=a.pdf", "a.pdf"},
		{"Content-Disposition: attachment;; filename=a.pdf;", "a.pdf"},
		{"Content-Disposition: attachment; filename=a;b.pdf", "a"},
		{"Content-Disposition: attachment; filename=\"a;b.pdf\"", "a;b.pdf"},
		{"Content-Disposition: attachment; filename=\"a\\\"b.pdf\"", "a_b.pdf"},
		{"Content-Disposition: attachment; filename='a.pdf'", "a.pdf"},
		{"Content-Disposition: attachment; filename=a b c.pdf", "a b c.pdf"},
		{"Content-Disposition: attachment; filename=\"ä.pdf\"", "ä.pdf"},
		{"Content-Disposition: attachment; filename=ä.pdf", "ä.pdf"},
		{"Content-Disposition: attachment; filename=\"\xe4.pdf\"", "ä.pdf"},
		{"Content-Disposition: attachment; filename=\"../../etc/passwd\"", "passwd"},
		{"Content-Disposition: attachment; filename=\"C:\\\\dir\\\\a.pdf\"", "a.pdf"},
		{"Content-Disposition: attachment; filename=\"%E4%BC%9A.pdf\"", "%E4%BC%9A.pdf"},
		{"Content-Disposition: attachment, filename=a.pdf", "a.pdf"},
		{"Content-Disposition: attachment filename=\"a.pdf\"", "a.pdf"},
		{"Content-Disposition: attachment; filename=a(1).pdf", "a(1).pdf"},
		{"Content-Disposition: attachment; filename=\"a(1).pdf\"", "a(1).pdf"},
		{"Content-Disposition: attachment; filename=[a].pdf", "[a].pdf"},
		{"Content-Disposition: attachment; filename=a=b.pdf", "a=b.pdf"},
		{"Content-Disposition: attachment; size=3; filename=a.pdf", "a.pdf"},
		{"Content-Disposition: \"attachment\"; filename=a.pdf", "a.pdf"},
		{"Content-Disposition: x-unknown; filename=a.pdf", "a.pdf"},
		{"Content-Disposition: attachment; filename=\"a\n b.pdf\"", "a b.pdf"},
		{"Content-Disposition: attachment; filename=\"=?unknown-8bit?Q?=E4.pdf?=\"", "ä.pdf"},
		{"Content-Disposition: attachment; filename*=koi8-r''%F0.pdf", "П.pdf"},
		{"Content-Disposition: attachment; filename*0*=utf-8''a%20; filename*1=b%20c.pdf", "a b%20c.pdf"},
		{"Content-Disposition: attachment; filename*0*=utf-8''%E4%BC; filename*1*=%9A%E8; filename*2*=%AE%AE.pdf", "会议.pdf"},
		{"Content-Disposition: attachment; filename*0=\"=?utf-8?B?5Lya6K6u?=\"; filename*1=\"=?utf-8?B?LnBkZg==?=\"", "会议.pdf"},
		{"Content-Disposition: attachment; filename*=gb2312''%BB%E1%D2%E9.pdf", "会议.pdf"},
		{"Content-Disposition: attachment; filename=\"a.pdf\"\nContent-Disposition: inline; filename=b.pdf", "b.pdf"},
		{"Content-Type: application/x; name=a.pdf", "a.pdf"},
		{"Content-Type: application/x; name*=utf-8''%C3%A4.pdf", "ä.pdf"},
		{"Content-Type: application/x;\n name=\"=?UTF-8?B?w6QucGRm?=\"", "ä.pdf"},
		{"Content-Type: application/x-pdf; charset=utf-8; name=\"ä b.pdf\"", "ä b.pdf"},
		{"Content-type:application/x;name=a.pdf", "a.pdf"},
		{"CONTENT-TYPE : application/x; name=a.pdf", "a.pdf"},
	} {
		raw := mixed("mixed", plainA, c.header+"\nContent-Type: application/x\n\nx")
		if !strings.Contains(c.header, "isposition") {
			raw = mixed("mixed", plainA, c.header+"\n\nx")
		}
		t.Run(c.header, func(t *testing.T) { reading{files: []string{c.want}}.check(t, []byte(raw)) })
	}
}

// TestEncodingsOfOtherWriters has transfer encodings as they are written and misused.
func TestEncodingsOfOtherWriters(t *testing.T) {
	for _, c := range []struct{ encoding, body, want string }{
		{"base64", "Y29kZWQ=", "coded"},
		{"BASE64", "Y29kZWQ", "coded"},
		{"base64", "Y29\nkZW\nQ=", "coded"},
		{"base64", " Y29k ZWQ= ", "coded"},
		{"base64", "Y29kZWQ=\n\n-- \nfooter of a list", "coded"},
		{"base64", "Y29kZWQ=Y29kZWQ=", "codedcoded"},
		{"base64", "Y29k!ZWQ=", "coded"},
		{"base64", "Y29kZWQ==", "coded"},
		{"base64", "Y29kZWQ=====", "coded"},
		{"base64", "Zm9v\r\nYmFy", "foobar"},
		{"base64;", "Y29kZWQ=", "coded"},
		{"\"base64\"", "Y29kZWQ=", "coded"},
		{"base64 (x)", "Y29kZWQ=", "coded"},
		{"x-base64", "Y29kZWQ=", "coded"},
		{"base 64", "Y29kZWQ=", "coded"},
		{"b", "Y29kZWQ=", "Y29kZWQ="},
		{"base64, 8bit", "Y29kZWQ=", "coded"},
		{"quoted-printable", "a=3Db", "a=b"},
		{"quoted-printable", "a=3db", "a=b"},
		{"quoted-printable", "a=\nb", "ab"},
		{"quoted-printable", "a= \nb", "ab"},
		{"quoted-printable", "a=\t\nb", "ab"},
		{"quoted-printable", "a=", "a"},
		{"quoted-printable", "a=zz", "a=zz"},
		{"quoted-printable", "a=C3=A4", "aä"},
		{"quoted-printable", "ä=C3=A4", "ää"},
		{"quoted-printable", "a=3", "a=3"},
		{"quoted-printable", "a=0D=0Ab", "a\nb"},
		{"quoted-printable", "x   \ny", "x\ny"},
		{"Quoted-Printable ", "a=3Db", "a=b"},
		{"quotedprintable", "a=3Db", "a=b"},
		{"quoted-printable.", "a=3Db", "a=b"},
		{"qp", "a=3Db", "a=b"},
		{"7bit", "a=3D", "a=3D"},
		{"8bit", "ä", "ä"},
		{"8-bit", "ä", "ä"},
		{"8 bit", "ä", "ä"},
		{"binary", "ä", "ä"},
		{"none", "ä", "ä"},
		{"utf-8", "ä", "ä"},
		{"", "a=3D", "a=3D"},
		{"7-bit", "a", "a"},
		{"text/plain", "a", "a"},
		{"8bit; charset=x", "ä", "ä"},
		{"x-uuencode", "begin 644 a\n#0V%T\n`\nend", "Cat"},
		{"uuencode", "begin 644 a\n#0V%T\n \nend", "Cat"},
		{"x-uue", "begin 644 a b.txt\n#0V%T\nend", "Cat"},
		{"x-uuencoded", "begin 644 a\n#0V%T", "Cat"},
		{"uu", "begin 644 a\n#0V%T\n`\nend", "Cat"},
	} {
		raw := message("Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: "+c.encoding+"\n", c.body)
		t.Run(c.encoding, func(t *testing.T) { reading{text: []string{c.want}}.check(t, []byte(raw)) })
	}
}

// TestHeadersOfOtherWriters has headers with lines that are none, and subjects in many forms.
func TestHeadersOfOtherWriters(t *testing.T) {
	for _, c := range []struct{ raw, subject string }{
		{"Subject:found\nFrom:b@o.test\n\nbody", "found"},
		{"subject : found\nFrom: b@o.test\n\nbody", "found"},
		{"Subject\t: found\nFrom: b@o.test\n\nbody", "found"},
		{"SUBJECT: found\nfrom: b@o.test\n\nbody", "found"},
		{">From x Mon\nSubject: found\nFrom: b@o.test\n\nbody", "found"},
		{"From x Mon\nSubject: found\nFrom: b@o.test\n\nbody", "found"},
		{"From - Mon\r\nSubject: found\r\nFrom: b@o.test\r\n\r\nbody", "found"},
		{"X-A: 1\n>From x Mon\nSubject: found\nFrom: b@o.test\n\nbody", "found"},
		{"X-A: 1\njunk\nSubject: found\nFrom: b@o.test\n\nbody", "found"},
		{"X-A: 1\njunk with blanks\nSubject: found\nFrom: b@o.test\n\nbody", "found"},
		{"X-A: 1\njunk with: blank in name\nSubject: found\nFrom: b@o.test\n\nbody", "found"},
		{"X-A: 1\n: no name\nSubject: found\nFrom: b@o.test\n\nbody", "found"},
		{"X-A: 1\n\xff\xfe: x\nSubject: found\nFrom: b@o.test\n\nbody", "found"},
		{"X-A: 1\nX-Ä: x\nSubject: found\nFrom: b@o.test\n\nbody", "found"},
		{"\ufeffFrom: b@o.test\nSubject: found\n\nbody", "found"},
		{" leading: x\nFrom: b@o.test\nSubject: found\n\nbody", "found"},
		{"\tfolded\nFrom: b@o.test\nSubject: found\n\nbody", "found"},
		{"From: b@o.test\nSubject: fo\n und\n\nbody", "fo und"},
		{"From: b@o.test\nSubject: fo\n\tund\n\nbody", "fo und"},
		{"From: b@o.test\nSubject:\n found\n\nbody", "found"},
		{"From: b@o.test\nSubject: \n \n found\n\nbody", "found"},
		{"From: b@o.test\nSubject: fo\n \n und\n\nbody", "fo  und"},
		{"From: b@o.test\r\nSubject: found\r\n \r\nbody: x\r\n\r\nbody", "found"},
		{"From: b@o.test\rSubject: found\r\rbody", "found"},
		{"From: b@o.test\nSubject: found\r\n\nbody", "found"},
		{"From: b@o.test\nSubject: =?utf-8?q?fo?= =?utf-8?q?und?=\n\nbody", "found"},
		{"From: b@o.test\nSubject: =?utf-8?q?fo?=\n =?utf-8?q?und?=\n\nbody", "found"},
		{"From: b@o.test\nSubject: =?utf-8?Q?=C3?= =?utf-8?Q?=A4?=\n\nbody", "ä"},
		{"From: b@o.test\nSubject: =?utf-8?B?w6Q?=\n\nbody", "ä"},
		{"From: b@o.test\nSubject: =?utf-8?b?w6Q=?=x\n\nbody", "äx"},
		{"From: b@o.test\nSubject: x=?utf-8?b?w6Q=?=\n\nbody", "xä"},
		{"From: b@o.test\nSubject: =?UTF8?Q?=C3=A4?=\n\nbody", "ä"},
		{"From: b@o.test\nSubject: =?utf-8*de?Q?=C3=A4?=\n\nbody", "ä"},
		{"From: b@o.test\nSubject: =?utf-8?Q?a b?=\n\nbody", "a b"},
		{"From: b@o.test\nSubject: =?utf-8?Q?a\n b?=\n\nbody", "a b"},
		{"From: b@o.test\nSubject: =?utf-8?Q??=\n\nbody", ""},
		{"From: b@o.test\nSubject: =?utf-8?Q?a?b?=\n\nbody", "a?b"},
		{"From: b@o.test\nSubject: =?nope?Q?=E4?=\n\nbody", "=?nope?Q?=E4?="},
		{"From: b@o.test\nSubject: \"=?utf-8?Q?=C3=A4?=\"\n\nbody", "\"ä\""},
		{"From: b@o.test\nSubject: =?utf-8?Q?=C3=A4\n\nbody", "=?utf-8?Q?=C3=A4"},
		{"From: b@o.test\nSubject: =?iso-2022-jp?B?GyRCMnE1RBsoQg==?=\n\nbody", "会議"},
		{"From: b@o.test\nSubject: =?gb2312?B?u+HS6Q==?=\n\nbody", "会议"},
		{"From: b@o.test\nSubject: =?big5?B?t3zEsw==?=\n\nbody", "會議"},
		{"From: b@o.test\nSubject: =?utf-8?Q?a_b?= c\n\nbody", "a b c"},
		{"From: b@o.test\nSubject: one\nSubject: two\n\nbody", "two"},
		{"HTTP/1.1 200 OK\nFrom: b@o.test\nSubject: found\n\nbody", "found"},
		{"MAIL FROM:<a@b>\nFrom: b@o.test\nSubject: found\n\nbody", "found"},
		{"From: b@o.test\nSubject: found\nContent-Type: text/plain; charset=\n\nbody", "found"},
		{"From: b@o.test\nSubject: found\nContent-Type\n\nbody", "found"},
		{"From: b@o.test\nSubject: found\n.\n\nbody", "found"},
		{"From: b@o.test\nSubject: found", "found"},
		{"From: b@o.test\nSubject: found\n", "found"},
	} {
		t.Run(c.raw, func(t *testing.T) { reading{subject: c.subject, from: "b@o.test"}.check(t, []byte(c.raw)) })
	}
}

// A node is a part of a message that a test makes: a text or a multipart.
type node struct {
	subtype string // of text or multipart
	word    string // that a text is made of
	parts   []*node
}

// randomNode makes a tree, of which an alternative has one branch for each form: this server takes
// one branch, where the RFC joins several of one form. form is what texts are; "": either.
func randomNode(r *rand.Rand, depth int, form string, words *int) *node {
	if depth == 0 || r.IntN(4) == 0 {
		*words++
		if form == "" {
			form = []string{"plain", "html"}[r.IntN(2)]
		}
		return &node{subtype: form, word: fmt.Sprintf("word%dend", *words)}
	}
	kind := r.IntN(4)
	switch {
	case kind == 0 && form == "":
		return &node{subtype: "alternative", parts: []*node{randomNode(r, depth-1, "plain", words), randomNode(r, depth-1, "html", words)}}
	case kind == 1:
		return &node{subtype: "related", parts: []*node{randomNode(r, depth-1, form, words)}}
	}
	n := &node{subtype: "mixed"}
	for range 1 + r.IntN(4) {
		n.parts = append(n.parts, randomNode(r, depth-1, form, words))
	}
	return n
}

func (n *node) String() string {
	if n.word != "" {
		return "Content-Type: text/" + n.subtype + "\n\n" + n.word + "\n"
	}
	var parts []string
	for _, p := range n.parts {
		parts = append(parts, p.String())
	}
	return nested(n.subtype, fmt.Sprintf("b%p", n), parts...)
}

// bodies is the algorithm of RFC 8621 section 4.1.4, as it stands there, for texts without names
// and dispositions. A list is nil where the RFC's is null.
func bodies(parts []*node, multipart string, inAlternative bool, text, html *[]string) {
	textLength, htmlLength := -1, -1
	if text != nil {
		textLength = len(*text)
	}
	if html != nil {
		htmlLength = len(*html)
	}
	for i, part := range parts {
		switch {
		case part.word == "":
			bodies(part.parts, part.subtype, inAlternative || part.subtype == "alternative", text, html)
		case i > 0 && multipart == "related": // an attachment
		case multipart == "alternative":
			if part.subtype == "plain" && text != nil {
				*text = append(*text, part.word)
			}
			if part.subtype == "html" && html != nil {
				*html = append(*html, part.word)
			}
		default:
			if inAlternative {
				if part.subtype == "plain" {
					html = nil
				} else {
					text = nil
				}
			}
			if text != nil {
				*text = append(*text, part.word)
			}
			if html != nil {
				*html = append(*html, part.word)
			}
		}
	}
	if multipart == "alternative" && text != nil && html != nil {
		if textLength == len(*text) && htmlLength != len(*html) {
			*text = append(*text, (*html)[htmlLength:]...)
		}
		if htmlLength == len(*html) && textLength != len(*text) {
			*html = append(*html, (*text)[textLength:]...)
		}
	}
}

// TestBodiesAgainstRFC8621 compares what is read of random trees with the RFC's own algorithm.
// What has one form alone gives no other.
func TestBodiesAgainstRFC8621(t *testing.T) {
	word := regexp.MustCompile(`word\d+end`)
	bad := 0
	for seed := range uint64(400) {
		words := 0
		root := randomNode(rand.New(rand.NewPCG(seed, 8621)), 4, "", &words)
		var text, html []string
		bodies([]*node{root}, "mixed", false, &text, &html)
		raw := []byte("From: a@b.test\n" + root.String())
		body, err := ReadRawBody(bytes.NewReader(raw), scanBytes(t, raw), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if got := word.FindAllString(body.Text, -1); body.Text != "" && !slices.Equal(got, text) {
			bad++
			t.Errorf("seed %d: text %v, want %v of\n%s", seed, got, text, raw)
		}
		if got := word.FindAllString(body.HTML, -1); body.HTML != "" && !slices.Equal(got, html) {
			bad++
			t.Errorf("seed %d: HTML %v, want %v of\n%s", seed, got, html, raw)
		}
		if bad > 5 {
			return
		}
	}
}
