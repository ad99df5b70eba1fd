package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core/code"
)

const (
	jsonMedia    = "application/json"
	referenceOf  = "API reference" // the group of the reference's pages
	everyOf      = "Errors of every operation"
	fieldsHead   = "| Field | Type | Meaning |\n|---|---|---|\n"
	paramsHead   = "| Parameter | Type | Meaning |\n|---|---|---|\n"
	headersHead  = "| Header field | Meaning |\n|---|---|\n"
	eventsGroup  = "Events"
	accessLink   = "[programs that read mail](" + root + "/agents.md#limited-tokens-and-policies)"
	operatorText = "the operator, who is the owner of the first account, or an admin to whom the owner gave that right"
)

// addReference adds the pages of the reference: the first one, one for each group, and the errors.
func (s *Site) addReference() {
	s.groups = append(s.groups, group{name: referenceOf})
	s.addPage(&page{path: apiPath, title: "Overview", summary: "How to call the API, and all its operations.", source: s.overview})
	for _, t := range s.doc.Tags {
		p := &page{path: groupPath(t.Name), title: t.Name, summary: t.Description, anchors: map[string][]string{}}
		p.source = func() []byte { return s.groupText(t.Name, t.Description) }
		for _, o := range s.doc.InGroup(t.Name) {
			heading := headingOf(o)
			p.anchors[heading] = append(p.anchors[heading], o.OperationID)
			at := p.path + "#" + o.OperationID
			s.operations[o.OperationID] = at
			if o.Row == nil {
				s.operations[o.Path] = at
			} else {
				s.operations[o.Method+" "+o.Path] = at
			}
		}
		s.addPage(p)
	}
	s.addPage(&page{path: errorsPath, title: "Errors", summary: "The form of errors, and what each code means.", source: s.errorsText})
}

// headingOf returns the heading of an operation: its summary. That of an event is its name, since
// what is said of events is long.
func headingOf(o openapi.PathOperation) string {
	if o.Row == nil {
		return o.Path
	}
	return prose(o.Summary)
}

// groupPath returns the path of a group's page.
func groupPath(name string) string { return apiPath + "/" + slug(strings.ToLower(name)) }

// referenceList returns the end of the index: the list of the reference's pages.
func (s *Site) referenceList() []byte {
	var out strings.Builder
	out.WriteString("\n## " + referenceOf + "\n\n")
	for _, p := range s.groups[len(s.groups)-1].pages {
		fmt.Fprintf(&out, "- [%s](%s.md): %s\n", p.title, p.path, p.summary)
	}
	return []byte(out.String())
}

// overview returns the first page of the reference.
func (s *Site) overview() []byte {
	var out strings.Builder
	fmt.Fprintf(&out, "# %s\n\n%s\n\n", referenceOf, prose(s.doc.Info.Summary))
	fmt.Fprintf(&out, "Paths begin with the address of the server: `%s/v1/account`. Programs read the reference as an OpenAPI document: [JSON](/v1/openapi.json), [YAML](/v1/openapi.yaml).\n\n", s.base())
	for paragraph := range strings.SplitSeq(s.doc.Info.Description, "\n\n") {
		out.WriteString(prose(paragraph) + "\n\n")
	}
	fmt.Fprintf(&out, "[Errors](%s.md) lists all codes.\n", errorsPath)
	for _, t := range s.doc.Tags {
		fmt.Fprintf(&out, "\n## %s\n\n[%[1]s](%s.md): %s\n\n", t.Name, groupPath(t.Name), prose(t.Description))
		for _, o := range s.doc.InGroup(t.Name) {
			fmt.Fprintf(&out, "- [%s](%s.md#%s) `%s`\n", prose(o.Summary), groupPath(t.Name), o.OperationID, routeOf(o))
		}
	}
	return []byte(out.String())
}

// routeOf returns method and path of an operation, or the type of an event.
func routeOf(o openapi.PathOperation) string {
	if o.Row == nil {
		return o.Path
	}
	return o.Method + " " + o.Path
}

// A groupWriter writes the page of a group.
type groupWriter struct {
	strings.Builder
	site    *Site
	objects []string // names of the schemas that the page refers to, in order
}

// groupText returns the page of a group: its operations or events, and the objects that they name.
func (s *Site) groupText(name, description string) []byte {
	w := &groupWriter{site: s}
	fmt.Fprintf(w, "# %s\n\n%s\n", name, prose(description))
	all := s.doc.InGroup(name)
	if name == eventsGroup {
		w.writeDeliveries(all[0])
	}
	for _, o := range all {
		if o.Row == nil {
			w.writeEvent(o)
		} else {
			w.writeOperation(o)
		}
	}
	w.writeObjects()
	return []byte(w.String())
}

// writeObjects writes the objects that the page refers to.
func (w *groupWriter) writeObjects() {
	if len(w.objects) > 0 {
		w.WriteString("\n## Objects\n")
	}
	for i := 0; i < len(w.objects); i++ { // the list grows while the fields of its objects are written
		fmt.Fprintf(w, "\n### %s\n\n", w.objects[i])
		w.writeFields(w.site.doc.Components.Schemas.Get(w.objects[i]), false)
	}
}

// writeOperation writes one operation.
func (w *groupWriter) writeOperation(o openapi.PathOperation) {
	fmt.Fprintf(w, "\n## %s\n\n`%s` · `%s`\n\n", prose(o.Summary), routeOf(o), o.OperationID)
	if o.Row.Text != "" {
		w.WriteString(prose(o.Row.Text) + "\n\n")
	}
	w.WriteString("**Who may call it:** " + whoMay(o.Row) + "\n\n")
	if len(o.Parameters) > 0 {
		w.WriteString(paramsHead)
		for _, p := range o.Parameters {
			p = w.site.doc.Parameter(p)
			need := p.In
			if p.Required {
				need += ", required"
			}
			w.writeRow("`"+p.Name+"` ("+need+")", w.typeText(p.Schema), prose(p.Description))
		}
		w.WriteByte('\n')
	}
	if o.RequestBody != nil {
		optional := ""
		if !o.RequestBody.Required {
			optional = ", which may be left out"
		}
		w.WriteString("**Body**" + optional + ":\n\n")
		w.writeFields(w.site.doc.Resolve(o.RequestBody.Content.Get(jsonMedia).Schema), true)
		if o.Row.Strict {
			w.WriteString("A field that is not listed is an error.\n\n")
		}
		switch {
		case o.Row.Upload != nil:
			w.WriteString("The body may also be a file.\n\n")
		case o.Row.File != nil:
			fmt.Fprintf(w, "The body may also be a file of type `%s`, in the place of `%s`.\n\n", o.Row.File.Media, o.Row.File.Field)
		}
	}
	w.WriteString("**Example:**")
	switch {
	case o.Row.OperatorNow:
		w.WriteString(" only the command line works as it stands, since no token may call it. The others show the form of the request.")
	case o.Row.Person:
		w.WriteString(" it shows the form of the request, since no token may call it.")
	}
	w.WriteString("\n\n")
	for _, e := range w.site.examplesOf(o) {
		fmt.Fprintf(w, "```%s %s\n%s\n```\n\n", e.language, e.title, e.text)
	}
	w.writeAnswer(o)
	w.writeErrors(o)
}

// writeAnswer writes what an operation answers if it succeeds.
func (w *groupWriter) writeAnswer(o openapi.PathOperation) {
	status := fmt.Sprint(o.Row.Status)
	content := o.Responses.Get(status).Content
	var kinds []string
	for _, m := range content {
		kind := "a file of type `" + m.Name + "`"
		if m.Name == jsonMedia && len(m.Value.Schema.AnyOf) > 0 {
			kind = w.typeText(m.Value.Schema)
		} else if m.Name == jsonMedia {
			kind = "an object"
		}
		kinds = append(kinds, kind)
	}
	if len(kinds) == 0 {
		fmt.Fprintf(w, "**Answer:** `%s`, without a body.\n\n", status)
		return
	}
	fmt.Fprintf(w, "**Answer:** `%s`, %s.\n\n", status, strings.Join(kinds, " or "))
	if m := content.Get(jsonMedia); m != nil {
		w.writeFields(w.site.doc.Resolve(m.Schema), false)
		fmt.Fprintf(w, "```json\n%s\n```\n\n", indentJSON(m.Example))
	}
}

// writeErrors writes the error codes of an operation, without those that every operation has.
func (w *groupWriter) writeErrors(o openapi.PathOperation) {
	every := w.site.everyCode()
	w.WriteString("**Errors:** ")
	for _, r := range o.Responses {
		var links []string
		for _, name := range r.Value.Codes() {
			if !slices.Contains(every, name) {
				links = append(links, "["+inCode(name)+"]("+errorsPath+".md#"+name+")")
			}
		}
		if len(links) > 0 {
			w.WriteString(r.Name + " " + strings.Join(links, ", ") + "; ")
		}
	}
	fmt.Fprintf(w, "[those of every operation](%s.md#%s).\n", errorsPath, slug(everyOf))
}

// writeDeliveries writes what all events have in common, which o has like the others.
func (w *groupWriter) writeDeliveries(o openapi.PathOperation) {
	fmt.Fprintf(w, "\nEach event is sent to the endpoints that take it, see [webhooks](%s/webhooks.md), as POST with a JSON body and these header fields:\n\n%s", root, headersHead)
	for _, p := range o.Parameters {
		w.writeRow("`"+p.Name+"`", prose(p.Description))
	}
	w.WriteString("\nThe body is an " + w.typeText(o.RequestBody.Content.Get(jsonMedia).Schema.AllOf[0]) + ". What the endpoint answers decides what follows:\n\n")
	for _, r := range o.Responses {
		status := r.Name
		if status == "default" {
			status = "any other"
		}
		fmt.Fprintf(w, "- `%s`: %s\n", status, prose(r.Value.Description))
	}
}

// writeEvent writes one event: its data, and an example of its body.
func (w *groupWriter) writeEvent(o openapi.PathOperation) {
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n", headingOf(o), prose(o.Summary))
	m := o.RequestBody.Content.Get(jsonMedia)
	if data := m.Schema.AllOf[1].Properties.Get("data"); data != nil {
		w.WriteString("**`data`:**\n\n")
		w.writeFields(w.site.doc.Resolve(data), false)
	}
	fmt.Fprintf(w, "```json\n%s\n```\n", indentJSON(m.Example))
}

// writeFields writes the table of an object's fields. Fields of a request say whether they are
// required, those of an answer whether they may be missing.
func (w *groupWriter) writeFields(s *openapi.Schema, inRequest bool) {
	if len(s.Properties) == 0 {
		return
	}
	w.WriteString(fieldsHead)
	for _, p := range s.Properties {
		name := "`" + p.Name + "`"
		switch required := slices.Contains(s.Required, p.Name); {
		case inRequest && required:
			name += " (required)"
		case !inRequest && !required:
			name += " (may be missing)"
		}
		w.writeRow(name, w.typeText(p.Value), prose(p.Value.Description))
	}
	w.WriteByte('\n')
}

// writeRow writes a row of a table.
func (w *groupWriter) writeRow(cells ...string) {
	for i, text := range cells {
		cells[i] = strings.ReplaceAll(strings.ReplaceAll(text, "|", `\|`), "\n", " ")
	}
	w.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// typeText returns the type that a schema describes, with its limits and with links to objects,
// which the page then has.
func (w *groupWriter) typeText(s *openapi.Schema) (out string) {
	joined := func(all []*openapi.Schema, by string) string {
		var parts []string
		for _, part := range all {
			parts = append(parts, w.typeText(part))
		}
		return strings.Join(parts, by)
	}
	switch {
	case s.Ref != "":
		name := openapi.RefName(s.Ref)
		if !slices.Contains(w.objects, name) {
			w.objects = append(w.objects, name)
		}
		out = "[" + name + "](#" + slug(name) + ")"
	case len(s.AnyOf) > 0:
		out = joined(s.AnyOf, " or ")
	case len(s.OneOf) > 0:
		out = joined(s.OneOf, " or ")
	case s.Items != nil:
		out = "list of " + w.typeText(s.Items)
	case s.AdditionalProperties != nil && (s.AdditionalProperties.Type != nil || s.AdditionalProperties.Ref != ""):
		out = "object whose values are " + w.typeText(s.AdditionalProperties)
	default:
		out = typeNames(s)
	}
	if limits := limitsText(s); limits != "" {
		out += " (" + limits + ")"
	}
	return out
}

// typeNames returns the types that a schema without sub-schemas allows, such as "string or null".
func typeNames(s *openapi.Schema) string {
	switch t := s.Type.(type) {
	case string:
		return t
	case []string:
		return strings.Join(t, " or ")
	}
	return "any"
}

// limitsText returns the format, the values and the limits of a schema as text, "" if it has none.
func limitsText(s *openapi.Schema) string {
	var out []string
	if s.Format != "" && s.Format != "int64" {
		out = append(out, s.Format)
	}
	var values []string
	for _, v := range s.Enum {
		if v != nil {
			values = append(values, inCode(fmt.Sprint(v)))
		}
	}
	if values != nil {
		out = append(out, strings.Join(values, ", "))
	}
	out = append(out, rangeText(s.MinLength, s.MaxLength, " characters")...)
	out = append(out, rangeText(s.MinItems, s.MaxItems, " items")...)
	out = append(out, rangeText(s.Minimum, s.Maximum, "")...)
	return strings.Join(out, ", ")
}

// rangeText returns a range as text, such as "1 to 5 items". nil means no limit; without any, the
// list is empty.
func rangeText[T any](low, high *T, of string) []string {
	bound := func(words string, n T) []string {
		unit := of
		if fmt.Sprint(n) == "1" {
			unit = strings.TrimSuffix(of, "s")
		}
		return []string{fmt.Sprintf("%s %v%s", words, n, unit)}
	}
	switch {
	case low != nil && high != nil:
		return []string{fmt.Sprintf("%v to %v%s", *low, *high, of)}
	case low != nil:
		return bound("at least", *low)
	case high != nil:
		return bound("at most", *high)
	}
	return nil
}

// inCode returns a text as code in a line of Markdown.
func inCode(text string) string { return "`" + text + "`" }

// whoMay says who may call an operation, in sentences.
func whoMay(o *api.Operation) string {
	var out []string
	switch {
	case o.OperatorNow:
		out = append(out, "Only "+operatorText+": in the dashboard within 15 minutes after signing in, or with `mailstead call` on the server. No token may call it.")
	case o.Person:
		out = append(out, "Only "+rolesText(o.Roles)+" in the dashboard, signed in with a password of their own choice. No token may call it.")
	case o.Operator:
		out = append(out, "Only "+operatorText+". A token needs the permission `"+o.Scope+"`.")
	default:
		out = append(out, strings.ToUpper(rolesText(o.Roles)[:1])+rolesText(o.Roles)[1:]+". A token needs the permission `"+o.Scope+"`.")
	}
	if o.Own {
		out = append(out, "Users of a mailbox need a session; a token of the mailbox may not call it.")
	}
	if o.WholeAccount {
		out = append(out, "Callers that see only some mailboxes may not call it.")
	}
	switch o.Bound {
	case api.Always:
		out = append(out, "Bound tokens may call it (see "+accessLink+").")
	case api.Clean:
		out = append(out, "Bound tokens may call it until they are tainted (see "+accessLink+").")
	}
	return strings.Join(out, " ")
}

// rolesText names the people of roles.
func rolesText(roles []string) string {
	var out []string
	for _, r := range roles {
		out = append(out, map[string]string{"owner": "owners", "admin": "admins", "member": "members", "mailbox": "users of a mailbox"}[r])
	}
	if n := len(out) - 1; n > 0 {
		return strings.Join(out[:n], ", ") + " and " + out[n]
	}
	return out[0]
}

// findEveryCode returns the codes that every operation has.
func (s *Site) findEveryCode() (out []string) {
	operations, having := 0, map[string]int{}
	for _, t := range s.doc.Tags {
		for _, o := range s.doc.InGroup(t.Name) {
			if o.Row == nil {
				continue
			}
			operations++
			for _, r := range o.Responses {
				for _, name := range r.Value.Codes() {
					having[name]++
				}
			}
		}
	}
	for _, c := range code.Documented {
		if having[c.Code] == operations {
			out = append(out, c.Code)
		}
	}
	return out
}

// errorsText returns the page of the errors: their form, and each code with its meaning.
func (s *Site) errorsText() []byte {
	w := &groupWriter{site: s}
	fmt.Fprintf(w, "# Errors\n\nEvery error has this form. `code` is for programs, `message` says to a person what to do next, and `details` names the fields that are wrong.\n\n")
	status := s.doc.Components.Responses[0].Value
	fmt.Fprintf(w, "```json\n%s\n```\n\n", indentJSON(status.Content.Get(jsonMedia).Example))
	w.writeFields(s.doc.Components.Schemas.Get("ErrorDetails"), false)
	fmt.Fprintf(w, "With `Accept: application/problem+json` errors have the form of RFC 9457:\n\n```json\n%s\n```\n\n", indentJSON(status.Content.Get("application/problem+json").Example))
	fmt.Fprintf(w, "## %s\n\n", everyOf)
	for _, name := range s.everyCode() {
		fmt.Fprintf(w, "- [%s](#%s)\n", inCode(name), name)
	}
	last := 0
	for _, c := range code.Documented {
		if c.Status != last {
			fmt.Fprintf(w, "\n## %d %s\n", c.Status, http.StatusText(c.Status))
			last = c.Status
		}
		fmt.Fprintf(w, "\n### %s\n\n%s.\n", c.Code, prose(strings.ToUpper(c.Means[:1])+c.Means[1:]))
	}
	w.writeObjects()
	return []byte(w.String())
}

// specials are the characters and sequences that mean something in Markdown.
var specials = regexp.MustCompile(`[\\*<\[\]]|\b_+|_+\b`)

// prose returns a text as Markdown. What is between backticks stays code.
func prose(text string) string {
	pieces := strings.Split(text, "`")
	for i := range pieces {
		if i%2 == 0 {
			pieces[i] = specials.ReplaceAllStringFunc(pieces[i], func(found string) string { return `\` + strings.Join(strings.Split(found, ""), `\`) })
		}
	}
	return strings.Join(pieces, "`")
}

// indentJSON returns v as JSON with indentation.
func indentJSON(v any) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		panic(err) // examples are made of texts, numbers, lists and objects
	}
	return strings.TrimSpace(out.String())
}
