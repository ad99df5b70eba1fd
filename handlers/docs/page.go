package docs

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the style sheet and the script
	"encoding/hex"

	"github.com/yuin/goldmark/ast"

	"github.com/mailstead/mailstead/handlers/markup"
	"github.com/mailstead/mailstead/web"
)

//go:embed docs.css
var styles []byte

//go:embed docs.js
var script []byte

// The kinds of files that every page loads.
const (
	styleFile  = "docs.css"
	scriptFile = "docs.js"
	iconFile   = "icon.svg"
)

// addAssets adds the files that every page loads. Their names have the hashes of their bodies.
func (s *Site) addAssets() {
	s.assets, s.assetPaths = map[string]File{}, map[string]string{}
	for _, f := range []struct {
		name, media string
		body        []byte
	}{
		{styleFile, "text/css; charset=utf-8", append(bytes.Clone(web.Theme), styles...)},
		{scriptFile, "text/javascript; charset=utf-8", script},
		{iconFile, "image/svg+xml", web.Icon},
	} {
		sum := sha256.Sum256(f.body)
		at := root + "/assets/" + hex.EncodeToString(sum[:8]) + "-" + f.name
		s.assets[at] = File{f.media, f.body, true}
		s.assetPaths[f.name] = at
	}
}

// A section is a part of a page below a heading.
type section struct {
	level   int // of the heading
	id      string
	heading string
	text    string // what stands below it, without markup
}

// sectionsOf returns the sections of a parsed page. withCode says whether pieces of code belong to
// their texts.
func sectionsOf(doc ast.Node, source []byte, withCode bool) (out []section) {
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			id, _ := h.AttributeString("id")
			text, _ := id.([]byte)
			out = append(out, section{h.Level, string(text), plainText(h, source, true), ""})
		} else if last := len(out) - 1; last >= 0 {
			out[last].text += plainText(n, source, withCode) + " "
		}
	}
	return out
}

// show returns a page as HTML.
func (s *Site) show(p *page) []byte {
	doc, source := s.parse(p)
	var body bytes.Buffer
	if err := s.markdown.Renderer().Render(&body, source, doc); err != nil {
		panic(err) // a bytes.Buffer never fails
	}
	sections := sectionsOf(doc, source, false)
	body.WriteString(string(markup.Format(`<p class="as-text"><a href="%s.md">This page as Markdown</a></p>`+"\n", p.path)))
	return s.frame(frame{title: sections[0].heading, at: p.path, sections: sections, main: markup.HTML(body.String())})
}

// A frame is a page without what all pages have.
type frame struct {
	title    string
	at       string    // path of a page in the contents; "": it is none
	sections []section // of the page, for the contents
	query    string    // what the search field has
	main     markup.HTML
}

// frame returns a whole page: the search, the contents and f.main.
func (s *Site) frame(f frame) []byte {
	var alternate markup.HTML
	if f.at != "" {
		alternate = markup.Format(`<link rel="alternate" type="text/markdown" href="%s.md">`+"\n", f.at)
	}
	return []byte(markup.Format(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s · Mailstead</title>
<link rel="icon" href="%s" type="image/svg+xml">
<link rel="stylesheet" href="%s">
%s<script src="%s"></script>
</head>
<body>
<a class="skip" href="#main">Skip to the text</a>
<header>
<a class="brand" href="/docs"><img src="%[2]s" alt="" width="27" height="27"><span>Mailstead <span>docs</span></span></a>
<a class="to-contents" href="#contents">Contents</a>
<form role="search" action="%[6]s">
<label class="visually-hidden" for="q">Search the docs</label>
<input id="q" name="q" type="search" maxlength="%[7]s" autocomplete="off" placeholder="Search the docs" value="%[8]s">
<p id="found-count" class="visually-hidden" role="status"></p>
<div id="found" hidden></div>
</form>
<a class="to-dashboard" href="/">Dashboard</a>
</header>
<div class="columns">
<nav id="contents" aria-label="Contents">
<a class="close" href="#main">Close</a>
%[9]s</nav>
<main id="main" tabindex="-1">
%[10]s</main>
</div>
</body>
</html>
`, f.title, s.assetPaths[iconFile], s.assetPaths[styleFile], alternate, s.assetPaths[scriptFile], SearchPath, maxQuery, f.query, s.contents(f), f.main))
}

// contents returns the list of all pages. It has the sections of the page that is shown.
func (s *Site) contents(f frame) (out markup.HTML) {
	for _, g := range s.groups {
		var list markup.HTML
		open := f.at == root
		for _, p := range g.pages {
			if p.path != f.at {
				list += markup.Format(`<li><a href="%s">%s</a></li>`+"\n", p.path, p.title)
				continue
			}
			open = true
			list += markup.Format(`<li><a href="%s" aria-current="page">%s</a>`, p.path, p.title)
			list += sectionList(f.sections) + "</li>\n"
		}
		var attribute markup.HTML
		if open {
			attribute = " open"
		}
		out += markup.Format("<details%s><summary>%s</summary>\n<ul>\n%s</ul>\n</details>\n", attribute, g.name, list)
	}
	return out
}

// sectionList returns the list of a page's sections of the second level, "" if there are none.
func sectionList(sections []section) markup.HTML {
	var list markup.HTML
	for _, section := range sections {
		if section.level == 2 {
			list += markup.Format(`<li><a href="#%s">%s</a></li>`+"\n", section.id, section.heading)
		}
	}
	if list == "" {
		return ""
	}
	return "\n<ul>\n" + list + "</ul>\n"
}

// NotFound returns the page for a path below /docs that has none.
func (s *Site) NotFound(at string) File {
	return File{Type: "text/html; charset=utf-8", Body: s.frame(frame{title: "Not found", main: markup.Format("<h1>Not found</h1>\n<p>There is no page at <code>%s</code>. Choose one from the contents, or search.</p>\n", at)})}
}
