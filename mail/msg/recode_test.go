package msg

import (
	"bytes"
	"fmt"
	"io"
	"mime/quotedprintable"
	"strings"
	"testing"
)

// recoded gives what a Recoder makes of a message with CRLF line ends.
func recoded(t testing.TB, raw []byte) ([]byte, *Recoder) {
	t.Helper()
	c, err := NewRecoder(bytes.NewReader(raw), scanBytes(t, raw), RecodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if n, err := c.WriteTo(&out); err != nil || n != int64(out.Len()) {
		t.Fatal(n, err)
	}
	if !c.HasChanges() && !bytes.Equal(out.Bytes(), raw) {
		t.Fatalf("without a change\n%q\nbecomes\n%q", raw, out.Bytes())
	}
	return out.Bytes(), c
}

func crlf(text string) []byte { return []byte(strings.ReplaceAll(text, "\n", "\r\n")) }

func TestRecode(t *testing.T) {
	many := strings.Repeat("äöü", 50)
	for name, c := range map[string]struct {
		in, want string
		clean    bool
	}{
		"ASCII": {"Subject: s\n\nhello\n", "Subject: s\n\nhello\n", true},
		"text": {
			"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\nMIME-Version: 1.0\n\na text of some length, with Grüße = an \nalle\n--x\n",
			"Content-Type: text/plain; charset=utf-8\nMIME-Version: 1.0\nContent-Transfer-Encoding: quoted-printable\n\na text of some length, with Gr=C3=BC=C3=9Fe =3D an=20\nalle\n=2D-x\n", true,
		},
		"no MIME": {"Subject: s\n\na text of some length, with Grüße\n", "Subject: s\nMIME-Version: 1.0\nContent-Transfer-Encoding: quoted-printable\n\na text of some length, with Gr=C3=BC=C3=9Fe\n", true},
		"mostly beyond ASCII": {
			"MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\nääää" + many + "\n",
			"MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n" + wrap64("ääää"+many+"\r\n"), true,
		},
		"a file": {
			"MIME-Version: 1.0\nContent-Type: application/pdf\nContent-Transfer-Encoding: binary\n\nall ASCII but é\n",
			"MIME-Version: 1.0\nContent-Type: application/pdf\nContent-Transfer-Encoding: base64\n\nYWxsIEFTQ0lJIGJ1dCDDqQ0K\n", true,
		},
		"a long line": {
			"MIME-Version: 1.0\n\n" + strings.Repeat("a", 999) + "\n",
			"MIME-Version: 1.0\nContent-Transfer-Encoding: quoted-printable\n\n" + strings.Repeat(strings.Repeat("a", 75)+"=\n", 13) + strings.Repeat("a", 999-13*75) + "\n", true,
		},
		"parts": {
			"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\nContent-Transfer-Encoding: 8bit\n\npreamble\n--b\nX-A: 1\n\nascii\n--b\n\na text of some length, with Grüße\n--b\nContent-Type: message/rfc822\nContent-Transfer-Encoding: 8bit\n\nSubject: in\n\nand another text: Ä\n--b--\nend\n",
			"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\nContent-Transfer-Encoding: 7bit\n\npreamble\n--b\nX-A: 1\n\nascii\n--b\nContent-Transfer-Encoding: quoted-printable\n\na text of some length, with Gr=C3=BC=C3=9Fe\n--b\nContent-Type: message/rfc822\nContent-Transfer-Encoding: 7bit\n\nSubject: in\nMIME-Version: 1.0\nContent-Transfer-Encoding: quoted-printable\n\nand another text: =C3=84\n--b--\nend\n", true,
		},
		"signed": {
			"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=o\n\n--o\nContent-Type: multipart/signed; boundary=b\n\n--b\n\na text of some length, with Grüße\n--b\nContent-Type: application/pgp-signature\n\nsig\n--b--\n--o\n\nand another text: Ä\n--o--\n",
			"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=o\n\n--o\nContent-Type: multipart/signed; boundary=b\n\n--b\n\na text of some length, with Grüße\n--b\nContent-Type: application/pgp-signature\n\nsig\n--b--\n--o\nContent-Transfer-Encoding: quoted-printable\n\nand another text: =C3=84\n--o--\n", false,
		},
		"message/* may not be encoded":  {"Content-Type: message/delivery-status\n\nFinal: ä\n", "Content-Type: message/delivery-status\n\nFinal: ä\n", false},
		"an encoding that nobody knows": {"Content-Transfer-Encoding: x-uuencode\n\nä\n", "Content-Transfer-Encoding: x-uuencode\n\nä\n", false},
		"a header":                      {"Subject: ä\n\nhello\n", "Subject: ä\n\nhello\n", false},
		"a message without a header, behind a header without an end": {
			"Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: message/rfc822\nno field, only text, and a lot of it \u00e4\n--b--\n",
			"Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: message/rfc822\n\nMIME-Version: 1.0\nContent-Transfer-Encoding: quoted-printable\n\nno field, only text, and a lot of it =C3=A4\n--b--\n", true,
		},
		"between parts": {
			"Content-Type: multipart/mixed; boundary=b\n\nä\n--b\n\nx\n--b--\n", "Content-Type: multipart/mixed; boundary=b\n\nä\n--b\n\nx\n--b--\n", false,
		},
	} {
		got, r := recoded(t, crlf(c.in))
		if string(got) != string(crlf(c.want)) || r.IsClean() != c.clean {
			t.Errorf("%s: clean %v\n%q, want\n%q", name, r.IsClean(), got, crlf(c.want))
		}
	}
}

func wrap64(content string) string {
	var b bytes.Buffer
	_ = writeWrappedBase64(&countingWriter{w: &b}, strings.NewReader(content), true)
	return strings.ReplaceAll(b.String(), "\r\n", "\n")
}

// TestRecodeIsBounded: 35 MiB take no memory to speak of.
func TestRecodeIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("35 MiB")
	}
	raw := append([]byte("MIME-Version: 1.0\r\nContent-Type: application/x\r\n\r\n"), bytes.Repeat([]byte("binary \xff\x80 in lines\r\n"), 35<<20/21)...)
	c, err := NewRecoder(bytes.NewReader(raw), scanBytes(t, raw), RecodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	used := testing.AllocsPerRun(1, func() { size, err = c.WriteTo(io.Discard) })
	if want := int64(len(raw)) + c.Growth(); err != nil || used > 100 || size > want || size < want-200 {
		t.Errorf("%d bytes, expected about %d, with %v allocations, %v", size, want, used, err)
	}
}

// leaves gives the leaves of a tree in order, and every signed part.
func leaves(p *Part, to *[]*Part) {
	if len(p.Children) == 0 || p.IsMultipart() && p.Subtype == "signed" {
		*to = append(*to, p)
		return
	}
	for _, c := range p.Children {
		leaves(c, to)
	}
}

// FuzzRecode: what people see stays the same, signed parts stay byte for byte, and what is said to
// be clean is.
func FuzzRecode(f *testing.F) {
	addCorpus(f)
	f.Add([]byte("Content-Type: text/plain\n\nGrüße \n-x\n"))
	f.Add([]byte("Content-Type: multipart/signed; boundary=b\n\n--b\n\nä\n--b--\n"))
	f.Add([]byte("Content-Type: multipart/digest; boundary=b\n\n--b\n\nA: ä\n\nä\n--b\nContent-Type: a/b\nContent-Transfer-Encoding: quoted-printable\n\nä=\n--b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var in bytes.Buffer
		lines := NormalizeLines(&in)
		_, _ = lines.Write(data)
		_ = lines.Close()
		raw := in.Bytes()
		out, c := recoded(t, raw)
		var l smtpCheck
		_, _ = l.Write(out)
		if c.IsClean() != l.clean() {
			t.Fatalf("clean is %v, but %+v\n%q", c.IsClean(), l, out)
		}
		var was, is []*Part
		leaves(scanBytes(t, raw), &was)
		leaves(scanBytes(t, out), &is)
		if len(was) != len(is) {
			t.Fatalf("%d parts became %d\n%q\n%q", len(was), len(is), raw, out)
		}
		for i := range was {
			a, _ := io.ReadAll(Open(bytes.NewReader(raw), was[i]))
			b, _ := io.ReadAll(Open(bytes.NewReader(out), is[i]))
			if !bytes.Equal(a, b) || was[i].MediaType() != is[i].MediaType() || fmt.Sprint(was[i].Params) != fmt.Sprint(is[i].Params) {
				t.Fatalf("part %d, %s %q\nbecame %s %q\nin %q", i, was[i].MediaType(), a, is[i].MediaType(), b, out)
			}
		}
	})
}

// FuzzQuoted compares with the reader of the standard library.
func FuzzQuoted(f *testing.F) {
	f.Add([]byte("--b\r\na \r\n\t\r\n=\r ä."))
	f.Fuzz(func(t *testing.T, data []byte) {
		data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
		var b bytes.Buffer
		if err := writeQuotedPrintable(&countingWriter{w: &b}, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(b.String(), "\r\n") {
			if len(line) > maxQuoted || strings.HasPrefix(line, "-") || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f }) {
				t.Fatalf("line %q", line)
			}
		}
		back, err := io.ReadAll(quotedprintable.NewReader(bytes.NewReader(b.Bytes())))
		if err != nil || !bytes.Equal(back, data) {
			t.Fatalf("%q became %q, back %q, %v", data, b.Bytes(), back, err)
		}
	})
}
