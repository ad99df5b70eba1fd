package msg

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/mailstead/mailstead/internal/cputime"
	"github.com/mailstead/mailstead/mail/visible"
)

const bombSize = 1 << 20

// bombs are messages that cost a careless parser time or memory out of proportion.
func bombs() map[string][]byte {
	fill := func(head, unit, tail string) []byte {
		return []byte(head + strings.Repeat(unit, (bombSize-len(head)-len(tail))/len(unit)) + tail)
	}
	var nested, nestedParts strings.Builder
	for i := 0; nested.Len() < bombSize; i++ {
		fmt.Fprintf(&nested, "Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n", i, i)
	}
	for i := range MaxDepth {
		fmt.Fprintf(&nestedParts, "Content-Type: multipart/mixed; boundary=%s%d\r\n\r\n--%s%d\r\n", strings.Repeat("x", 60), i, strings.Repeat("x", 60), i)
	}
	mixed := "Content-Type: multipart/mixed; boundary=b\r\n\r\n"
	return map[string][]byte{
		"parts":          fill(mixed, "--b\r\n\r\n", "--b--"),
		"nested":         []byte(nested.String()),
		"near misses":    fill(nestedParts.String(), "--"+strings.Repeat("x", 60)+"y\r\n", ""),
		"dashes":         fill(nestedParts.String(), "--\n--x\n", ""),
		"messages":       fill("", "Content-Type: message/rfc822\r\n\r\n", "x"),
		"digest":         fill("Content-Type: multipart/digest; boundary=b\r\n\r\n", "--b\r\n\r\nSubject: x\r\n\r\n", ""),
		"one line":       fill("Subject: x\r\n\r\n", "x", ""),
		"line feeds":     fill("Subject: x\r\n\r\n", "\n", ""),
		"returns":        fill("Subject: x\r\n\r\n", "\r", ""),
		"header returns": fill("", "a:\r", ""),
		"one header":     fill("Subject: ", "=?utf-8?q?", "?="),
		"words":          fill("Subject: ", "=?utf-8?q?=41?= ", ""),
		"many fields":    fill("", "Subject: x\r\n", ""),
		"recipients":     fill("To: ", "a@b,", ""),
		"groups":         fill("To: ", "a:b@c;", ""),
		"colons":         fill("To: "+strings.Repeat(" ", 1<<17), ":", ""),
		"colons and at":  fill("To: "+strings.Repeat("x", 1<<17)+"@", ":", ""),
		"open angles":    fill("To: ", "< ", ""),
		"angle quotes":   fill("To: ", `<"> `, ""),
		"open parens":    fill("To: ", "(", ""),
		"open quotes":    fill("To: ", `"\" `, ""),
		"backslashes":    fill("To: ", `\`, ""),
		"references":     fill("References: ", "<a>", ""),
		"bare ids":       fill("References: ", "a@b ", ""),
		"params":         fill("Content-Type: text/plain", ";a", ""),
		"numbered":       fill("Content-Type: text/plain", "; a*1=b", ""),
		"comments":       fill("Content-Type: text/plain; ", "(", ""),
		"language":       fill("Content-Language: ", "a,", ""),
		"base64":         fill("Content-Transfer-Encoding: base64\r\n\r\n", "=", ""),
		"qp":             fill("Content-Transfer-Encoding: quoted-printable\r\n\r\n", "= ", ""),
		"html tags":      fill("Content-Type: text/html\r\n\r\n", "<b><i>", ""),
		"html open":      fill("Content-Type: text/html\r\n\r\n", "<", ""),
		"html style":     fill("Content-Type: text/html\r\n\r\n<p style=\"", "color:red;", "\">"),
		"html styles":    fill("Content-Type: text/html\r\n\r\n", "<p style='color:red'>", ""),
		"html comment":   fill("Content-Type: text/html\r\n\r\n<!--", "-", ""),
		"html attrs":     fill("Content-Type: text/html\r\n\r\n<p ", "a=b ", ""),
		"texts":          fill(mixed, "--b\r\n\r\nx", ""),
	}
}

// TestBombs holds Scan to its promise: 1 MB takes under 100 ms and 64 MB.
func TestBombs(t *testing.T) {
	for name, raw := range bombs() {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			scan := func() {
				if _, err := Scan(bytes.NewReader(raw)); err != nil {
					t.Fatal(err)
				}
			}
			took := fastest(t, scan)
			runtime.ReadMemStats(&after)
			if took > 100*time.Millisecond*slower {
				t.Errorf("Scan of %d bytes took %v", len(raw), took)
			}
			if used := (after.TotalAlloc - before.TotalAlloc) / tries; used > 64<<20 {
				t.Errorf("Scan allocated %d bytes", used)
			}
			root := scanBytes(t, raw)
			if n := len(root.AppendBinary(nil)); n > 2*maxTreeText {
				t.Errorf("tree of %d bytes", n)
			}
			r := bytes.NewReader(raw)
			t.Logf("scan %v", took)
			began := cputime.Used(t)
			if _, err := Summarize(r, root); err != nil {
				t.Fatal(err)
			}
			body, err := ReadRawBody(r, root, bombSize)
			if err != nil {
				t.Fatal(err)
			}
			visible.SanitizeHTML(body.HTML)
			ParseReport(r, root)
			took = cputime.Used(t) - began
			t.Logf("read %v", took)
			if took > 2*time.Second*slower {
				t.Errorf("reading took %v", took)
			}
		})
	}
}

const tries = 3

// fastest runs f some times, and gives the least processor time that one took.
func fastest(t *testing.T, f func()) time.Duration {
	best := time.Hour
	for range tries {
		began := cputime.Used(t)
		f()
		best = min(best, cputime.Used(t)-began)
	}
	return best
}

func TestLimits(t *testing.T) {
	raw := bombs()
	if n := countParts(scanBytes(t, raw["parts"])); n != MaxParts {
		t.Errorf("%d parts of many, want %d", n, MaxParts)
	}
	depth := 0
	p := scanBytes(t, raw["nested"])
	for ; len(p.Children) > 0; p = p.Children[0] {
		depth++
	}
	if depth != MaxDepth-1 || p.MediaType() != "application/octet-stream" {
		t.Errorf("depth %d ends in %s", depth, p.MediaType())
	}
	env := scanBytes(t, raw["recipients"]).Envelope
	if len(env.To) != MaxAddresses {
		t.Errorf("%d recipients, want %d", len(env.To), MaxAddresses)
	}
	refs := []byte("References: <first>" + strings.Repeat(" <x>", 500) + " <last>\r\n\r\n")
	got := scanBytes(t, refs).Envelope.References
	if len(got) != MaxReferences || got[0] != "<first>" || got[MaxReferences-1] != "<last>" {
		t.Errorf("references %d, %v … %v", len(got), got[0], got[len(got)-1])
	}
	long := []byte("Subject: " + strings.Repeat("ä", 5000) + "\r\n\r\n")
	if s := scanBytes(t, long).Envelope.Subject; len(s) != MaxText {
		t.Errorf("subject of %d bytes", len(s))
	}
}

func countParts(p *Part) int {
	n := 1
	for _, c := range p.Children {
		n += countParts(c)
	}
	return n
}

// TestHeaderBeyondLimit shows that a header too long is cut, and the body still found.
func TestHeaderBeyondLimit(t *testing.T) {
	raw := "Subject: kept\r\n" + strings.Repeat("X-Filler: "+strings.Repeat("y", 60)+"\r\n", 5000) + "From: late@x.example\r\n\r\nbody"
	root := scanBytes(t, []byte(raw))
	if root.Envelope.Subject != "kept" || root.Envelope.From != nil {
		t.Errorf("envelope %+v", root.Envelope)
	}
	if raw[root.BodyOffset:] != "body" {
		t.Errorf("body %q", raw[root.BodyOffset:])
	}
	block, err := RawHeader(strings.NewReader(raw), root)
	if err != nil || len(block) != MaxHeader {
		t.Errorf("raw header of %d bytes, %v", len(block), err)
	}
}

// TestScanIsTheSameInPieces reads with every odd buffer and reader.
func TestScanIsTheSameInPieces(t *testing.T) {
	for _, name := range []string{"nested", "bare-cr", "mixed-line-ends", "dsn-postfix"} {
		raw, err := os.ReadFile("testdata/" + name + ".eml")
		if err != nil {
			t.Fatal(err)
		}
		want := scanBytes(t, raw).AppendBinary(nil)
		for _, r := range []io.Reader{
			iotest.OneByteReader(bytes.NewReader(raw)),
			iotest.DataErrReader(bytes.NewReader(raw)),
			iotest.HalfReader(bytes.NewReader(raw)),
		} {
			root, err := Scan(r)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(dates(root).AppendBinary(nil), want) {
				t.Errorf("%s differs by %T", name, r)
			}
		}
	}
}

// TestLinesLongerThanTheBuffer puts line ends, and a CRLF in two halves, at its edge.
func TestLinesLongerThanTheBuffer(t *testing.T) {
	for n := 2*scanBuffer - 60; n < 2*scanBuffer+4; n++ {
		raw := "Content-Type: multipart/mixed; boundary=b\n\n" + strings.Repeat("x", n) + "\r\n--b\r\n\r\npart\r\n--b--\r\n"
		root, err := Scan(io.MultiReader(strings.NewReader(raw)))
		if err != nil {
			t.Fatal(err)
		}
		if len(root.Children) != 1 || root.Lines != 5 {
			t.Fatalf("with %d bytes before: %d children, %d lines", n, len(root.Children), root.Lines)
		}
		if c := root.Children[0]; raw[c.BodyOffset:c.End] != "part" {
			t.Fatalf("with %d bytes before: %q", n, raw[c.BodyOffset:c.End])
		}
	}
}

func TestScanReadError(t *testing.T) {
	broken := errors.New("broken")
	_, err := Scan(io.MultiReader(strings.NewReader("Subject: x\r\n\r\nbody"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// TestDecodedSize compares the size found while scanning with what Open gives.
func TestDecodedSize(t *testing.T) {
	for _, content := range []string{"", "a", "ab", "abc", strings.Repeat("line äöü\r\n", 300), strings.Repeat("x", 500)} {
		for _, encoding := range []string{"base64", "quoted-printable", "8bit"} {
			e := &entity{ctype: "text/plain", encoding: encoding, content: []byte(content)}
			for _, root := range []*entity{e, newMultipart("multipart/mixed", e)} {
				var b bytes.Buffer
				if _, err := writeMessage(&b, root, nil); err != nil {
					t.Fatal(err)
				}
				p := scanBytes(t, b.Bytes())
				if len(p.Children) > 0 {
					p = p.Children[0]
				}
				got, err := io.ReadAll(Open(bytes.NewReader(b.Bytes()), p))
				if err != nil || string(got) != content || p.DecodedSize != int64(len(content)) {
					t.Errorf("%s: %q, %v, size %d, want %q", encoding, got, err, p.DecodedSize, content)
				}
			}
		}
	}
}

func BenchmarkScan4KiB(b *testing.B) {
	raw := []byte("From: Ann <ann@x.example>\r\nTo: Bob <bob@x.example>\r\nSubject: hello\r\nDate: Fri, 20 Nov 2026 21:00:00 +0100\r\n" +
		"Message-ID: <1@x.example>\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n" + strings.Repeat(strings.Repeat("x", 70)+"\r\n", 54))
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Scan(bytes.NewReader(raw)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScanBomb(b *testing.B) {
	all := bombs()
	for _, name := range []string{"parts", "nested", "near misses", "one header"} {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			b.SetBytes(bombSize)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Scan(bytes.NewReader(all[name])); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
