package view

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/css"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

// Limits on the styles of a message.
const (
	maxValueTokens = 64   // tokens in one declaration
	maxLength      = 4000 // maximum length in pixels, points, millimetres and per cent
	maxString      = 80   // characters of a font name
	maxEms         = 100  // maximum length in longer units, such as em or inch
)

// valueKinds says which values a property may have beside words and lengths.
type valueKinds uint8

const (
	colours    valueKinds = 1 << iota // #fff, rgb()
	fontNames                         // "Open Sans"
	background                        // like colours, but only the colour in the value is used
)

// properties are the allowed properties. They can neither load anything nor move content out of its
// place. Their values may not contain negative lengths, nor functions other than colours.
var properties = map[string]valueKinds{
	"color": colours, "background-color": colours, "background": colours | background,
	"font": fontNames, "font-family": fontNames, "font-size": 0, "font-style": 0, "font-weight": 0, "font-variant": 0, "font-stretch": 0,
	"line-height": 0, "letter-spacing": 0, "word-spacing": 0, "text-indent": 0, "text-align": 0, "text-transform": 0,
	"text-decoration": colours, "text-decoration-line": 0, "text-decoration-color": colours, "text-decoration-style": 0,
	"vertical-align": 0, "white-space": 0, "word-break": 0, "word-wrap": 0, "overflow-wrap": 0, "hyphens": 0,
	"width": 0, "min-width": 0, "max-width": 0, "height": 0, "min-height": 0, "max-height": 0, "box-sizing": 0,
	"padding": 0, "padding-top": 0, "padding-right": 0, "padding-bottom": 0, "padding-left": 0,
	"margin": 0, "margin-top": 0, "margin-right": 0, "margin-bottom": 0, "margin-left": 0,
	"border": colours, "border-top": colours, "border-right": colours, "border-bottom": colours, "border-left": colours,
	"border-color": colours, "border-top-color": colours, "border-right-color": colours, "border-bottom-color": colours, "border-left-color": colours,
	"border-width": 0, "border-top-width": 0, "border-right-width": 0, "border-bottom-width": 0, "border-left-width": 0,
	"border-style": 0, "border-top-style": 0, "border-right-style": 0, "border-bottom-style": 0, "border-left-style": 0,
	"border-radius": 0, "border-top-left-radius": 0, "border-top-right-radius": 0, "border-bottom-right-radius": 0, "border-bottom-left-radius": 0,
	"border-collapse": 0, "border-spacing": 0, "table-layout": 0, "caption-side": 0,
	"display": 0, "visibility": 0, "overflow": 0, "opacity": 0, "float": 0, "clear": 0,
	"list-style": 0, "list-style-type": 0, "list-style-position": 0,
}

var (
	wordForm        = lazyregexp.New(`^-?[a-zA-Z][a-zA-Z0-9-]{0,39}$`)
	colourForm      = lazyregexp.New(`^#[0-9a-fA-F]{3,8}$`)
	stringForm      = lazyregexp.New(`^[\p{L}\p{N} _.-]+$`)
	colourFunctions = map[string]bool{"rgb(": true, "rgba(": true, "hsl(": true, "hsla(": true}
	units           = map[string]float64{"px": maxLength, "pt": maxLength, "em": maxEms, "rem": maxEms, "ex": maxEms, "ch": maxEms,
		"in": maxEms, "cm": maxEms, "mm": maxLength, "pc": maxEms}
)

// A token is one token of a style sheet.
type token struct {
	kind css.TokenType
	text []byte
}

// A declaration is a property with its value, which was checked.
type declaration struct {
	property, value string
	important       bool
}

func (d declaration) String() string {
	if d.important {
		return d.property + ":" + d.value + "!important"
	}
	return d.property + ":" + d.value
}

// setsColour reports whether the declaration sets a colour.
func (d declaration) setsColour() bool {
	return (d.property == "color" || d.property == "background-color") && !neutralColours[strings.ToLower(d.value)]
}

// neutralColours are values of colour properties that do not set a colour of the message's own.
var neutralColours = map[string]bool{"inherit": true, "initial": true, "unset": true, "transparent": true, "currentcolor": true}

// parseStyleAttribute parses the value of a style attribute.
func parseStyleAttribute(s string) []declaration {
	return parseDeclarations(css.NewLexer(parse.NewInputString(s)))
}

// parseDeclarations parses declarations up to the brace that ends the rule, or up to the end.
func parseDeclarations(lexer *css.Lexer) []declaration {
	var out []declaration
	var one []token
	depth := 0
	for {
		typ, text := lexer.Next()
		ends := depth == 0 && (typ == css.SemicolonToken || typ == css.RightBraceToken)
		if ends || typ == css.ErrorToken {
			if d, ok := readDeclaration(one); ok {
				out = append(out, d)
			}
			one = one[:0]
			if typ != css.SemicolonToken {
				return out
			}
			continue
		}
		depth += nestingChange(typ)
		if len(one) <= maxValueTokens { // keep one token too many, so that the declaration is invalid
			one = append(one, token{typ, text})
		}
	}
}

// nestingChange returns 1 for a token that opens a bracket, -1 for one that closes a bracket, and 0
// for others.
func nestingChange(typ css.TokenType) int {
	switch typ {
	case css.LeftBraceToken, css.LeftParenthesisToken, css.LeftBracketToken, css.FunctionToken:
		return 1
	case css.RightBraceToken, css.RightParenthesisToken, css.RightBracketToken:
		return -1
	}
	return 0
}

// readDeclaration parses `property: value`. It returns false if the declaration is not allowed.
func readDeclaration(tokens []token) (_ declaration, ok bool) {
	tokens = withoutSpace(tokens)
	if len(tokens) < 3 || len(tokens) > maxValueTokens || tokens[0].kind != css.IdentToken || tokens[1].kind != css.ColonToken {
		return declaration{}, false
	}
	d := declaration{property: strings.ToLower(string(tokens[0].text))}
	allowed, known := properties[d.property]
	if !known {
		return d, false
	}
	value := tokens[2:]
	if n := len(value); n > 2 && value[n-2].is("!") && strings.EqualFold(string(value[n-1].text), "important") {
		d.important, value = true, value[:n-2]
	}
	if allowed&background != 0 {
		d.property, value = "background-color", backgroundColour(value)
	}
	w := valueWriter{allowed: allowed, tokens: value}
	d.value = w.write()
	return d, d.value != ""
}

func withoutSpace(tokens []token) []token {
	out := tokens[:0]
	for _, t := range tokens {
		if t.kind != css.WhitespaceToken && t.kind != css.CommentToken {
			out = append(out, t)
		}
	}
	return out
}

func (t token) is(delim string) bool { return t.kind == css.DelimToken && string(t.text) == delim }

// backgroundColour returns the tokens of the colour in a value of `background`: a single token, a
// hash, or a colour function. It returns nil if there is no colour.
func backgroundColour(value []token) []token {
	if len(value) == 1 {
		return value
	}
	for i, t := range value {
		if t.kind == css.HashToken {
			return value[i : i+1]
		}
		if t.kind == css.FunctionToken && colourFunctions[strings.ToLower(string(t.text))] {
			for j := i; j < len(value); j++ {
				if value[j].kind == css.RightParenthesisToken {
					return value[i : j+1]
				}
			}
		}
	}
	return nil
}

// A valueWriter checks a value and writes it again. It writes "" if the value has anything that is
// not known to be harmless.
type valueWriter struct {
	allowed valueKinds
	tokens  []token
	out     strings.Builder
	inside  bool // inside a function
}

func (w *valueWriter) write() string {
	for _, t := range w.tokens {
		piece, ok := w.checkedToken(t)
		if !ok {
			return ""
		}
		if last := w.out.String(); last != "" && last[len(last)-1] != '(' && piece != ")" && piece != "," {
			w.out.WriteByte(' ')
		}
		w.out.WriteString(piece)
	}
	if w.inside {
		return ""
	}
	return w.out.String()
}

// checkedToken returns a token as it is written, false if it is not allowed.
func (w *valueWriter) checkedToken(t token) (_ string, ok bool) {
	text := string(t.text)
	switch t.kind {
	case css.IdentToken:
		return text, wordForm().MatchString(text) && !w.inside
	case css.HashToken:
		return text, w.allowed&colours != 0 && colourForm().MatchString(text) && !w.inside
	case css.StringToken:
		return quotedFontName(text, w.allowed)
	case css.FunctionToken:
		text = strings.ToLower(text)
		ok := w.allowed&colours != 0 && colourFunctions[text] && !w.inside
		w.inside = true
		return text, ok
	case css.RightParenthesisToken:
		ok := w.inside
		w.inside = false
		return ")", ok
	case css.NumberToken, css.PercentageToken, css.DimensionToken:
		return parseLength(text)
	case css.CommaToken:
		return ",", true
	}
	return "/", t.is("/")
}

// quotedFontName returns the name of a font in quotes, false if it is not allowed.
func quotedFontName(text string, allowed valueKinds) (_ string, ok bool) {
	if allowed&fontNames == 0 || len(text) < 2 || text[len(text)-1] != text[0] {
		return "", false
	}
	name := text[1 : len(text)-1]
	return `"` + name + `"`, utf8.RuneCountInString(name) <= maxString && stringForm().MatchString(name)
}

// parseLength returns a number with its unit, false if the number is negative or too large, or the
// unit unknown.
func parseLength(text string) (_ string, ok bool) {
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ%")
	unit := strings.ToLower(text[len(digits):])
	most, known := units[unit]
	if unit == "" || unit == "%" {
		most, known = maxLength, true
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !known || n < 0 || n > most || math.Signbit(n) || math.IsNaN(n) {
		return "", false
	}
	return strconv.FormatFloat(math.Round(n*1000)/1000, 'f', -1, 64) + unit, true
}
