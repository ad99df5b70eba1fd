package core

import (
	"testing"
	"time"
)

// TestParseDays: a range has its last day, and a day before there was mail is no error.
func TestParseDays(t *testing.T) {
	for _, c := range []struct{ from, to, start, end string }{
		{"", "", "", ""}, {"2026-01-31", "2026-02-28", "2026-01-31", "2026-03-01"}, {"1900-01-01", "", "1970-01-01", ""}, {"", "2026-12-31", "", "2027-01-01"},
	} {
		start, end, err := ParseDays(c.from, c.to)
		text := func(at time.Time) string {
			if at.IsZero() {
				return ""
			}
			return at.Format(time.DateOnly)
		}
		if err != nil || text(start) != c.start || text(end) != c.end {
			t.Errorf("%s to %s: %s, %s, %v", c.from, c.to, start, end, err)
		}
	}
	for _, c := range []struct{ from, to, field string }{{"soon", "", "date_from"}, {"", "2026-02-30", "date_to"}} {
		_, _, err := ParseDays(c.from, c.to)
		if e, ok := AsError(err); !ok || len(e.Details) != 1 || e.Details[0].Field != c.field {
			t.Errorf("%q to %q: %v", c.from, c.to, err)
		}
	}
}
