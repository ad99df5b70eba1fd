package handlers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/internal/nearest"
	"github.com/mailstead/mailstead/service"
)

// An Operation is one operation of the API, as `mailstead call --list` shows it.
type Operation struct {
	Name    string `json:"name"`
	Method  string `json:"method"`
	Path    string `json:"path"`
	Summary string `json:"summary"`
}

// Operations lists the operations of the API that have all words in their names or summaries, for
// the command line. Those that have more of them in their names come first, then those with shorter
// names. Without words, the order is that of the table.
func Operations(words ...string) []Operation {
	var out []Operation
	for _, o := range api.All(&service.Service{}) {
		text := strings.ToLower(o.Name + " " + o.Summary)
		lacksOne := slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, strings.ToLower(word)) })
		if !o.Alias && !lacksOne {
			out = append(out, Operation{o.Name, o.Method, o.Path, o.Summary})
		}
	}
	inName := func(o Operation) (n int) {
		for _, word := range words {
			n += min(1, strings.Count(o.Name, strings.ToLower(word)))
		}
		return n
	}
	if len(words) > 0 {
		slices.SortStableFunc(out, func(a, b Operation) int { return cmp.Or(inName(b)-inName(a), len(a.Name)-len(b.Name)) })
	}
	return out
}

// Description returns the API document of a server with default settings.
func Description() *openapi.Document {
	return openapi.Describe(openapi.API{Operations: api.All(&service.Service{}), Errors: exampleErrors})
}

// NewRequest builds the HTTP request of an operation, for the command line. args is one JSON object
// with the path parameters, query parameters and body fields; "" is an empty object.
func NewRequest(ctx context.Context, operation, args string) (*http.Request, error) {
	o, err := findOperation(operation)
	if err != nil {
		return nil, err
	}
	return requestOf(ctx, o, args)
}

// findOperation returns the row of an operation. The error for a name that no operation has names
// the nearest one.
func findOperation(name string) (*api.Operation, error) {
	var names []string
	for _, o := range api.All(&service.Service{}) {
		if o.Name == name {
			return &o, nil
		}
		names = append(names, o.Name)
	}
	if near := nearest.Name(name, names); near != "" {
		return nil, fmt.Errorf("there is no operation %q: did you mean %s? `mailstead call --list` lists all operations", name, near)
	}
	return nil, fmt.Errorf("there is no operation %q; `mailstead call --list` lists them", name)
}

func requestOf(ctx context.Context, o *api.Operation, args string) (*http.Request, error) {
	if fields, err := splitObject([]byte(cmp.Or(args, "{}"))); err == nil { // splitArguments reports the error
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if err := checkArgument(o, name); err != nil {
				return nil, err
			}
		}
	}
	values, query, body, err := splitArguments(o, args)
	if err != nil {
		return nil, err
	}
	path := o.Path
	for name, value := range values {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
	}
	r, err := http.NewRequestWithContext(ctx, o.Method, path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("build the HTTP request of %s: %w", o.Name, err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r, nil
}

// splitArguments splits one JSON object of arguments into path parameters, query parameters and a
// JSON body.
func splitArguments(o *api.Operation, args string) (path map[string]string, query url.Values, body []byte, err error) {
	fields := map[string]json.RawMessage{}
	if args != "" {
		fields, err = splitObject([]byte(args))
		if err != nil {
			return nil, nil, nil, fmt.Errorf("the arguments of %s are not one JSON object: %w", o.Name, err)
		}
	}
	path = map[string]string{}
	for part := range strings.SplitSeq(o.Path, "/") {
		name, ok := strings.CutPrefix(part, "{")
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, "}")
		text := unquoteJSON(fields[name])
		if text == "" {
			return nil, nil, nil, fmt.Errorf("%[1]s needs %[2]s: give %[2]s=…; `mailstead call %[1]s --help` shows all fields", o.Name, name)
		}
		path[name] = text
		delete(fields, name)
	}
	query = url.Values{}
	for name, raw := range fields {
		if o.Method != http.MethodGet && !isQuery(o.Call.In, name) {
			continue
		}
		if string(raw) != "null" {
			query.Set(name, unquoteJSON(raw))
		}
		delete(fields, name)
	}
	if o.Method == http.MethodGet {
		return path, query, nil, nil
	}
	body, err = json.Marshal(fields)
	return path, query, body, err
}

// checkArgument returns an error if an operation has no field with this name. A filter may be
// written as filter[NAME].
func checkArgument(o *api.Operation, name string) error {
	if inner, ok := strings.CutPrefix(name, "filter["); ok {
		name = strings.TrimSuffix(inner, "]")
	}
	var names []string
	for _, f := range openapi.Fields(o.Call.In) {
		for _, own := range []string{f.Tag.Get("path"), f.Tag.Get("query"), openapi.JSONName(f.StructField)} {
			if own != "" {
				names = append(append(names, own), strings.FieldsFunc(f.Tag.Get("alias"), func(r rune) bool { return r == ',' })...)
			}
		}
	}
	switch near := nearest.Name(name, names); {
	case slices.Contains(names, name):
		return nil
	case len(names) == 0:
		return fmt.Errorf("%s has no fields, so %q cannot be given", o.Name, name)
	case near != "":
		return fmt.Errorf("%s has no field %q: did you mean %s? `mailstead call %[1]s --help` shows all fields", o.Name, name, near)
	}
	return fmt.Errorf("%s has no field %q; `mailstead call %[1]s --help` shows all fields", o.Name, name)
}

// isQuery reports whether the request type has a query parameter of that name.
func isQuery(t reflect.Type, name string) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("query") == name || f.Anonymous && f.Type.Kind() == reflect.Struct && isQuery(f.Type, name) {
			return true
		}
	}
	return false
}

// Arguments returns the JSON object of arguments that words give for an operation. A word is
// key=value, where the value is converted to the type of the field, key:=JSON, or key@FILE for the
// content of a file. A list is given by repeating its key, or as JSON. read returns the content of
// a file, and of the standard input for "-".
//
// The "@" stands with the key, not with the value: a script may pass on values of others, which
// must not name files.
func Arguments(operation string, words []string, read func(file string) ([]byte, error)) (string, error) {
	o, err := findOperation(operation)
	if err != nil {
		return "", err
	}
	schema := argumentsOf(o)
	values := map[string]any{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		key, isJSON := strings.CutSuffix(key, ":")
		key, file, isFile := strings.Cut(key, "@")
		if isFile && ok {
			file, isJSON = word[len(key)+1:], false // the name of the file has a "="
		}
		err := checkArgument(o, key)
		if !ok && (!isFile || err != nil) || key == "" {
			return "", fmt.Errorf("%q is not an argument of %s; write key=value, key:=JSON, key@FILE, or one JSON object in single quotes", word, o.Name)
		}
		if err != nil {
			return "", err
		}
		_, repeated := values[key]
		field := schema.Properties.Get(key)
		if value == "@-" && !isJSON && !isFile {
			return "", fmt.Errorf("%s is the text itself; to read standard input, write %s@-", word, key)
		}
		if isFile {
			content, err := read(file)
			if err != nil {
				return "", fmt.Errorf("read %s: %w", key, err)
			}
			value = strings.TrimRight(string(content), "\r\n")
			switch {
			case isAttachments(field):
				list, _ := values[key].([]any)
				values[key] = append(list, attachmentOf(file, content))
				continue
			case !utf8.ValidString(value):
				return "", fmt.Errorf("%s is a text, and %s holds something else", key, file)
			case json.Valid(content) && strings.ContainsAny(value[:1], "[{") && field != nil && !field.Is("string"):
				isJSON = true
			}
		}
		if isJSON {
			if !json.Valid([]byte(value)) {
				return "", fmt.Errorf("%s:=%s is not JSON; for a text write %s=%s", key, value, key, value)
			}
			if repeated {
				return "", fmt.Errorf("%s is given more than once", key)
			}
			values[key] = json.RawMessage(value)
			continue
		}
		one, isList, err := argumentValue(field, value)
		if err != nil && isAttachments(field) {
			return "", fmt.Errorf("%s is a list of files: write %[1]s@FILE for each", key)
		}
		if err != nil {
			return "", fmt.Errorf("%s %w; `mailstead call %s --help` shows the types of all fields", key, err, o.Name)
		}
		before, _ := values[key].([]any)
		switch {
		case isList:
			values[key] = append(before, one)
		case repeated:
			return "", fmt.Errorf("%s is given more than once, but is not a list", key)
		default:
			values[key] = one
		}
	}
	text, err := json.Marshal(values)
	return string(text), err
}

// argumentsOf returns the schema of one object with all fields of an operation: those of the path,
// of the query and of the body.
func argumentsOf(o *api.Operation) *openapi.Schema {
	whole := *o
	whole.Tool.Hidden = "" // it is hidden from assistants alone
	return openapi.Arguments([]api.Operation{whole})[0]
}

// argumentValue converts a text to the type of a field. isList reports whether the field is a list,
// of which the value is one item. field is nil for a field without a schema of its own, which is a
// text.
func argumentValue(field *openapi.Schema, text string) (value any, isList bool, err error) {
	number := func(s *openapi.Schema, want string) (any, bool, error) {
		if n := json.Number(text); json.Valid([]byte(text)) {
			if _, err := n.Float64(); err == nil && (s.Is("number") || !strings.ContainsAny(text, ".eE")) {
				return n, false, nil
			}
		}
		return nil, false, fmt.Errorf("is %q, which is not %s", text, want)
	}
	switch {
	case field == nil || field.Is("string"):
		return text, false, nil
	case field.Is("boolean"):
		switch text {
		case "true", "yes", "1":
			return true, false, nil
		case "false", "no", "0":
			return false, false, nil
		}
		return nil, false, fmt.Errorf("is %q, which is neither true nor false", text)
	case field.Is("integer"):
		return number(field, "a whole number")
	case field.Is("number"):
		return number(field, "a number")
	case field.Is("array"):
		value, _, err = argumentValue(field.Items, text)
		return value, true, err
	case len(field.AnyOf)+len(field.OneOf) > 0:
		forms := slices.Concat(field.AnyOf, field.OneOf)
		// A list comes first, so that the key of a field that takes one text or several may be
		// repeated.
		slices.SortStableFunc(forms, func(a, b *openapi.Schema) int {
			switch {
			case a.Is("array") && !b.Is("array"):
				return -1
			case b.Is("array") && !a.Is("array"):
				return 1
			}
			return 0
		})
		for _, form := range forms {
			if form.Is("null") {
				continue
			}
			value, isList, err = argumentValue(form, text)
			if err == nil {
				return value, isList, nil
			}
		}
		return nil, false, err
	case len(field.Enum) > 0:
		return text, false, nil
	}
	return nil, false, errors.New("is an object: write its JSON after :=")
}

// isAttachments reports whether a field is a list of files with their names.
func isAttachments(field *openapi.Schema) bool {
	return field != nil && field.Is("array") && field.Items.Properties.Get("filename") != nil && field.Items.Properties.Get("content") != nil
}

// attachmentOf returns a file as an item of a list of attachments.
func attachmentOf(file string, content []byte) any {
	name := filepath.Base(file)
	if file == "-" {
		name = "attachment"
	}
	kind := mime.TypeByExtension(filepath.Ext(name))
	return map[string]string{"filename": name, "content": base64.StdEncoding.EncodeToString(content), "content_type": cmp.Or(kind, "application/octet-stream")}
}

// An OperationHelp describes one operation for people, from its row in the table and from the
// OpenAPI document.
type OperationHelp struct {
	Operation
	Text        string // more about it; may be ""
	Permissions string // who may call it, in one sentence
	Fields      []FieldHelp
	// The words after the operation in an example: the path parameters, and the fields of the
	// example body. They are not quoted.
	Example []string
	Waits   bool // it answers a job, for which --wait waits
}

// A FieldHelp describes one field of a request.
type FieldHelp struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"` // for people, such as "list of texts"
	Values   []string `json:"values,omitempty"`
	Required bool     `json:"required"`
	Text     string   `json:"text,omitempty"`
	// The fields of an object, or of the objects in a list. Their names are whole, such as
	// "send_policy.send".
	Inner []FieldHelp `json:"inner,omitempty"`
}

// HelpOf returns the description of an operation.
func HelpOf(operation string) (*OperationHelp, error) {
	o, err := findOperation(operation)
	if err != nil {
		return nil, err
	}
	out := &OperationHelp{
		Operation: Operation{o.Name, o.Method, o.Path, o.Summary}, Text: o.Text, Waits: o.Status == http.StatusAccepted,
		Permissions: fmt.Sprintf("Tokens need the permission %q; for the roles %s.", o.Scope, strings.Join(o.Roles, ", ")),
	}
	out.Fields = fieldHelp(argumentsOf(o), "")
	for i := range out.Fields { // the command line takes names in the place of these ids
		switch f := &out.Fields[i]; {
		case f.Text != "":
		case f.Name == "domain_id":
			f.Text = "The domain's id or name."
		case f.Name == "user_id" && strings.HasPrefix(o.Path, "/v1/account/users/"):
			f.Text = "The team user's id or address."
		case f.Name == "user_id":
			f.Text = "The mailbox's id or address."
		}
	}
	out.Example = exampleWords(Description(), o)
	return out, nil
}

// exampleWords returns the words that give an operation its example in the API document.
func exampleWords(doc *openapi.Document, o *api.Operation) (words []string) {
	row := doc.Paths.Get(o.Path).Get(strings.ToLower(o.Method))
	for _, p := range row.Parameters {
		if p.Schema != nil && p.Required {
			word := exampleWord(p.Name, doc.Example(p.Schema))
			switch {
			case strings.HasPrefix(word, "user_id=eu_"):
				word = "user_id=anna@example.com"
			case strings.HasPrefix(word, "domain_id=dom_"):
				word = "domain_id=example.com"
			}
			words = append(words, word)
		}
	}
	if row.RequestBody != nil {
		body, _ := row.RequestBody.Content.Get("application/json").Example.(openapi.Dict[any])
		for _, field := range body {
			words = append(words, exampleWord(field.Name, field.Value))
		}
	}
	return words
}

// fieldHelp describes the fields of an object, which all begin with prefix.
func fieldHelp(object *openapi.Schema, prefix string) (out []FieldHelp) {
	for _, p := range object.Properties {
		f := FieldHelp{
			Name: prefix + p.Name, Type: typeForPeople(p.Value), Values: valuesOf(p.Value), Required: slices.Contains(object.Required, p.Name), Text: p.Value.Description,
		}
		if isAttachments(p.Value) {
			f.Type = "list of files, " + f.Name + "@FILE for each"
		}
		for _, form := range slices.Concat([]*openapi.Schema{p.Value}, p.Value.OneOf, p.Value.AnyOf) {
			if form.Items != nil {
				form = form.Items
			}
			f.Inner = append(f.Inner, fieldHelp(form, f.Name+".")...)
		}
		out = append(out, f)
	}
	return out
}

// exampleWord returns the word that gives a value to a field, see Arguments. A list of one text or
// number is written as that text or number; a list of one object stays a list.
func exampleWord(name string, value any) string {
	one := value
	switch list := value.(type) {
	case []any:
		if len(list) == 1 {
			one = list[0]
		}
	case []string:
		if len(list) == 1 {
			one = list[0]
		}
	}
	switch v := one.(type) {
	case string:
		return name + "=" + v
	case bool, int, int64, float64:
		return fmt.Sprintf("%s=%v", name, v)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return name + ":=null" // values of examples are made of texts, numbers, lists and objects
	}
	return name + ":=" + string(text)
}

// typeForPeople names the JSON type of a field in plain words.
func typeForPeople(s *openapi.Schema) string {
	switch {
	case s.Is("string") && s.Format == "date-time":
		return "time"
	case s.Is("string"), len(s.Enum) > 0:
		return "text"
	case s.Is("boolean"):
		return "true or false"
	case s.Is("integer"):
		return "whole number"
	case s.Is("number"):
		return "number"
	case s.Is("array"):
		inner := typeForPeople(s.Items)
		if inner == "true or false" {
			return "list of " + inner
		}
		return "list of " + inner + "s"
	case len(s.AnyOf)+len(s.OneOf) > 0:
		var forms []string
		for _, form := range slices.Concat(s.AnyOf, s.OneOf) {
			if one := typeForPeople(form); !form.Is("null") && !slices.Contains(forms, one) {
				forms = append(forms, one)
			}
		}
		return strings.Join(forms, " or ")
	}
	return "object"
}

// valuesOf returns the only values that a field may have, nil if it may have others.
func valuesOf(s *openapi.Schema) (out []string) {
	for _, form := range slices.Concat([]*openapi.Schema{s}, s.OneOf, s.AnyOf) {
		if form.Items != nil && form.Enum == nil {
			form = form.Items
		}
		for _, v := range form.Enum {
			if text, ok := v.(string); ok {
				out = append(out, text)
			}
		}
	}
	return out
}
