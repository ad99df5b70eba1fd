// Package lazyregexp compiles regular expressions when they are first used, so that the program
// starts faster.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the compiled regular expression text. It compiles the
// expression at its first call, which panics if the expression is invalid.
func New(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
