package mta

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// suppressionsAtATime is how many addresses one transaction adds.
const suppressionsAtATime = 500

// ImportSuppressionsIn is the body of import_suppressions: a list of addresses, or the text of a
// CSV file, which may also be the body itself.
type ImportSuppressionsIn struct {
	Emails []string `json:"emails" max:"10000" items:"judged"`
	Reason string   `json:"reason" enum:"bounce|complaint|manual|"` // manual if it is missing
	CSV    string   `json:"csv"`                                    // with a header line: email, and optionally reason
}

// SuppressionsImported counts what came of an import.
type SuppressionsImported struct {
	Added   int      `json:"added"`
	Already int      `json:"already"`
	Invalid []string `json:"invalid" words:"theirs"`
}

// ImportSuppressions keeps the account from sending to many addresses. One that is suppressed
// already stays as it is, and one that is given twice counts once. What is no address is named.
func (s *Service) ImportSuppressions(_ context.Context, who core.Actor, in ImportSuppressionsIn) (*SuppressionsImported, error) {
	if (in.CSV == "") == (in.Emails == nil) {
		return nil, core.Invalid("emails", "required", "give emails, or a CSV file, and not both")
	}
	type row struct{ email, reason string }
	var rows []row
	for _, e := range in.Emails {
		rows = append(rows, row{e, cmp.Or(in.Reason, store.SuppressionManual)})
	}
	if in.CSV != "" {
		r := csv.NewReader(strings.NewReader(strings.TrimPrefix(in.CSV, "\ufeff")))
		r.FieldsPerRecord, r.TrimLeadingSpace = -1, true
		column := map[string]int{}
		for line := 0; ; line++ {
			fields, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, core.Invalid("csv", "invalid", "is not CSV: %s", err)
			}
			if line == 0 {
				for i, name := range fields {
					column[strings.ToLower(strings.TrimSpace(name))] = i + 1
				}
				if column["email"] == 0 {
					return nil, core.Invalid("csv", "invalid", "its first line must name the columns, one of them email")
				}
				continue
			}
			cell := func(name string) string {
				if i := column[name]; i > 0 && i <= len(fields) {
					return strings.TrimSpace(fields[i-1])
				}
				return ""
			}
			one := row{cell("email"), strings.ToLower(cmp.Or(cell("reason"), in.Reason, store.SuppressionManual))}
			if !slices.Contains([]string{store.SuppressionBounce, store.SuppressionComplaint, store.SuppressionManual}, one.reason) {
				return nil, core.Invalid("csv", "invalid", "line %d has the reason %.40q; it must be bounce, complaint or manual", line+1, one.reason)
			}
			rows = append(rows, one)
		}
	}

	// Each address once, in its one form.
	out := &SuppressionsImported{Invalid: []string{}}
	seen := map[string]bool{}
	kept := rows[:0]
	for _, r := range rows {
		email, err := core.NormalizeEmail("email", r.email)
		switch {
		case err != nil:
			out.Invalid = append(out.Invalid, r.email)
		case !seen[email]:
			seen[email] = true
			kept = append(kept, row{email, r.reason})
		}
	}
	for part := range slices.Chunk(kept, suppressionsAtATime) {
		added := 0
		err := s.Store.Update(func(tx *store.Tx) error {
			added = 0
			for _, r := range part {
				known, err := core.IsSuppressed(tx, who.AccountID, r.email)
				if err == nil && !known {
					added++
					err = suppress(tx, who.AccountID, r.email, r.reason, "")
				}
				if err != nil {
					return err
				}
			}
			if added == 0 {
				return nil
			}
			return core.AuditMany(tx, who, store.AuditTarget{Type: "suppression", ID: part[0].email, Name: part[0].email}, added)
		})
		if err != nil {
			return nil, err
		}
		out.Added, out.Already = out.Added+added, out.Already+len(part)-added
	}
	return out, nil
}
