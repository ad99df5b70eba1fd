package templates

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
)

// A Content is the content of a template or of a message, before or after its variables are filled
// in.
type Content struct{ Subject, Text, HTML string }

// A Form is a parsed Content. Its size with given values can be computed without filling it.
type Form struct {
	Content
	uses []variableUse // the variables, in the order of their first use
	own  int           // bytes of the content outside of variables
}

// A variableUse says how often each part of a Content contains a variable.
type variableUse struct {
	name                string
	subject, text, html int
}

// htmlEscaper escapes characters that have a meaning in HTML.
var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

// Form parses the content. The error is invalid_template.
func (c Content) Form() (*Form, error) {
	f := &Form{Content: c}
	at := map[string]int{}
	for _, part := range []struct {
		field, text string
		count       func(*variableUse) *int
	}{
		{"subject", c.Subject, func(u *variableUse) *int { return &u.subject }},
		{"text", c.Text, func(u *variableUse) *int { return &u.text }},
		{"html", c.HTML, func(u *variableUse) *int { return &u.html }},
	} {
		err := parseParts(part.field, part.text, func(own string) { f.own += len(own) }, func(name string) {
			n, known := at[name]
			if !known {
				n = len(f.uses)
				at[name], f.uses = n, append(f.uses, variableUse{name: name})
			}
			*part.count(&f.uses[n])++
		})
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Variables returns the names of the variables, sorted.
func (f *Form) Variables() []string {
	names := make([]string, len(f.uses))
	for i, u := range f.uses {
		names[i] = u.name
	}
	slices.Sort(names)
	return names
}

// Size returns how many bytes the content has with the values. It takes no longer if the content
// contains a variable many times. It returns the same errors as Fill.
func (f *Form) Size(values Variables) (size int64, err error) {
	_, size, err = f.measure(values)
	return size, err
}

// Fill replaces the variables with their values. In HTML, values are escaped. A value that contains
// a variable is not filled again. The errors are payload_too_large if the result exceeds
// core.MaxContent; missing_variable if a value is missing; and validation_error for a value that is
// no text, number or boolean, and for one with a line break in the subject.
func (f *Form) Fill(values Variables) (out Content, err error) {
	texts, size, err := f.measure(values)
	if err == nil && size > core.MaxContent {
		err = core.ContentTooLarge()
	}
	if err != nil {
		return out, err
	}
	fill := func(text string, length func(string) int, put func(to *strings.Builder, value string)) string {
		var to strings.Builder
		size := 0
		// The error is nil, because Form has parsed the same text.
		_ = parseParts("", text, func(own string) { size += len(own) }, func(name string) { size += length(texts[name]) })
		to.Grow(size) // a buffer that grows would need memory for the old and the new bytes
		_ = parseParts("", text, func(own string) { to.WriteString(own) }, func(name string) { put(&to, texts[name]) })
		return to.String()
	}
	plainLen := func(value string) int { return len(value) }
	plain := func(to *strings.Builder, value string) { to.WriteString(value) }
	escaped := func(to *strings.Builder, value string) {
		_, _ = htmlEscaper.WriteString(to, value) // a Builder returns no errors
	}
	return Content{fill(f.Subject, plainLen, plain), fill(f.Text, plainLen, plain), fill(f.HTML, escapedLen, escaped)}, nil
}

// measure returns the texts of the values that the content needs, and how many bytes the content
// has with them.
func (f *Form) measure(values Variables) (texts map[string]string, size int64, err error) {
	for name, v := range values {
		if !v.isUsable() {
			return nil, 0, core.Invalid("variables."+name, "wrong_type", "must be a text, a number or a boolean")
		}
	}
	texts, size = make(map[string]string, len(f.uses)), int64(f.own)
	for _, u := range f.uses {
		v, given := values[u.name]
		if !given {
			what := fmt.Sprintf("the template needs a value for {{%s}}", u.name)
			return nil, 0, core.Errorf("missing_variable", "variables.%s: %s.", u.name, what).With("variables."+u.name, "required", what)
		}
		text := v.text()
		if u.subject > 0 && strings.ContainsAny(text, "\r\n") {
			return nil, 0, core.Invalid("variables."+u.name, "invalid", "is part of the subject, which is one line")
		}
		size += int64(u.subject+u.text) * int64(len(text))
		if u.html > 0 {
			size += int64(u.html) * int64(escapedLen(text))
		}
		texts[u.name] = text
	}
	return texts, size, nil
}

// escapedLen returns the length of a value after it is escaped for HTML.
func escapedLen(text string) int {
	n := len(text)
	for i := range len(text) {
		switch text[i] {
		case '&', '"', '\'':
			n += len("&amp;") - 1
		case '<', '>':
			n += len("&lt;") - 1
		}
	}
	return n
}

// parseParts splits a text at its variables. It calls own with each part outside of variables, and
// variable with the name of each variable. The error is invalid_template.
func parseParts(field, text string, own, variable func(string)) error {
	for {
		before, rest, found := strings.Cut(text, "{{")
		own(before)
		if !found {
			return nil
		}
		inside, after, closed := strings.Cut(rest, "}}")
		name := strings.Trim(inside, " \t\r\n")
		if !closed || !isVariableName(name) {
			shown := "{{" + inside[:min(len(inside), 40)]
			what := fmt.Sprintf("%q begins no variable: one is {{name}}, of letters, digits, _ and ., and begins with a letter or _", strings.ToValidUTF8(shown, "�"))
			return core.Errorf("invalid_template", "%s: %s.", field, what).With(field, "invalid", what)
		}
		variable(name)
		text = after
	}
}

// isVariableName reports whether a text is a valid name of a variable.
func isVariableName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c != '.' && (c < '0' || c > '9')) {
			return false
		}
	}
	return name != ""
}

// Variables maps the names of variables to their values.
type Variables map[string]Variable

// Bytes returns the total length of the values in JSON.
func (v Variables) Bytes() (n int64) {
	for _, one := range v {
		n += int64(len(one.raw))
	}
	return n
}

// A Variable is the value of a variable: a text, a number or a boolean.
type Variable struct{ raw json.RawMessage }

// Text returns a Variable with a text.
func Text(s string) Variable {
	raw, _ := json.Marshal(s)
	return Variable{raw}
}

// UnmarshalJSON accepts all types of values. Fill returns an error for types that cannot be used.
func (v *Variable) UnmarshalJSON(data []byte) error {
	v.raw = append(json.RawMessage(nil), data...)
	return nil
}

// MarshalJSON returns the value in the form in which it was read.
func (v Variable) MarshalJSON() ([]byte, error) {
	if v.raw == nil {
		return []byte("null"), nil
	}
	return v.raw, nil
}

// Forms returns examples of the types that a value may have in JSON.
func (Variable) Forms() []any { return []any{"", 0.0, true} }

// isUsable reports whether the value is a text, a number or a boolean.
func (v Variable) isUsable() bool {
	if len(v.raw) == 0 {
		return false
	}
	switch c := v.raw[0]; {
	case c == '"', c == 't', c == 'f', c == '-', c >= '0' && c <= '9':
		return true
	}
	return false
}

// text returns the value as a text. isUsable must be true for the value. A number keeps its
// spelling.
func (v Variable) text() (text string) {
	if v.raw[0] != '"' {
		return string(v.raw)
	}
	_ = json.Unmarshal(v.raw, &text) // the error is nil, because raw is valid JSON
	return text
}
