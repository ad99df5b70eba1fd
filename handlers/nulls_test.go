package handlers

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestNullPlaces holds the places of the description that may be null to one list, which says of
// each what allows it. null is a promise that clients have to handle: a new one is decided there,
// not by the type of a field.
func TestNullPlaces(t *testing.T) {
	const list = "testdata/nulls.txt"
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	decided := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		place, why, _ := strings.Cut(strings.TrimSpace(line), " ")
		if decided[place] {
			t.Errorf("%s stands there twice", place)
		}
		if strings.TrimSpace(why) == "" {
			t.Errorf("nothing is said of why %s may be null", place)
		}
		decided[place] = true
	}
	found := nullPlaces(t)
	for _, place := range found {
		if !decided[place] {
			t.Errorf("%s may be null: decide it, and add it to %s with what allows it", place, list)
		}
		delete(decided, place)
	}
	for place := range decided {
		t.Errorf("%s is in %s, but cannot be null", place, list)
	}
	if len(found) < 300 {
		t.Errorf("only %d places were found", len(found))
	}
}

// nullPlaces returns the places of the document that allow null: a schema's name and a field, or
// the path of a schema without a name. A list's items end in [], an object's values in {}.
func nullPlaces(t *testing.T) (found []string) {
	var doc map[string]any
	if err := json.Unmarshal(theContract().text, &doc); err != nil {
		t.Fatal(err)
	}
	var inSchema func(at string, v any)
	inSchema = func(at string, v any) {
		s := v.(map[string]any)
		anything := !slices.ContainsFunc([]string{"type", "$ref", "const", "enum", "anyOf", "oneOf", "allOf"}, func(word string) bool { return s[word] != nil })
		types, _ := s["type"].([]any)
		if (anything || s["type"] == "null" || slices.Contains(types, any("null"))) && !slices.Contains(found, at) {
			found = append(found, at)
		}
		fields, _ := s["properties"].(map[string]any)
		for name, field := range fields {
			inSchema(at+"."+name, field)
		}
		if s["items"] != nil {
			inSchema(at+"[]", s["items"])
		}
		if s["additionalProperties"] != nil {
			inSchema(at+"{}", s["additionalProperties"])
		}
		for _, word := range []string{"anyOf", "oneOf", "allOf"} {
			forms, _ := s[word].([]any)
			for _, form := range forms {
				inSchema(at, form)
			}
		}
	}
	var elsewhere func(at string, v any)
	elsewhere = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			for i, item := range v {
				elsewhere(fmt.Sprintf("%s/%d", at, i), item)
			}
		case map[string]any:
			for name, value := range v {
				switch name {
				case "schema":
					inSchema(at, value)
				case "schemas":
					for schema, value := range value.(map[string]any) {
						inSchema(schema, value)
					}
				case "example", "examples":
				default:
					elsewhere(at+"/"+name, value)
				}
			}
		}
	}
	elsewhere("", doc)
	slices.Sort(found)
	return found
}
