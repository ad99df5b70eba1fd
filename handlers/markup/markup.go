// Package markup formats HTML and escapes its arguments. It does not know the pages.
//
// It is for the pages of the documentation, which are long and regular. Pages with forms are
// templates of html/template.
package markup

import (
	"fmt"
	"html"
)

// HTML is HTML text in which all untrusted text is escaped.
type HTML string

// A Form is a format string of HTML. Because it is a type of its own, an untrusted string cannot be
// passed as the format by mistake.
type Form string

// Format does what fmt.Sprintf does, but escapes arguments, except those of type HTML. Arguments
// may be used in text and in attributes with double quotes. They must not be used in scripts, style
// sheets or comments. A URL must begin with fixed text, or be made by this program.
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
