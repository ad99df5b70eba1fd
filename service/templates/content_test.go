package templates

import (
	"html"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
)

func code(err error) string {
	if e, ours := core.AsError(err); ours {
		return e.Code
	}
	return ""
}

// TestFillingIsBounded: a template that uses a variable 100 000 times with a long value is refused
// before the result is built, whatever the value is.
func TestFillingIsBounded(t *testing.T) {
	for name, c := range map[string]Content{
		"text":    {Subject: "s", Text: strings.Repeat("{{v}}", 100_000)},
		"html":    {Subject: "s", HTML: strings.Repeat("{{v}}", 100_000)},
		"subject": {Subject: strings.Repeat("{{v}}", 199), Text: "t"},
	} {
		f, err := c.Form()
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{strings.Repeat("a", 900<<10), strings.Repeat("&", 900<<10)} {
			values := Variables{"v": Text(value)}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			_, err := f.Fill(values)
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			if code(err) != "payload_too_large" {
				t.Errorf("%s: %v", name, err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
				t.Errorf("%s: %d bytes were allocated", name, used)
			}
			t.Logf("%s: %v", name, took)
		}
	}
}

// TestSizeIsThatOfWhatIsFilled: Size returns the size that Fill results in.
func TestSizeIsThatOfWhatIsFilled(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"{{a}}", "{{ b.c }}", "x", "<p>", "&", "{", "}", "é", "\n"}
	values := []string{"", "1", "a&b", `<"'>`, "é{{a}}"}
	text := func() (out string) {
		for range rnd.IntN(20) {
			out += pieces[rnd.IntN(len(pieces))]
		}
		return out
	}
	filled := 0
	for range 5000 {
		c := Content{text(), text(), text()}
		f, err := c.Form()
		if err != nil {
			continue
		}
		a, b := values[rnd.IntN(len(values))], values[rnd.IntN(len(values))]
		vars := Variables{"a": Text(a), "b.c": Text(b)}
		size, err := f.Size(vars)
		if code(err) == "missing_variable" || code(err) == "validation_error" {
			continue // such as "{{" + "x" + "}}", or a subject of two lines
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err := f.Fill(vars)
		if err != nil {
			t.Fatal(err)
		}
		if n := int64(len(out.Subject) + len(out.Text) + len(out.HTML)); n != size {
			t.Fatalf("%+v with %q and %q: %d bytes, measured %d", c, a, b, n, size)
		}
		plain := strings.NewReplacer("{{a}}", a, "{{ b.c }}", b)
		rich := strings.NewReplacer("{{a}}", html.EscapeString(a), "{{ b.c }}", html.EscapeString(b))
		if out != (Content{plain.Replace(c.Subject), plain.Replace(c.Text), rich.Replace(c.HTML)}) {
			t.Fatalf("%+v with %q and %q became %+v", c, a, b, out)
		}
		filled++
	}
	if filled < 1000 {
		t.Errorf("only %d were filled", filled)
	}
}
