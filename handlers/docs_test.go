package handlers

import (
	"bytes"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

// docsURL is the address of the server whose documentation is read.
const docsURL = "https://mail.boxes.test"

func atDocsURL(c *core.Config) { c.BaseURL = docsURL }

// A docsPage is what a page or file of the documentation has.
type docsPage struct {
	reply *reply
	ids   []string // of its elements
	links []string // where its links, pictures, scripts and styles lead, as absolute paths or URLs
	asks  []string // those of them that a browser loads by itself
}

// readDocs gets every page that can be reached from the first one and from /llms.txt, by path.
func readDocs(t *testing.T, c *client) map[string]*docsPage {
	t.Helper()
	found := map[string]*docsPage{}
	todo := []string{"/docs", "/llms.txt", "/docs.md"}
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		if found[at] != nil {
			continue
		}
		p := &docsPage{reply: c.get(at)}
		found[at] = p
		if p.reply.status != 200 {
			t.Errorf("%s answers %d", at, p.reply.status)
			continue
		}
		base, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		p.read(t, base)
		for _, link := range p.links {
			path, _, _ := strings.Cut(link, "#")
			if path == "/docs" || strings.HasPrefix(path, "/docs/") && path != "/docs/search" {
				todo = append(todo, path)
			}
		}
	}
	return found
}

// linkInText finds links in Markdown.
var linkInText = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// read finds the ids and links of a page.
func (p *docsPage) read(t *testing.T, base *url.URL) {
	t.Helper()
	lead := func(to string) string {
		u, err := base.Parse(to)
		if err != nil {
			t.Errorf("%s links to %q: %v", base, to, err)
			return ""
		}
		return strings.TrimPrefix(u.String(), docsURL)
	}
	switch kind, _, _ := strings.Cut(p.reply.header.Get("Content-Type"), ";"); {
	case kind == "text/markdown" || base.Path == "/llms.txt":
		for _, found := range linkInText.FindAllSubmatch(p.reply.raw, -1) {
			p.links = append(p.links, lead(string(found[1])))
		}
	case kind == "text/html":
		root, err := html.Parse(bytes.NewReader(p.reply.raw))
		if err != nil {
			t.Fatal(err)
		}
		for n := range root.Descendants() {
			for _, a := range n.Attr {
				switch {
				case a.Key == "id":
					p.ids = append(p.ids, a.Val)
				case a.Key == "src" || a.Key == "href" && n.Data == "link":
					p.asks = append(p.asks, lead(a.Val))
					p.links = append(p.links, lead(a.Val))
				case a.Key == "href" || a.Key == "action":
					p.links = append(p.links, lead(a.Val))
				case a.Key == "style" || strings.HasPrefix(a.Key, "on"):
					t.Errorf("%s: <%s> has the attribute %s, which its policy forbids", base, n.Data, a.Key)
				}
			}
			inline := n.Type == html.ElementNode && (n.Data == "script" || n.Data == "style") && n.FirstChild != nil
			if inline || n.Type == html.CommentNode {
				t.Errorf("%s has <%s> with a content of its own", base, n.Data)
			}
		}
	}
}

// TestDocsHaveNoDeadLinks: every page and file that a page names is there, and every anchor.
func TestDocsHaveNoDeadLinks(t *testing.T) {
	b := newSandbox(t, atDocsURL)
	pages := readDocs(t, b.with(""))
	for at, p := range pages {
		for i, id := range p.ids {
			if slices.Contains(p.ids[:i], id) {
				t.Errorf("%s has two elements with the id %q", at, id)
			}
		}
		for _, ask := range p.asks {
			if !strings.HasPrefix(ask, "/docs") {
				t.Errorf("%s loads %s", at, ask)
			}
		}
		for _, link := range p.links {
			path, anchor, _ := strings.Cut(link, "#")
			inRepository, foreign := strings.CutPrefix(path, "https://github.com/mailstead/mailstead/blob/main/")
			switch {
			case foreign:
				if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(inRepository))); err != nil {
					t.Errorf("%s links to a file of the repository that is not there: %v", at, err)
				}
			case strings.HasPrefix(link, "https://") || strings.HasPrefix(link, "mailto:"):
			case slices.Contains([]string{"/", "/docs/search", "/v1/openapi.json", "/v1/openapi.yaml"}, path):
			case pages[path] == nil:
				t.Errorf("%s links to %s, which is not there", at, link)
			case anchor != "" && !slices.Contains(pages[strings.TrimSuffix(path, ".md")].ids, anchor):
				t.Errorf("%s links to %s, which has no such part", at, link)
			}
		}
	}
	if len(pages) < 120 {
		t.Errorf("only %d pages were found", len(pages))
	}
}

// TestDocsHaveEveryGuide: the index lists each guide, and each page is Markdown too.
func TestDocsHaveEveryGuide(t *testing.T) {
	b := newSandbox(t, atDocsURL)
	pages := readDocs(t, b.with(""))
	list := string(pages["/llms.txt"].reply.raw)
	for at, p := range pages {
		kind, _, _ := strings.Cut(p.reply.header.Get("Content-Type"), ";")
		if kind != "text/html" {
			continue
		}
		if text := pages[at+".md"]; text == nil || !bytes.HasPrefix(text.reply.raw, []byte("# ")) || !strings.HasPrefix(text.reply.header.Get("Content-Type"), "text/markdown") {
			t.Errorf("%s is not there as Markdown", at)
		}
		if at != "/docs" && !strings.Contains(list, "("+docsURL+at+".md): ") {
			t.Errorf("/llms.txt does not list %s", at)
		}
	}
	for _, pattern := range []string{"*.md", "examples/*.md"} {
		guides, err := filepath.Glob(filepath.Join("..", "docs", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, guide := range guides {
			name := strings.TrimPrefix(filepath.ToSlash(guide), "../docs/")
			if at := strings.TrimSuffix(strings.TrimSuffix("/docs/"+name, ".md"), "/README"); pages[at] == nil {
				t.Errorf("docs/README.md does not list %s", name)
			}
		}
	}
	if !strings.HasPrefix(list, "# Mailstead\n\n> Mailstead is ") {
		t.Errorf("/llms.txt begins with %.80q", list)
	}
}

// TestEveryOperationIsInTheReference: each operation of the table has its part on the page of its
// group, with who may call it, its fields, and an example in each language.
func TestEveryOperationIsInTheReference(t *testing.T) {
	b := newSandbox(t, nil)
	doc := Description()
	for _, tag := range doc.Tags {
		group := strings.ReplaceAll(strings.ToLower(tag.Name), " ", "-")
		text := string(b.with("").get("/docs/api/" + group + ".md").is(200).raw)
		html := string(b.with("").get("/docs/api/" + group).is(200).raw)
		parts := strings.Split(text, "\n## ")[1:]
		all := doc.InGroup(tag.Name)
		if len(parts) < len(all) {
			t.Fatalf("%s has %d parts, want at least %d", group, len(parts), len(all))
		}
		for i, o := range all {
			part := parts[i]
			if !strings.Contains(html, `<h2 id="`+o.OperationID+`">`) || !strings.Contains(part, o.Summary[:4]) {
				t.Errorf("%s has no part of its own", o.OperationID)
			}
			if o.Row == nil {
				if !strings.HasPrefix(part, o.Path+"\n") || !strings.Contains(part, "```json\n{") {
					t.Errorf("%s lacks its type or its example", o.OperationID)
				}
				continue
			}
			want := []string{"`" + o.Method + " " + o.Path + "` · `" + o.OperationID + "`", "**Who may call it:** ", "**Answer:** `" + strconv.Itoa(o.Row.Status) + "`", "**Errors:** ",
				"\n```sh curl\ncurl ", "\n```js JavaScript\n", "\n```python Python\nimport ", "\n```go Go\npackage main\n", "\n```sh Command line\nmailstead call " + o.Row.Name}
			for _, p := range o.Parameters {
				want = append(want, "\n| `"+doc.Parameter(p).Name+"` (")
			}
			if o.RequestBody != nil {
				for _, f := range doc.Resolve(o.RequestBody.Content.Get(jsonMedia).Schema).Properties {
					want = append(want, "\n| `"+f.Name+"`")
				}
			}
			for _, w := range want {
				if !strings.Contains(part, w) {
					t.Errorf("%s lacks %q", o.OperationID, w)
				}
			}
		}
	}
}

// TestDocsAreSentAsTheDashboardIs: pages are asked for again and not sent again, what they load has
// a hash in its name and is kept, and all of it is compressed.
func TestDocsAreSentAsTheDashboardIs(t *testing.T) {
	b := newSandbox(t, nil)
	stranger := b.with("")
	page := string(stranger.get("/docs/sending").is(200).raw)
	kept := regexp.MustCompile(`"(/docs/assets/[^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(kept) < 3 {
		t.Fatalf("the page loads %v", kept)
	}
	paths := map[string]string{"/docs": "no-cache", "/docs/sending": "no-cache", "/docs/sending.md": "no-cache", "/docs/api/inbox": "no-cache", "/llms.txt": "no-cache", "/docs/screenshots/phone.png": "no-cache"}
	for _, k := range kept {
		paths[k[1]] = "public, max-age=31536000, immutable"
	}
	for at, caching := range paths {
		r := stranger.get(at).is(200)
		if got := r.header.Get("Cache-Control"); got != caching {
			t.Errorf("%s: Cache-Control %q, want %q", at, got, caching)
		}
		if got := r.header.Get("Content-Security-Policy"); got != docsPolicy || strings.Contains(got, "unsafe") {
			t.Errorf("%s has the policy %q", at, got)
		}
		plain := stranger.do("GET", at, nil, "Accept-Encoding", "identity").is(200)
		if !bytes.Equal(plain.raw, r.raw) {
			t.Errorf("%s differs with and without gzip", at)
		}
		resp, _ := stranger.raw("GET", at, "", "Accept-Encoding", "gzip")
		if resp.Header.Get("Content-Encoding") != "gzip" && !strings.HasSuffix(at, ".png") {
			t.Errorf("%s has the encoding %q", at, resp.Header.Get("Content-Encoding"))
		}
		stranger.do("GET", at, nil, "If-None-Match", r.header.Get("ETag")).is(304)
		if head := stranger.do("HEAD", at, nil).is(200); len(head.raw) != 0 || head.header.Get("ETag") != plain.header.Get("ETag") {
			t.Errorf("HEAD of %s is another thing than GET", at)
		}
		stranger.do("POST", at, "{}").fails(405, "method_not_allowed")
	}
}

// TestDocsNotFound: what is no page is 404 with the contents, and a slash at the end does no harm.
func TestDocsNotFound(t *testing.T) {
	b := newSandbox(t, nil)
	stranger := b.with("")
	for _, at := range []string{"/docs/nowhere", "/docs/nowhere.md", "/docs/docs.go", "/docs/assets/0000000000000000-docs.css", "/docs/api/nowhere", "/docs/..%2fmain.go", "/docs/%3Cscript%3E"} {
		r := stranger.get(at).is(404)
		if !bytes.Contains(r.raw, []byte(`href="/docs/sending"`)) || bytes.Contains(r.raw, []byte("<script>")) {
			t.Errorf("%s answers %.200s", at, r.raw)
		}
	}
	for at, want := range map[string]string{"/docs/": "/docs", "/docs/sending/": "/docs/sending"} {
		resp, _ := stranger.raw("GET", at, "")
		if resp.StatusCode != 308 || resp.Header.Get("Location") != want {
			t.Errorf("%s: %d %s", at, resp.StatusCode, resp.Header.Get("Location"))
		}
	}
}

// TestDocsAreSearched: all words must occur, operations and errors are found by their names, and
// what is searched for is shown as text.
func TestDocsAreSearched(t *testing.T) {
	b := newSandbox(t, nil)
	stranger := b.with("")
	first := regexp.MustCompile(`(?s)<ol class="results">\n<li><a href="([^"]+)">`)
	for q, want := range map[string]string{
		"list_inbox":             "/docs/api/inbox#list_inbox",
		"idempotency_key_reused": "/docs/api/errors#idempotency_key_reused",
		"email.bounced":          "/docs/api/events#on_email_bounced",
		"secondary nameservers":  "/docs/secondaries",
		"Grafa":                  "/docs/metrics",
	} {
		page := string(stranger.get("/docs/search?q=" + url.QueryEscape(q)).is(200).raw)
		found := first.FindStringSubmatch(page)
		if found == nil || found[1] != want && !strings.HasPrefix(found[1], want+"#") {
			t.Errorf("%q finds %v first, want %s", q, found, want)
		}
	}
	for q, finds := range map[string]bool{
		"": false, " ": false, "<>": false, "zzzz": false, "inbox zzzz": false, "\xff\xfe": false, strings.Repeat("x", 100_000): false,
		"inbox" + strings.Repeat(" ", 300) + "zzzz": true, `"><script>message</script>`: true, `"><b>message</b>`: true,
	} {
		page := string(stranger.get("/docs/search?q=" + url.QueryEscape(q)).is(200).raw)
		if strings.Contains(page, "<script>") || strings.Contains(page, "<b>") || first.MatchString(page) != finds {
			t.Errorf("%.40q: finds %t, want %t", q, !finds, finds)
		}
		if len(page) > 64<<10 {
			t.Errorf("%.40q: the page has %d bytes", q, len(page))
		}
	}
}

// TestDocsNameThisServer: links in the list for language models and the examples lead to it.
func TestDocsNameThisServer(t *testing.T) {
	b := newSandbox(t, atDocsURL)
	stranger := b.with("")
	if list := string(stranger.get("/llms.txt").is(200).raw); !strings.Contains(list, "]("+docsURL+"/docs/sending.md): ") {
		t.Errorf("/llms.txt is %.500s", list)
	}
	if text := string(stranger.get("/docs/api/account.md").is(200).raw); !strings.Contains(text, "curl '"+docsURL+"/v1/account'") {
		t.Errorf("the page is %.800s", text)
	}
}

// BenchmarkDocsSearch searches for two beginnings of words that many sections have.
func BenchmarkDocsSearch(b *testing.B) {
	s := &Server{svc: &service.Service{Core: &core.Core{}}, ops: api.All(&service.Service{})}
	l := s.makeLibrary()
	l.site.Search("a")
	for b.Loop() {
		f := l.site.Search("ma b")
		if _, err := io.Discard.Write(f.Body); err != nil {
			b.Fatal(err)
		}
	}
}
