// Package markup writes HTML around texts of others. It does not know what pages there are.
//
// It is used in the place of html/template, which calls methods by name, so that the linker has to
// keep every exported method of the program.
package markup

import (
	"fmt"
	"html"
)

// HTML is finished markup: texts of others in it are escaped.
type HTML string

// A Form is a constant of the program: a string of others cannot be passed for it by mistake.
type Form string

// Format is fmt.Sprintf with arguments that are escaped, unless they are HTML. They may stand in
// text and in attributes with double quotes, but not in scripts, style sheets or comments. Of an
// address, only what follows a fixed beginning may be an argument, or one that we made.
func Format(form Form, args ...any) HTML {
	safe := make([]any, len(args))
	for i, arg := range args {
		if finished, ok := arg.(HTML); ok {
			safe[i] = finished
			continue
		}
		safe[i] = html.EscapeString(fmt.Sprint(arg))
	}
	return HTML(fmt.Sprintf(string(form), safe...))
}
