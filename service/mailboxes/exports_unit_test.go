package mailboxes

import (
	"encoding/csv"
	"strings"
	"testing"
)

// FuzzExportTable: the names of mailboxes can be read back from the file unchanged, and none of
// them is a formula.
func FuzzExportTable(f *testing.F) {
	f.Add("=cmd()", "a\"b,c;d", "-- \nAnn\r\n")
	f.Add("\\.", " ", "\t=1")
	f.Fuzz(func(t *testing.T, name, password, footer string) {
		c := &Credentials{Email: "a@b", Name: name, Password: password, SMTPPassword: password, IMAPPassword: password, Footer: &footer}
		for _, format := range exportFormats {
			if format.row == nil {
				continue
			}
			r := &exportReader{format: &format}
			want := format.row(c)
			if err := r.csvWriter().WriteAll([][]string{format.columns, want}); err != nil {
				t.Fatal(err)
			}
			rows, err := csv.NewReader(&r.Buf).ReadAll()
			if err != nil || len(rows) != 2 || len(rows[1]) != len(format.columns) {
				t.Fatalf("%s: %d rows, %v", format.id, len(rows), err)
			}
			for i, cell := range rows[1] {
				plain := strings.NewReplacer("\r", "", "\n", "").Replace // csv.Reader returns line ends as LF
				if plain(cell) != plain(want[i]) {
					t.Errorf("%s: column %d is %q, want %q", format.id, i, cell, want[i])
				}
				if cell != "" && plain(cell) != plain(password) && strings.ContainsAny(cell[:1], "=+-@\t\r") {
					t.Errorf("%s: column %d is the formula %q", format.id, i, cell)
				}
			}
		}
	})
}

// FuzzColumn: any text can be the value of a column if its braces are doubled, and no text panics.
func FuzzColumn(f *testing.F) {
	for _, value := range []string{"", "{email}", "{{{email}}} {", "}", "{}", "{{", "a}}b{", "{email", "{Email}"} {
		f.Add(value)
	}
	double := strings.NewReplacer("{", "{{", "}", "}}")
	f.Fuzz(func(t *testing.T, value string) {
		_, _ = parseColumn(value)
		parts, err := parseColumn(double.Replace(value))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range parts {
			if p.value != nil {
				t.Fatal("a field")
			}
			got += p.text
		}
		if got != value {
			t.Errorf("%q, want %q", got, value)
		}
	})
}
