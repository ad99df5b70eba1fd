package handlers

import (
	"encoding/json"
	"errors"
	"fmt"
)

// maxItems bounds the items of a list and the names of an object in any operation, since each costs
// memory before it is checked.
const maxItems = 100_000

var (
	errDuplicate = errors.New("a name is given twice")
	errTooMany   = fmt.Errorf("a list or an object has more than %d items", maxItems)
)

// A nest is an object or a list that is open.
type nest struct {
	names map[string]bool // of an object so far; nil for a list
	name  bool            // a text that comes now is a name
	items int
}

// walkNames calls visit for every name in raw, which is valid JSON, with the number of objects and
// lists around it. It fails where an object has a name twice, and where something has more than
// maxItems items.
func walkNames(raw []byte, visit func(depth int, name string)) error {
	var open []nest
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{':
			open = append(open, nest{names: map[string]bool{}, name: true})
		case '[':
			open = append(open, nest{})
		case '}', ']':
			open = open[:len(open)-1]
		case ',':
			in := &open[len(open)-1]
			in.name = in.names != nil
			if in.items++; in.items >= maxItems {
				return errTooMany
			}
		case '"':
			end := textEnd(raw, i)
			if len(open) > 0 && open[len(open)-1].name {
				name, err := open[len(open)-1].add(raw[i:end])
				if err != nil {
					return err
				}
				visit(len(open), name)
			}
			i = end - 1
		}
	}
	return nil
}

// add notes a name as it is written, quotes and all.
func (in *nest) add(quoted []byte) (string, error) {
	var name string
	if err := json.Unmarshal(quoted, &name); err != nil {
		return "", err
	}
	if in.names[name] {
		return "", fmt.Errorf("%w: %.40q", errDuplicate, name)
	}
	in.names[name], in.name = true, false
	return name, nil
}

// textEnd is the place behind the text that begins at i.
func textEnd(raw []byte, i int) int {
	for i++; raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i + 1
}
