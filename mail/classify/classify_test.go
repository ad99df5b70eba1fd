package classify

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/msg"
)

// readText reads a message; its texts come out as "code:text".
func readText(t testing.TB, raw string, e Evidence) (*Reading, []string) {
	t.Helper()
	root, err := msg.Scan(strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Read(strings.NewReader(raw), root, e)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for i := range r.tokens {
		texts = append(texts, kinds[r.refs[i].kind].code+":"+string(r.textOf(i)))
	}
	return r, texts
}

func mail(header, body string) string {
	return "From: Ann <ann@mail.example.co.uk>\r\nTo: b@example.org\r\nSubject: s\r\nDate: Mon, 2 Nov 2026 10:00:00 +0000\r\nMessage-ID: <1@example.co.uk>\r\n" +
		header + "\r\n" + body
}

func html(body string) string { return mail("Content-Type: text/html; charset=utf-8\r\n", body) }

// TestTokens: want are tokens that a message has, without are those that it does not have.
func TestTokens(t *testing.T) {
	for name, tc := range map[string]struct {
		raw           string
		want, without string // divided by |
	}{
		"words": {mail("", "The Quick brown-fox, don't go to Übergrößenträger\r\n"),
			"word:the|word:quick|word:brown|word:fox|word:don|word:übergrößenträger|phrase:the quick|fact:has no HTML|fact:has few words", "word:go|word:Quick"},
		"subject":                {strings.Replace(mail("", "x"), "Subject: s", "Subject: =?utf-8?Q?Gro=C3=9Fer?= GEWINN", 1), "subject:großer|subject:gewinn", "word:gewinn"},
		"long words and numbers": {mail("", strings.Repeat("a", 34)+" 123456 12 abc123"), "long_word:3|number:6|word:abc123", "number:2"},
		"money":                  {mail("", "win $1,000,000.00 or €250 or $ 5"), "money:$7|money:€3|money:$1", "number:3"},
		"author": {mail("", ""), "sender:ann@mail.example.co.uk|sender_domain:mail.example.co.uk|sender_domain:example.co.uk|sender_ending:.uk|sender_name:ann|fact:has no words",
			"fact:has a Message-ID of another domain"},
		"no header":    {"\r\nhello", "fact:names no author|fact:has no date|fact:has no Message-ID|fact:names no recipient|fact:has no subject|word:hello", ""},
		"answers":      {mail("In-Reply-To: <1@x>\r\nReply-To: c@other.example\r\n", ""), "fact:answers another message|fact:wants answers at another domain", ""},
		"false answer": {strings.Replace(mail("", ""), "Subject: s", "Subject: RE: CHEAP STUFF", 1), "fact:looks like an answer but is none|fact:has a subject in capitals", ""},
		"list": {mail("List-Id: Friends <Friends.example.org>\r\nX-Mailer: Some Mailer 7\r\nX-Odd: 1\r\nPrecedence: bulk\r\n", ""),
			"list:friends.example.org|mailer:mailer|header:x-odd|fact:is marked as bulk|fact:came through a list", "header:subject|header:x-mailer"},
		"folded header": {mail("X-One: a\r\n b: c\r\n\tX-Two: d\r\n", ""), "header:x-one", "header:b|header:x-two"},
		"links": {mail("", "see https://www.Shop.example.co.uk/a?b=verylongword and www.plain.example or http://u@1.2.3.4:80/x"),
			"link:shop.example.co.uk|link_site:example.co.uk|link_ending:.uk|link:plain.example|link:1.2.3.4|fact:has a link to a number in place of a name|fact:has a link with a user name in it|word:see|word:and",
			"word:verylongword|word:https"},
		"quoted-printable": {mail("Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n", "Gr=FC=DFe und soft=\r\nbreak =zz 50=\r\n"),
			"word:grüße|word:softbreak|content_type:iso-8859-1", "word:soft"},
		"base64": {mail("Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n", base64.StdEncoding.EncodeToString([]byte("hidden word"))[:8]+"\r\n!"+base64.StdEncoding.EncodeToString([]byte("hidden word"))[8:]),
			"word:hidden|word:word", ""},
		"koi8-r":            {mail("Content-Type: text/plain; charset=koi8-r\r\n", "\xf0\xd2\xc9\xd7\xc5\xd4"), "word:привет", ""},
		"gb2312":            {mail("Content-Type: text/plain; charset=gb2312\r\n", "\xc4\xe3\xba\xc3\xca\xc0"), "word:你好|word:好世", ""},
		"pairs":             {mail("Content-Type: text/plain; charset=utf-8\r\n", "你好世界。再见 abc"), "word:你好|word:好世|word:世界|word:再见|word:abc", "word:界再"},
		"latin without say": {mail("", "caf\xe9s"), "word:cafés", ""},
		"disguised letters": {mail("Content-Type: text/plain; charset=utf-8\r\n", "ＶＩＡＧＲＡ and c\u200bial\u00adis 𝐟𝐫𝐞𝐞"), "word:viagra|word:cialis|word:free|fact:has invisible characters in words", ""},
		"pictures":          {mail("Content-Type: text/plain; charset=utf-8\r\n", "🎁 now"), "word:🎁|word:now", ""},
		"comment in a word": {html("<p>V<!-- x > -->iagra and ci<b>al</b>is"), "word:viagra|word:cialis|fact:has comments in words|fact:has HTML only", "word:iagra"},
		"entities":          {html("f&uuml;r &#70;&#x72;ee&nbsp;money &unknown; a&shy;bc&zwnj;def &#8203;&lt;tag&gt;"), "word:für|word:free|word:money|word:unknown|word:abcdef|word:tag", ""},
		"blocks divide":     {html("<td>one</td><td>two</td><br>three<p>four"), "word:one|word:two|word:three|word:four", "word:onetwo"},
		"style and script":  {html("<style>td { color: secretive }</style>seen<SCRIPT>var hiddenword</SCRIPT >shown"), "word:seenshown", "word:secretive|word:hiddenword"},
		"links of HTML":     {html(`<a href="https://bad.example/x">good</a><img src='http://img.example/y'>`), "link:bad.example|link:img.example|word:good|fact:has an image in place of text", "word:href"},
		"hidden text":       {html(`<div style="display: none">x</div>`), "fact:hides text", ""},
		"small text":        {html(`<div style="font-size:0px">x</div>`), "fact:hides text", ""},
		"readable text":     {html(`<div style="font-size:14px;display:block">x</div>`), "", "fact:hides text"},
		"unclosed":          {html("one < two <b three"), "word:one|word:two|word:three", ""},
		"unclosed comment":  {html("one <!-- two"), "word:one|word:two", ""},
		"attachment": {mail("Content-Type: multipart/mixed; boundary=b\r\n", "--b\r\nContent-Type: application/zip; name=x\r\nContent-Disposition: attachment; filename=\"Invoice.pdf.EXE\"\r\n\r\nsecretword\r\n--b\r\nContent-Type: text/plain\r\n\r\nshownword\r\n--b--\r\n"),
			"attachment:.exe|fact:has a file with two endings|fact:has attachments|content_type:application/zip|word:shownword", "word:secretword"},
		"both alternatives": {mail("Content-Type: multipart/alternative; boundary=b\r\n", "--b\r\n\r\n"+strings.Repeat("plain ", 20<<10)+"\r\n--b\r\nContent-Type: text/html\r\n\r\n<p>rich\r\n--b--\r\n"),
			"word:plain|word:rich", "fact:has HTML only"},
		"a message in it": {mail("Content-Type: message/rfc822\r\n", "Subject: inner\r\n\r\ninside"), "word:inside", "subject:inner"},
	} {
		t.Run(name, func(t *testing.T) {
			_, have := readText(t, tc.raw, Evidence{})
			for _, want := range strings.Split(tc.want, "|") {
				if want != "" && !slices.Contains(have, want) {
					t.Errorf("no %s in %q", want, have)
				}
			}
			for _, without := range strings.Split(tc.without, "|") {
				if slices.Contains(have, without) {
					t.Errorf("%s in %q", without, have)
				}
			}
		})
	}
}

func TestEvidence(t *testing.T) {
	_, have := readText(t, mail("", "x"), Evidence{SPF: "pass", DKIM: "", DMARC: "made up", WrittenTo: true})
	for _, want := range []string{"authentication:SPF pass", "authentication:" + writtenTo} {
		if !slices.Contains(have, want) {
			t.Errorf("no %s in %q", want, have)
		}
	}
	if n := strings.Count(fmt.Sprint(have), "authentication:"); n != 2 {
		t.Errorf("%d pieces of evidence in %q", n, have)
	}
}

// TestTokensStay: models are stored, so a token must be the same in all versions.
func TestTokensStay(t *testing.T) {
	for _, tc := range []struct {
		kind featureKind
		text string
		want Token
	}{{kindWord, "viagra", 0x3e899ba4464230a4}, {kindSubject, "viagra", 0xb3922bb481d2675}, {kindFact, "has a Message-ID of another domain", 0xe267e88487530bf4}} {
		if got := hash(tc.kind, []byte(tc.text)); got != tc.want {
			t.Errorf("%d %q is %#x, want %#x", tc.kind, tc.text, got, tc.want)
		}
	}
}

// TestReadingsAreBounded: no message has more tokens than a model is to be taught, and none of its
// links is lost to words.
func TestReadingsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&b, "w%dord ", i)
	}
	raw := mail("Content-Type: multipart/mixed; boundary=b\r\n", "--b\r\n\r\n"+b.String()+"\r\n--b\r\nContent-Type: text/html\r\n\r\n<a href='https://last.example'>\r\n--b--\r\n")
	r, have := readText(t, raw, Evidence{})
	if n := len(r.Tokens()); n > maxTokens || n < maxWords {
		t.Errorf("%d tokens", n)
	}
	if !slices.Contains(have, "link:last.example") {
		t.Error("the link is lost")
	}
	seen := map[Token]bool{}
	for _, token := range r.Tokens() {
		if seen[token] || token == 0 {
			t.Fatalf("token %x is 0 or stands twice", token)
		}
		seen[token] = true
	}
}

func TestReadReturnsTheReadersError(t *testing.T) {
	raw := mail("", "text")
	root, err := msg.Scan(strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []int64{0, root.BodyOffset} {
		if _, err := Read(io.NewSectionReader(strings.NewReader(raw), 0, left), root, Evidence{}); !errors.Is(err, io.EOF) {
			t.Errorf("with %d bytes: %v", left, err)
		}
	}
}

// FuzzRead reads any bytes, and holds what is read to its bounds.
func FuzzRead(f *testing.F) {
	for _, raw := range []string{
		mail("", "hello https://a.example"), html("<p>V<!-- -->ia&#103;ra <a href=http://x.y.z>"), html("<style"), html("&#x;&#1;&#99999999;&amp"), html("<!--"), html("</><!><?>"),
		mail("Content-Transfer-Encoding: base64\r\n", "aGVsbG8="), mail("Content-Transfer-Encoding: quoted-printable\r\n", "=41=\r\n=4"),
		mail("Content-Type: text/plain; charset=gb2312\r\n", "\xc4\xe3\xba\xc3"), mail("Content-Type: text/html; charset=utf-16\r\n", "a\x00b"),
		mail("Content-Type: multipart/mixed; boundary=b\r\n", "--b\r\nContent-Type: image/png; name=a.b\r\n\r\n--b--"), "$,$.,€", "",
	} {
		f.Add([]byte(raw), "pass", true)
	}
	own := NewModel()
	f.Fuzz(func(t *testing.T, raw []byte, result string, writtenTo bool) {
		root, err := msg.Scan(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		e := Evidence{SPF: result, DMARC: result, WrittenTo: writtenTo}
		r, err := Read(bytes.NewReader(raw), root, e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Read(bytes.NewReader(raw), root, e)
		if err != nil || !slices.Equal(r.Tokens(), again.Tokens()) || len(r.Tokens()) > maxTokens {
			t.Fatalf("%d tokens, then %d: %v", len(r.Tokens()), len(again.Tokens()), err)
		}
		own.Train(r.Tokens(), writtenTo, false, 1)
		for _, model := range []*Model{nil, own} {
			checkVerdict(t, r.Score(model))
		}
		own.Train(r.Tokens(), writtenTo, true, 1)
		if own.Len() != 0 {
			t.Fatalf("%d tokens are left", own.Len())
		}
	})
}

func checkVerdict(t *testing.T, v Verdict) {
	t.Helper()
	if !(v.Score >= 0 && v.Score <= 1) || len(v.Reasons) > maxReasons {
		t.Fatalf("%+v", v)
	}
	for _, r := range v.Reasons {
		sentence := r.Sentence()
		if r.Code == "" || utf8.RuneCountInString(r.Text) > 40 || !utf8.ValidString(r.Text) || strings.ContainsFunc(r.Text, func(c rune) bool { return c < ' ' || c == 0x7f || c == 0x202e }) ||
			!strings.Contains(sentence, r.Text) || strings.Contains(sentence, "%!") {
			t.Fatalf("%+v: %s", r, sentence)
		}
	}
}
