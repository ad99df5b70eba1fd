package handlers

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core"
)

// A source is where the fields of a request come from.
type source struct {
	path   func(name string) string // gives a parameter of the path; nil: there is none
	query  url.Values
	header http.Header
	body   []byte
	strict bool
	patch  bool      // of a PATCH: null is a value, which only some fields take; otherwise it is the same as absent
	given  *[]string // gets the names of the body fields that are given, but for those with the tag `audit:"-"`, which change nothing
}

// decode fills the request that in points to. The tags of its fields say where a value comes from
// (`path`, `query`, `header` or `json`), under which other names (`alias`), and what must hold
// (`required`, `min`, `max` and `enum`), also in objects and lists. Texts in a list with
// `items:"judged"` and objects in one with `items:"each"` are checked by the service, since each
// fails alone. The error names every wrong field.
func decode(in any, src source) error {
	v := reflect.ValueOf(in).Elem()
	d := &decoder{source: src}
	if err := d.readObject(v.Type()); err != nil {
		return err
	}
	d.fill(v, false)
	if src.strict {
		d.unknown()
	}
	if src.given != nil {
		*src.given = d.changes
	}
	if err := d.failed(); err != nil || !src.patch || len(d.changes) > 0 {
		return err
	}
	return nothingToUpdate(v.Type())
}

// nothingToUpdate is the error for a PATCH that gives no field that can change.
func nothingToUpdate(t reflect.Type) error {
	var can []string
	for _, f := range openapi.Fields(t) {
		if name := openapi.JSONName(f.StructField); name != "" && f.Tag.Get("audit") != "-" {
			can = append(can, name)
		}
	}
	if len(can) <= 2 {
		return core.Errorf("nothing_to_update", "Give %s.", strings.Join(can, " or "))
	}
	last := len(can) - 1
	return core.Errorf("nothing_to_update", "Give at least one of %s and %s.", strings.Join(can[:last], ", "), can[last])
}

type decoder struct {
	source
	fields  map[string]json.RawMessage
	known   map[string]reflect.Type
	details []core.Detail
	changes []string // names of the body fields that are given, as in source
}

func (d *decoder) wrong(field, code, format string, args ...any) {
	d.details = append(d.details, core.Detail{Field: field, Code: code, Message: fmt.Sprintf(format, args...)})
}

func (d *decoder) failed() error {
	if len(d.details) == 0 {
		return nil
	}
	e := core.Errorf("validation_error", "%s: %s", d.details[0].Field, d.details[0].Message)
	if d.details[0].Code == "too_many_items" {
		e.Code = "too_many_items"
	}
	if n := len(d.details) - 1; n > 0 {
		e.Message += fmt.Sprintf(" (and %d more, see details)", n)
	}
	e.Details = d.details
	return e
}

// readObject splits the body into its fields. A body is read only for a request that has body
// fields.
func (d *decoder) readObject(t reflect.Type) error {
	d.known = map[string]reflect.Type{}
	if len(d.body) == 0 || t.Kind() != reflect.Struct {
		return nil
	}
	fields, err := splitObject(bytes.TrimPrefix(d.body, utf8BOM))
	if errors.Is(err, errTooMany) {
		return core.Errorf("too_many_items", "In the body %s. Send less at a time.", err)
	}
	if err != nil {
		return core.Errorf("invalid_json", "The body is not one JSON object: %s.", err)
	}
	d.fields = fields
	return nil
}

// utf8BOM may stand before a body: some programs write it, and a reader may ignore it (RFC 8259
// section 8.1).
var utf8BOM = []byte("\xef\xbb\xbf")

// splitObject parses one JSON object strictly: it must be UTF-8, with no duplicate names at any
// depth and nothing after it. The fields are parts of body itself, of which a large request can
// have no second copy.
func splitObject(body []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("it is not UTF-8")
	}
	if text := bytes.TrimLeft(body, " \t\r\n"); len(text) > 0 && text[0] != '{' {
		return nil, errors.New("it must begin with {")
	}
	if err := json.Unmarshal(body, new(anyValue)); err != nil {
		return nil, plainJSON(err)
	}
	if err := walkNames(body, func(int, string) {}); err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	eachPart(body, func(name string, part []byte) { fields[name] = part[:len(part):len(part)] })
	return fields, nil
}

// anyValue is decoded from any JSON and keeps nothing of it, so that only the syntax is checked.
type anyValue struct{}

func (anyValue) UnmarshalJSON([]byte) error { return nil }

func plainJSON(err error) error {
	switch text := err.Error(); {
	case strings.HasPrefix(text, "unexpected end"):
		return errors.New("it is incomplete")
	case strings.HasSuffix(text, "after top-level value"):
		return errors.New("there is text after it")
	}
	return err
}

// fill sets the fields of a struct; with partial none is required.
func (d *decoder) fill(v reflect.Value, partial bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if partial {
			f = openapi.Optional(f)
		}
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			d.fill(v.Field(i), partial || f.Tag.Get("required") == "no")
		case f.Tag.Get("path") != "":
			if d.path != nil {
				v.Field(i).SetString(d.path(f.Tag.Get("path")))
			}
		case f.Tag.Get("query") != "":
			d.fromQuery(v.Field(i), f)
		case f.Tag.Get("header") != "":
			v.Field(i).SetString(strings.Join(d.header.Values(f.Tag.Get("header")), ","))
		case openapi.JSONName(f) != "":
			d.fromBody(v.Field(i), f)
		}
	}
}

// optional is implemented by every service.Opt, which tells null from absent.
type optional interface{ OptOf() any }

// names are a field's name and its aliases.
func names(name string, f reflect.StructField) []string {
	all := []string{name}
	if a := f.Tag.Get("alias"); a != "" {
		all = append(all, strings.Split(a, ",")...)
	}
	return all
}

func (d *decoder) fromQuery(v reflect.Value, f reflect.StructField) {
	name := f.Tag.Get("query")
	for _, n := range names(name, f) {
		for _, key := range []string{n, "filter[" + n + "]"} {
			if !d.query.Has(key) {
				continue
			}
			d.setText(v, f, name, d.query.Get(key))
			return
		}
	}
	if f.Tag.Get("required") != "" {
		d.wrong(name, "required", "is required")
	}
}

// setText sets a field from a query's text.
func (d *decoder) setText(v reflect.Value, f reflect.StructField, name, text string) {
	if name != "cursor" && (strings.ContainsRune(text, 0) || !utf8.ValidString(text)) { // a cursor that is wrong has another error
		d.wrong(name, "invalid", "must be UTF-8 text without NUL")
		return
	}
	if v.Kind() == reflect.Pointer {
		p := reflect.New(v.Type().Elem())
		before := len(d.details)
		if d.setText(p.Elem(), f, name, text); len(d.details) == before {
			v.Set(p)
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			d.wrong(name, "wrong_type", "must be true or false")
			return
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) { // out of range, n is the largest number, which fails the bounds
			d.wrong(name, "wrong_type", "must be a whole number")
			return
		}
		v.SetInt(n)
	default:
		if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok && u.UnmarshalText([]byte(text)) == nil {
			return
		}
		d.wrong(name, "invalid", "cannot be read")
		return
	}
	d.bounds(v, f, name)
}

func (d *decoder) fromBody(v reflect.Value, f reflect.StructField) {
	name := openapi.JSONName(f)
	var raw json.RawMessage
	for _, n := range names(name, f) {
		d.known[n] = v.Type()
		if given, ok := d.fields[n]; ok && raw == nil {
			raw = given
		}
	}
	_, nullable := v.Addr().Interface().(optional)
	if raw == nil || string(raw) == "null" && !nullable {
		if raw != nil && d.patch {
			d.wrong(name, "wrong_type", "must be %s, not null; leave it out to keep it as it is", typeName(v.Type()))
			return
		}
		if f.Tag.Get("required") != "" {
			d.wrong(name, "required", "is required")
		}
		return
	}
	if f.Tag.Get("audit") != "-" {
		d.changes = append(d.changes, name)
	}
	if err := unmarshal(raw, v.Addr().Interface()); err != nil {
		d.wrongType(name, v.Type(), err)
		return
	}
	if at := nullAmong(v, raw); at >= 0 {
		d.wrong(fmt.Sprintf("%s.%d", name, at), "wrong_type", "must be a text, not null")
		return
	}
	if f.Tag.Get("items") != "judged" && holdsNUL(raw) { // otherwise the service checks each item
		d.wrong(placeOfNUL(v, name), "invalid", "must not contain a NUL character")
		return
	}
	d.bounds(v, f, name)
	if f.Tag.Get("items") == "" {
		d.inside(v, raw, name)
	}
}

// unmarshal is json.Unmarshal for which 5.0 is a whole number, as it is for JSON Schema (section
// 6.1.1 of its validation).
func unmarshal(raw []byte, into any) error {
	err := json.Unmarshal(raw, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && strings.HasPrefix(wrong.Value, "number ") {
		err = json.Unmarshal(plainWholes(raw), into)
	}
	return err
}

// plainWholes writes the whole numbers of raw, which is valid JSON, without a fraction or an
// exponent, where they are exact.
func plainWholes(raw []byte) []byte {
	var out []byte
	for i := 0; i < len(raw); {
		end := i + 1
		switch c := raw[i]; {
		case c == '"':
			end = textEnd(raw, i)
		case c == '-' || c >= '0' && c <= '9':
			for end < len(raw) && strings.IndexByte("+-.eE0123456789", raw[end]) >= 0 {
				end++
			}
			n, err := strconv.ParseFloat(string(raw[i:end]), 64)
			if err == nil && n == math.Trunc(n) && math.Abs(n) < 1<<53 {
				out = strconv.AppendInt(out, int64(n), 10)
				i = end
				continue
			}
		}
		out = append(out, raw[i:end]...)
		i = end
	}
	return out
}

// inside checks the tags of fields in the objects and lists that a field holds.
func (d *decoder) inside(v reflect.Value, raw []byte, name string) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	if _, ok := v.Addr().Interface().(optional); ok {
		d.inside(v.FieldByName("Value"), raw, name)
		return
	}
	if !hasTags(v.Type()) || bytes.Equal(raw, []byte("null")) {
		return
	}
	if v.Kind() == reflect.Slice {
		at := 0
		eachPart(raw, func(_ string, part []byte) {
			place := fmt.Sprintf("%s.%d", name, at)
			if bytes.Equal(part, []byte("null")) {
				d.wrong(place, "wrong_type", "must be %s, not null", typeName(v.Type().Elem()))
			} else {
				d.inside(v.Index(at), part, place)
			}
			at++
		})
		return
	}
	given := map[string][]byte{}
	eachPart(raw, func(field string, part []byte) { given[field] = part })
	for _, f := range reflect.VisibleFields(v.Type()) {
		field := openapi.JSONName(f)
		if field == "" || f.Anonymous {
			continue
		}
		part, place := given[field], name+"."+field
		if hasOtherCase(given, field) { // which encoding/json takes for the field
			own := v.FieldByIndex(f.Index)
			own.SetZero()
			if part != nil {
				_ = unmarshal(part, own.Addr().Interface()) // it could be read before
			}
		}
		if part == nil || bytes.Equal(part, []byte("null")) {
			if f.Tag.Get("required") != "" {
				d.wrong(place, "required", "is required")
			}
			continue
		}
		d.bounds(v.FieldByIndex(f.Index), f, place)
		d.inside(v.FieldByIndex(f.Index), part, place)
	}
}

// hasOtherCase reports whether an object has a name that differs from a field's by case alone.
func hasOtherCase(given map[string][]byte, field string) bool {
	for name := range given {
		if name != field && strings.EqualFold(name, field) {
			return true
		}
	}
	return false
}

// hasTags reports whether the objects of a type, or those in a list of it, have fields that the
// decoder fills one by one.
func hasTags(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// eachPart calls visit for each value in raw, which is a valid JSON object or list, with its name
// in an object.
func eachPart(raw []byte, visit func(name string, part []byte)) {
	depth, begin, name := 0, 0, ""
	end := func(i int) {
		if part := bytes.TrimSpace(raw[begin:i]); len(part) > 0 {
			visit(name, part)
		}
		begin, name = i+1, ""
	}
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{', '[':
			if depth++; depth == 1 {
				begin = i + 1
			}
		case '}', ']':
			if depth--; depth == 0 {
				end(i)
			}
		case ',':
			if depth == 1 {
				end(i)
			}
		case ':':
			if depth == 1 {
				name = plainText(bytes.TrimSpace(raw[begin:i]))
				begin = i + 1
			}
		case '"':
			i = textEnd(raw, i) - 1
		}
	}
}

func (d *decoder) wrongType(name string, t reflect.Type, err error) {
	var te *json.UnmarshalTypeError
	if !errors.As(err, &te) {
		d.wrong(name, "invalid", "cannot be read: %s", err)
		return
	}
	if te.Field != "" {
		name += "." + te.Field
	}
	if strings.HasPrefix(te.Value, "number ") {
		d.wrong(name, "out_of_range", "must be %s, and within its range", typeName(te.Type))
		return
	}
	d.wrong(name, "wrong_type", "must be %s, not %s", typeName(te.Type), te.Value)
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint32:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	case reflect.Pointer:
		return typeName(t.Elem())
	}
	return "an object"
}

// bounds checks the tags min, max and enum: of a text they bound its characters, of a list the
// number of its items, each of which must be of the enum.
func (d *decoder) bounds(v reflect.Value, f reflect.StructField, name string) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	if _, ok := v.Addr().Interface().(optional); ok {
		if !v.FieldByName("Null").Bool() {
			d.bounds(v.FieldByName("Value"), f, name)
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		d.text(v.String(), f, name)
	case reflect.Slice:
		d.items(v, f, name)
	case reflect.Int, reflect.Int64:
		d.between(float64(v.Int()), f, name, "must be", "")
	case reflect.Float64:
		d.between(v.Float(), f, name, "must be", "")
	}
}

func (d *decoder) text(s string, f reflect.StructField, name string) {
	d.between(float64(utf8.RuneCountInString(s)), f, name, "must have", "characters")
	d.oneOf(s, f, name)
}

// oneOf checks a text, or one of a list, against the tag enum.
func (d *decoder) oneOf(s string, f reflect.StructField, name string) {
	if enum := f.Tag.Get("enum"); enum != "" && !strings.Contains("|"+enum+"|", "|"+s+"|") {
		d.wrong(name, "not_allowed", "must be one of %s", strings.ReplaceAll(strings.Trim(enum, "|"), "|", ", "))
	}
}

func (d *decoder) items(v reflect.Value, f reflect.StructField, name string) {
	if m, err := strconv.Atoi(f.Tag.Get("max")); err == nil && v.Len() > m {
		d.wrong(name, "too_many_items", "must have at most %d items, not %d", m, v.Len())
		return
	}
	if m, err := strconv.Atoi(f.Tag.Get("min")); err == nil && v.Len() < m {
		d.wrong(name, "too_few_items", "must have %d or more, not %d", m, v.Len())
	}
	if v.Type().Elem().Kind() == reflect.String {
		for i := range v.Len() {
			d.oneOf(v.Index(i).String(), f, name)
		}
	}
}

func (d *decoder) between(n float64, f reflect.StructField, name, what, unit string) {
	low, high := bound(f, "min", math.Inf(-1)), bound(f, "max", math.Inf(1))
	switch {
	case n >= low && n <= high:
	case math.IsInf(high, 1):
		d.wrong(name, "out_of_range", "%s", sentence(what, "at least", plainNumber(low), unit))
	case math.IsInf(low, -1):
		d.wrong(name, "out_of_range", "%s", sentence(what, "at most", plainNumber(high), unit))
	default:
		d.wrong(name, "out_of_range", "%s", sentence(what, "from", plainNumber(low), "to", plainNumber(high), unit))
	}
}

func sentence(words ...string) string { return strings.TrimSpace(strings.Join(words, " ")) }

func plainNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

func bound(f reflect.StructField, tag string, none float64) float64 {
	n, err := strconv.ParseFloat(f.Tag.Get(tag), 64)
	if err != nil {
		return none
	}
	return n
}

// unknown reports body fields that the operation does not have, at the top or in objects one level
// below.
func (d *decoder) unknown() {
	for _, name := range slices.Sorted(maps.Keys(d.fields)) {
		t, known := d.known[name]
		if !known {
			d.wrong(name, "unknown_field", "is not a field of this operation; check the spelling")
			continue
		}
		d.unknownInside(name, t)
	}
}

// unknownInside looks into a field that is an object or a list of objects.
func (d *decoder) unknownInside(name string, t reflect.Type) {
	depth := 1
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			depth++
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return
	}
	fields := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		fields[openapi.JSONName(f)] = true
	}
	// Its errors were found when the body was split.
	_ = walkNames(d.fields[name], func(at int, inner string) {
		if at == depth && !fields[inner] {
			d.wrong(name+"."+inner, "unknown_field", "is not a field of this operation; check the spelling")
		}
	})
}

// nullAmong is the index of the first null in a list of texts, which Go would read as an empty
// text; -1 if there is none.
func nullAmong(v reflect.Value, raw []byte) int {
	v = reflect.Indirect(v)
	if v.Kind() != reflect.Slice || v.Type().Elem().Kind() != reflect.String || !bytes.Contains(raw, []byte("null")) {
		return -1
	}
	var items []*string
	if json.Unmarshal(raw, &items) != nil { // a single text, which some fields take too
		return -1
	}
	return slices.Index(items, nil)
}

// placeOfNUL names the item of a list of texts that has a NUL, or else the field.
func placeOfNUL(v reflect.Value, name string) string {
	v = reflect.Indirect(v)
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String {
		for i := range v.Len() {
			if strings.ContainsRune(v.Index(i).String(), 0) {
				return fmt.Sprintf("%s.%d", name, i)
			}
		}
	}
	return name
}

// holdsNUL reports whether a text in raw, which is valid JSON, has a NUL character.
func holdsNUL(raw []byte) bool {
	for {
		at := bytes.Index(raw, []byte(`\u0000`))
		if at < 0 {
			return false
		}
		slashes := 0
		for slashes < at && raw[at-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return true
		}
		raw = raw[at+1:]
	}
}

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
