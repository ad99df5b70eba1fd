package docs

import (
	"bytes"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"
	"golang.org/x/net/html"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/openapi"
)

// newTestSite returns a site with the guides and an API of one operation.
func newTestSite() *Site {
	type weather struct {
		Sky string `json:"sky" example:"blue"`
	}
	return New(openapi.Describe(openapi.API{
		Operations: []api.Operation{{
			Name: "get_weather", Route: api.GET("/v1/weather"), Status: 200, May: api.May{Scope: api.Read, Roles: api.Everyone}, Group: "Account", Summary: "Show the weather",
			Call: api.Caller{In: reflect.TypeFor[struct{}](), Out: reflect.TypeFor[weather]()},
		}},
		Errors: func(int, string, string, string) (own, rfc9457 any) {
			type problem struct {
				Code string `json:"code"`
			}
			type problemBody struct{ problem }
			type errorBody struct {
				Error problem `json:"error"`
			}
			return errorBody{}, problemBody{}
		},
	}), "")
}

// write returns Markdown as HTML.
func write(t *testing.T, s *Site, source string) string {
	t.Helper()
	doc, text := s.parse(&page{source: func() []byte { return []byte(source) }})
	var out bytes.Buffer
	if err := s.markdown.Renderer().Render(&out, text, doc); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestSlugIsThatOfGitHub(t *testing.T) {
	for line, want := range map[string]string{
		"Is the host fit for mail?": "is-the-host-fit-for-mail", "`mailstead call`": "mailstead-call", "SPF, DKIM & DMARC": "spf-dkim--dmarc",
		"not_found": "not_found", "Übersicht – kurz": "übersicht--kurz", "400 Bad Request": "400-bad-request",
	} {
		if got := slug(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	if html := write(t, newTestSite(), "# A\n\n## B\n\n## B\n"); !strings.Contains(html, `<h2 id="b">`) || !strings.Contains(html, `<h2 id="b-1">`) {
		t.Errorf("two headings with one text: %s", html)
	}
}

// TestLinksLeadToPages: those in Markdown to Markdown, those in HTML to HTML.
func TestLinksLeadToPages(t *testing.T) {
	s := newTestSite()
	for _, tc := range []struct{ folder, target, text, html string }{
		{".", "delivery.md#relays", "/docs/delivery.md#relays", "/docs/delivery#relays"},
		{".", "examples/README.md", "/docs/examples.md", "/docs/examples"},
		{".", "examples", "/docs/examples.md", "/docs/examples"},
		{"examples", "../agents.md", "/docs/agents.md", "/docs/agents"},
		{"examples", "python/signup.py", "/docs/examples/python/signup.py", "/docs/examples/python/signup.py"},
		{"examples", "python", repository + "docs/examples/python", repository + "docs/examples/python"},
		{".", "../SECURITY.md", repository + "SECURITY.md", repository + "SECURITY.md"},
		{".", "#here", "#here", "#here"},
		{".", "https://example.com/x.md", "https://example.com/x.md", "https://example.com/x.md"},
	} {
		p := &page{folder: tc.folder, source: func() []byte { return []byte("A [link](" + tc.target + ").") }}
		if got, want := string(s.text(p)), "A [link]("+tc.text+")."; got != want {
			t.Errorf("%s: %s, want %s", tc.target, got, want)
		}
		doc, source := s.parse(p)
		var out bytes.Buffer
		if err := s.markdown.Renderer().Render(&out, source, doc); err != nil {
			t.Fatal(err)
		}
		if want := `<p>A <a href="` + tc.html + `">link</a>.</p>`; strings.TrimSpace(out.String()) != want {
			t.Errorf("%s: %s, want %s", tc.target, out.String(), want)
		}
	}
}

// TestProseShowsWhatItWas: a text of the API is shown as it is, whatever it means in Markdown.
func TestProseShowsWhatItWas(t *testing.T) {
	s := newTestSite()
	for _, text := range []string{
		"plain", "2 * 3 * 4", "_under_ and in_between and __all__", "<b>bold</b>", "a [link](x) and ![x](y)", `back\slash \*`, "with `code_x *y* <z>` in it", "a|b", "5 < 6 > 4 & 7",
	} {
		root, err := html.Parse(strings.NewReader(write(t, s, "# "+prose(text)+"\n\n"+prose(text))))
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for n := range root.Descendants() {
			if n.Type == html.TextNode && n.Parent.Data != "a" {
				got.WriteString(n.Data)
			}
			if n.Type == html.ElementNode && (n.Data == "em" || n.Data == "strong" || n.Data == "b" || n.Data == "img") {
				t.Errorf("%q has <%s>", text, n.Data)
			}
		}
		want := strings.ReplaceAll(text, "`", "")
		if strings.Count(got.String(), want) != 2 {
			t.Errorf("%q is shown as %q", text, got.String())
		}
	}
}

func TestCellsStayInTheirColumn(t *testing.T) {
	w := &groupWriter{site: newTestSite()}
	w.WriteString(fieldsHead)
	w.writeRow("`a`", "string (`x|y`)", "one\ntwo | three")
	html := write(t, w.site, w.String())
	if !strings.Contains(html, `<td data-label="Type">string (<code>x|y</code>)</td>`) || !strings.Contains(html, `<td data-label="Meaning">one two | three</td>`) {
		t.Error(html)
	}
}

// TestCodeWithTitlesIsAChoice: pieces of code with titles that follow each other are one choice,
// and what stands between ends it.
func TestCodeWithTitlesIsAChoice(t *testing.T) {
	html := write(t, newTestSite(), "```sh curl\na\n```\n\n```go Go\nb\n```\n\nText.\n\n```sh curl\nc\n```\n\n```sh\nd\n```\n")
	want := `<div class="choice" role="group" aria-label="Example">
<label><input type="radio" name="choice-0" value="curl" checked>curl</label><pre tabindex="0"><code>a
</code></pre>
<label><input type="radio" name="choice-0" value="Go">Go</label><pre tabindex="0"><code>b
</code></pre>
</div>
<p>Text.</p>
<div class="choice" role="group" aria-label="Example">
<label><input type="radio" name="choice-2" value="curl" checked>curl</label><pre tabindex="0"><code>c
</code></pre>
</div>
<pre tabindex="0"><code>d
</code></pre>
`
	if html != want {
		t.Errorf("got %s", html)
	}
}

// TestGuidesHaveNoHTML: HTML in Markdown is left out, so a guide with more than comments would lack
// something.
func TestGuidesHaveNoHTML(t *testing.T) {
	s := newTestSite()
	for at, p := range s.pages {
		doc, source := s.parse(p)
		for _, section := range sectionsOf(doc, source, true) {
			if section.heading == "" {
				t.Errorf("%s has a heading without text", at)
			}
		}
		err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
			block, isBlock := n.(*ast.HTMLBlock)
			if n.Kind() == ast.KindRawHTML || isBlock && !bytes.HasPrefix(block.Lines().Value(source), []byte("<!--")) {
				t.Errorf("%s has HTML", at)
			}
			return ast.WalkContinue, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestEveryPageHasASummary: the index says of each guide what it is about.
func TestEveryPageHasASummary(t *testing.T) {
	s := newTestSite()
	if !strings.HasPrefix(s.intro, "Mailstead is ") || len(s.groups) < 5 {
		t.Fatalf("the index has %d groups and begins with %q", len(s.groups), s.intro)
	}
	for _, g := range s.groups {
		for _, p := range g.pages {
			if p.title == "" || p.summary == "" || g.name == "" {
				t.Errorf("%s of %q has the title %q and the summary %q", p.path, g.name, p.title, p.summary)
			}
		}
	}
}

func TestShellWordsStayWhole(t *testing.T) {
	if got, want := inShell(`{"a":"it's"}`), `'{"a":"it'\''s"}'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := pythonLiteral(`{"a": true, "b": [null, false], "c": "true \" null"}`), `{"a": True, "b": [None, False], "c": "true \" null"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestExcerptShowsTheWord(t *testing.T) {
	long := strings.Repeat("ö lorem ", 60) + "needle here" + strings.Repeat(" ipsum ä", 60)
	got := string(excerpt(long, regexp.MustCompile(`(?i)(^|[^\pL\pN])(need)`)))
	if !strings.Contains(got, "<mark>need</mark>le here") || !strings.HasPrefix(got, "…") || !strings.HasSuffix(got, "…") || len(got) > 300 || strings.ToValidUTF8(got, "") != got {
		t.Errorf("%q", got)
	}
	if got := string(excerpt("<b> short", regexp.MustCompile(`(?i)(^|[^\pL\pN])(b)`))); got != "&lt;<mark>b</mark>&gt; short" {
		t.Errorf("%q", got)
	}
}

// FuzzSearch: whatever is searched for, the page is sound and has a bound.
func FuzzSearch(f *testing.F) {
	for _, q := range []string{"", "dkim", "list_inbox", `"><script>`, "\x00\xff", "İ ß ǅ", "a b c d e f g h i j", "\u202e"} {
		f.Add(q)
	}
	s := newTestSite()
	f.Fuzz(func(t *testing.T, q string) {
		body := s.Search(q).Body
		if len(body) > 64<<10 {
			t.Fatalf("%d bytes", len(body))
		}
		z := html.NewTokenizer(bytes.NewReader(body))
		for z.Next() != html.ErrorToken {
			if tag := z.Token(); tag.Data == "script" && tag.Type == html.StartTagToken && len(tag.Attr) != 1 {
				t.Fatalf("%q became a script", q)
			}
		}
	})
}
