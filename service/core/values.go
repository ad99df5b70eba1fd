package core

import (
	"encoding/json"
	"errors"
	"mime"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/msg"
)

// An Opt is a body field that may be absent, null or given.
type Opt[T any] struct {
	Set   bool // it was in the request's body
	Null  bool // it was null
	Value T
}

// UnmarshalJSON accepts null and values of T.
func (o *Opt[T]) UnmarshalJSON(data []byte) error {
	o.Set = true
	if string(data) == "null" {
		o.Null = true
		return nil
	}
	return json.Unmarshal(data, &o.Value)
}

// OptOf returns a zero T, for code that finds out by reflection what a body may contain.
func (Opt[T]) OptOf() any { return *new(T) }

// OrNil returns the value; nil for null.
func (o Opt[T]) OrNil() *T {
	if o.Null {
		return nil
	}
	return &o.Value
}

// A Time is RFC 3339 in UTC with milliseconds in JSON. The zero time is null.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return t.UTC().AppendFormat(make([]byte, 0, 32), `"2006-01-02T15:04:05.000Z"`), nil
}

// UnmarshalJSON accepts any RFC 3339 time, and null.
func (t *Time) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		t.Time = time.Time{}
		return nil
	}
	return t.Time.UnmarshalJSON(data)
}

// UnmarshalText parses a query parameter: an RFC 3339 time or a date.
func (t *Time) UnmarshalText(text []byte) error {
	if day, err := time.Parse(time.DateOnly, string(text)); err == nil {
		t.Time = day
		return nil
	}
	return t.Time.UnmarshalText(text)
}

// ParseDay parses a UTC day in a query, such as 2026-01-31. "" is the zero time. A day before 1970
// counts as the first of that year, since nothing is older. The error is that of Invalid, and names
// the field.
func ParseDay(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return time.Time{}, Invalid(field, "invalid", "must be a date such as 2026-01-31")
	}
	if first := time.Unix(0, 0).UTC(); day.Before(first) {
		return first, nil
	}
	return day, nil
}

// ParseDays parses the inclusive range of UTC days date_from to date_to in a query into [start,
// end). If a text is empty, its time is zero, which means no bound.
func ParseDays(from, to string) (start, end time.Time, err error) {
	start, err = ParseDay("date_from", from)
	if err != nil {
		return start, end, err
	}
	end, err = ParseDay("date_to", to)
	if err == nil && !end.IsZero() {
		end = end.AddDate(0, 0, 1)
	}
	return start, end, err
}

// OrNull returns nil for "", which is null in JSON.
func OrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// NormalizeEmail returns the normalized form of an address. The error is that of Invalid, and names
// the field.
func NormalizeEmail(field, text string) (string, error) {
	email, err := msg.NormalizeEmail(text)
	if err != nil {
		return "", Invalid(field, "invalid", "%s", err)
	}
	return email, nil
}

// UIDText formats an IMAP UID for the API.
func UIDText(uid uint32) string { return strconv.FormatUint(uint64(uid), 10) }

// UnicodeName returns the Unicode form of a domain name; the name itself if it has none.
func UnicodeName(ascii string) string {
	_, name, err := idn.Registrable(ascii)
	if err != nil {
		return ascii
	}
	return name
}

// Bracketed returns a Message-ID in angle brackets, whether or not the text has them.
func Bracketed(id string) string {
	return "<" + strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(id), "<"), ">") + ">"
}

// IsValidMessageID reports whether text is a Message-ID (RFC 5322 section 3.6.4) without characters
// that could be misread in a header or a log.
func IsValidMessageID(text string) bool {
	id := strings.TrimSuffix(strings.TrimPrefix(text, "<"), ">")
	left, right, ok := strings.Cut(id, "@")
	if !ok || left == "" || right == "" || len(id) > 250 {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`<>(),;:"\`, r) })
}

// CheckLine refuses a text with control characters. The error names the field.
func CheckLine(field, name string) error {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return Invalid(field, "invalid", "must not contain control characters")
	}
	return nil
}

// List is an unpaged list in JSON.
type List[T any] struct {
	Data  []T `json:"data"`
	Count int `json:"count"` // How many rows are in `data`.
}

// ListOf returns a List. Its data is never null.
func ListOf[T any](data []T) *List[T] {
	if data == nil {
		data = []T{}
	}
	return &List[T]{data, len(data)}
}

// MediaRanges returns the media ranges of Accept headers in lower case, without those with q=0 (RFC
// 9110 section 12.5.1).
func MediaRanges(header ...string) (ranges []string) {
	for part := range strings.SplitSeq(strings.Join(header, ","), ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
			continue
		}
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil && q == 0 {
			continue
		}
		ranges = append(ranges, media)
	}
	return ranges
}

// MaxSchedule is how far in the future a message can be scheduled.
const MaxSchedule = 30 * 24 * time.Hour

// ParseSendAt validates the time at which a message is to be sent. nil and the zero time mean now:
// then it returns the zero time.
func ParseSendAt(now time.Time, at *Time) (time.Time, error) {
	switch {
	case at == nil || at.IsZero():
		return time.Time{}, nil
	case !at.After(now):
		return time.Time{}, Invalid("send_at", "invalid", "must be later than now, which is %s", now.UTC().Format(time.RFC3339))
	case at.After(now.Add(MaxSchedule)):
		return time.Time{}, Invalid("send_at", "invalid", "must be within 30 days")
	}
	return at.UTC().Truncate(time.Millisecond), nil
}
