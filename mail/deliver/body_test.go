package deliver

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func stuffed(t testing.TB, r io.Reader) string {
	var out bytes.Buffer
	w := &bodyWriter{w: bufio.NewWriter(&out)}
	if _, err := io.Copy(w, r); err != nil {
		t.Fatal(err)
	}
	if err := w.finish(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestBodyIsNormalisedAndStuffed(t *testing.T) {
	for in, out := range map[string]string{
		"":                        ".\r\n",
		"a":                       "a\r\n.\r\n",
		"a\r\n":                   "a\r\n.\r\n",
		"a\r\nb\r\n":              "a\r\nb\r\n.\r\n",
		"a\n":                     "a\r\n.\r\n",
		"a\r":                     "a\r\n.\r\n",
		"a\rb":                    "a\r\nb\r\n.\r\n",
		"a\n\rb":                  "a\r\n\r\nb\r\n.\r\n",
		"a\r\r\nb":                "a\r\n\r\nb\r\n.\r\n",
		"\r\n\r\n":                "\r\n\r\n.\r\n",
		"\r":                      "\r\n.\r\n",
		".":                       "..\r\n.\r\n",
		".\r\n":                   "..\r\n.\r\n",
		"a\r\n.\r\nb":             "a\r\n..\r\nb\r\n.\r\n",
		"a\n.\nMAIL FROM:<x>\r\n": "a\r\n..\r\nMAIL FROM:<x>\r\n.\r\n",
		"a\n.\r\nb":               "a\r\n..\r\nb\r\n.\r\n",
		"a\r.\r\nb":               "a\r\n..\r\nb\r\n.\r\n",
		"a\r\n.\rb":               "a\r\n..\r\nb\r\n.\r\n",
		"a\r\n.\x00\r\nb":         "a\r\n..\x00\r\nb\r\n.\r\n",
		"a.\r\n..b.\r\n":          "a.\r\n...b.\r\n.\r\n",
	} {
		if got := stuffed(t, strings.NewReader(in)); got != out {
			t.Errorf("%q became %q, want %q", in, got, out)
		}
		if got := stuffed(t, iotest.OneByteReader(strings.NewReader(in))); got != out {
			t.Errorf("%q byte by byte became %q, want %q", in, got, out)
		}
	}
}

// FuzzBody: whatever is sent, only its end reads as the end of the message, by any reading of line
// ends, and it is the same message but for its line ends.
func FuzzBody(f *testing.F) {
	for _, s := range []string{"", ".", "a\r\n.\r\nb", "a\n.\r\nb\r.\r", "\r\r\n\n.."} {
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, in []byte, split int) {
		split = min(max(split, 0), len(in))
		got := stuffed(t, io.MultiReader(bytes.NewReader(in[:split]), bytes.NewReader(in[split:])))
		body, ok := strings.CutSuffix(got, ".\r\n")
		if !ok || body != "" && !strings.HasSuffix(body, "\r\n") {
			t.Fatalf("%q does not end in a final dot", got)
		}
		if bare := strings.ReplaceAll(body, "\r\n", ""); strings.ContainsAny(bare, "\r\n") {
			t.Fatalf("%q has a bare CR or LF", body)
		}
		lines := strings.SplitAfter(body, "\r\n")
		for i, line := range lines {
			if line == ".\r\n" {
				t.Fatalf("%q ends early", got)
			}
			lines[i] = strings.TrimPrefix(line, ".")
		}
		unify := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace
		source := unify(string(in))
		if source != "" && !strings.HasSuffix(source, "\n") {
			source += "\n"
		}
		if unify(strings.Join(lines, "")) != source {
			t.Fatalf("%q became %q", in, got)
		}
	})
}
