package mailboxes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Limits on the columns of one export together. They limit how long a row of the file can be, and
// the stored export.
const (
	maxColumnBytes  = 16 << 10 // of headers and values
	maxColumnFields = 120      // names in braces
)

// An ExportColumn is a column of an export with the format columns.
type ExportColumn struct {
	Header string `json:"header" required:"true" min:"1" max:"200" example:"Login"`
	Value  string `json:"value" required:"true" max:"1000" example:"{smtp_username}"` // Text in which `{name}` stands for a field of the format `json`; `{{` and `}}` stand for braces.
	Raw    bool   `json:"raw" log:"true"`                                             // Leave values as they are. Otherwise one that begins with `=`, `+`, `-` or `@` gets a leading `'`, so that no spreadsheet takes it for a formula.
}

// A columnPart is a part of a column's value: a text or, if value is not nil, a field.
type columnPart struct {
	text  string
	value func(c *Credentials) string
}

// exportFields are the fields that the value of a column may name, in the order in which the format
// json has them. What is null there is an empty text here, and so is port 0.
var exportFields = []struct {
	name  string
	value func(c *Credentials) string
}{
	{"user_id", func(c *Credentials) string { return c.UserID }},
	{"email", func(c *Credentials) string { return c.Email }},
	{"username", func(c *Credentials) string { return c.Username }},
	{"domain", func(c *Credentials) string { return c.Domain }},
	{"domain_id", func(c *Credentials) string { return c.DomainID }},
	{"name", func(c *Credentials) string { return c.Name }},
	{"status", func(c *Credentials) string { return c.Status }},
	{"type", func(c *Credentials) string { return c.Type }},
	{"password", func(c *Credentials) string { return c.Password }},
	{"smtp_host", func(c *Credentials) string { return c.SMTPHost }},
	{"smtp_port", func(c *Credentials) string { return portCell(c.SMTPPort) }},
	{"smtp_security", func(c *Credentials) string { return c.SMTPSecurity }},
	{"smtp_username", func(c *Credentials) string { return c.SMTPUsername }},
	{"smtp_password", func(c *Credentials) string { return c.SMTPPassword }},
	{"imap_host", func(c *Credentials) string { return c.IMAPHost }},
	{"imap_port", func(c *Credentials) string { return portCell(c.IMAPPort) }},
	{"imap_security", func(c *Credentials) string { return c.IMAPSecurity }},
	{"imap_username", func(c *Credentials) string { return c.IMAPUsername }},
	{"imap_password", func(c *Credentials) string { return c.IMAPPassword }},
	{"daily_send_limit", (*Credentials).limitCell},
	{"footer", func(c *Credentials) string {
		if c.Footer == nil {
			return ""
		}
		return *c.Footer
	}},
}

// exportFieldNames returns the names of exportFields.
func exportFieldNames() (names []string) {
	for _, f := range exportFields {
		names = append(names, f.name)
	}
	return names
}

// columnsOf checks the columns of an export, and returns them as they are stored. The error is 400
// and names the column.
func columnsOf(in CreateExportIn) (out []store.ExportColumn, err error) {
	if in.Format != columnsFormat {
		if in.Columns != nil {
			return nil, core.Errorf("validation_error", "columns: goes with the format columns only.").With("columns", "not_allowed", "goes with the format columns only")
		}
		return nil, nil
	}
	if in.Columns == nil {
		return nil, core.Errorf("validation_error", "columns: is required with the format columns.").With("columns", "required", "is required with the format columns")
	}
	size, fields := 0, 0
	for i, c := range *in.Columns {
		parts, err := parseColumn(c.Value)
		if err != nil {
			field := fmt.Sprintf("columns.%d.value", i)
			return nil, core.Errorf("validation_error", "%s: %s.", field, err).With(field, "invalid", err.Error())
		}
		for _, p := range parts {
			if p.value != nil {
				fields++
			}
		}
		size += len(c.Header) + len(c.Value)
		out = append(out, store.ExportColumn{Header: c.Header, Value: c.Value, Raw: c.Raw})
	}
	if size > maxColumnBytes || fields > maxColumnFields {
		why := fmt.Sprintf("may have %d bytes of headers and values, and name %d fields, all columns together", maxColumnBytes, maxColumnFields)
		return nil, core.Errorf("too_many_items", "columns: %s.", why).With("columns", "too_many_items", why)
	}
	return out, nil
}

// parseColumn splits the value of a column into texts and fields. The error is for the user.
func parseColumn(value string) (parts []columnPart, err error) {
	text := ""
	for value != "" {
		i := strings.IndexAny(value, "{}")
		if i < 0 {
			i = len(value)
		}
		text += value[:i]
		value = value[i:]
		switch {
		case value == "":
		case strings.HasPrefix(value, "{{"), strings.HasPrefix(value, "}}"):
			text += value[:1]
			value = value[2:]
		case value[0] == '}':
			return nil, errors.New("a } that does not end the name of a field must be written as }}")
		default:
			name, rest, closed := strings.Cut(value[1:], "}")
			if !closed {
				return nil, errors.New("a { that does not begin the name of a field must be written as {{")
			}
			at := slices.Index(exportFieldNames(), name)
			if at < 0 {
				return nil, fmt.Errorf("{%.40s} is no field; list_export_formats names the fields", name)
			}
			parts = append(parts, columnPart{text: text}, columnPart{value: exportFields[at].value})
			text, value = "", rest
		}
	}
	return append(parts, columnPart{text: text}), nil
}

// formatOfColumns returns the file format with the columns of an export.
func formatOfColumns(columns []store.ExportColumn) (*exportFormat, error) {
	f := &exportFormat{id: columnsFormat}
	var values [][]columnPart
	for _, c := range columns {
		parts, err := parseColumn(c.Value)
		if err != nil {
			return nil, err
		}
		f.columns = append(f.columns, c.Header)
		values = append(values, parts)
	}
	f.row = func(c *Credentials) (row []string) {
		for i, parts := range values {
			var cell strings.Builder
			for _, p := range parts {
				cell.WriteString(p.text)
				if p.value != nil {
					cell.WriteString(p.value(c))
				}
			}
			if columns[i].Raw {
				row = append(row, cell.String())
			} else {
				row = append(row, plainCell(cell.String()))
			}
		}
		return row
	}
	return f, nil
}
