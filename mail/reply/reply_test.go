package reply

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/cputime"
	"github.com/mailstead/mailstead/mail/msg"
)

// A letter is a message of testdata with what its author wrote.
type letter struct {
	name, message, want string
}

// letters reads testdata. A message begins after a line "=== name", and what is wanted of it after
// "=== want". It is plain text, or HTML if the name ends in text/html, or a whole message if the
// name ends in eml.
func letters(t testing.TB) (out []letter) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range strings.Split("\n"+string(text), "\n=== ")[1:] {
			name, body, _ := strings.Cut(section, "\n")
			if name == "want" {
				out[len(out)-1].want = body
				continue
			}
			l := letter{name: name, message: body + "\n"}
			if kind, ok := strings.CutSuffix(name, " eml"); ok {
				l.name = kind
			} else if kind, ok := strings.CutSuffix(name, " text/html"); ok {
				l.name, l.message = kind, "Content-Type: text/html; charset=utf-8\n\n"+l.message
			} else {
				l.message = "Content-Type: text/plain; charset=utf-8\n\n" + l.message
			}
			out = append(out, l)
		}
		out[len(out)-1].want = strings.TrimSuffix(out[len(out)-1].want, "\n")
	}
	return out
}

func TestLetters(t *testing.T) {
	all := letters(t)
	for _, group := range [][]string{
		{"gmail web", "gmail, Android", "outlook desktop", "outlook web", "outlook for", "apple mail", "iphone", "thunderbird", "yahoo", "samsung", "k-9", "mailing list"},
		{"English", "German", "French", "Spanish", "Portuguese", "Italian", "Dutch", "Polish"},
	} {
		for _, word := range group {
			n := 0
			for _, l := range all {
				if strings.Contains(l.name, word) {
					n++
				}
			}
			if t.Logf("%s: %d of %d", word, n, len(all)); n < 2 {
				t.Errorf("%d messages of %s", n, word)
			}
		}
	}
	names := map[string]bool{}
	for _, l := range all {
		if names[l.name] {
			t.Errorf("two messages are named %s", l.name)
		}
		names[l.name] = true
		message := strings.ReplaceAll(l.message, "\n", "\r\n")
		root, err := msg.Scan(strings.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		body, err := msg.ReadRawBody(strings.NewReader(message), root, maxText)
		if err != nil {
			t.Fatal(err)
		}
		if got := Of(body); got != l.want {
			t.Errorf("%s:\n%q, want\n%q", l.name, got, l.want)
		}
	}
}

// hostile are texts and pages that take the most work in some way.
func hostile(size int) (texts, pages map[string]string) {
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	texts = map[string]string{
		"blank":         fill("\n"),
		"letters":       fill("a\n"),
		"one line":      fill("a"),
		"colons":        fill(":\n"),
		"wrote":         fill("I wrote:\n"),
		"introductions": fill("On 1\na\nb\nc:@\n"),
		"long starts":   fill("On 1 " + strings.Repeat("a ", 140) + "\nx:\n"),
		"addresses":     fill("a <a@b> wrote\n9:30:\n"),
		"fields":        fill("From: a\nTo: b\n"),
		"other fields":  fill("To: b\nx\n"),
		"cut fields":    fill("To: b\nDate: a\nSubject: c\n"),
		"many fields":   fill("From: a\n" + strings.Repeat("To: b\n", 25)),
		"marks":         fill("-- original message\n>\n"),
		"dashes":        fill("--------\n"),
		"footers":       fill("--------\na\nb\nc\n"),
		"signatures":    fill("--\n"),
		"signatures 2":  fill("-- \n>\n"),
		"phones":        fill("Sent from a\n\n"),
		"phones 2":      fill("Sent from " + strings.Repeat("a", 280) + "\n\n"),
		"quotes":        fill(">\na\n"),
		"spaces":        fill(" \u00a0\t"),
		"from":          fill(">From \n\n"),
		"capitals":      fill("İ\n"),
	}
	pages = map[string]string{
		"tags":        fill("<div>"),
		"ends":        fill("<div></span>"),
		"closed":      fill("<div><span></div>"),
		"quotes":      fill("<blockquote>a</blockquote>b"),
		"blockquotes": fill("<blockquote>a"),
		"headers":     fill("<div style='border-top:1px'>a:<br>"),
		"breaks":      fill("<br>"),
		"attributes":  "<div " + fill("a=b ") + ">",
		"class":       "<div class='" + fill("a ") + "'>",
		"classes":     fill("<div class='" + strings.Repeat("a ", 490) + "'>"),
		"gmail":       fill("<div class=gmail_quote><div class=gmail_attr>-----"),
		"less":        fill("<"),
		"comments":    fill("<!--"),
		"entities":    fill("&nbsp;"),
		"pre":         "<pre>" + fill("\n"),
		"words":       fill("a "),
	}
	return texts, pages
}

// TestHostile: 64 KiB take a bounded time, whatever they are.
func TestHostile(t *testing.T) {
	texts, pages := hostile(64 << 10)
	check := func(name, s string, of func(string) string) {
		of(s)
		best := time.Hour
		for range 3 { // another's work beside this one is no fault of it
			start := cputime.Used(t)
			of(s)
			best = min(best, cputime.Used(t)-start)
		}
		t.Logf("%s: %v", name, best)
		if best > slower*20*time.Millisecond {
			t.Errorf("%s: %v", name, best)
		}
	}
	for name, s := range texts {
		check("text "+name, s, Text)
	}
	for name, s := range pages {
		check("page "+name, s, HTML)
	}
}

func TestLimits(t *testing.T) {
	long := strings.Repeat("a", maxText-1) + "é" + "b"
	if got := Text(long); got != long[:maxText-1] {
		t.Errorf("%d bytes, ending in %q", len(got), got[max(0, len(got)-5):])
	}
	if got := Text(strings.Repeat("a\n", maxLines+5)); strings.Count(got, "a") != maxLines {
		t.Errorf("%d lines", strings.Count(got, "a"))
	}
	if got := HTML(strings.Repeat("a<br>", maxLines+5)); strings.Count(got, "a") != maxLines {
		t.Errorf("%d lines of HTML", strings.Count(got, "a"))
	}
}

func BenchmarkText(b *testing.B) {
	texts, _ := hostile(64 << 10)
	texts["a letter"] = strings.Repeat("It is a fine day in the harbour, and the berths are free.\n\n", 64<<10/60)
	for name, s := range texts {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			b.ReportAllocs()
			report := cputime.Start(b)
			for b.Loop() {
				Text(s)
			}
			report()
		})
	}
}

func BenchmarkHTML(b *testing.B) {
	_, pages := hostile(64 << 10)
	for name, s := range pages {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			b.ReportAllocs()
			report := cputime.Start(b)
			for b.Loop() {
				HTML(s)
			}
			report()
		})
	}
}

// FuzzText: what comes out are lines of what went in, in their order, and no blank ones at the
// ends.
func FuzzText(f *testing.F) {
	for _, l := range letters(f) {
		f.Add(l.message)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Text(s)
		checkEnds(t, s, got)
		in := strings.Split(s, "\n")
		for _, text := range strings.Split(got, "\n") {
			if text == "" {
				continue
			}
			for len(in) > 0 && strings.TrimSpace(in[0]) != strings.TrimSpace(text) {
				in = in[1:]
			}
			if len(in) == 0 {
				t.Fatalf("%q of %q is not in it, or not there", text, s)
			}
			in = in[1:]
		}
	})
}

func FuzzHTML(f *testing.F) {
	for _, l := range letters(f) {
		f.Add(l.message)
	}
	f.Fuzz(func(t *testing.T, s string) { checkEnds(t, s, HTML(s)) })
}

func checkEnds(t *testing.T, s, got string) {
	t.Helper()
	if utf8.ValidString(s) && !utf8.ValidString(got) {
		t.Fatalf("%q of %q is no UTF-8", got, s)
	}
	if got == "" {
		return
	}
	lines := strings.Split(got, "\n")
	if strings.TrimSpace(lines[0]) == "" || strings.TrimSpace(lines[len(lines)-1]) == "" {
		t.Fatalf("%q of %q has blank lines at its ends", got, s)
	}
}
