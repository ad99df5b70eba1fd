// Package lazyregexp compiles regular expressions at their first use, so that the program starts
// without compiling those of every package.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that compiles the expression at its first call. Like regexp.MustCompile,
// that call panics if the expression is not valid.
func New(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
