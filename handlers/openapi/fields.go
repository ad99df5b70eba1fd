package openapi

import (
	_ "embed" // for fields.txt
	"reflect"
	"strings"
	"sync"
)

//go:generate go run ./generate

//go:embed fields.txt
var fieldsFile string

// fieldTexts returns the comments of the fields in the API, by the names of the fields.
var fieldTexts = sync.OnceValue(func() map[string]string {
	texts := map[string]string{}
	for line := range strings.Lines(fieldsFile) {
		name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		texts[name] = text
	}
	return texts
})

// A Field is a field of a struct, or of one that it embeds.
type Field struct {
	reflect.StructField
	Of reflect.Type // the struct type that declares it
}

// modulePath is the beginning of every package path of the program.
var modulePath = strings.TrimSuffix(reflect.TypeFor[Field]().PkgPath(), "handlers/openapi")

// source returns the field's folder, type and name: service/inbox.InboxMessage.Subject.
func (f *Field) source() string {
	generic, _, _ := strings.Cut(f.Of.Name(), "[") // without the arguments of a generic type
	return strings.TrimPrefix(f.Of.PkgPath(), modulePath) + "." + generic + "." + f.Name
}

// Fields returns a struct's fields, including those of embedded structs.
func Fields(t reflect.Type) (out []Field) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct && f.Tag.Get("json") == "" {
			for _, inner := range Fields(f.Type) {
				if f.Tag.Get("required") == "no" {
					inner.StructField = Optional(inner.StructField)
				}
				out = append(out, inner)
			}
		} else {
			out = append(out, Field{f, t})
		}
	}
	return out
}

// Optional returns a field with the tags that it has if its struct is embedded with the tag
// `required:"no"`: the field may be left out or empty.
func Optional(f reflect.StructField) reflect.StructField {
	f.Tag = reflect.StructTag(strings.NewReplacer(`required:"true"`, "", `min:"1"`, "").Replace(string(f.Tag)))
	return f
}

// JSONName returns the name of a field in JSON; "" if it has none.
func JSONName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// text returns the comment of a field, and records the field in the document.
func (d *describer) text(f *Field) string {
	name := f.source()
	d.doc.Fields = append(d.doc.Fields, name)
	return fieldTexts()[name]
}
