package inbox

import (
	"context"
	"testing"
	"time"
)

// TestPlacesAreShared: whoever holds all that one account may have keeps another from nothing.
func TestPlacesAreShared(t *testing.T) {
	p := newPlaces(4, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var held []func()
	for _, account := range []string{"a", "a", "a", "b", "b", "c"} {
		done, err := p.take(ctx, account)
		if want := len(held) < 2 || account == "b"; (err == nil) != want {
			t.Fatalf("%s: %v, with %d held", account, err, len(held))
		}
		if err == nil {
			held = append(held, done)
		} else {
			ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
		}
	}
	for _, done := range held {
		done()
	}
	if len(p.all) != 0 || len(p.of("a")) != 0 || len(p.of("c")) != 0 {
		t.Error("places are lost")
	}
}
