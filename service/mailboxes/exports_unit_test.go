package mailboxes

import (
	"encoding/csv"
	"strings"
	"testing"
)

// FuzzExportTable holds that whatever mailboxes are called comes out of the file as it went in, and
// is no formula.
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
			if err := r.table([][]string{format.columns, want}); err != nil {
				t.Fatal(err)
			}
			rows, err := csv.NewReader(&r.Buf).ReadAll()
			if err != nil || len(rows) != 2 || len(rows[1]) != len(format.columns) {
				t.Fatalf("%s: %d rows, %v", format.id, len(rows), err)
			}
			for i, cell := range rows[1] {
				plain := strings.NewReplacer("\r", "", "\n", "").Replace // line ends come out as LF: the reader has them so
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
