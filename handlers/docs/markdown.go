package docs

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	table "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/mailstead/mailstead/handlers/markup"
)

// newMarkdown returns the reader and writer of Markdown with tables, as the pages need it.
func (s *Site) newMarkdown() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(dialect{s}, 100))),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(dialect{s}, 100))),
	)
}

// parse parses the Markdown of a page.
func (s *Site) parse(p *page) (doc ast.Node, source []byte) {
	source = s.text(p)
	names := &headingIDs{given: map[string][]string{}, used: map[string]int{}}
	for line, ids := range p.anchors {
		names.given[line] = ids
	}
	return s.markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(names)))), source
}

// headingIDs makes the ids of a page's headings: those that are given, else as GitHub does, so that
// links work there too.
type headingIDs struct {
	given map[string][]string // by the heading's line, in order
	used  map[string]int
}

// Generate returns the id of the next heading.
func (h *headingIDs) Generate(value []byte, _ ast.NodeKind) []byte {
	line := strings.TrimSpace(string(value))
	if ids := h.given[line]; len(ids) > 0 {
		h.given[line] = ids[1:]
		return []byte(ids[0])
	}
	id := slug(line)
	n := h.used[id]
	h.used[id]++
	if n > 0 {
		id += "-" + strconv.Itoa(n)
	}
	return []byte(id)
}

// Put notes an id that the Markdown itself gives; the pages give none.
func (h *headingIDs) Put(value []byte) { h.used[string(value)]++ }

// slug returns a text in lower case with hyphens for blanks, and without punctuation.
func slug(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, line)
}

// kindChoice is the kind of a choice.
var kindChoice = ast.NewNodeKind("Choice")

// A choice is a block of which the reader sees one of several pieces of code: the same example in
// several languages.
type choice struct {
	ast.BaseBlock
	name string // unique on the page
}

// Kind returns kindChoice.
func (c *choice) Kind() ast.NodeKind { return kindChoice }

// Dump prints the node, for debugging.
func (c *choice) Dump(source []byte, level int) { ast.DumpHelper(c, source, level, nil, nil) }

// A dialect is what the Markdown of a site has beside the usual.
type dialect struct{ *Site }

// Transform adapts a parsed page: links to the Markdown of a page lead to its HTML, cells of tables
// know their heads, and pieces of code with titles that follow each other become a choice.
func (s dialect) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	source := reader.Source()
	var titled []*ast.FencedCodeBlock
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function returns no error
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			at, anchor, has := strings.Cut(string(n.Destination), "#")
			if bare, ok := strings.CutSuffix(at, ".md"); ok && s.pages[bare] != nil {
				if has {
					bare += "#" + anchor
				}
				n.Destination = []byte(bare)
			}
		case *ast.FencedCodeBlock:
			if titleOf(n, source) != "" {
				titled = append(titled, n)
			}
		case *table.Table:
			labelCells(n, source)
		}
		return ast.WalkContinue, nil
	})
	var last *choice
	for i, block := range titled {
		if last == nil || last.NextSibling() != ast.Node(block) {
			last = &choice{name: "choice-" + strconv.Itoa(i)}
			block.Parent().InsertBefore(block.Parent(), block, last)
		}
		last.AppendChild(last, block) // which removes it from where it was
	}
}

// titleOf returns what follows the language of a piece of code, "" if nothing does.
func titleOf(n *ast.FencedCodeBlock, source []byte) string {
	if n.Info == nil {
		return ""
	}
	_, title, _ := strings.Cut(string(n.Info.Segment.Value(source)), " ")
	return title
}

// labelCells gives each cell of a table the head of its column, which a narrow screen shows above
// the cell.
func labelCells(t *table.Table, source []byte) {
	t.SetAttributeString("class", "table folds")
	var heads []string
	for row := t.FirstChild(); row != nil; row = row.NextSibling() {
		column := 0
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			if row.Kind() == table.KindTableHeader {
				heads = append(heads, plainText(cell, source, true))
				cell.SetAttributeString("scope", "col")
			} else if column < len(heads) && heads[column] != "" {
				cell.SetAttributeString("data-label", heads[column])
			}
			column++
		}
	}
}

// RegisterFuncs registers the nodes that are not written in the usual way.
func (s dialect) RegisterFuncs(reg renderer.NodeRendererFuncRegisterer) {
	reg.Register(ast.KindHeading, writeHeading)
	reg.Register(ast.KindCodeBlock, writeCode)
	reg.Register(ast.KindFencedCodeBlock, writeCode)
	reg.Register(kindChoice, writeChoice)
	reg.Register(ast.KindCodeSpan, s.writeCodeSpan)
	reg.Register(ast.KindHTMLBlock, writeNothing)
	reg.Register(ast.KindRawHTML, writeNothing)
}

// writeNothing leaves out HTML. The guides have only comments.
func writeNothing(util.BufWriter, []byte, ast.Node, bool) (ast.WalkStatus, error) {
	return ast.WalkSkipChildren, nil
}

// writeHeading writes a heading with a link to itself. The link is for the mouse; others have the
// contents.
func writeHeading(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.Heading)
	id, _ := n.AttributeString("id")
	anchor, _ := id.([]byte)
	if entering {
		_, _ = w.WriteString(string(markup.Format(`<h%s id="%s">`, n.Level, string(anchor))))
		return ast.WalkContinue, nil
	}
	if n.Level > 1 {
		_, _ = w.WriteString(string(markup.Format(` <a class="anchor" href="#%s" aria-hidden="true" tabindex="-1">#</a>`, string(anchor))))
	}
	_, _ = w.WriteString(string(markup.Format("</h%s>\n", n.Level)))
	return ast.WalkContinue, nil
}

// writeCode writes a piece of code, which the keyboard can scroll. In a choice, a radio button with
// the title of the code stands before it.
func writeCode(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	if n, ok := node.(*ast.FencedCodeBlock); ok {
		if c, ok := n.Parent().(*choice); ok {
			var checked markup.HTML
			if c.FirstChild() == node {
				checked = " checked"
			}
			_, _ = w.WriteString(string(markup.Format(`<label><input type="radio" name="%s" value="%s"%s>%[2]s</label>`, c.name, titleOf(n, source), checked)))
		}
	}
	_, _ = w.WriteString(string(markup.Format(`<pre tabindex="0"><code>%s</code></pre>`+"\n", string(node.Lines().Value(source)))))
	return ast.WalkSkipChildren, nil
}

// writeChoice writes what is around the pieces of code of a choice.
func writeChoice(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString(`<div class="choice" role="group" aria-label="Example">` + "\n")
	} else {
		_, _ = w.WriteString("</div>\n")
	}
	return ast.WalkContinue, nil
}

// writeCodeSpan writes code in a text. If it is the name of an operation, its method and path, or
// the path of a page, it becomes a link.
func (s *Site) writeCodeSpan(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	code := plainText(node, source, true)
	to := s.operations[code]
	if s.pages[code] != nil {
		to = code
	}
	for above := node.Parent(); above != nil; above = above.Parent() {
		if above.Kind() == ast.KindLink || above.Kind() == ast.KindHeading {
			to = ""
		}
	}
	if to == "" {
		_, _ = w.WriteString(string(markup.Format("<code>%s</code>", code)))
	} else {
		_, _ = w.WriteString(string(markup.Format(`<a class="to-code" href="%s"><code>%s</code></a>`, to, code)))
	}
	return ast.WalkSkipChildren, nil
}

// plainText returns the text of a node without markup, in one line. withCode says whether pieces of
// code belong to it.
func plainText(n ast.Node, source []byte, withCode bool) string {
	var out bytes.Buffer
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function returns no error
		if n.Type() == ast.TypeBlock {
			out.WriteByte(' ')
		}
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			value := n.Value(source)
			if n.Parent().Kind() != ast.KindCodeSpan {
				value = util.UnescapePunctuations(value)
			}
			out.Write(value)
			if n.SoftLineBreak() || n.HardLineBreak() {
				out.WriteByte(' ')
			}
		case *ast.String:
			out.Write(n.Value)
		case *ast.AutoLink:
			out.Write(n.Label(source))
		case *ast.CodeBlock, *ast.FencedCodeBlock:
			if withCode {
				out.Write(n.Lines().Value(source))
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(out.String()), " ")
}
