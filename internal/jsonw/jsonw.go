// Package jsonw writes large values as JSON with little memory. encoding/json builds the whole text
// of a value in memory before it writes it. This package does not know what the values mean.
package jsonw

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// pieceSize is the number of bytes of a string that are encoded at once.
const pieceSize = 32 << 10

// Write writes a value as JSON, with the same text as encoding/json. It encodes structs, lists,
// maps with string keys, pointers and strings in pieces. It encodes other values, and those with a
// MarshalJSON method, as a whole. Of struct tags it supports names, omitempty and "-". It returns
// errors of w and of encoding/json.
func Write(w io.Writer, v any) error { return write(w, reflect.ValueOf(v)) }

func write(w io.Writer, v reflect.Value) (err error) {
	whole := func(text []byte, err error) error {
		if err != nil {
			return fmt.Errorf("encode value of type %s as JSON: %w", v.Type(), err)
		}
		_, err = w.Write(text)
		return err
	}
	m, marshals := v.Interface().(json.Marshaler)
	switch kind := v.Kind(); {
	case (kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Map) && v.IsNil():
		return whole([]byte("null"), nil)
	case marshals:
		return whole(m.MarshalJSON())
	case kind == reflect.Pointer:
		return write(w, v.Elem())
	case kind == reflect.String:
		return writeText(w, v.String())
	case kind == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		return writeAll(w, "[]", v.Len(), func(i int) error { return write(w, v.Index(i)) })
	case kind == reflect.Map && v.Type().Key().Kind() == reflect.String:
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		return writeAll(w, "{}", len(names), func(i int) error { return writeMember(w, names[i].String(), v.MapIndex(names[i])) })
	case kind == reflect.Struct:
		names, values := fields(v)
		return writeAll(w, "{}", len(names), func(i int) error { return writeMember(w, names[i], values[i]) })
	}
	return whole(json.Marshal(v.Interface()))
}

// fields returns the JSON names and the values of the fields of a struct, without those that are
// omitted.
func fields(v reflect.Value) (names []string, values []reflect.Value) {
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" {
			continue
		}
		value := v.FieldByIndex(f.Index)
		if options == "omitempty" && (value.IsZero() || value.Kind() == reflect.Map && value.Len() == 0 || value.Kind() == reflect.Slice && value.Len() == 0) {
			continue
		}
		if name == "" {
			name = f.Name
		}
		names, values = append(names, name), append(values, value)
	}
	return names, values
}

// writeAll writes n values between two brackets, separated by commas. It calls writeOne for each
// value.
func writeAll(w io.Writer, brackets string, n int, writeOne func(i int) error) error {
	before := brackets[:1]
	for i := range n {
		if _, err := io.WriteString(w, before); err != nil {
			return err
		}
		if err := writeOne(i); err != nil {
			return err
		}
		before = ","
	}
	if n > 0 {
		brackets = brackets[1:]
	}
	_, err := io.WriteString(w, brackets)
	return err
}

// writeMember writes a member of an object: its name and value.
func writeMember(w io.Writer, name string, v reflect.Value) error {
	if err := writeText(w, name); err != nil {
		return err
	}
	if _, err := io.WriteString(w, ":"); err != nil {
		return err
	}
	return write(w, v)
}

// writeText writes a string in pieces that end at character boundaries.
func writeText(w io.Writer, text string) error {
	for first := true; first || text != ""; first = false {
		n := min(len(text), pieceSize)
		for n < len(text) && n > pieceSize-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		quoted, err := json.Marshal(text[:n])
		if err != nil {
			return fmt.Errorf("encode string as JSON: %w", err)
		}
		text = text[n:]
		if !first {
			quoted = quoted[1:]
		}
		if text != "" {
			quoted = quoted[:len(quoted)-1]
		}
		if _, err := w.Write(quoted); err != nil {
			return err
		}
	}
	return nil
}
