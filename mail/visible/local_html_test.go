package visible

import (
	"regexp"
	"strings"
	"testing"
)

// TestLocalHTML: nothing is loaded from elsewhere, and a link shows where it leads.
func TestLocalHTML(t *testing.T) {
	for in, want := range map[string]string{
		`<p>Hi</p>`: `<p>Hi</p>`,
		`<img src="https://x.test/a.png" alt="A">`:                     ` alt="A"`,
		`<img src="cid:logo">`:                                         `src="cid:logo"`,
		`<a href="https://x.test/a?b=1&amp;c=2">here</a>`:              `here</a> &lt;https://x.test/a?b=1&amp;c=2&gt;`,
		`<a href="https://x.test/">https://x.test/</a>`:                `>https://x.test/</a>`,
		`<a href="https://evil.test/">https://x.test/</a>`:             `</a> &lt;https://evil.test/&gt;`,
		`<a href="mailto:a@x.test">a@x.test</a>`:                       `>a@x.test</a>`,
		`<a href="https://x.test/1">one<a href="https://x.test/2">two`: `&lt;https://x.test/2&gt;`,
	} {
		if got := LocalHTML(in); !strings.Contains(got, want) || strings.Contains(in, ">a@x.test") && strings.Contains(got, "&lt;") {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	for _, in := range []string{
		`<link rel=stylesheet href=https://x.test/a>`, `<style>@import "https://x.test/a"</style>`, `<p style="background:url(https://x.test/a)">`, `<body background=https://x.test/a>`,
		`<table background="https://x.test/a"><tr><td background="//x.test/a">`, `<video src=https://x.test/a poster=https://x.test/a>`, `<iframe src=https://x.test/a>`,
		`<svg><image xlink:href="https://x.test/a"/></svg>`, `<img srcset="https://x.test/a 2x">`, `<meta http-equiv=refresh content="0;url=https://x.test/a">`, `<base href=https://x.test/>`,
		`<input type=image src=https://x.test/a>`, `<object data=https://x.test/a>`, `<img src=//x.test/a>`, `<img src="HTTPS://x.test/a">`, `<amp-img src="https://x.test/a">`, `<form action="https://x.test/a">`,
	} {
		if got := LocalHTML(in); strings.Contains(strings.ToLower(got), "x.test") {
			t.Errorf("%s: %s", in, got)
		}
	}
}

var loads = regexp.MustCompile(`(?i)<[^>]*\s(?:src|srcset|background|poster|data|action|style)\s*=\s*["']?(?:[^c"'>]|c[^i"'>])[^>]*>`)

// FuzzLocalHTML: no element that is left loads anything but parts of the message.
func FuzzLocalHTML(f *testing.F) {
	f.Add(`<a href="https://x.test/"><img src=https://x.test/a></a>`)
	f.Add(`<img src="cid:a"><p style="x:url(//a)">`)
	f.Fuzz(func(t *testing.T, in string) {
		if got := LocalHTML(in); loads.MatchString(got) {
			t.Errorf("%q: %q", in, got)
		}
	})
}
