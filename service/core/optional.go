package core

import (
	"encoding/json"
	"time"
)

// An Opt is a body field that may be absent, null or given.
type Opt[T any] struct {
	Set   bool // it was in the body
	Null  bool // it was null
	Value T
}

// UnmarshalJSON takes null and values of T.
func (o *Opt[T]) UnmarshalJSON(data []byte) error {
	o.Set = true
	if string(data) == "null" {
		o.Null = true
		return nil
	}
	return json.Unmarshal(data, &o.Value)
}

// OptOf says T, for tools that describe the body.
func (Opt[T]) OptOf() any { return *new(T) }

// OrNil is the value, nil for null.
func (o Opt[T]) OrNil() *T {
	if o.Null {
		return nil
	}
	return &o.Value
}

// A Time is RFC 3339 in UTC with milliseconds on the wire; null when zero.
type Time struct{ time.Time }

// MarshalJSON writes it.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// UnmarshalJSON reads any RFC 3339 time, and null.
func (t *Time) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		t.Time = time.Time{}
		return nil
	}
	return t.Time.UnmarshalJSON(data)
}

// UnmarshalText reads what a query gives: an RFC 3339 time or a date.
func (t *Time) UnmarshalText(text []byte) error {
	if day, err := time.Parse(time.DateOnly, string(text)); err == nil {
		t.Time = day
		return nil
	}
	return t.Time.UnmarshalText(text)
}

// OrNull is for texts that are null on the wire when there is none.
func OrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
