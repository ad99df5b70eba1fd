// Package lazyregexp compiles regular expressions at their first use, so that the start of the
// program does not wait for those of every package. It does not know what they are for.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New compiles the expression when it is first asked for. Like regexp.MustCompile it panics if the
// text is no expression, but not before that.
func New(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
