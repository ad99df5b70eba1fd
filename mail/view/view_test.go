package view

import (
	"fmt"
	"strings"
	"testing"
)

// TestStyleAttribute says what of a style comes through.
func TestStyleAttribute(t *testing.T) {
	for in, want := range map[string]string{
		"color:red;Font-Size: 12PX":                     "color:red;font-size:12px;",
		"color: #FF0000 !important":                     "color:#FF0000!important;",
		"background: #fff url(x.png) no-repeat":         "background-color:#fff;",
		"background:url(x.png) rgb(1, 2, 3) center":     "background-color:rgb(1, 2, 3);",
		"background:red":                                "background-color:red;",
		"background: red url(x)":                        "",
		"font: bold 12px/1.5 'Open Sans', Arial":        `font:bold 12px / 1.5 "Open Sans", Arial;`,
		"margin:0 auto;margin-top:-10px":                "margin:0 auto;",
		"border:1px solid rgba(0,0,0,.5)":               "border:1px solid rgba(0, 0, 0, 0.5);",
		"width:100.33333%;height:1e9px;max-width:1e3px": "width:100.333%;max-width:1000px;",
		"position:fixed;top:0;z-index:9":                "",
		"color:r\\65 d;color:expression(1)":             "",
		"width:calc(1px + 2px);width:100vw":             "",
		"font-family:'a;b';color:blue":                  "color:blue;",
		"font-family:'a\nb';color:blue":                 "",
		"color:{;};color:blue;font-size:1px":            "color:blue;font-size:1px;",
		"color:rgb(1,2":                                 "",
		"color:rgb(red)":                                "",
		"/* color:red; */ color:green /* x */":          "color:green;",
		"color":                                         "",
		":red;;;color:":                                 "",
		"font-family:Arial" + strings.Repeat(",x", 99):  "",
	} {
		got := ""
		for _, d := range parseStyleAttribute(in) {
			got += d.String() + ";"
		}
		if got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// TestStyleSheets says what of style elements comes through.
func TestStyleSheets(t *testing.T) {
	for in, want := range map[string]string{
		".a{color:red}": ".m-a{color:red;}\n",
		"P.a.b , #c td{color:red;position:fixed}":                                               "p.m-a.m-b,.i-c td{color:red;}\n",
		"table > .x a:hover{color:red}":                                                         "table>.m-x a:hover{color:red;}\n",
		".a [href], .b{color:red}":                                                              ".m-b{color:red;}\n",
		"a::after{color:red} a b c d{color:red}":                                                "",
		"a:visited{color:red} object{color:red}":                                                "",
		"> a{color:red} a >{color:red} {color:x}":                                               "",
		".\\61{color:red}":                                                                      "",
		"@import 'x'; .a{color:red}":                                                            ".m-a{color:red;}\n",
		"@font-face{font-family:x} .a{width:1px}":                                               ".m-a{width:1px;}\n",
		"@media ONLY screen and (max-width: 600px) { .a { width: 100% !important } }":           "@media only screen and (max-width:600px){.m-a{width:100%!important;}\n}\n",
		"@media (min-width:1px) and (max-width:9px){.a{width:1px}}.b{width:1px}":                "@media (min-width:1px) and (max-width:9px){.m-a{width:1px;}\n}\n.m-b{width:1px;}\n",
		"@media print{.a{width:1px}} @media screen, print{.a{width:1px}} @media{.a{width:1px}}": "",
		"@media screen{@media screen{.a{width:1px}}.b{width:1px}}":                              "@media screen{.m-b{width:1px;}\n}\n",
		"@media screen{} @supports (x){.a{width:1px}}":                                          "",
		"<!-- .a{width:1px} -->":                                                                ".m-a{width:1px;}\n",
		".a{width:1px":                                                                          ".m-a{width:1px;}\n",
		".a{color:red;x:{;}} .b{width:1px}":                                                     ".m-a{color:red;}\n.m-b{width:1px;}\n",
	} {
		if got := string(readSheets([]string{in}).out); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func bodyOf(d *Document) string {
	_, rest, _ := strings.Cut(string(d.HTML), "<body")
	_, rest, _ = strings.Cut(rest, ">")
	rest, _, _ = strings.Cut(rest, "</body>")
	return rest
}

// TestStylesAreClasses: equal styles share a class, and only classes that a style sheet speaks of
// stay.
func TestStylesAreClasses(t *testing.T) {
	d := HTML(`<style>.a{color:red} #b{color:blue}</style><body style="color:green"><p style="color:red" class="a x held" id=b>1</p>`+
		`<p style="COLOR : red">2</p><p style="position:fixed" class=x>3</p>`, Options{})
	const want = `<p class="s1 m-a i-b">1</p><p class="s1">2</p><p>3</p>`
	if got := bodyOf(d); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, part := range []string{`<body dir="auto" class="s0">`, "@layer message{\n.m-a{color:red;}\n.i-b{color:blue;}\n}\n", ".s0{color:green;}\n.s1{color:red;}\n"} {
		if !strings.Contains(string(d.HTML), part) {
			t.Errorf("no %q in %s", part, d.HTML)
		}
	}
}

// TestNesting: every element ends in the one that it began in, as HTML that leaves out tags means
// it.
func TestNesting(t *testing.T) {
	for in, want := range map[string]string{
		"<p>a<p>b":                                     "<p>a</p><p>b</p>",
		"<p>a<div>b</div>c":                            "<p>a</p><div>b</div>c",
		"<ul><li>a<ul><li>b</ul><li>c":                 "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>",
		"<b><i>a</b>b</i>":                             "<b><i>a</i></b>b",
		"<div>a</p></div></div>b":                      "<div>a</div>b",
		"<dl><dt>a<dd>b<dt>c":                          "<dl><dt>a</dt><dd>b</dd><dt>c</dt></dl>",
		"<table><tr><td>a<td>b<tr><td>":                "<table><tr><td>a</td><td>b</td></tr><tr><td></td></tr></table>",
		"<div><table><tr><td></div>a":                  "<div><table><tr><td>a</td></tr></table></div>",
		"<table><tr><td><p>a<table><tr><td>b</table>c": "<table><tr><td><p>a</p><table><tr><td>b</td></tr></table>c</td></tr></table>",
		"<table><thead><tr><td>a<tbody><tr><td>b":      "<table><thead><tr><td>a</td></tr></thead><tbody><tr><td>b</td></tr></tbody></table>",
		"<br></br><hr/><div/>a":                        "<br><hr><div>a</div>",
		"<a href=x><a name=y>a</a>b":                   "ab",
	} {
		if got := bodyOf(HTML(in, Options{})); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

// TestLinks says which links are there, and which of them are shown to lead elsewhere than they
// seem to.
func TestLinks(t *testing.T) {
	const after = `" target="_blank" rel="noopener noreferrer nofollow"`
	for in, want := range map[string]string{
		`<a href="https://a.example/x?y=1&amp;z=2">words</a>`:        `<a href="https://a.example/x?y=1&amp;z=2` + after + ` title="a.example">words</a>`,
		`<a href="https://a.example/">www.a.example</a>`:             `<a href="https://a.example/` + after + ` title="a.example">www.a.example</a>`,
		`<a href="https://click.a.example/">https://a.example/b</a>`: `<a href="https://click.a.example/` + after + ` title="click.a.example">https://a.example/b</a>`,
		`<a href="https://evil.test/" title=a.com>see a.com</a>`:     `<a href="https://evil.test/` + after + ` title="evil.test" class="odd">see a.com</a>`,
		`<a href="https://evil.test/"><b>a</b>.com</a>`:              `<a href="https://evil.test/` + after + ` title="evil.test" class="odd"><b>a</b>.com</a>`,
		`<a href="https://evil.test/">Node.js</a>`:                   `<a href="https://evil.test/` + after + ` title="evil.test">Node.js</a>`,
		`<a href="https://evil.test/">http://node.js</a>`:            `<a href="https://evil.test/` + after + ` title="evil.test" class="odd">http://node.js</a>`,
		`<a href="https://evil.test/">www.bank.example</a>`:          `<a href="https://evil.test/` + after + ` title="evil.test" class="odd">www.bank.example</a>`,
		`<a href="https://evil.test/">ａ。com</a>`:                     `<a href="https://evil.test/` + after + ` title="evil.test" class="odd">ａ。com</a>`,
		`<a href="https://a.com@evil.test/">x</a>`:                   `<a href="https://a.com@evil.test/` + after + ` title="evil.test" class="odd">x</a>`,
		`<a href="https://bücher.test/">x</a>`:                       `<a href="https://b%C3%BCcher.test/` + after + ` title="xn--bcher-kva.test">x</a>`,
		"<a href=\"https://evil.test/\">\u202emoc.a\u202c</a>":       `<a href="https://evil.test/` + after + ` title="evil.test">moc.a</a>`,
		`<a href="https://evil.test/"><img src=cid:x alt=a.com></a>`: `<a href="https://evil.test/` + after + ` title="evil.test" class="odd"><span class="held">a.com</span></a>`,
		`<a href="mailto:b@a.com">b@a.com</a>`:                       `<a href="mailto:b@a.com` + after + `>b@a.com</a>`,
	} {
		if got := bodyOf(HTML(in, Options{})); got != want {
			t.Errorf("%s became\n%s, want\n%s", in, got, want)
		}
	}
}

// TestImages counts what is shown, held and left out.
func TestImages(t *testing.T) {
	const raw = `<img src="https://a.example/1.png" width=300 height="20" alt="one"><img src="HTTPS://a.example/2.png" style="width:50px">` +
		`<img src="cid:logo"><img src="http://a.example/3.png" alt=three><img src="https://a.example/t" width=1 height=1>` +
		`<img src="https://a.example/u" style="display:none"><img src="https://a.example/line" width=600 height=1>`
	held := HTML(raw, Options{Image: func(src string) string {
		if src == "cid:logo" {
			return "/i/logo"
		}
		return ""
	}})
	if held.Remote != 3 || held.Held != 3 || held.Trackers != 2 {
		t.Errorf("remote %d, held %d, trackers %d", held.Remote, held.Held, held.Trackers)
	}
	const want = `<span class="held s0">one</span><span class="held s1"></span><img src="/i/logo" alt=""><span class="held">three</span><span class="held s2"></span>`
	if got := bodyOf(held); got != want {
		t.Errorf("got %s", got)
	}
	if !strings.Contains(string(held.HTML), "{width:300px;height:20px;}") || strings.Contains(string(held.HTML), "a.example") {
		t.Errorf("places: %s", held.HTML)
	}
	shown := HTML(raw, Options{Image: func(src string) string { return "/i/" + fmt.Sprint(len(src)) }})
	if shown.Remote != 3 || shown.Held != 0 || shown.Trackers != 2 || strings.Count(string(shown.HTML), "<img ") != 4 {
		t.Errorf("remote %d, held %d, trackers %d: %s", shown.Remote, shown.Held, shown.Trackers, shown.HTML)
	}
}

// TestThemes: a message that has colours of its own is shown on white in the dark too.
func TestThemes(t *testing.T) {
	for in, dark := range map[string]bool{
		"<p>x": true, `<p style="font-size:12px">x`: true, `<p style="color:inherit;background:transparent">x`: true,
		"<body bgcolor=#ffffff>x": false, `<td bgcolor="#fff">x`: false, "<font color=black>x": false,
		`<p style="color:#000">x`: false, "<style>p{background:#fff}</style><p>x": false,
	} {
		if got := strings.Contains(string(HTML(in, Options{Dark: true}).HTML), "color-scheme:dark"); got != dark {
			t.Errorf("%s: dark is %v", in, got)
		}
		if strings.Contains(string(HTML(in, Options{}).HTML), "color-scheme:dark") {
			t.Errorf("%s: dark without being asked", in)
		}
	}
	if !strings.Contains(string(Text("x", Options{Dark: true}).HTML), "color-scheme:dark") {
		t.Error("plain text is not dark")
	}
}

// TestText writes plain text with links, quotations and a signature.
func TestText(t *testing.T) {
	const blank = `" target="_blank" rel="noopener noreferrer nofollow"`
	for in, want := range map[string]string{
		"a <b>\n c": "a &lt;b&gt;\n c\n",
		"see https://a.example/b_(c), or (www.a.example).": `see <a href="https://a.example/b_(c)` + blank + ` title="a.example">https://a.example/b_(c)</a>, or (<a href="https://www.a.example` + blank +
			` title="www.a.example">www.a.example</a>).` + "\n",
		"b@a.example!":                `<a href="mailto:b@a.example` + blank + ">b@a.example</a>!\n",
		"https://a.com@evil.test":     `<a href="https://a.com@evil.test` + blank + ` title="evil.test" class="odd">https://a.com@evil.test</a>` + "\n",
		"javascript:alert(1) http://": "javascript:alert(1) http://\n",
		"> a\n>> b\n> > c\n>d\ne":     "<div class=\"quote\">a\n<div class=\"quote\">b\nc\n</div>d\n</div>e\n",
		"a\n-- \nb\n> c":              "a\n<div class=\"signature\">-- \nb\n<div class=\"quote\">c\n</div></div>",
		">>>>>>>>>>a":                 strings.Repeat(`<div class="quote">`, maxQuote) + "&gt;&gt;&gt;&gt;a\n" + strings.Repeat("</div>", maxQuote),
		"\u202ex":                     "x\n",
		"   \n":                       emptyNote,
	} {
		d := Text(in, Options{})
		checkDocument(t, d)
		if got := bodyOf(d); got != want {
			t.Errorf("%q became\n%q, want\n%q", in, got, want)
		}
	}
	if d := Text("x", Options{More: true, Title: "</title><script>"}); !strings.Contains(string(d.HTML), truncatedNote) || strings.Contains(string(d.HTML), "<script") {
		t.Errorf("got %s", d.HTML)
	}
}
