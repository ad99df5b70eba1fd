package visible

import (
	"strings"
	"testing"
	"unicode"
)

// TestVisibleHTML: words that are not seen are left out, or are seen.
func TestVisibleHTML(t *testing.T) {
	for in, want := range map[string]string{
		``:                                  ``,
		`<p>Hi &amp; bye</p>`:               `<p>Hi &amp; bye</p>`,
		`a<!-- secret -->b`:                 `ab`,
		`a<!--[if mso]>secret<![endif]-->b`: `ab`,
		`a<p hidden>secret</p>b`:            `ab`,
		`a<div style="Display : NONE !important">secret<div>secret</div></div>b`:                       `ab`,
		`a<p style="display:none">secret<p>b`:                                                          `a<p>b`,
		`<ul><li hidden>secret<li>b</ul>`:                                                              `<ul><li>b</ul>`,
		`<ul><li hidden>secret</ul>b`:                                                                  `<ul></ul>b`,
		`<table><tr hidden><td>secret</td></tr><tr><td>b</td></tr></table>`:                            `<table><tr><td>b</td></tr></table>`,
		`a<span style="font-size:0px">secret</span>b`:                                                  `ab`,
		`a<span style="font-size:0.5em">b</span>`:                                                      `a<span>b</span>`,
		`<font color="white" size="1">seen</font>`:                                                     `seen`,
		`<p style="color:#fff" class="a" id="b" data-x="secret" title="secret" lang="secret">seen</p>`: `<p>seen</p>`,
		`a<template>secret</template><noscript>secret</noscript><script>secret</script>b`:              `ab`,
		`a<textarea>secret</textarea><select><option>secret</select><title>secret</title>b`:            `ab`,
		`a<iframe>secret</iframe><object data="x">secret</object><svg><text>secret</text></svg>b`:      `ab`,
		`a<svg/>b`: `ab`,
		`a<img src="https://x.test/?secret" alt="secret">b`:             `ab`,
		`a<plaintext>secret</p>`:                                        `a`,
		"z\u200be\u2060r\u00ado\ufeff\u202e\U000e0041":                  `zero`,
		`z&#8203;e&#x2060;r&shy;o`:                                      `zero`,
		`<small>a<small>b</small></small>c`:                             `<small>ab</small>c`,
		`a<br><br><br><br><br><br>b`:                                    `a<br><br><br>b`,
		`<pre>` + strings.Repeat("\n", 50) + `a</pre>`:                  "<pre>\n\n\na</pre>",
		strings.Repeat("&nbsp;", 5000) + `a`:                            strings.Repeat("\u00a0", 80) + "a",
		`<style>p{color:red}</style>a`:                                  `a`,
		`<head><title>secret</title></head><body onload="x()">a</body>`: `a`,
	} {
		if got := HTML(in); got != want {
			t.Errorf("%.200q:\n%.300q, want\n%.300q", in, got, want)
		}
	}
	for _, in := range []string{`<a href="https://x.test/?secret">here</a>`, `<a href="https://x.test/?secret"></a>.`, `<a href="mailto:a@x.test?body=secret">a@x.test</a>!`} {
		once := HTML(in)
		if !strings.Contains(HTMLText(once), "secret") || HTML(once) != once || LocalHTML(once) != once {
			t.Errorf("%s: %s, then %s", in, once, HTML(once))
		}
	}
}

func TestVisibleText(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a": "a\n", "a\r\nb\r": "a\nb\n", strings.Repeat("\n", 500) + "a\n\n\n\n\n\nb\n\n": "a\n\n\nb\n", "-- \nme": "-- \nme\n",
		"a \t \nb": "a\nb\n", "a" + strings.Repeat(" ", 5000) + "b": "a" + strings.Repeat(" ", 80) + "b\n", "\u200b\u202e\x07": "", "a\u2028b": "a\nb\n", "a\u2800b\u3164c": "a bc\n",
	} {
		if got := Text(in); got != want {
			t.Errorf("%.100q: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{"": "", " a \t\u00a0 b\n": "a b", "in\u00advoice\u202efdp": "invoicefdp", "a\x00b": "a b", "\u0600\u0661": "\u0600\u0661"} {
		if got := Line(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := MarkInvisible("a\u200bb\x07\r\n"); got != "a[U+200B]b[U+0007]\n" {
		t.Errorf("marked: %q", got)
	}
}

// FuzzVisible: nothing invisible is left, no attribute but those that show, and once is enough for
// text.
func FuzzVisible(f *testing.F) {
	f.Add(`<p hidden>a<p>b<a href="https://x.test/">c</a><!-- d --><svg/><sub>e<sup>f`)
	f.Add("a\u200b  \t\n\n\n\n\nb")
	f.Fuzz(func(t *testing.T, in string) {
		html, text, line := HTML(in), Text(in), Line(in)
		lower := strings.ToLower(html)
		if strings.Contains(html, "<!--") || strings.Contains(lower, "<img") || strings.Contains(lower, "<style") || loads.MatchString(html) {
			t.Errorf("%q: %q", in, html)
		}
		for _, s := range []string{html, text, line} {
			if i := strings.IndexFunc(s, IsInvisible); i >= 0 {
				t.Errorf("%q: %q has an invisible character at %d", in, s, i)
			}
		}
		if Text(text) != text || Line(line) != line || strings.ContainsFunc(line, unicode.IsControl) {
			t.Errorf("%q: %q, %q", in, text, line)
		}
	})
}
