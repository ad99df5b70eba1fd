package view

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/visible"
)

const imagePath = "/session/image/"

// ways are all the ways in which a message is shown.
func ways() map[string]Options {
	shown := func(src string) string { return imagePath + base64.RawURLEncoding.EncodeToString([]byte(src)) }
	inner := func(src string) string {
		if hasScheme(src, "cid:") {
			return shown(src)
		}
		return ""
	}
	return map[string]Options{
		"held":      {Title: "A <title>", Image: inner},
		"dark":      {Title: "A <title>", Image: inner, Dark: true},
		"shown":     {Title: "A <title>", Image: shown, More: true},
		"no images": {},
	}
}

// TestHostile shows each message of the corpus in every way. Nothing but known elements and
// attributes may come out, and the words that are meant for people must.
func TestHostile(t *testing.T) {
	names, err := filepath.Glob("testdata/hostile/*.eml")
	if err != nil || len(names) < 30 {
		t.Fatalf("corpus has %d messages, %v", len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".eml"), func(t *testing.T) {
			body := readBody(t, name)
			for way, o := range ways() {
				d := documentOf(body, o)
				checkDocument(t, d)
				if !strings.Contains(visible.HTMLText(string(d.HTML)), "Dear reader") {
					t.Errorf("%s: the words are gone:\n%s", way, d.HTML)
				}
				if t.Failed() {
					t.Fatalf("%s:\n%s", way, d.HTML)
				}
			}
		})
	}
}

func readBody(t testing.TB, name string) msg.Body {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	root, err := msg.Scan(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	body, err := msg.ReadRawBody(bytes.NewReader(raw), root, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func documentOf(body msg.Body, o Options) *Document {
	if body.HasHTML {
		return HTML(body.HTML, o)
	}
	return Text(body.Text, o)
}

// checkDocument reads a document as a browser does, and finds what it may not have.
func checkDocument(t testing.TB, d *Document) {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(d.HTML))
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	var once, twice bytes.Buffer
	if err := html.Render(&once, root); err != nil {
		t.Fatal(err)
	}
	again, err := html.Parse(bytes.NewReader(once.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := html.Render(&twice, again); err != nil {
		t.Fatal(err)
	}
	for _, tree := range []*html.Node{root, again} { // what a browser makes of it when it writes and reads it
		c := documentChecker{t: t}
		for n := range tree.Descendants() {
			c.node(n)
		}
		if c.styles != 1 {
			t.Errorf("%d style elements", c.styles)
		}
		if c.hash != d.StyleHash {
			t.Errorf("the style sheet's hash is %s, not %s", c.hash, d.StyleHash)
		}
	}
	if d.Held > d.Remote {
		t.Errorf("%d of %d images held", d.Held, d.Remote)
	}
}

type documentChecker struct {
	t      testing.TB
	styles int
	hash   string
}

var (
	sheetBad   = regexp.MustCompile(`\\|</|<!--|@(?:[^lm]|l[^a]|m[^e])|https?:|-\.?\d|/\*`)
	sheetCall  = regexp.MustCompile(`([\w-]*)\(`)
	sheetNames = regexp.MustCompile(`[{;]\s*([\w-]+)\s*:`)
	sheetRule  = regexp.MustCompile(`@(\w+)`)
	classForm  = regexp.MustCompile(`^(?:s\d+|[mi]-[A-Za-z0-9_-]+|held|odd|plain|quote|signature|note)$`)
)

func (c *documentChecker) node(n *html.Node) {
	switch n.Type {
	case html.CommentNode, html.RawNode:
		c.t.Errorf("a comment: %q", n.Data)
	case html.TextNode:
		if strings.ContainsAny(n.Data, "\u202d\u202e\x00") && n.Parent.Data != "style" {
			c.t.Errorf("a character that overrides the direction in %q", n.Data)
		}
	case html.ElementNode:
		c.element(n)
	}
}

func (c *documentChecker) element(n *html.Node) {
	if n.Namespace != "" {
		c.t.Errorf("<%s> of %s", n.Data, n.Namespace)
	}
	switch n.Data {
	case "html", "head", "title":
	case "meta":
		if n.Parent.Data != "head" || n.Attr[0].Key != "charset" && n.Attr[0].Val != "viewport" {
			c.t.Errorf("meta %v", n.Attr)
		}
		return
	case "style":
		c.sheet(n)
	default:
		if !elements[n.Data] && n.Data != "body" && n.Data != "tbody" {
			c.t.Errorf("<%s>", n.Data)
		}
	}
	for _, a := range n.Attr {
		c.attribute(n, a)
	}
	if n.Data == "a" && attr(n, "href") != "" && (attr(n, "target") != "_blank" || attr(n, "rel") != "noopener noreferrer nofollow") {
		c.t.Errorf("a link with target %q, rel %q", attr(n, "target"), attr(n, "rel"))
	}
}

func (c *documentChecker) sheet(n *html.Node) {
	c.styles++
	text := n.FirstChild.Data
	sum := sha256.Sum256([]byte(text))
	c.hash = "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
	theirs := strings.ReplaceAll(strings.NewReplacer(baseStyle, "", lightStyle, "", darkStyle, "").Replace(text), "@layer base", "")
	unnamed := regexp.MustCompile(`\.[mi]-[\w-]+`).ReplaceAllString(theirs, ".name")
	if bad := sheetBad.FindString(unnamed); bad != "" {
		c.t.Errorf("the style sheet has %q:\n%s", bad, theirs)
	}
	for _, m := range sheetCall.FindAllStringSubmatch(unnamed, -1) {
		if m[1] != "" && !colourFunctions[m[0]] {
			c.t.Errorf("the style sheet has %s:\n%s", m[0], theirs)
		}
	}
	for _, m := range sheetNames.FindAllStringSubmatch(unnamed, -1) {
		if _, ok := properties[m[1]]; !ok || m[1] == "background" {
			c.t.Errorf("the style sheet has the property %s:\n%s", m[1], theirs)
		}
	}
	for _, m := range sheetRule.FindAllStringSubmatch(theirs, -1) {
		if m[1] != "media" && m[1] != "layer" {
			c.t.Errorf("the style sheet has %s", m[0])
		}
	}
	if strings.Count(text, "{") != strings.Count(text, "}") {
		c.t.Errorf("the style sheet's braces do not pair:\n%s", theirs)
	}
}

func (c *documentChecker) attribute(n *html.Node, a html.Attribute) {
	ok := a.Namespace == ""
	switch a.Key {
	case "class":
		for name := range strings.FieldsSeq(a.Val) {
			ok = ok && classForm.MatchString(name)
		}
	case "href":
		target, _ := linkTarget(a.Val)
		ok = ok && n.Data == "a" && target == a.Val && regexp.MustCompile(`^(https?://|mailto:)`).MatchString(a.Val)
	case "target", "rel":
		ok = ok && n.Data == "a"
	case "src":
		ok = ok && n.Data == "img" && strings.HasPrefix(a.Val, imagePath)
	case "alt":
		ok = ok && n.Data == "img"
	default:
		ok = ok && (elementAttributes[n.Data][a.Key] != nil || globalAttributes[a.Key] != nil)
	}
	if !ok {
		c.t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
	}
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// FuzzHTML wants documents of known elements and attributes alone, and the same again when a body
// is read once more.
func FuzzHTML(f *testing.F) {
	names, err := filepath.Glob("testdata/hostile/*.eml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		body := readBody(f, name)
		f.Add(body.HTML + body.Text)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if len(raw) > 64<<10 {
			return
		}
		for _, o := range ways() {
			checkDocument(t, HTML(raw, o))
			checkDocument(t, Text(raw, o))
		}
		once := bareBody(raw)
		if twice := bareBody(once); twice != once {
			t.Errorf("%q\nbecame\n%q\nand then\n%q", raw, once, twice)
		}
	})
}

var classes = regexp.MustCompile(` class="[^"]*"`)

// bareBody is what stands in the body of a document, without the classes, which mean nothing in
// another.
func bareBody(raw string) string {
	r := &renderer{sheet: readSheets(nil), classes: map[string]string{}}
	r.render(visible.StripHTML(raw))
	return strings.NewReplacer("<span>", "", "</span>", "", "<font>", "", "</font>", "").Replace(classes.ReplaceAllString(r.out.String(), ""))
}
