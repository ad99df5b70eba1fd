package view

import (
	"strings"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/css"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

// Limits on the style sheets of a message.
const (
	maxSheets    = 256 << 10 // bytes of all style sheets that are read
	maxRules     = 2000
	maxPrelude   = 200 // tokens in the selectors of one rule
	maxCompounds = 3   // compound selectors in one selector; `.a td a` has three
)

// A sheet holds the checked content of a message's style sheets: rules with simple selectors and
// allowed properties, and media queries about the width.
type sheet struct {
	out        []byte
	names      map[string]bool // classes and ids in the selectors, under their names in the document
	rules      int
	setsColour bool
}

// readSheets parses the content of the style elements.
func readSheets(sources []string) *sheet {
	s := &sheet{names: map[string]bool{}}
	left := maxSheets
	for _, source := range sources {
		source = source[:min(left, len(source))]
		left -= len(source)
		s.readRules(css.NewLexer(parse.NewInputString(source)), false)
	}
	return s
}

// readRules reads rules up to the end or, if inside is set, up to the brace that ends the block.
func (s *sheet) readRules(lexer *css.Lexer, inside bool) {
	for s.rules < maxRules {
		typ, text := lexer.Next()
		switch {
		case typ == css.ErrorToken, inside && typ == css.RightBraceToken:
			return
		case typ == css.WhitespaceToken, typ == css.CommentToken, typ == css.CDOToken, typ == css.CDCToken, typ == css.SemicolonToken:
		case typ == css.AtKeywordToken:
			s.readAtRule(lexer, strings.ToLower(string(text)), inside)
		default:
			s.readRule(lexer, token{typ, text})
		}
	}
}

// readPrelude reads the tokens before a block. first are tokens that were already read. block is
// false if no block follows.
func readPrelude(lexer *css.Lexer, first ...token) (tokens []token, block bool) {
	tokens = first
	depth := 0
	for _, t := range first {
		depth += nestingChange(t.kind)
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
		depth += nestingChange(typ)
		if len(tokens) <= maxPrelude {
			tokens = append(tokens, token{typ, text})
		}
	}
}

// readAtRule reads an at-rule. It writes `@media` rules about the screen width and skips the
// others.
func (s *sheet) readAtRule(lexer *css.Lexer, name string, inside bool) {
	tokens, block := readPrelude(lexer)
	if !block {
		return
	}
	query, ok := parseMediaQuery(tokens)
	if name != "@media" || !ok || inside {
		skipBlock(lexer)
		return
	}
	before := len(s.out)
	s.out = append(s.out, "@media "+query+"{"...)
	opened := len(s.out)
	s.readRules(lexer, true)
	if len(s.out) == opened {
		s.out = s.out[:before]
		return
	}
	s.out = append(s.out, "}\n"...)
}

// skipBlock skips the rest of a block and its closing brace.
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

var mediaQueryPattern = lazyregexp.New(`^(?:(?:only )?(?:screen|all)(?: and |$))?(?:\((?:max|min)-(?:device-)?width:[0-9]{1,4}px\)(?: and |$)){0,2}$`)

// parseMediaQuery returns a media query in normalized form, false if the query is about anything
// else than the screen width.
func parseMediaQuery(tokens []token) (_ string, ok bool) {
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
	return text, text != "" && !strings.HasSuffix(text, " and") && mediaQueryPattern().MatchString(text)
}

// readRule reads one rule. It writes the selectors and declarations in it that are allowed.
func (s *sheet) readRule(lexer *css.Lexer, first token) {
	var tokens []token
	block := first.kind == css.LeftBraceToken
	if !block {
		tokens, block = readPrelude(lexer, first)
	}
	if !block {
		return
	}
	body := parseDeclarations(lexer)
	selectors, names := parseSelectorList(tokens)
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
		s.setsColour = s.setsColour || d.setsColour()
	}
	s.out = append(s.out, "}\n"...)
}

// parseSelectorList parses selectors separated by commas. It skips those that are not simple.
func parseSelectorList(tokens []token) (selectors, names []string) {
	if len(tokens) > maxPrelude {
		return nil, nil
	}
	for len(tokens) > 0 {
		end := 0
		for end < len(tokens) && tokens[end].kind != css.CommaToken {
			end++
		}
		r := selectorReader{}
		if text, ok := r.readSelector(tokens[:end]); ok {
			selectors = append(selectors, text)
			names = append(names, r.names...)
		}
		tokens = tokens[min(end+1, len(tokens)):]
	}
	return selectors, names
}

var namePattern = lazyregexp.New(`^[a-zA-Z_-][a-zA-Z0-9_-]{0,59}$`)

// classOf and idOf return the class names that stand in the document for a class and an id of the
// message. Their prefixes keep them apart from the classes of this package.
func classOf(name string) string { return "m-" + name }
func idOf(name string) string    { return "i-" + name }

// A selectorReader parses one selector and writes it again: compounds of types, classes and ids,
// combined by descendant or child.
type selectorReader struct {
	out        strings.Builder
	names      []string
	compounds  int
	combinator string // the combinator to write before the next compound
	started    bool   // the current compound has a part already
}

// readSelector returns the checked selector, false if it is not allowed.
func (r *selectorReader) readSelector(tokens []token) (_ string, allowed bool) {
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch {
		case t.kind == css.CommentToken:
		case t.kind == css.WhitespaceToken:
			r.endCompound(" ")
		case t.is(">"):
			r.endCompound(">")
		case t.is("."), t.kind == css.ColonToken:
			if i++; i == len(tokens) || tokens[i].kind != css.IdentToken || !r.writeQualifier(string(t.text), string(tokens[i].text)) {
				return "", false
			}
		case t.kind == css.HashToken:
			if !r.writeQualifier("#", string(t.text[1:])) {
				return "", false
			}
		case t.is("*"), t.kind == css.IdentToken:
			if !r.writeElement(strings.ToLower(string(t.text))) {
				return "", false
			}
		default:
			return "", false
		}
	}
	ok := r.compounds > 0 && r.compounds <= maxCompounds && r.combinator != ">"
	return r.out.String(), ok
}

// endCompound ends a compound. combinator is the combinator after it; a space beside > does not
// count.
func (r *selectorReader) endCompound(combinator string) {
	if r.compounds == 0 && combinator == ">" {
		r.compounds = maxCompounds + 1 // invalid, since > has no parent before it
	}
	if r.combinator != ">" && r.compounds > 0 {
		r.combinator = combinator
	}
	r.started = false
}

// startCompound begins a compound, if none has begun.
func (r *selectorReader) startCompound() {
	if r.started {
		return
	}
	r.out.WriteString(r.combinator)
	r.combinator, r.started = "", true
	r.compounds++
}

// writeElement writes an element name. It returns false if the name is not allowed there.
func (r *selectorReader) writeElement(name string) (allowed bool) {
	if r.started || name != "*" && name != "body" && !elements[name] {
		return false
	}
	r.startCompound()
	r.out.WriteString(name)
	return true
}

// writeQualifier writes a class, an id, or one of the pseudo-classes :link and :hover. mark is ".",
// "#" or ":". It returns false if the name is not allowed.
func (r *selectorReader) writeQualifier(mark, name string) (allowed bool) {
	if !namePattern().MatchString(name) {
		return false
	}
	if mark == ":" {
		name = strings.ToLower(name)
		r.startCompound()
		r.out.WriteString(":" + name)
		return name == "link" || name == "hover"
	}
	name = map[string]string{".": classOf(name), "#": idOf(name)}[mark]
	r.startCompound()
	r.out.WriteString("." + name)
	r.names = append(r.names, name)
	return true
}
