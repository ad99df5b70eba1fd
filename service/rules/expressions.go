package rules

import (
	"regexp"
	"regexp/syntax"
	"sync"
)

// maxCachedExpressions is how many compiled regular expressions are cached.
const maxCachedExpressions = 2000

// An expression is a compiled regular expression with its size.
type expression struct {
	*regexp.Regexp
	size int // number of instructions
}

// expressionCache is the cache of compiled regular expressions.
var expressionCache = struct {
	sync.Mutex
	byText map[string]*expression
}{byText: map[string]*expression{}}

// compileCached compiles a regular expression, or returns it from the cache.
func compileCached(text string) (*expression, error) {
	expressionCache.Lock()
	known := expressionCache.byText[text]
	expressionCache.Unlock()
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
	expressionCache.Lock()
	defer expressionCache.Unlock()
	if len(expressionCache.byText) >= maxCachedExpressions {
		clear(expressionCache.byText)
	}
	expressionCache.byText[text] = &expression{made, size}
	return expressionCache.byText[text], nil
}

// programSize returns how many instructions a regular expression compiles to.
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
