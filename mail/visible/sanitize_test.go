package visible

import (
	"strings"
	"testing"
)

// TestSanitizeHTML names what must never come through.
func TestSanitizeHTML(t *testing.T) {
	for _, in := range []string{
		`<script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `<a href="javascript:alert(1)">x</a>`, `<a href=" java&#10;script:alert(1)">x</a>`,
		`<iframe src="https://x.example">`, `<form action="https://x.example"><input></form>`, `<style>@import url(https://x.example)</style>`,
		`<p style="background:url(https://x.example/i)">`, `<p style="width:expression(alert(1))">`, `<link rel=stylesheet href="https://x.example">`,
		`<meta http-equiv=refresh content="0;url=https://x.example">`, `<base href="https://x.example">`, `<object data="https://x.example">`,
		`<svg><script>alert(1)</script></svg>`, `<math><mi xlink:href="javascript:alert(1)">`, `<img src="data:text/html,<script>alert(1)</script>">`,
		`<img src="http://x.example/i.png">`, `<video src="https://x.example">`, `<p style="color:red;background-image:\75rl(https://x.example)">`,
		`<td background="https://x.example/i.png">`, `<noscript><p title="</noscript><img src=x onerror=alert(1)>">`, `<p id=top name=x class=y>`,
		`<img srcset="https://x.example 1x">`, `<body onload=x>`, `<textarea>`, `<p style="position:fixed;top:0">`,
	} {
		got := strings.ToLower(SanitizeHTML(in))
		for _, bad := range []string{"script", "onerror", "x.example", "expression", "url(", "<form", "<input", "<iframe", "<svg", "<math", "<style",
			"data:", "onload", "<textarea", "position", "class=", "id=", "<link", "<meta"} {
			if strings.Contains(got, bad) && !strings.Contains(got, "&lt;") {
				t.Errorf("%s became %s", in, got)
			}
		}
	}
	for in, want := range map[string]string{
		`<a href="https://x.example/">x</a>`:                            `<a href="https://x.example/" rel="nofollow noreferrer noopener" target="_blank">x</a>`,
		`<img src="https://x.example/i.png" width="10" alt="i">`:        `<img src="https://x.example/i.png" width="10" alt="i">`,
		`<img src="cid:logo@x">`:                                        `<img src="cid:logo@x">`,
		`<p style="color: #f00; font-size: 12px">x</p>`:                 `<p style="color: #f00; font-size: 12px">x</p>`,
		`<p style="color: rgb(1, 2, 3)">x</p>`:                          `<p style="color: rgb(1, 2, 3)">x</p>`,
		`<table width="100%" cellpadding=0><tr><td>x</td></tr></table>`: `<table width="100%" cellpadding="0"><tr><td>x</td></tr></table>`,
	} {
		if got := SanitizeHTML(in); got != want {
			t.Errorf("%s became %s", in, got)
		}
	}
}

func TestHTMLText(t *testing.T) {
	for in, want := range map[string]string{
		"<p>one</p><p>two <b>three</b></p>":                     "one\n\ntwo three",
		"a<br>b<br/>c":                                          "a\nb\nc",
		"<title>no</title><style>x</style>a &amp; b&#33;":       "a & b!",
		"<script>no</script>yes":                                "yes",
		"<table><tr><td>a</td><td>b</td></tr><tr><td>c</table>": "a b\nc",
		"un<b>bro</b>ken":                                       "unbroken",
		"  a \n b  ":                                            "a b",
	} {
		if got := HTMLText(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
