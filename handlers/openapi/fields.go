package openapi

import (
	_ "embed" // for fields.txt
	"reflect"
	"strings"
	"sync"
)

//go:generate go run ./generate

// fieldsFile has one line for each commented field of the API: its name, a tab and its comment.
//
//go:embed fields.txt
var fieldsFile string

// fieldTexts returns the comments of the API's fields by field name, such as
// service/inbox.InboxMessage.Subject.
var fieldTexts = sync.OnceValue(func() map[string]string {
	texts := map[string]string{}
	for line := range strings.Lines(fieldsFile) {
		name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		texts[name] = text
	}
	return texts
})

// A Field is a field of a struct, or of a struct that it embeds.
type Field struct {
	reflect.StructField
	Of reflect.Type // the struct type that declares the field
}

// modulePath is the prefix of all package paths of this module.
var modulePath = strings.TrimSuffix(reflect.TypeFor[Field]().PkgPath(), "handlers/openapi")

// qualifiedName returns the folder, type and name of the field, such as
// service/inbox.InboxMessage.Subject.
func (f *Field) qualifiedName() string {
	generic, _, _ := strings.Cut(f.Of.Name(), "[") // without type arguments
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

// Optional returns a field of a struct that is embedded with the tag `required:"no"`. Its own tags
// are changed so that it may be left out or empty.
func Optional(f reflect.StructField) reflect.StructField {
	f.Tag = reflect.StructTag(strings.NewReplacer(`required:"true"`, "", `min:"1"`, "").Replace(string(f.Tag)))
	return f
}

// JSONName returns the name of a field in JSON, "" if it is not in JSON.
func JSONName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// commentOf returns the comment of a field, and adds the field to Document.Fields.
func (d *describer) commentOf(f *Field) string {
	name := f.qualifiedName()
	d.doc.Fields = append(d.doc.Fields, name)
	return fieldTexts()[name]
}
