package openapi

import (
	_ "embed" // for the texts of fields
	"reflect"
	"strings"
	"sync"
)

//go:generate go run ./generate

//go:embed fields.txt
var fieldsFile string

// fieldTexts has the comments of the fields that the API shows, by their names.
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
	Of reflect.Type // the struct that declares it
}

// modulePath begins the path of every package of the program.
var modulePath = strings.TrimSuffix(reflect.TypeFor[Field]().PkgPath(), "handlers/openapi")

// source names the field by its folder, type and name: service/inbox.InboxMessage.Subject.
func (f *Field) source() string {
	generic, _, _ := strings.Cut(f.Of.Name(), "[") // without the arguments of a generic type
	return strings.TrimPrefix(f.Of.PkgPath(), modulePath) + "." + generic + "." + f.Name
}

// Fields lists a struct's fields with those of the structs that it embeds.
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

// Optional are the tags of a field of a struct that is embedded with the tag `required:"no"`: the
// field may be left out, or be empty.
func Optional(f reflect.StructField) reflect.StructField {
	f.Tag = reflect.StructTag(strings.NewReplacer(`required:"true"`, "", `min:"1"`, "").Replace(string(f.Tag)))
	return f
}

// JSONName is the name of a field in JSON; "" if it has none.
func JSONName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// text is the comment of a field in the source. The document notes that it was asked for.
func (d *describer) text(f *Field) string {
	name := f.source()
	d.doc.Fields = append(d.doc.Fields, name)
	return fieldTexts()[name]
}
