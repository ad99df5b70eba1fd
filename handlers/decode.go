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
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core"
)

// requestParts are the parts of a request that decode reads fields from.
type requestParts struct {
	path   func(name string) string // returns a path parameter; nil: path fields stay empty
	query  url.Values
	header http.Header
	body   []byte
	strict bool // unknown body fields are errors
	// The request is a PATCH: null is a value, which only some fields accept. Otherwise null is the
	// same as an absent field.
	isPatch bool
	// If not nil, decode stores here the names of the body fields that were given. Fields with the
	// tag `audit:"-"` are left out, since they change nothing.
	givenFields *[]string
	// If not nil, decode stores here the fields of the body, as soon as it has read them.
	bodyFields *map[string]json.RawMessage
}

// decode fills the request struct that in points to. The tags of a field say where its value comes
// from (`path`, `query`, `header` or `json`), which other names it has (`alias`), and its limits
// (`required`, `min`, `max` and `enum`). Objects and lists within fields are checked too. Two kinds
// of list are left to the service, which checks each item so that each can fail alone: texts with
// `items:"judged"` and objects with `items:"each"`. The error names every wrong field.
func decode(in any, src requestParts) error {
	v := reflect.ValueOf(in).Elem()
	d := &decoder{requestParts: src}
	if err := d.readObject(v.Type()); err != nil {
		return err
	}
	d.fillStruct(v, false)
	if src.strict {
		d.checkUnknown()
	}
	if src.givenFields != nil {
		*src.givenFields = d.changes
	}
	if err := d.collectedError(); err != nil || !src.isPatch || len(d.changes) > 0 {
		return err
	}
	return nothingToUpdate(v.Type())
}

// nothingToUpdate returns the error for a PATCH without any field that changes something.
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

// A decoder fills one request struct, and collects the errors of its fields.
type decoder struct {
	requestParts
	fields  map[string]json.RawMessage // the fields of the body
	known   map[string]reflect.Type    // the body fields that the request struct has
	details []core.Detail              // one for each wrong field
	changes []string                   // names of the given body fields, see requestParts.givenFields
}

// addError notes what is wrong with a field.
func (d *decoder) addError(field, code, format string, args ...any) {
	d.details = append(d.details, core.Detail{Field: field, Code: code, Message: fmt.Sprintf(format, args...)})
}

// collectedError returns the error with all noted details, nil if no field is wrong.
func (d *decoder) collectedError() error {
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

// readObject splits the body into its fields. It ignores the body if the request type is not a
// struct.
func (d *decoder) readObject(t reflect.Type) error {
	d.known = map[string]reflect.Type{}
	if len(d.body) == 0 || t.Kind() != reflect.Struct {
		return nil
	}
	fields, err := splitObject(bytes.TrimPrefix(d.body, utf8BOM))
	if errors.Is(err, errTooManyItems) {
		return core.Errorf("too_many_items", "In the body %s. Send less at a time.", err)
	}
	if err != nil {
		return core.Errorf("invalid_json", "The body is not one JSON object: %s.", err)
	}
	d.fields = fields
	if d.bodyFields != nil {
		*d.bodyFields = fields
	}
	return nil
}

// utf8BOM is the byte order mark that some programs write before a body; a reader may ignore it
// (RFC 8259 section 8.1).
var utf8BOM = []byte("\xef\xbb\xbf")

// splitObject parses a body that must be one JSON object, and returns its fields. The body must be
// UTF-8, without duplicate names at any depth and without text after the object. The fields are
// slices of body, so that a large request is not copied.
func splitObject(body []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("it is not UTF-8")
	}
	if text := bytes.TrimLeft(body, " \t\r\n"); len(text) > 0 && text[0] != '{' {
		return nil, errors.New("it must begin with {")
	}
	if err := json.Unmarshal(body, new(syntaxCheck)); err != nil {
		return nil, shortJSONError(err)
	}
	if err := walkNames(body, func(int, string) {}); err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	eachValue(body, func(name string, part []byte) { fields[name] = part[:len(part):len(part)] })
	return fields, nil
}

// syntaxCheck is a type that any JSON decodes into. It keeps nothing, so that decoding checks only
// the syntax.
type syntaxCheck struct{}

func (syntaxCheck) UnmarshalJSON([]byte) error { return nil }

// shortJSONError puts the syntax errors of encoding/json into words for users of the API.
func shortJSONError(err error) error {
	switch text := err.Error(); {
	case strings.HasPrefix(text, "unexpected end"):
		return errors.New("it is incomplete")
	case strings.HasSuffix(text, "after top-level value"):
		return errors.New("there is text after it")
	}
	return err
}

// fillStruct sets the fields of the struct v. If partial is true, no field is required.
func (d *decoder) fillStruct(v reflect.Value, partial bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if partial {
			f = openapi.Optional(f)
		}
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			d.fillStruct(v.Field(i), partial || f.Tag.Get("required") == "no")
		case f.Tag.Get("path") != "":
			if d.path != nil {
				v.Field(i).SetString(d.path(f.Tag.Get("path")))
			}
		case f.Tag.Get("query") != "":
			d.setFromQuery(v.Field(i), f)
		case f.Tag.Get("header") != "":
			v.Field(i).SetString(strings.Join(d.header.Values(f.Tag.Get("header")), ","))
		case openapi.JSONName(f) != "":
			d.setFromBody(v.Field(i), f)
		}
	}
}

// nullable is implemented by every service.Opt, which distinguishes null from an absent field.
type nullable interface{ OptOf() any }

// fieldNames returns the names that field f may have in a request: name and its aliases.
func fieldNames(name string, f reflect.StructField) []string {
	all := []string{name}
	if a := f.Tag.Get("alias"); a != "" {
		all = append(all, strings.Split(a, ",")...)
	}
	return all
}

// setFromQuery sets a field from the query parameter that its tags name.
func (d *decoder) setFromQuery(v reflect.Value, f reflect.StructField) {
	name := f.Tag.Get("query")
	for _, n := range fieldNames(name, f) {
		for _, key := range []string{n, "filter[" + n + "]"} {
			if !d.query.Has(key) {
				continue
			}
			d.setText(v, f, name, d.query.Get(key))
			return
		}
	}
	if f.Tag.Get("required") != "" {
		d.addError(name, "required", "is required")
	}
}

// setText sets a field from the text of a query parameter.
func (d *decoder) setText(v reflect.Value, f reflect.StructField, name, text string) {
	// The service has its own error for an invalid cursor.
	if name != "cursor" && (strings.ContainsRune(text, 0) || !utf8.ValidString(text)) {
		d.addError(name, "invalid", "must be UTF-8 text without NUL")
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
			d.addError(name, "wrong_type", "must be true or false")
			return
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		// For a number that is out of range, n is the largest or smallest int64, and
		// checkBounds refuses it.
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			d.addError(name, "wrong_type", "must be a whole number")
			return
		}
		v.SetInt(n)
	default:
		if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok && u.UnmarshalText([]byte(text)) == nil {
			return
		}
		if v.Type() == reflect.TypeFor[core.Time]() {
			d.addError(name, "invalid", "must be a time of the form 2026-11-30T12:00:00Z, or a day of the form 2026-11-30")
			return
		}
		d.addError(name, "invalid", "cannot be read")
		return
	}
	d.checkBounds(v, f, name)
}

// setFromBody sets a field from the body field that its tags name, and checks it.
func (d *decoder) setFromBody(v reflect.Value, f reflect.StructField) {
	name := openapi.JSONName(f)
	var raw json.RawMessage
	for _, n := range fieldNames(name, f) {
		d.known[n] = v.Type()
		if given, ok := d.fields[n]; ok && raw == nil {
			raw = given
		}
	}
	_, nullable := v.Addr().Interface().(nullable)
	if raw == nil || string(raw) == "null" && !nullable {
		if raw != nil && d.isPatch {
			d.addError(name, "wrong_type", "must be %s, not null; leave it out to keep it as it is", typeName(v.Type()))
			return
		}
		if f.Tag.Get("required") != "" {
			d.addError(name, "required", "is required")
		}
		return
	}
	if f.Tag.Get("audit") != "-" {
		d.changes = append(d.changes, name)
	}
	if err := unmarshal(raw, v.Addr().Interface()); err != nil {
		d.addDecodeError(name, v.Type(), err)
		return
	}
	if at := firstNull(v, raw); at >= 0 {
		d.addError(fmt.Sprintf("%s.%d", name, at), "wrong_type", "must be a text, not null")
		return
	}
	// The service checks each item of a list with items:"judged".
	if f.Tag.Get("items") != "judged" && hasNUL(raw) {
		d.addError(nulField(v, name), "invalid", "must not contain a NUL character")
		return
	}
	d.checkBounds(v, f, name)
	if f.Tag.Get("items") == "" {
		d.checkNested(v, raw, name)
	}
}

// unmarshal is json.Unmarshal, except that it accepts 5.0 as a whole number, as JSON Schema does
// (Validation section 6.1.1).
func unmarshal(raw []byte, into any) error {
	err := json.Unmarshal(raw, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && strings.HasPrefix(wrong.Value, "number ") {
		err = json.Unmarshal(normalizeIntegers(raw), into)
	}
	return err
}

// normalizeIntegers rewrites numbers such as 5.0 and 5e2 in raw as 5 and 500. raw must be valid
// JSON. Numbers from 2^53 on stay as they are, since a float64 may not hold them exactly.
func normalizeIntegers(raw []byte) []byte {
	var out []byte
	for i := 0; i < len(raw); {
		end := i + 1
		switch c := raw[i]; {
		case c == '"':
			end = jsonTextEnd(raw, i)
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

// unquoteJSON returns the text of a JSON string without its quotes. It returns any other value as
// JSON, after normalizeIntegers.
func unquoteJSON(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(normalizeIntegers(raw))
}

// checkNested checks the objects and lists within a field against the tags of their own fields.
func (d *decoder) checkNested(v reflect.Value, raw []byte, name string) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	if _, ok := v.Addr().Interface().(nullable); ok {
		d.checkNested(v.FieldByName("Value"), raw, name)
		return
	}
	if !isCheckedStruct(v.Type()) || bytes.Equal(raw, []byte("null")) {
		return
	}
	if v.Kind() == reflect.Slice {
		at := 0
		eachValue(raw, func(_ string, part []byte) {
			place := fmt.Sprintf("%s.%d", name, at)
			if bytes.Equal(part, []byte("null")) {
				d.addError(place, "wrong_type", "must be %s, not null", typeName(v.Type().Elem()))
			} else {
				d.checkNested(v.Index(at), part, place)
			}
			at++
		})
		return
	}
	given := map[string][]byte{}
	eachValue(raw, func(field string, part []byte) { given[field] = part })
	for _, f := range reflect.VisibleFields(v.Type()) {
		field := openapi.JSONName(f)
		if field == "" || f.Anonymous {
			continue
		}
		part, place := given[field], name+"."+field
		if hasOtherCase(given, field) { // encoding/json also decodes that name into the field
			own := v.FieldByIndex(f.Index)
			own.SetZero()
			if part != nil {
				_ = unmarshal(part, own.Addr().Interface()) // cannot fail: it was decoded before
			}
		}
		if part == nil || bytes.Equal(part, []byte("null")) {
			if f.Tag.Get("required") != "" {
				d.addError(place, "required", "is required")
			}
			continue
		}
		d.checkBounds(v.FieldByIndex(f.Index), f, place)
		d.checkNested(v.FieldByIndex(f.Index), part, place)
	}
}

// hasOtherCase reports whether an object has a name that differs from field only in upper and lower
// case.
func hasOtherCase(given map[string][]byte, field string) bool {
	for name := range given {
		if name != field && strings.EqualFold(name, field) {
			return true
		}
	}
	return false
}

// isCheckedStruct reports whether t, or the item type of the list t, is a struct whose fields the
// decoder checks one by one.
func isCheckedStruct(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// eachValue calls visit for each value directly in raw, which must be a valid JSON object or list.
// name is the value's name in an object, "" in a list.
func eachValue(raw []byte, visit func(name string, part []byte)) {
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
				name = unquoteJSON(bytes.TrimSpace(raw[begin:i]))
				begin = i + 1
			}
		case '"':
			i = jsonTextEnd(raw, i) - 1
		}
	}
}

// addDecodeError notes that encoding/json could not decode the field into type t.
func (d *decoder) addDecodeError(name string, t reflect.Type, err error) {
	if t == reflect.TypeFor[core.Time]() || t == reflect.TypeFor[*core.Time]() || errors.As(err, new(*time.ParseError)) {
		d.addError(name, "invalid", "must be a time of the form 2026-11-30T12:00:00Z")
		return
	}
	var te *json.UnmarshalTypeError
	if !errors.As(err, &te) {
		d.addError(name, "invalid", "cannot be read: %s", err)
		return
	}
	if te.Field != "" {
		name += "." + te.Field
	}
	if strings.HasPrefix(te.Value, "number ") {
		d.addError(name, "out_of_range", "must be %s, and within its range", typeName(te.Type))
		return
	}
	d.addError(name, "wrong_type", "must be %s, not %s", typeName(te.Type), te.Value)
}

// typeName returns the name of a type in error messages, such as "a whole number".
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

// checkBounds checks a value against the tags min, max and enum of its field. For a text, min and
// max limit the number of characters; for a list, the number of items. Each text in a list must be
// in the enum.
func (d *decoder) checkBounds(v reflect.Value, f reflect.StructField, name string) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	if _, ok := v.Addr().Interface().(nullable); ok {
		if !v.FieldByName("Null").Bool() {
			d.checkBounds(v.FieldByName("Value"), f, name)
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		d.checkText(v.String(), f, name)
	case reflect.Slice:
		d.checkList(v, f, name)
	case reflect.Int, reflect.Int64:
		d.checkRange(float64(v.Int()), f, name, "must be", "")
	case reflect.Float64:
		d.checkRange(v.Float(), f, name, "must be", "")
	}
}

func (d *decoder) checkText(s string, f reflect.StructField, name string) {
	d.checkRange(float64(utf8.RuneCountInString(s)), f, name, "must have", "characters")
	d.checkEnum(s, f, name)
}

// checkEnum checks a text against the tag enum of its field.
func (d *decoder) checkEnum(s string, f reflect.StructField, name string) {
	if enum := f.Tag.Get("enum"); enum != "" && !strings.Contains("|"+enum+"|", "|"+s+"|") {
		d.addError(name, "not_allowed", "must be one of %s", strings.ReplaceAll(strings.Trim(enum, "|"), "|", ", "))
	}
}

func (d *decoder) checkList(v reflect.Value, f reflect.StructField, name string) {
	if m, err := strconv.Atoi(f.Tag.Get("max")); err == nil && v.Len() > m {
		d.addError(name, "too_many_items", "must have at most %d items, not %d", m, v.Len())
		return
	}
	if m, err := strconv.Atoi(f.Tag.Get("min")); err == nil && v.Len() < m {
		d.addError(name, "too_few_items", "must have %d or more, not %d", m, v.Len())
	}
	if v.Type().Elem().Kind() == reflect.String {
		for i := range v.Len() {
			d.checkEnum(v.Index(i).String(), f, name)
		}
	}
}

// checkRange checks n against the tags min and max of its field. The error message has what before
// the allowed range and unit after it, such as "must have at most 64 characters".
func (d *decoder) checkRange(n float64, f reflect.StructField, name, what, unit string) {
	low, high := numberTag(f, "min", math.Inf(-1)), numberTag(f, "max", math.Inf(1))
	switch {
	case n >= low && n <= high:
	case math.IsInf(high, 1):
		d.addError(name, "out_of_range", "%s", joinWords(what, "at least", formatNumber(low), unit))
	case math.IsInf(low, -1):
		d.addError(name, "out_of_range", "%s", joinWords(what, "at most", formatNumber(high), unit))
	default:
		d.addError(name, "out_of_range", "%s", joinWords(what, "from", formatNumber(low), "to", formatNumber(high), unit))
	}
}

func joinWords(words ...string) string { return strings.TrimSpace(strings.Join(words, " ")) }

func formatNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// numberTag returns the number in a tag of field f, or otherwise if there is no number.
func numberTag(f reflect.StructField, tag string, otherwise float64) float64 {
	n, err := strconv.ParseFloat(f.Tag.Get(tag), 64)
	if err != nil {
		return otherwise
	}
	return n
}

// checkUnknown notes body fields that the operation does not have, at the top level and in objects
// one level below.
func (d *decoder) checkUnknown() {
	for _, name := range slices.Sorted(maps.Keys(d.fields)) {
		t, known := d.known[name]
		if !known {
			d.addError(name, "unknown_field", "is not a field of this operation; check the spelling")
			continue
		}
		d.checkUnknownInside(name, t)
	}
}

// checkUnknownInside does what checkUnknown does for the objects in one body field of type t.
func (d *decoder) checkUnknownInside(name string, t reflect.Type) {
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
	// walkNames cannot fail here: splitObject has checked the same bytes with it.
	_ = walkNames(d.fields[name], func(at int, inner string) {
		if at == depth && !fields[inner] {
			d.addError(name+"."+inner, "unknown_field", "is not a field of this operation; check the spelling")
		}
	})
}

// firstNull returns the index of the first null in a list of texts, -1 if there is none. Decoding
// would silently turn the null into an empty text.
func firstNull(v reflect.Value, raw []byte) int {
	v = reflect.Indirect(v)
	if v.Kind() != reflect.Slice || v.Type().Elem().Kind() != reflect.String || !bytes.Contains(raw, []byte("null")) {
		return -1
	}
	var items []*string
	if json.Unmarshal(raw, &items) != nil { // raw is a single text, which some fields accept too
		return -1
	}
	return slices.Index(items, nil)
}

// nulField returns the name of the list item that contains a NUL character, or name itself if v is
// no list of texts.
func nulField(v reflect.Value, name string) string {
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

// hasNUL reports whether a text in raw, which must be valid JSON, has a NUL character.
func hasNUL(raw []byte) bool {
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

// maxJSONItems limits the items of each list and the names of each object in the body of any
// operation, because they take memory before they are checked.
const maxJSONItems = 100_000

var (
	errDuplicateName = errors.New("a name is given twice")
	errTooManyItems  = fmt.Errorf("a list or an object has more than %d items", maxJSONItems)
)

// An openContainer is a JSON object or list that walkNames has entered and not left yet.
type openContainer struct {
	names map[string]bool // the names of the object so far; nil for a list
	name  bool            // the next text is a name, not a value
	items int             // commas so far
}

// walkNames calls visit for every name in raw, which must be valid JSON. depth is the number of
// objects and lists around the name. walkNames returns an error if an object has a name twice, or
// if an object or list has more than maxJSONItems items.
func walkNames(raw []byte, visit func(depth int, name string)) error {
	var open []openContainer
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{':
			open = append(open, openContainer{names: map[string]bool{}, name: true})
		case '[':
			open = append(open, openContainer{})
		case '}', ']':
			open = open[:len(open)-1]
		case ',':
			in := &open[len(open)-1]
			in.name = in.names != nil
			if in.items++; in.items >= maxJSONItems {
				return errTooManyItems
			}
		case '"':
			end := jsonTextEnd(raw, i)
			if len(open) > 0 && open[len(open)-1].name {
				name, err := open[len(open)-1].addName(raw[i:end])
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

// addName notes a quoted name of an object and returns it without quotes. A duplicate is an error.
func (in *openContainer) addName(quoted []byte) (string, error) {
	var name string
	if err := json.Unmarshal(quoted, &name); err != nil {
		return "", err
	}
	if in.names[name] {
		return "", fmt.Errorf("%w: %.40q", errDuplicateName, name)
	}
	in.names[name], in.name = true, false
	return name, nil
}

// jsonTextEnd returns the index after the closing quote of the JSON text that begins at i.
func jsonTextEnd(raw []byte, i int) int {
	for i++; raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i + 1
}
