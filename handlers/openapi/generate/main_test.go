package main

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// TestCommentsAreAboveOrBehind reads those of two structs.
func TestCommentsAreAboveOrBehind(t *testing.T) {
	folder := t.TempDir()
	source := `package weather

// A Day has this comment, which is no field's.
type Day[T any] struct {
	// The lowest of
	// the day.
	Low  int // behind
	High int // The highest.

	// This stands alone.

	Rain, Snow T // In mm.
	Wind       struct{ Speed int }
}

func f() {
	type inner struct {
		Text string // Inside.
	}
}
`
	if err := os.WriteFile(filepath.Join(folder, "day.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := commentsIn(folder)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"Day.Low": "The lowest of the day.", "Day.High": "The highest.", "Day.Rain": "In mm.", "Day.Snow": "In mm.", "Day.Wind": "", "inner.Text": "Inside.",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestFieldTextsAreThoseOfTheSources: a comment that is changed reaches the API.
func TestFieldTextsAreThoseOfTheSources(t *testing.T) {
	want, err := fieldTexts("../../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("handlers/openapi/fields.txt is not what the comments say: run go generate ./handlers/openapi")
	}
}
