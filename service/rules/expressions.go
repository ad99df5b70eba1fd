package rules

import (
	"regexp"
	"regexp/syntax"
	"sync"
)

// expressionsKept is how many compiled expressions are kept.
const expressionsKept = 2000

// An expression is a compiled one.
type expression struct {
	*regexp.Regexp
	size int // its instructions
}

var expressions = struct {
	sync.Mutex
	byText map[string]*expression
}{byText: map[string]*expression{}}

// compiled compiles an expression, or gives one that was compiled before.
func compiled(text string) (*expression, error) {
	expressions.Lock()
	known := expressions.byText[text]
	expressions.Unlock()
	if known != nil {
		return known, nil
	}
	size, err := programSize(text)
	if err != nil {
		return nil, err
	}
	made, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	expressions.Lock()
	defer expressions.Unlock()
	if len(expressions.byText) >= expressionsKept {
		clear(expressions.byText)
	}
	expressions.byText[text] = &expression{made, size}
	return expressions.byText[text], nil
}

// programSize is of how many instructions an expression is.
func programSize(text string) (int, error) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, err
	}
	return len(program.Inst), nil
}
