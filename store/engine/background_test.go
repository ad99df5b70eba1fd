package engine

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
)

// TestBackgroundEnds: when the context of Options.Background ends, a View that has begun stops
// after a few steps with its error, the next one does not begin, and a check of the pages ends.
func TestBackgroundEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	db := openUnchecked(t, dir, Options{Background: ctx})
	const rows = 1000
	for from := range 10 {
		update(t, db, func(tx *Tx) error {
			for n := range rows / 10 {
				if err := putEvents(tx, "acc_1", from*rows/10+n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	count := func(stopAt int) (n int, err error) {
		err = db.View(func(tx *Tx) error {
			n = 0
			for range Events.All(tx) {
				if n++; n == stopAt {
					cancel()
				}
			}
			return nil
		})
		return n, err
	}
	if n, err := count(0); n != rows || err != nil {
		t.Fatalf("%d rows of %d, %v", n, rows, err)
	}
	if n, err := count(100); n < 100 || n > 100+2*stepsBetweenRests || !errors.Is(err, context.Canceled) {
		t.Errorf("cut at row 100: %d rows, %v", n, err)
	}
	if n, err := count(0); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("afterwards: %d rows, %v", n, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "test.db")
	if err := CheckPagesInBackground(t.Context(), path); err != nil {
		t.Errorf("the pages of a sound database: %v", err)
	}
	if err := CheckPagesInBackground(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("a check of the pages that ends: %v", err)
	}
}
