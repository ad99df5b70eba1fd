package templates

import "encoding/json"

// Variables are values by their names.
type Variables map[string]Variable

// Bytes is how long the values are, as they were given.
func (v Variables) Bytes() (n int64) {
	for _, one := range v {
		n += int64(len(one.raw))
	}
	return n
}

// A Variable is a value: a text, a number or a boolean.
type Variable struct{ raw json.RawMessage }

// Text makes a variable.
func Text(s string) Variable {
	raw, _ := json.Marshal(s)
	return Variable{raw}
}

// UnmarshalJSON takes any value; what cannot be used is told when it is.
func (v *Variable) UnmarshalJSON(data []byte) error {
	v.raw = append(json.RawMessage(nil), data...)
	return nil
}

// MarshalJSON writes what was read.
func (v Variable) MarshalJSON() ([]byte, error) {
	if v.raw == nil {
		return []byte("null"), nil
	}
	return v.raw, nil
}

// Forms says which forms it has on the wire.
func (Variable) Forms() []any { return []any{"", 0.0, true} }

// usable tells whether it is a text, a number or a boolean.
func (v Variable) usable() bool {
	if len(v.raw) == 0 {
		return false
	}
	switch c := v.raw[0]; {
	case c == '"', c == 't', c == 'f', c == '-', c >= '0' && c <= '9':
		return true
	}
	return false
}

// text gives a usable value as it is written into a message. A number stays as it was given.
func (v Variable) text() (text string) {
	if v.raw[0] != '"' {
		return string(v.raw)
	}
	_ = json.Unmarshal(v.raw, &text) // it was part of JSON that was read
	return text
}
