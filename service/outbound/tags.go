package outbound

import (
	"maps"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Bounds of the tags of a message.
const (
	maxTags     = 20
	maxTagName  = 64
	maxTagValue = 200 // characters
)

// A TagMap is the tags of a message, by their names.
type TagMap map[string]string

// Sorted checks tags and gives them in the order of their names.
func (m TagMap) Sorted() (out []store.Tag, err error) {
	if len(m) > maxTags {
		return nil, core.Invalid("tags", "too_many_items", "a message can have at most %d tags", maxTags)
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		value := m[name]
		if !isTagName(name) {
			return nil, core.Invalid("tags", "invalid", "the name %.80q must be of 1 to %d letters, digits, _ and -", name, maxTagName)
		}
		if !utf8.ValidString(value) || utf8.RuneCountInString(value) > maxTagValue || slices.ContainsFunc([]rune(value), unicode.IsControl) {
			return nil, core.Invalid("tags."+name, "invalid", "must be at most %d characters, on one line", maxTagValue)
		}
		out = append(out, store.Tag{Name: name, Value: value})
	}
	return out, nil
}

func isTagName(name string) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return name != "" && len(name) <= maxTagName
}

// tagsOut gives the tags of a row; an empty map for none.
func tagsOut(tags []store.Tag) TagMap {
	out := TagMap{}
	for _, t := range tags {
		out[t.Name] = t.Value
	}
	return out
}
