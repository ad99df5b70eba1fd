package msg

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// trickyValues are values of From fields that programs read differently, and some that only
// look so.
func trickyValues() []string {
	return []string{
		"ann@x.test", "Ann <ann@x.test>", "John Q. Public <ann@x.test>", "Foo, Inc. <ann@x.test>", `"Foo, Inc." <ann@x.test>`,
		`"ann@x.test" <ann@x.test>`, "ann@x.test <ann@x.test>", "ANN@x.test <ann@X.test>", "ceo@y.test <ann@x.test>", `"Foo <ceo@y.test>" <ann@x.test>`,
		`"a \" b" <ann@x.test>`, `"a \\" <ann@x.test>`, `"a" <ceo@y.test>" <ann@x.test>`, "ann@x.test (Ann)", "ann@x.test (Ann, B)", "ann@x.test (a (b) c)",
		"ann@x.test (ceo@y.test)", `ann@x.test (a \) b)`, "ann@x.test (a", "Ann (c) <ann@x.test>", "(c) ann@x.test", "Ann <ann@x.test> (c)",
		"Ann <ann@x.test> c", "Ann <ann@x.test> <ceo@y.test>", `"CEO" <ann@x.test> "CEO" <ceo@y.test>`, "<ann@x.test> <ceo@y.test>", "ceo@y.test ann@x.test",
		"=?utf-8?q?Ann?=\t=?utf\r\n -8?q?a=E2=8=0D=0A0=A8b?=\t=?iso-8859-1?q?=E4?=\t <ceo@a-b.test>, ceo@x.test",
		"ann.@ (=?x) =?iso-8859-1?q?=E4?=\t=?utf-8?q?a b?=\t\"a; b: c\" <info@Mail.Z.test> (=?utf-8?q?Ann?=)",
		"a <x_y@y.test>, \n\t=?utf-8?b?77u/QW5u?=  @=?UTF-8?Q?=C3=A4?=  =?utf-8?q?a b?=\t<ö@Mail.Z.test>",
		"=?utf-8?b?Y2VvQHkudGVzdA==?=  =?utf-8?q?a b?= <[x_y@y.t\r\n From: ceo@y.testest> (nn)", "=?t\r\n f-8?b?Y2VvQHkudGVzdA==?=\ta\u00a0b\t=?utf-8?q?=22?= <\"<ann\"@@x(c).test>>",
		"=?utf-8?b?Y2VvQHkudGVzdA==?=\r\n\t=?utf-8?q?Ann?=\r\n\t<@x..test>\r\n\t(=?x)",
		"=?utf-8?b?=0D=0AY2VvQHkudGVzdA==?=\"Foo, Inc=?utf-8?q?a b?=?utf-8?q?= <ceo@x_y.test> (\"q\")",
		"ceo@y.test: ann@x.test;", "Team: ann@x.test, ceo@y.test;", "undisclosed:;", "ann@x.test;", "ann@x.test; ceo@y.test", "ann@x.test, ceo@y.test",
		"ann@x.test,", ",ann@x.test", "ann@x.test,,ceo@y.test", "<@y.test:ann@x.test>", "<@y.test,@z.test:ann@x.test>", "< ann@x.test >", "<ann@x.test",
		"ann@x.test>", "<<ann@x.test>>", "<ann@x.test>>", "ann @ x.test", "ann@ x.test", "ann@x. test", "a . b@x.test", "ann@(y.test)x.test",
		"ann(c)@x.test", "ann@x.test.", "ann@x..test", "ann@[192.0.2.1]", "ann@[ceo@y.test]", `"ann"@x.test`, `"ann b"@x.test`, `"ceo@y.test"@x.test`,
		`"ceo@y.test," ann@x.test`, `"<ceo@y.test>"@x.test`, `Ann <"a b"@x.test>`, `ceo@y.test\, ann@x.test`, `"unclosed <ann@x.test>`, `Ann" <ann@x.test>`,
		"=?utf-8?q?Ann?= <ann@x.test>", "=?utf-8?q?Ann?=<ann@x.test>", "=?utf-8?q?=3Cceo=40y.test=3E?= <ann@x.test>", `"=?utf-8?q?a=22_=3Cceo=40y.test=3E?=" <ann@x.test>`,
		"=?utf-8?q?ceo=40y.test?=", "=?utf-8?q?ceo=40y.test=2C?= ann@x.test", "=?utf-8?q?ceo?=@y.test", "<=?utf-8?q?ceo?=@y.test>", "ann@=?utf-8?q?y.test?=", "ann@(c)=?utf-8?q?y=2Etest?=st?=", "ann@=?ut\r\n f-8?q?y.test?=", "ann@y.tesü x", "ann@y.testü.\u2028 x", "\"ceo@y.te\" <ann@x.test<>st", "=?utf-8?b?QQ=0D=0A==?= <ann@x.test>",
		"=?utf-8?q?=0D=0A?= <ann@x.test>", "=?utf-8?q?=00?= <ann@x.test>", "=?bad?x?y?= <ann@x.test>", "=?utf-8?q??= <ann@x.test>", "=?utf-8?q?a?= =?utf-8?q?b?= <ann@x.test>",
		"ö@x.test", "ann@ü.test", "Änn <ann@ü.test>", "ann@ｙ.test", "ann＠y.test", "ann@faß.test", "\ufeffann@x.test", "\u00a0ann@x.test", "ann@x.test\u00a0",
		"ann@x.test\x00", "ann\x00@x.test", "Ann\x0b<ann@x.test>", "\u0085ceo@y.test", "a\u2028b <ann@x.test>", "a\r\n b <ann@x.test>", "a\n\tb <ann@x.test>",
		"\r\n ann@x.test", "ann@x.test\r\n ", "ann@x.test,\r\n \r\n ceo@y.test", "a\rb <ann@x.test>", "a\r\r\n b <ann@x.test>", "", " ", "Ann", "<>", "Ann <>",
		"Ann <ann>", "ann", "a@b@x.test", "<a@b@x.test>", "ann@y.test@x.test", ".Ann <ann@x.test>", "... <ann@x.test>", "Ann. <ann@x.test>", ".a@x.test", "a.@x.test",
		"a..b@x.test", `"" <ann@x.test>`, "'Ann' <ann@x.test>", "[x] Ann <ann@x.test>", "Ann: <ann@x.test>", "Ann; <ann@x.test>", `Ann \ <ann@x.test>`,
		"Ann <ann@x.test>, Bob <bob@x.test>", "a@x.test (A), b@x.test (B)", "ann@x.test\r\nX: y", strings.Repeat("a@x.test, ", 99) + "b@x.test", "a@x.test\r\n From: ceo@y.test",
		"mailto:ann@x.test", "ann@x.test%y.test", "y.test!ann@x.test", "ann@-x.test", "ann@x_y.test", "Ann <ann@x.test>(c)(d)", "(a)(b) <ann@x.test>",
	}
}

// trickyHeaders are whole headers of which programs see different From fields.
func trickyHeaders() []string {
	long := strings.Repeat("X-Long: "+strings.Repeat("y", 900)+"\r\n", 100)
	return []string{
		"From: ann@x.test\r\nFrom: ceo@y.test\r\n\r\n", "from: ann@x.test\r\nFROM: ann@x.test\r\n\r\n", "From : ann@x.test\r\n\r\n", "From: ann@x.test\r\nFrom : ceo@y.test\r\n\r\n",
		" From: ceo@y.test\r\nFrom: ann@x.test\r\n\r\n", "\ufeffFrom: ceo@y.test\r\n\r\n", "\ufeffFrom: ceo@y.test\r\nFrom: ann@x.test\r\n\r\n", "F\x00rom: ceo@y.test\r\nFrom: ann@x.test\r\n\r\n",
		"From: ann@x.test\r\nno field\r\nFrom: ceo@y.test\r\n\r\n", "no field\r\nFrom: ceo@y.test\r\n\r\n", "X Y: z\r\nFrom: ann@x.test\r\n\r\n", "From: ann@x.test\r\nX Y: z\r\n\r\n",
		"From ceo@y.test Mon Jan  1 00:00:00 2024\r\nFrom: ann@x.test\r\n\r\n", ">From ceo@y.test\r\nFrom: ann@x.test\r\n\r\n", ": x\r\nFrom: ceo@y.test\r\n\r\n",
		"Subject: a\rFrom: ceo@y.test\r\nFrom: ann@x.test\r\n\r\n", "Subject: a\r\n b\rFrom: ceo@y.test\r\nFrom: ann@x.test\r\n\r\n", "Subject: a\r\n From: ceo@y.test\r\nFrom: ann@x.test\r\n\r\n",
		"Subject: a\r\n \r\nFrom: ann@x.test\r\n\r\n", "Subject: a\n\nFrom: ceo@y.test\r\n\r\n", "\r\nFrom: ceo@y.test\r\n\r\n", long + "From: ann@x.test\r\n\r\n",
		"From: ann@x.test\r\n" + long + "From: ceo@y.test\r\n\r\n", "To: a@x.test\r\n\r\n", "\tFrom: ceo@y.test\r\n\r\n", "=?utf-8?q?From?=: ceo@y.test\r\n\r\n", "=?utf-8?q?From=3A_ceo=40y.test?=\r\n\r\n",
		"From: ann@x.test\r\nSender: bob@x.test\r\n\r\n", "From: ann@x.test\r\nSender: bob@x.test\r\nSENDER: ceo@y.test\r\n\r\n", "From: ann@x.test\r\nSender: a@x.test, b@x.test\r\n\r\n",
		"Resent-From: ann@x.test\r\nResent-From: bob@x.test\r\nFrom: ann@x.test\r\n\r\n",
	}
}

func emailsOf(list []Address) []string {
	var out []string
	for _, a := range list {
		out = append(out, a.Email())
	}
	return out
}

func TestReadAuthors(t *testing.T) {
	to999 := "To: " + strings.Repeat("a@b.test,", 998) + "a@b.test\r\n"
	for _, c := range []struct {
		header               string
		from, sender, resent string // "" for none
		wrong                string // what the error says
	}{
		{header: "From: ann@x.test\r\n\r\n", from: "[ann@x.test]"},
		{header: "FROM: \"Foo, Inc.\" <ann@x.test>\n\nFrom: body@y.test\n", from: "[ann@x.test]"},
		{header: to999 + "From: ann@x.test, ceo@x.test\r\nSender: ann@x.test\r\n\r\n", from: "[ann@x.test ceo@x.test]", sender: "[ann@x.test]"},
		{header: "Resent-From: a@x.test, b@x.test\r\nResent-Sender: c@x.test\r\nResent-From: d@x.test\r\nFrom: ann@x.test\r\n\r\n", from: "[ann@x.test]", resent: "[a@x.test b@x.test c@x.test d@x.test]"},
		{header: "Subject: s\r\n\r\nFrom: ann@x.test\r\n", wrong: "no From field"},
		{header: "", wrong: "no From field"},
		{header: "From: ann@x.test\r\nFrom: ann@x.test\r\n\r\n", wrong: "From field stands twice"},
		{header: "From: ann@x.test\r\nSender: ann@x.test\r\nSender: ceo@x.test\r\n\r\n", wrong: "Sender field stands twice"},
		{header: "From: ann@x.test\r\nSender: a@x.test, b@x.test\r\n\r\n", wrong: "more than one address"},
		{header: "From: ann@x.test\r\nSender:\r\n\r\n", wrong: "Sender field is not a plain list"},
		{header: "From: ann@x.test\r\nResent-Sender: a@x.test, b@x.test\r\n\r\n", wrong: "more than one address"},
		{header: "From: ann@x.test\r\nResent-From: a@x.test b@x.test\r\n\r\n", wrong: "Resent-From field has text behind an address"},
		{header: "From: ceo@x.test ann@x.test\r\n\r\n", wrong: "text behind"},
		{header: "From: ceo@x.test: ann@x.test;\r\n\r\n", wrong: "text behind"},
		{header: "From: <ann@x.test> <ceo@x.test>\r\n\r\n", wrong: "text behind"},
		{header: "From: \"CEO\" <ann@x.test> \"CEO\" <ceo@x.test>\r\n\r\n", wrong: "text behind"},
		{header: "From: Team: ann@x.test;\r\n\r\n", wrong: "not a plain list"},
		{header: "From: " + strings.Repeat("ann@x.test, ", 100) + "ann@x.test\r\n\r\n", wrong: "more than 100"},
		{header: "From : ann@x.test\r\n\r\n", wrong: "before the name"},
		{header: "no field\r\nFrom: ann@x.test\r\n\r\n", wrong: "behind a line that is no header field"},
		{header: "From: ann@x.test,\r\n \r\n bob@x.test\r\n\r\n", wrong: "blank line"},
		{header: "Subject: a\rFrom: ann@x.test\r\n\r\n", wrong: "bare CR"},
		{header: "From: ann@x.test\r\r\n\r\n", wrong: "bare CR"},
		{header: "From: ann@x.test,\r\n bob@x.test\r\r\n\r\n", wrong: "bare CR"},
		{header: "From: ann@x.test\x00\r\n\r\n", wrong: "control characters"},
		{header: "From: ann@x.test\xff\r\n\r\n", wrong: "broken UTF-8"},
		{header: "From: " + strings.Repeat(" ", 70_000) + "ann@x.test\r\n \r\n\r\n", wrong: "too long"},
		{header: strings.Repeat("Resent-From: ann@x.test\r\n", 300) + "From: ann@x.test\r\n\r\n", wrong: "too many"},
	} {
		got, err := ReadAuthors([]byte(c.header))
		if c.wrong != "" {
			if !errors.Is(err, ErrAuthors) || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%.80q: %v, want %q", c.header, err, c.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%.80q: %v", c.header, err)
			continue
		}
		for i, pair := range [][2]string{{fmt.Sprint(emailsOf(got.From)), c.from}, {fmt.Sprint(emailsOf(got.Sender)), c.sender}, {fmt.Sprint(emailsOf(got.Resent)), c.resent}} {
			if pair[0] != pair[1] && !(pair[0] == "[]" && pair[1] == "") {
				t.Errorf("%.80q: %s is %s, want %s", c.header, []string{"From", "Sender", "Resent"}[i], pair[0], pair[1])
			}
		}
	}
}

func TestPossibleAuthors(t *testing.T) {
	for _, c := range []struct {
		header          string
		emails, domains string
		unclear         bool
	}{
		{header: "Subject: s\r\n\r\n", emails: "[]", domains: "[]"},
		{header: "From: Ann <ann@x.test>\r\n\r\n", emails: "[ann@x.test]", domains: "[]"},
		{header: "From: ann@x.test <ann@x.test>\r\nSender: rubbish\r\n\r\n", emails: "[ann@x.test]", domains: "[]"},
		{header: "From: ceo@y.test <ann@x.test>\r\n\r\n", emails: "[]", domains: "[y.test y.testann x.test]", unclear: true},
		{header: "From: ann@x.test\r\nFROM : ceo@y.test\r\n\r\n", emails: "[]", domains: "[x.test y.test]", unclear: true},
		{header: "From: ann@x.test\r\njunk\r\nFrom: ceo@y.test\r\n\r\n", emails: "[]", domains: "[x.test y.test]", unclear: true},
		{header: "From: =?utf-8?q?ceo=40y.test?=\r\n\r\n", emails: "[]", domains: "[y.test]", unclear: true},
		{header: "From: ceo@(c)y(d) .test\r\n\r\n", emails: "[]", domains: "[y y.test]", unclear: true},
		{header: "From: " + strings.Repeat("a@x.test,", 500) + "ceo@y.test\r\n\r\n", emails: "[]", domains: "[x.test y.test]", unclear: true}, // and TooMany
	} {
		got := ReadPossibleAuthors([]byte(c.header))
		tooMany := strings.Count(c.header, "@") > 200
		if fmt.Sprint(got.Emails) != c.emails || fmt.Sprint(got.Domains) != c.domains || got.Unclear != c.unclear || got.TooMany != tooMany {
			t.Errorf("%.80q: %+v", c.header, got)
		}
	}
}

// TestAuthorsTakeLinearTime reads headers that are made to be slow.
func TestAuthorsTakeLinearTime(t *testing.T) {
	const size = 1 << 20
	for _, piece := range []string{
		"From: a@(", "a@(", "\"", "(", "<", "a@b.test,", "a. ", "\r\n a", "\r\n ", "\rFrom: a@b", "\r\nFrom: a@(\r\n (", "=?utf-8?q?=40?=", "\\", "@", "@a(b)", "Sender: x\r\n",
	} {
		header := []byte("From: " + strings.Repeat(piece, size/len(piece)) + "\r\n\r\n")
		begun := time.Now()
		_, err := ReadAuthors(header)
		got := ReadPossibleAuthors(header)
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("%q took %v", piece, took)
		}
		if err == nil || !got.Unclear {
			t.Errorf("%q: %v, %v", piece, err, got.Unclear)
		}
	}
}

// TestEnvelopeShowsAuthorsFirst has more recipients in front than an envelope keeps.
func TestEnvelopeShowsAuthorsFirst(t *testing.T) {
	raw := "To: " + strings.Repeat("a@b.test,", MaxAddresses+5) + "\r\nReply-To: r@x.test\r\nSender: s@x.test\r\nFrom: ann@x.test\r\nCc: c@x.test\r\n\r\n"
	env := scanBytes(t, []byte(raw)).Envelope
	for _, c := range []struct {
		list []Address
		want string
	}{{env.From, "ann@x.test"}, {env.Sender, "s@x.test"}, {env.ReplyTo, "r@x.test"}} {
		if !slices.Equal(emailsOf(c.list), []string{c.want}) {
			t.Errorf("%q, want %s", c.list, c.want)
		}
	}
	if n := len(env.To); n != MaxAddresses-3 {
		t.Errorf("%d recipients", n)
	}
}

// TestHeaderFieldsAddNoEmptyLine: the field behind one that a bare CR ends stays in the header.
func TestHeaderFieldsAddNoEmptyLine(t *testing.T) {
	raw := "X: y\rFrom: ann@x.test\r\n\r\nbody"
	got, err := HeaderFields(strings.NewReader(raw), scanBytes(t, []byte(raw)), nil, true)
	if want := "X: y\r\nFrom: ann@x.test\r\n\r\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// TestDraftsHaveReadableAuthors: what we write ourselves can be sent, whatever the name is.
func TestDraftsHaveReadableAuthors(t *testing.T) {
	for _, name := range append(trickyValues(), "=?x", "?=", ".", "Ann.", ".Ann", "a <b", "\u2028", "a\u2028b", "\ufeffAnn", "=?utf-8?q?=0A?=", "Ä =?x", "Zoë\u0085", strings.Repeat("ä ", 200)) {
		d := &Composer{From: Address{Name: name, Mailbox: "ann", Host: "x.test"}, To: []Address{{Mailbox: "b", Host: "x.test"}}, MessageID: "<1@x.test>", Date: draftDate}
		var out bytes.Buffer
		if _, err := d.WriteTo(&out); err != nil {
			if !errors.Is(err, ErrHeader) && !errors.Is(err, ErrAddress) {
				t.Errorf("%q: %v", name, err)
			}
			continue
		}
		got, err := ReadAuthors(out.Bytes())
		if err != nil || len(got.From) != 1 || got.From[0].Email() != "ann@x.test" {
			head, _, _ := strings.Cut(out.String(), "\r\nTo:")
			t.Errorf("%q: %+v, %v, %q", name, got, err, head)
		}
	}
}
