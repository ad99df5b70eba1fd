package view

import (
	"strings"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/css"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

// Limits on the style sheets of a message.
const (
	maxSheets    = 256 << 10 // total bytes that are read
	maxRules     = 2000
	maxPrelude   = 200 // tokens of one rule's selectors
	maxCompounds = 3   // in one selector: `.a td a`
)

// A sheet is the checked content of a message's style sheets: rules with simple selectors and
// allowed properties, and media queries about the width.
type sheet struct {
	out    []byte
	names  map[string]bool // classes and ids in its selectors, as written to the page
	rules  int
	paints bool
}

// readSheets parses the contents of the style elements.
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

// read reads rules up to the end, or with inside up to the brace that ends the block.
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

// prelude reads the tokens before a block. block is false if no block follows.
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

// atRule reads an at-rule. It writes `@media` rules about the screen width and skips all others.
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

// mediaQuery returns a media query in normalized form. It returns false if the query is not about
// the screen width.
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

// rule reads one rule and writes its allowed selectors and declarations, if there are any.
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

// selectorList parses selectors separated by commas. It skips selectors that are not simple.
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

// classOf and idOf return the class names in the page for the classes and ids of the message. The
// prefixes keep them distinct from our classes.
func classOf(name string) string { return "m-" + name }
func idOf(name string) string    { return "i-" + name }

// A selectorReader parses one selector and writes it in checked form: compounds of types, classes
// and ids, combined by descendant or child.
type selectorReader struct {
	out       strings.Builder
	names     []string
	compounds int
	joint     string // the combinator before the next compound
	started   bool   // the current compound has begun
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

// end ends a compound. It ignores a space next to a >.
func (r *selectorReader) end(joint string) {
	if r.compounds == 0 && joint == ">" {
		r.compounds = maxCompounds + 1 // invalid: there is no parent before >
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

// qualify writes a class, an id, or one of the pseudo-classes :link and :hover. It returns false if
// the name is not allowed.
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
