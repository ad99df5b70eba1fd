package view

import (
	"strings"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/css"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

// Bounds on the style sheets of a message.
const (
	maxSheets    = 256 << 10 // bytes that are read of all together
	maxRules     = 2000
	maxPrelude   = 200 // tokens of one rule's selectors
	maxCompounds = 3   // in one selector: `.a td a`
)

// A sheet is what a message's style sheets say once they are checked: rules of simple selectors and
// known properties, and widths of the page that they hold for.
type sheet struct {
	out    []byte
	names  map[string]bool // classes and ids that its selectors name, as they are written in the page
	rules  int
	paints bool
}

// readSheets reads the style elements of a page.
func readSheets(sources []string) *sheet {
	s := &sheet{names: map[string]bool{}}
	left := maxSheets
	for _, source := range sources {
		source = source[:min(left, len(source))]
		left -= len(source)
		s.read(css.NewLexer(parse.NewInputString(source)), false)
	}
	return s
}

// read reads rules up to the end, or to the brace that ends the block they are in.
func (s *sheet) read(lexer *css.Lexer, inside bool) {
	for s.rules < maxRules {
		typ, text := lexer.Next()
		switch {
		case typ == css.ErrorToken, inside && typ == css.RightBraceToken:
			return
		case typ == css.WhitespaceToken, typ == css.CommentToken, typ == css.CDOToken, typ == css.CDCToken, typ == css.SemicolonToken:
		case typ == css.AtKeywordToken:
			s.atRule(lexer, strings.ToLower(string(text)), inside)
		default:
			s.rule(lexer, token{typ, text})
		}
	}
}

// prelude reads what stands before a block; block is false where there is none.
func prelude(lexer *css.Lexer, first ...token) (tokens []token, block bool) {
	tokens = first
	depth := 0
	for _, t := range first {
		depth += nesting(t.kind)
	}
	for {
		typ, text := lexer.Next()
		switch {
		case typ == css.ErrorToken:
			return tokens, false
		case typ == css.LeftBraceToken:
			return tokens, true
		case depth <= 0 && typ == css.SemicolonToken:
			return tokens, false
		}
		depth += nesting(typ)
		if len(tokens) <= maxPrelude {
			tokens = append(tokens, token{typ, text})
		}
	}
}

// atRule takes `@media` about the width of the screen, and leaves out all others.
func (s *sheet) atRule(lexer *css.Lexer, name string, inside bool) {
	tokens, block := prelude(lexer)
	if !block {
		return
	}
	query, ok := mediaQuery(tokens)
	if name != "@media" || !ok || inside {
		skipBlock(lexer)
		return
	}
	before := len(s.out)
	s.out = append(s.out, "@media "+query+"{"...)
	opened := len(s.out)
	s.read(lexer, true)
	if len(s.out) == opened {
		s.out = s.out[:before]
		return
	}
	s.out = append(s.out, "}\n"...)
}

func skipBlock(lexer *css.Lexer) {
	for depth := 1; depth > 0; {
		typ, _ := lexer.Next()
		switch typ {
		case css.ErrorToken:
			return
		case css.LeftBraceToken:
			depth++
		case css.RightBraceToken:
			depth--
		}
	}
}

var mediaForm = lazyregexp.New(`^(?:(?:only )?(?:screen|all)(?: and |$))?(?:\((?:max|min)-(?:device-)?width:[0-9]{1,4}px\)(?: and |$)){0,2}$`)

// mediaQuery writes a query about the screen's width in its one form.
func mediaQuery(tokens []token) (string, bool) {
	var out strings.Builder
	for _, t := range tokens {
		switch t.kind {
		case css.CommentToken:
		case css.WhitespaceToken:
			if !strings.HasSuffix(out.String(), ":") {
				out.WriteByte(' ')
			}
		default:
			out.Write(t.text)
		}
		if out.Len() > 200 {
			return "", false
		}
	}
	text := strings.NewReplacer("( ", "(", " )", ")", " :", ":").Replace(strings.ToLower(strings.Join(strings.Fields(out.String()), " ")))
	return text, text != "" && !strings.HasSuffix(text, " and") && mediaForm().MatchString(text)
}

// rule reads one rule and writes it if anything of it is left.
func (s *sheet) rule(lexer *css.Lexer, first token) {
	var tokens []token
	block := first.kind == css.LeftBraceToken
	if !block {
		tokens, block = prelude(lexer, first)
	}
	if !block {
		return
	}
	body := declarations(lexer)
	selectors, names := selectorList(tokens)
	if len(body) == 0 || len(selectors) == 0 {
		return
	}
	s.rules++
	for _, name := range names {
		s.names[name] = true
	}
	s.out = append(s.out, strings.Join(selectors, ",")+"{"...)
	for _, d := range body {
		s.out = append(s.out, d.String()+";"...)
		s.paints = s.paints || d.paints()
	}
	s.out = append(s.out, "}\n"...)
}

// selectorList reads selectors divided by commas. Those that are not simple are left out, alone.
func selectorList(tokens []token) (selectors, names []string) {
	if len(tokens) > maxPrelude {
		return nil, nil
	}
	for len(tokens) > 0 {
		end := 0
		for end < len(tokens) && tokens[end].kind != css.CommaToken {
			end++
		}
		r := selectorReader{}
		if text, ok := r.read(tokens[:end]); ok {
			selectors = append(selectors, text)
			names = append(names, r.names...)
		}
		tokens = tokens[min(end+1, len(tokens)):]
	}
	return selectors, names
}

var nameForm = lazyregexp.New(`^[a-zA-Z_-][a-zA-Z0-9_-]{0,59}$`)

// classOf and idOf are the classes that stand in the page for those of the message, so that they
// are never ours.
func classOf(name string) string { return "m-" + name }
func idOf(name string) string    { return "i-" + name }

// A selectorReader writes one selector again: types, classes and ids, side by side or one in
// another.
type selectorReader struct {
	out       strings.Builder
	names     []string
	compounds int
	joint     string // what stands before the next compound
	started   bool   // the compound
}

func (r *selectorReader) read(tokens []token) (string, bool) {
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch {
		case t.kind == css.CommentToken:
		case t.kind == css.WhitespaceToken:
			r.end(" ")
		case t.is(">"):
			r.end(">")
		case t.is("."), t.kind == css.ColonToken:
			if i++; i == len(tokens) || tokens[i].kind != css.IdentToken || !r.qualify(string(t.text), string(tokens[i].text)) {
				return "", false
			}
		case t.kind == css.HashToken:
			if !r.qualify("#", string(t.text[1:])) {
				return "", false
			}
		case t.is("*"), t.kind == css.IdentToken:
			if !r.element(strings.ToLower(string(t.text))) {
				return "", false
			}
		default:
			return "", false
		}
	}
	ok := r.compounds > 0 && r.compounds <= maxCompounds && r.joint != ">"
	return r.out.String(), ok
}

// end ends a compound. A space beside a > means nothing.
func (r *selectorReader) end(joint string) {
	if r.compounds == 0 && joint == ">" {
		r.compounds = maxCompounds + 1 // there is nothing to be within
	}
	if r.joint != ">" && r.compounds > 0 {
		r.joint = joint
	}
	r.started = false
}

func (r *selectorReader) start() {
	if r.started {
		return
	}
	r.out.WriteString(r.joint)
	r.joint, r.started = "", true
	r.compounds++
}

func (r *selectorReader) element(name string) bool {
	if r.started || name != "*" && name != "body" && !elements[name] {
		return false
	}
	r.start()
	r.out.WriteString(name)
	return true
}

// qualify writes a class, an id or one of two pseudo-classes.
func (r *selectorReader) qualify(mark, name string) bool {
	if !nameForm().MatchString(name) {
		return false
	}
	if mark == ":" {
		name = strings.ToLower(name)
		r.start()
		r.out.WriteString(":" + name)
		return name == "link" || name == "hover"
	}
	name = map[string]string{".": classOf(name), "#": idOf(name)}[mark]
	r.start()
	r.out.WriteString("." + name)
	r.names = append(r.names, name)
	return true
}
