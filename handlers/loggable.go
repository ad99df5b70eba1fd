package handlers

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/requests"
)

// The request log shows a body as a JSON object that is rebuilt from the fields with the tag `log`.
// Of every other value it shows only the length, see shownBody.withhold.

const (
	maxLoggedText   = 1000     // bytes of a text that is shown
	maxLoggedValue  = 64 << 10 // bytes of a value that is looked at
	maxLoggedName   = 100      // bytes of the name of a field that is shown
	maxLoggedNumber = 40
	shownEnd        = 64 // bytes left at the end of a shown body, for what closes it
)

// A loggable says what the request log shows of a value. nil: only its length.
type loggable struct {
	fields map[string]*loggable // of an object, or of the objects in a list; nil: it is a value, or a list of values
	kind   reflect.Kind         // of the value: String, Bool or Float64, which stands for all numbers
	isTime bool                 // a text must be a time
	enum   string               // the texts that are shown, as in the tag enum; "": all
}

// loggableRequests returns what is shown of the bodies of operations, by their request types.
func loggableRequests(ops []api.Operation) map[reflect.Type]*loggable {
	out := map[reflect.Type]*loggable{}
	for i := range ops {
		out[ops[i].Call.In] = loggableObject(ops[i].Call.In)
	}
	return out
}

// loggableObject returns what is shown of the JSON of a struct.
func loggableObject(t reflect.Type) *loggable {
	out := &loggable{fields: map[string]*loggable{}}
	for _, f := range openapi.Fields(t) {
		name := openapi.JSONName(f.StructField)
		if name == "" || !f.IsExported() {
			continue
		}
		for _, n := range fieldNames(name, f.StructField) {
			out.fields[n] = loggableField(f.StructField)
		}
	}
	return out
}

// loggableField returns what is shown of the value of a field.
func loggableField(f reflect.StructField) *loggable {
	t := f.Type
	for {
		if o, ok := reflect.New(t).Interface().(nullable); ok {
			t = reflect.TypeOf(o.OptOf())
		} else if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		} else {
			break
		}
	}
	isTime := t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[core.Time]()
	if !isTime && isCheckedStruct(t) {
		return loggableObject(t)
	}
	if f.Tag.Get("log") == "" {
		return nil
	}
	out := &loggable{isTime: isTime, enum: f.Tag.Get("enum")}
	switch t.Kind() {
	case reflect.String, reflect.Bool:
		out.kind = t.Kind()
	case reflect.Int, reflect.Int64, reflect.Float64:
		out.kind = reflect.Float64
	case reflect.Struct:
		if !isTime {
			return nil
		}
		out.kind = reflect.String
	default:
		return nil
	}
	return out
}

// A shownBody builds what the request log shows of a body.
type shownBody struct{ out []byte }

// shownObject returns what the request log shows of a body that has these fields. It has at most
// requests.MaxShown bytes: fields that do not fit are withheld, and if there are too many, the last
// name is "…", with the length of those left out.
func shownObject(l *loggable, fields map[string]json.RawMessage) []byte {
	b := shownBody{out: append(make([]byte, 0, 256), '{')}
	names := make([]string, 0, 16) // on the stack
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		start, raw := len(b.out), fields[name]
		b.name(name)
		value := len(b.out)
		b.value(l.field(name), raw)
		if b.isFull() {
			b.out = b.out[:value]
			b.withhold(raw)
		}
		if b.isFull() {
			b.out = b.out[:start]
			rest := 0
			for _, name := range names[i:] {
				rest += len(fields[name])
			}
			b.name("…")
			b.withholdBytes(rest)
			break
		}
	}
	return append(b.out, '}')
}

// shownLength returns what the request log shows of a body of which nothing but its length may be
// shown.
func shownLength(n int64) []byte {
	b := shownBody{}
	b.withholdBytes(int(n))
	return b.out
}

// field returns what is shown of a field of an object.
func (l *loggable) field(name string) *loggable {
	if l == nil {
		return nil
	}
	return l.fields[name]
}

// isFull reports whether the body has become too long.
func (b *shownBody) isFull() bool { return len(b.out) > requests.MaxShown-shownEnd }

// name adds the name of a field, with a comma before it unless it is the first of its object.
func (b *shownBody) name(name string) {
	if b.out[len(b.out)-1] != '{' {
		b.out = append(b.out, ',')
	}
	if len(name) > maxLoggedName {
		name = strings.ToValidUTF8(name[:maxLoggedName], "") + "…"
	}
	plain := true
	for i := range len(name) {
		plain = plain && name[i] >= ' ' && name[i] < utf8.RuneSelf && name[i] != '"' && name[i] != '\\'
	}
	if !plain {
		text, _ := json.Marshal(name) // a string can always be encoded
		b.out = append(append(b.out, text...), ':')
		return
	}
	b.out = append(append(append(b.out, '"'), name...), '"', ':')
}

// withhold adds the length of a value instead of the value: of a text the bytes between its quotes,
// of another value those of its JSON.
func (b *shownBody) withhold(raw []byte) {
	n := len(raw)
	if n >= 2 && raw[0] == '"' {
		n -= 2
	}
	b.withholdBytes(n)
}

func (b *shownBody) withholdBytes(n int) {
	b.out = strconv.AppendInt(append(b.out, `{"length":`...), int64(n), 10)
	b.out = append(b.out, '}')
}

// value adds what is shown of a value, which must be valid JSON. It may stop when the body is full.
func (b *shownBody) value(l *loggable, raw []byte) {
	switch {
	case len(raw) == 0 || len(raw) > maxLoggedValue:
		b.withhold(raw)
	case string(raw) == "null":
		b.out = append(b.out, "null"...)
	case raw[0] == '[' && l.showsItems(raw):
		b.out = append(b.out, '[')
		first := true
		eachValue(raw, func(_ string, part []byte) {
			if b.isFull() {
				return
			}
			if !first {
				b.out = append(b.out, ',')
			}
			first = false
			b.value(l, part)
		})
		b.out = append(b.out, ']')
	case raw[0] == '{' && l != nil && l.fields != nil:
		b.out = append(b.out, '{')
		eachValue(raw, func(name string, part []byte) {
			if !b.isFull() {
				b.name(name)
				b.value(l.field(name), part)
			}
		})
		b.out = append(b.out, '}')
	case l.shows(raw):
		b.out = append(b.out, raw...)
	default:
		b.withhold(raw)
	}
}

// showsItems reports whether a list is shown: its items must be objects, or values that are shown.
func (l *loggable) showsItems(raw []byte) bool {
	if l == nil {
		return false
	}
	all := true
	eachValue(raw, func(_ string, part []byte) {
		if l.fields != nil {
			all = all && part[0] == '{'
		} else {
			all = all && l.shows(part)
		}
	})
	return all
}

// shows reports whether a value that is neither object nor list is shown: it must be of the type of
// its field.
func (l *loggable) shows(raw []byte) bool {
	if l == nil || l.fields != nil {
		return false
	}
	switch l.kind {
	case reflect.Bool:
		return string(raw) == "true" || string(raw) == "false"
	case reflect.Float64:
		return (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9') && len(raw) <= maxLoggedNumber
	}
	if raw[0] != '"' || len(raw) > maxLoggedText {
		return false
	}
	if !l.isTime && l.enum == "" {
		return true
	}
	text := string(raw[1 : len(raw)-1]) // with its escapes, which no time and no enum has
	if l.isTime {
		_, err := time.Parse(time.RFC3339, text)
		return err == nil
	}
	return text != "" && !strings.Contains(text, "|") && strings.Contains("|"+l.enum+"|", "|"+text+"|")
}
