package feedback

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

const (
	suppressionsAtATime = 500     // addresses that one transaction adds
	maxSuppressionLines = 500_000 // lines of a file: each needs several times its size in memory
)

// ImportSuppressionsIn is the request of import_suppressions: a list of addresses, or the text of a
// CSV file, which may also be the body itself.
type ImportSuppressionsIn struct {
	Emails []string `json:"emails" max:"10000" items:"judged" example:"old@example.net"`
	Reason string   `json:"reason" enum:"bounce|complaint|manual|" log:"true"`    // `manual` unless given.
	CSV    string   `json:"csv" example:"email,reason\nold@example.net,bounce\n"` // The text of a CSV file, which may also be the body itself.
}

// SuppressionsImported counts the results of an import.
type SuppressionsImported struct {
	Added   int      `json:"added" example:"120"`
	Already int      `json:"already" example:"3"`                             // Addresses that were suppressed already.
	Invalid []string `json:"invalid" words:"theirs" example:"not an address"` // Entries that are not addresses, as they were given.
}

// ImportSuppressions suppresses many addresses for the account. An address that is suppressed
// already is unchanged, and one that is given twice counts once. Invalid entries are listed.
func (s *Service) ImportSuppressions(ctx context.Context, who core.Actor, in ImportSuppressionsIn) (*SuppressionsImported, error) {
	if (in.CSV == "") == (in.Emails == nil) {
		return nil, core.Invalid("emails", "required", "give emails, or a CSV file, and not both")
	}
	_, leave, err := s.WorkOnLarge(ctx, int64(2*len(in.CSV)))
	if err != nil {
		return nil, err
	}
	defer leave()

	// Keep each address once, normalized.
	type row struct{ email, reason string }
	out := &SuppressionsImported{Invalid: []string{}}
	seen := map[string]bool{}
	var kept []row
	add := func(given, reason string) {
		email, err := core.NormalizeEmail("email", given)
		switch {
		case err != nil:
			out.Invalid = append(out.Invalid, given)
		case !seen[email]:
			seen[email] = true
			kept = append(kept, row{email, reason})
		}
	}
	for _, e := range in.Emails {
		add(e, cmp.Or(in.Reason, store.SuppressionManual))
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
			if line > maxSuppressionLines {
				return nil, core.Invalid("csv", "too_many_items", "can have at most %d lines below its header; send several files", maxSuppressionLines)
			}
			reason := strings.ToLower(cmp.Or(cell("reason"), in.Reason, store.SuppressionManual))
			if !slices.Contains([]string{store.SuppressionBounce, store.SuppressionComplaint, store.SuppressionManual}, reason) {
				return nil, core.Invalid("csv", "invalid", "line %d has the reason %.40q; it must be bounce, complaint or manual", line+1, reason)
			}
			add(cell("email"), reason)
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
					err = core.Suppress(tx, who.AccountID, r.email, r.reason, "")
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
