// Package markup formats HTML and escapes its arguments. It does not know the pages.
//
// It is for the reference of the API, which is long and regular; pages with forms are html/template
// templates.
package markup

import (
	"fmt"
	"html"
)

// HTML is finished markup, in which all untrusted text is escaped.
type HTML string

// A Form is a format string. Its own type prevents passing an untrusted string as the format by
// mistake.
type Form string

// Format is fmt.Sprintf with escaped arguments; arguments of type HTML are not escaped. Arguments
// may be used in text and in attributes with double quotes, but not in scripts, style sheets or
// comments. A URL must begin with fixed text, or be one that this program made.
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
