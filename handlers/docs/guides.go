package docs

import (
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	guides "github.com/mailstead/mailstead/docs"
)

// indexFile is the guide that lists the others.
const indexFile = "README.md"

// addGuides adds the guides in the groups and the order of the index. Each item of its lists begins
// with the link to a guide, and goes on with a colon and a line about it.
func (s *Site) addGuides() {
	source := readGuide(indexFile)
	first := &page{path: root, title: "Documentation", folder: ".", source: func() []byte { return append(readGuide(indexFile), s.referenceList()...) }}
	s.pages[root] = first
	doc := s.markdown.Parser().Parse(text.NewReader(source))
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 2 {
				s.groups = append(s.groups, group{name: plainText(n, source, false)})
			}
		case *ast.Paragraph:
			if s.intro == "" {
				s.intro = plainText(n, source, false)
			}
		case *ast.List:
			for item := n.FirstChild(); item != nil; item = item.NextSibling() {
				s.addGuide(item, source)
			}
		}
	}
}

// addGuide adds the guide of an item in the index.
func (s *Site) addGuide(item ast.Node, source []byte) {
	link, ok := item.FirstChild().FirstChild().(*ast.Link)
	if !ok {
		return
	}
	name := string(link.Destination)
	title := plainText(link, source, false)
	_, summary, _ := strings.Cut(plainText(item, source, false), title+": ")
	s.addPage(&page{path: guidePath(name), title: title, summary: strings.TrimSpace(summary), folder: path.Dir(name), source: func() []byte { return readGuide(name) }})
}

// readGuide returns the Markdown of a guide.
func readGuide(name string) []byte {
	source, err := guides.Files.ReadFile(name)
	if err != nil {
		panic(err) // the index names a file that is not there; a test reads all
	}
	return source
}

// guidePath returns the path of the page of a guide's file. The page of a folder's README.md has
// the path of the folder.
func guidePath(name string) string {
	return path.Join(root, strings.TrimSuffix(strings.TrimSuffix(name, ".md"), "README"))
}

// isFile reports whether the folder docs has a file with the name.
func isFile(name string) bool {
	_, err := guides.Files.ReadFile(name)
	return err == nil
}

// markdownLink finds the target of a link or picture.
var markdownLink = regexp.MustCompile(`\]\([^()\s]+\)`)

// absoluteLinks returns the Markdown of a guide in folder with links that are paths on this server,
// or lead to the repository.
func (s *Site) absoluteLinks(source []byte, folder string) []byte {
	return markdownLink.ReplaceAllFunc(source, func(found []byte) []byte {
		target := string(found[2 : len(found)-1])
		if strings.Contains(target, ":") || strings.HasPrefix(target, "#") || strings.HasPrefix(target, "/") {
			return found
		}
		name, anchor, hasAnchor := strings.Cut(target, "#")
		name = path.Join("docs", folder, name)
		inDocs, isOurs := strings.CutPrefix(name, "docs/")
		switch {
		case isOurs && s.pages[guidePath(inDocs)] != nil:
			name = guidePath(inDocs) + ".md"
		case isOurs && isFile(inDocs):
			name = "/" + name
		default:
			name = repository + name
		}
		if hasAnchor {
			name += "#" + anchor
		}
		return []byte("](" + name + ")")
	})
}
