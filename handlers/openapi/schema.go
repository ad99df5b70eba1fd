package openapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
)

// A Schema has those keywords of JSON Schema 2020-12 that the document uses.
type Schema struct {
	Ref         string `json:"$ref,omitempty"`
	Type        any    `json:"type,omitempty"` // a type name, or a list of a type name and "null"
	Format      string `json:"format,omitempty"`
	Description string `json:"description,omitempty"`
	Const       string `json:"const,omitempty"`
	Enum        []any  `json:"enum,omitempty"`
	// EnumNames are the names that code generators give to the values of Enum.
	EnumNames            []string      `json:"x-enum-varnames,omitempty"`
	Minimum              *float64      `json:"minimum,omitempty"`
	Maximum              *float64      `json:"maximum,omitempty"`
	MinLength            *int          `json:"minLength,omitempty"`
	MaxLength            *int          `json:"maxLength,omitempty"`
	MinItems             *int          `json:"minItems,omitempty"`
	MaxItems             *int          `json:"maxItems,omitempty"`
	Items                *Schema       `json:"items,omitempty"`
	Properties           Dict[*Schema] `json:"properties,omitempty"`
	Required             []string      `json:"required,omitempty"`
	AdditionalProperties *Schema       `json:"additionalProperties,omitempty"`
	AnyOf                []*Schema     `json:"anyOf,omitempty"`
	OneOf                []*Schema     `json:"oneOf,omitempty"`
	AllOf                []*Schema     `json:"allOf,omitempty"`
	Examples             []any         `json:"examples,omitempty"`
	Loggable             bool          `json:"x-loggable,omitempty"` // the request log shows the values of the field

	rare bool // examples have null, if that is allowed, or leave the field out, if it may be missing
}

var (
	fileType     = reflect.TypeFor[*core.File]()
	envelopeType = reflect.TypeFor[events.EventEnvelope]()
)

// manyForms is implemented by types whose JSON is not that of their fields. Forms returns one value
// of each type that the JSON may have.
type manyForms interface{ Forms() []any }

// FormsOf returns the types that the JSON of a value of type t may have.
func FormsOf(t reflect.Type) []reflect.Type {
	bare := t
	for bare != fileType && bare.Kind() == reflect.Pointer {
		bare = bare.Elem()
	}
	if bare == fileType {
		return []reflect.Type{bare}
	}
	m, ok := reflect.New(bare).Interface().(manyForms)
	if !ok {
		return []reflect.Type{bare}
	}
	var out []reflect.Type
	for _, v := range m.Forms() {
		out = append(out, reflect.TypeOf(v))
	}
	return out
}

// A describer makes a Document. Its schemas match how package handlers decodes requests and encodes
// responses.
type describer struct {
	api  API
	doc  *Document
	used map[typeUse]string // names of the schemas made so far
}

// A typeUse is a type in requests or in responses.
type typeUse struct {
	t         reflect.Type
	inRequest bool
}

// addProblem adds a text to Document.Problems.
func (d *describer) addProblem(format string, args ...any) {
	d.doc.Problems = append(d.doc.Problems, fmt.Sprintf(format, args...))
}

// schemaOf returns the schema of a type in requests or responses. The schema does not allow null;
// fieldSchema adds that.
func (d *describer) schemaOf(t reflect.Type, inRequest bool) *Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if forms := FormsOf(t); len(forms) != 1 || forms[0] != t {
		return d.anyOf(forms, inRequest)
	}
	switch t {
	case reflect.TypeFor[core.Time](), reflect.TypeFor[time.Time]():
		return &Schema{Type: "string", Format: "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return &Schema{Type: "object", AdditionalProperties: &Schema{}}
	}
	if o, ok := reflect.New(t).Interface().(interface{ OptOf() any }); ok {
		return nullable(d.schemaOf(reflect.TypeOf(o.OptOf()), inRequest))
	}
	if p := reflect.PointerTo(t); t.PkgPath() != "" && (p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[json.Unmarshaler]())) {
		d.addProblem("%s writes or reads its own JSON, but does not say in Forms what that is", t)
	}
	switch t.Kind() {
	case reflect.String:
		return &Schema{Type: "string"}
	case reflect.Bool:
		return &Schema{Type: "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint16, reflect.Uint32:
		return &Schema{Type: "integer", Format: "int64"}
	case reflect.Float64:
		return &Schema{Type: "number"}
	case reflect.Slice:
		return &Schema{Type: "array", Items: d.schemaOf(t.Elem(), inRequest)}
	case reflect.Map:
		return &Schema{Type: "object", AdditionalProperties: d.schemaOf(t.Elem(), inRequest)}
	case reflect.Struct:
		return d.structRef(t, inRequest)
	}
	d.addProblem("%s cannot be described", t)
	return &Schema{}
}

// anyOf returns a schema that allows each of the types.
func (d *describer) anyOf(forms []reflect.Type, inRequest bool) *Schema {
	out := &Schema{}
	for _, t := range forms {
		out.AnyOf = append(out.AnyOf, d.schemaOf(t, inRequest))
	}
	return out
}

// nullable returns a schema that allows what s allows, and null.
func nullable(s *Schema) *Schema {
	switch t := s.Type.(type) {
	case string:
		s.Type = []string{t, "null"}
		if s.Enum != nil {
			s.Enum = append(s.Enum, nil)
		}
	case nil:
		if s.Ref != "" || s.AnyOf != nil {
			return &Schema{AnyOf: append([]*Schema{s}, &Schema{Type: "null"})}
		}
	}
	return s
}

// structRef returns a reference to the schema of a struct. It makes the schema when it is first
// used.
func (d *describer) structRef(t reflect.Type, inRequest bool) *Schema {
	use := typeUse{t, inRequest}
	name, ok := d.used[use]
	if !ok {
		name = schemaName(t, inRequest)
		if d.doc.Components.Schemas.Get(name) != nil {
			name += map[bool]string{true: "Input", false: "Output"}[inRequest]
		}
		if d.doc.Components.Schemas.Get(name) != nil {
			d.addProblem("two types have the name %s", name)
		}
		d.used[use] = name
		s := &Schema{Type: "object"}
		d.doc.Components.Schemas.Set(name, s)
		d.addProperties(name, s, t, inRequest)
	}
	return &Schema{Ref: "#/components/schemas/" + name}
}

// schemaName returns the name of a type's schema. For example, Page[service.Token] has the schema
// TokenPage, and CreateTokenIn has CreateTokenRequest.
func schemaName(t reflect.Type, inRequest bool) string {
	name, args, _ := strings.Cut(t.Name(), "[")
	if arg := strings.TrimSuffix(args, "]"); arg != "" {
		name = strings.TrimSuffix(arg[strings.LastIndexByte(arg, '.')+1:], "Response") + name
	}
	switch base, in := strings.CutSuffix(name, "In"); {
	case name == "errorBody":
		return "Error"
	case name == "problem":
		return "ErrorDetails"
	case name == "problemBody":
		return "ProblemDetails"
	case in && inRequest:
		return base + "Request"
	}
	if base, out := strings.CutSuffix(name, "Out"); out {
		name = base + "Response"
	}
	r := []rune(name)
	r[0] = unicode.ToUpper(r[0])
	return string(r)
}

// addProperties adds the properties of the struct t to its schema s.
func (d *describer) addProperties(owner string, s *Schema, t reflect.Type, inRequest bool) {
	for _, f := range Fields(t) {
		name := JSONName(f.StructField)
		if name == "" || !f.IsExported() {
			continue
		}
		p := d.fieldSchema(owner, &f, name, inRequest)
		s.Properties.Set(name, p)
		if required := f.Tag.Get("required") != ""; inRequest && required || !inRequest && !strings.Contains(f.Tag.Get("json"), "omitempty") {
			s.Required = append(s.Required, name)
		}
	}
}

// fieldSchema returns the schema of a field, from its type, tags and comment. In responses, these
// may be null: pointers, times that are not set, and fields with the tag `null`. In requests, a
// field may be null if null has another meaning than leaving the field out; the tag `null:"absent"`
// says that it has not. The tag `rare` makes the field null in examples, or leaves it out.
func (d *describer) fieldSchema(owner string, f *Field, name string, inRequest bool) *Schema {
	typ := f.Type
	if o, ok := reflect.Zero(typ).Interface().(interface{ OptOf() any }); ok && f.Tag.Get("null") == "absent" {
		typ = reflect.TypeOf(o.OptOf())
	}
	p := d.schemaOf(typ, inRequest)
	p.addLimits(f.Tag)
	example, format := exampleOf(owner, f, name)
	if p.Format == "" && p.Type == "string" && p.Enum == nil {
		p.Format = format
	}
	zeroIsNull := f.Type == reflect.TypeFor[core.Time]() && !slices.Contains(neverNull, name) && !slices.Contains(neverNull, owner+"."+name)
	absent := strings.Contains(f.Tag.Get("json"), "omitempty")
	if !inRequest && !absent && (f.Type.Kind() == reflect.Pointer || zeroIsNull || f.Tag.Get("null") != "") {
		p = nullable(p)
	}
	p.Description, p.rare, p.Loggable = d.commentOf(f), f.Tag.Get("rare") != "", f.Tag.Get("log") != ""
	if alias := f.Tag.Get("alias"); alias != "" {
		p.Description = strings.TrimSpace(p.Description + " Alias: `" + strings.ReplaceAll(alias, ",", "`, `") + "`.")
	}
	if p.Format != "date-time" {
		if e := p.parseExample(example); e != nil {
			p.Examples = []any{e}
		} else if f.Tag.Get("example") != "" {
			d.addProblem("the example of %s is of another kind than the field", f.qualifiedName())
		}
	}
	p.nameEnum()
	return p
}

// nameEnum helps code generators, which make a constant of each value of an enum. It names values
// that are not identifiers, and moves null out of the values.
func (s *Schema) nameEnum() {
	if s.Items != nil {
		s.Items.nameEnum()
	}
	if s.Enum == nil {
		return
	}
	values := &Schema{Type: "string"}
	named := false
	for _, v := range s.Enum {
		text, ok := v.(string)
		if !ok {
			continue
		}
		values.Enum = append(values.Enum, text)
		name := enumName(text)
		values.EnumNames = append(values.EnumNames, name)
		named = named || !strings.EqualFold(name, strings.ReplaceAll(text, "_", ""))
	}
	if !named {
		values.EnumNames = nil
	}
	if len(values.Enum) == len(s.Enum) {
		s.EnumNames = values.EnumNames
		return
	}
	s.Type, s.Enum = nil, nil
	s.OneOf = []*Schema{values, {Type: "null"}}
}

// enumName returns the name of a value of an enum. For example, first.last becomes FirstDotLast,
// mta-sts becomes MtaSts, -email becomes EmailDescending, and ~ becomes Tilde.
func enumName(value string) string {
	if name, sign := map[string]string{"~": "Tilde", "-": "Minus"}[value]; sign {
		return name
	}
	var name strings.Builder
	for _, word := range strings.FieldsFunc(strings.ReplaceAll(value, ".", "-dot-"), func(r rune) bool { return r == '-' || r == '_' }) {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	if strings.HasPrefix(value, "-") {
		name.WriteString("Descending")
	}
	return name.String()
}

// addLimits adds the limits from the tags of a field. Package handlers enforces them when it
// decodes requests.
func (s *Schema) addLimits(tags reflect.StructTag) {
	for _, form := range s.AnyOf {
		if form.Items != nil {
			form.addLimits(tags)
		}
	}
	low, high := tags.Get("min"), tags.Get("max")
	switch {
	case s.Is("string"):
		s.MinLength, s.MaxLength = parseInt(low), parseInt(high)
	case s.Is("array"):
		s.MinItems, s.MaxItems = parseInt(low), parseInt(high)
	case s.Is("integer"), s.Is("number"):
		s.Minimum, s.Maximum = parseFloat(low), parseFloat(high)
	}
	enum := tags.Get("enum")
	if enum == "" {
		return
	}
	if s.Items != nil {
		s = s.Items
	}
	for v := range strings.SplitSeq(enum, "|") {
		if v != "" {
			s.Enum = append(s.Enum, v)
		}
	}
	if s.Is("null") {
		s.Enum = append(s.Enum, nil)
	}
}

// parseInt returns the number in text, nil if there is none.
func parseInt(text string) *int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return nil
	}
	return &n
}

// parseFloat returns the number in text, nil if there is none.
func parseFloat(text string) *float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil
	}
	return &n
}

// Is reports whether the schema allows the JSON type with the name.
func (s *Schema) Is(name string) bool {
	switch t := s.Type.(type) {
	case string:
		return t == name
	case []string:
		return slices.Contains(t, name)
	}
	return false
}

// parseExample parses an example as a value of the schema. It returns nil if the example is no such
// value. For a schema of texts, the example is the text itself, and for others it is in JSON. A
// list with one text may be given as that text.
func (s *Schema) parseExample(text string) any {
	switch {
	case s.Enum != nil || text == "":
		return nil
	case s.Is("string"):
		return text
	case s.Is("integer"):
		return readJSON[int](text)
	case s.Is("number"):
		return readJSON[float64](text)
	case s.Is("boolean"):
		return readJSON[bool](text)
	case s.Is("array") && s.Items.Is("string") && s.Items.Enum == nil:
		if list := readJSON[[]string](text); list != nil {
			return list
		}
		return []string{text}
	case s.AdditionalProperties != nil:
		return readJSON[map[string]any](text)
	}
	for _, form := range s.AnyOf {
		if v := form.parseExample(text); v != nil {
			return v
		}
	}
	return nil
}

// readJSON decodes a JSON text. It returns nil if the text is no T.
func readJSON[T any](text string) any {
	var v T
	if json.Unmarshal([]byte(text), &v) != nil {
		return nil
	}
	return v
}
