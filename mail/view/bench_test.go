package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// large are pages of 1 MB that take the most work in some way.
func large() map[string]string {
	const size = 1 << 20
	fill := func(head, s, tail string) string {
		return head + strings.Repeat(s, (size-len(head)-len(tail))/len(s)) + tail
	}
	var different strings.Builder
	for i := 0; different.Len() < size-100; i++ {
		fmt.Fprintf(&different, `<td style="color:#%06x;padding:%dpx 1px;font-family:'A B',serif">x</td>`, i, i%100)
	}
	var rules strings.Builder
	for i := 0; rules.Len() < size-100; i++ {
		fmt.Fprintf(&rules, ".c%d td a,#i%d>p{color:red;width:%dpx}", i, i, i%1000)
	}
	return map[string]string{
		"newsletter": fill("<html><body>", `<table width="600" style="border-collapse:collapse;font-family:Arial,sans-serif;color:#333333"><tr><td align="left" style="padding:0 10px 8px 0;font-size:14px">`+
			`<a href="https://click.news.example/a?b=c&amp;d=e" style="color:#0a58ca;text-decoration:none">Read at news.example</a> some words of a story, and more of them<br>`+
			`<img src="https://img.news.example/a.png" width="200" height="100" alt="a thing"></td></tr></table>`, "</body></html>"),
		"text":       fill("", "lorem ipsum &amp; dolor ", ""),
		"styles":     "<table><tr>" + different.String(),
		"rules":      "<style>" + rules.String() + "</style><p>x",
		"media":      fill("<style>", "@media screen{}", "</style>"),
		"tags":       fill("", "<b>", ""),
		"ends":       fill("", "</b>", ""),
		"formatting": fill("<p>"+strings.Repeat("<font size=1><b><i><u>", 50), "<p>x", ""),
		"links":      fill("", "<a href=https://a.example>b.example", ""),
		"images":     fill("", "<img src=https://a.example>", ""),
		"tables":     fill("", "<table><tr><td>", ""),
		"lists":      fill("<ul>", "<li>", ""),
		"braces":     fill("<p style='", "{", "'>x"),
		"value":      fill("<p style='color:", "red ", "'>x"),
		"quotes":     fill("<p title='", "&quot;", "'>x"),
		"less":       fill("", "<", ""),
		"comments":   fill("", "<!--", ""),
		"classes":    fill("<style>.a{color:red}</style><p class='", "a ", "'>x"),
		"link text":  fill("<a href=https://a.example>", "a.b.", "</a>"),
	}
}

// TestLarge: a page of 1 MB takes a bounded time, and makes a document that is not much larger.
func TestLarge(t *testing.T) {
	for name, raw := range large() {
		start := time.Now()
		d := HTML(raw, Options{Image: func(string) string { return "/session/image/x" }})
		took := time.Since(start)
		t.Logf("%s: %d bytes of %d in %v", name, len(d.HTML), len(raw), took)
		for range 2 { // another's work beside this one is no fault of it
			if took < slower*2*time.Second {
				break
			}
			start = time.Now()
			HTML(raw, Options{})
			took = time.Since(start)
		}
		if took > slower*2*time.Second || len(d.HTML) > 5<<20 {
			t.Errorf("%s: %d bytes in %v", name, len(d.HTML), took)
		}
		if _, err := html.Parse(strings.NewReader(string(d.HTML))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func BenchmarkHTML(b *testing.B) {
	for name, raw := range large() {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				HTML(raw, Options{})
			}
		})
	}
}

func BenchmarkText(b *testing.B) {
	raw := strings.Repeat("> see https://a.example/b and write to a@b.example, or not\n", 1<<20/59)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		Text(raw, Options{})
	}
}
