// Package docs makes the documentation that the server has at /docs: the guides of the folder docs,
// the reference of the API with a page for each group of operations, and the search in both. Each
// page is HTML and Markdown. The reference is made from the OpenAPI document. The package does not
// handle requests: package handlers does.
package docs

import (
	"path"
	"strings"
	"sync"

	"github.com/yuin/goldmark"

	guides "github.com/mailstead/mailstead/docs"
	"github.com/mailstead/mailstead/handlers/openapi"
)

const (
	root       = "/docs"             // path of the page with the index
	SearchPath = root + "/search"    // path of the search, with the words in the query parameter q
	apiPath    = root + "/api"       // path of the reference's first page
	errorsPath = apiPath + "/errors" // path of the page with the error codes
	ListPath   = "/llms.txt"         // path of the list of pages for language models, see llmstxt.org
)

// repository is where files are that the guides name and the server does not have.
const repository = "https://github.com/mailstead/mailstead/blob/main/"

// A File is a response body with its media type.
type File struct {
	Type  string // media type
	Body  []byte
	Fixed bool // the path has a hash of the body, so the body never changes
}

// A page is one page, as HTML at its path and as Markdown at its path with ".md".
type page struct {
	path    string
	title   string // in the contents
	summary string // a line about it
	folder  string // folder below docs of a guide's file, to which its links are relative; "": they are absolute
	source  func() []byte
	anchors map[string][]string // anchors of headings by their lines, where they are not made from these; in the order of the headings
}

// A group is a heading of the contents, with its pages.
type group struct {
	name  string
	pages []*page
}

// A Site has the pages and files of the documentation.
type Site struct {
	doc        *openapi.Document
	url        string // of this installation; "": unknown
	intro      string // what the index says before its first group, as Markdown
	groups     []group
	pages      map[string]*page  // by path
	assets     map[string]File   // by path; what the pages load
	assetPaths map[string]string // by name
	operations map[string]string // the path of an operation in the reference, by its id and by its method and path
	markdown   goldmark.Markdown
	index      func() *index   // of the search, made at the first one
	everyCode  func() []string // the error codes that every operation has, found at first use
}

// New returns the documentation of the API that doc describes. url is the URL of this installation
// without a slash at its end, "" if it is unknown.
func New(doc *openapi.Document, url string) *Site {
	s := &Site{doc: doc, url: url, pages: map[string]*page{}, operations: map[string]string{}}
	s.markdown = s.newMarkdown()
	s.index, s.everyCode = sync.OnceValue(s.makeIndex), sync.OnceValue(s.findEveryCode)
	s.addGuides()
	s.addReference()
	s.addAssets()
	return s
}

// addPage adds a page to the last group.
func (s *Site) addPage(p *page) {
	s.pages[p.path] = p
	last := &s.groups[len(s.groups)-1]
	last.pages = append(last.pages, p)
}

// Open returns the page or the file at a path. ok is false if there is none.
func (s *Site) Open(at string) (f File, ok bool) {
	if asset, found := s.assets[at]; found {
		return asset, true
	}
	if at == ListPath {
		return File{Type: "text/plain; charset=utf-8", Body: s.list()}, true
	}
	if p := s.pages[at]; p != nil {
		return File{Type: "text/html; charset=utf-8", Body: s.show(p)}, true
	}
	if bare, isText := strings.CutSuffix(at, ".md"); isText {
		p := s.pages[bare]
		if p == nil {
			return File{}, false
		}
		return File{Type: "text/markdown; charset=utf-8", Body: s.text(p)}, true
	}
	name, below := strings.CutPrefix(at, root+"/")
	body, err := guides.Files.ReadFile(name)
	if !below || err != nil {
		return File{}, false
	}
	return File{Type: typeOf(name), Body: body}, true
}

// typeOf returns the media type of a file of the folder docs. Programs are shown as text.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".png":
		return "image/png"
	case ".svg":
		return "image/svg+xml"
	case ".json":
		return "application/json"
	}
	return "text/plain; charset=utf-8"
}

// text returns the Markdown of a page, with links that lead to the Markdown of other pages.
func (s *Site) text(p *page) []byte {
	if p.folder == "" {
		return p.source()
	}
	return s.absoluteLinks(p.source(), p.folder)
}

// list returns the list of all pages in the form of llmstxt.org.
func (s *Site) list() []byte {
	var out strings.Builder
	out.WriteString("# Mailstead\n\n> " + strings.ReplaceAll(strings.TrimSpace(s.intro), "\n", " ") + "\n")
	out.WriteString("\nThe API of this installation is at " + s.base() + "/v1. Send `Authorization: Bearer mst_…` with every request.\n")
	for _, g := range s.groups {
		out.WriteString("\n## " + g.name + "\n\n")
		for _, p := range g.pages {
			out.WriteString("- [" + p.title + "](" + s.url + p.path + ".md): " + p.summary + "\n")
		}
		if g.pages[0].path == apiPath {
			out.WriteString("- [OpenAPI document](" + s.url + "/v1/openapi.json): the same for programs, also as [YAML](" + s.url + "/v1/openapi.yaml)\n")
		}
	}
	return []byte(out.String())
}

// base returns the URL of the installation for examples.
func (s *Site) base() string {
	if s.url == "" {
		return "https://mail.example.com"
	}
	return s.url
}
