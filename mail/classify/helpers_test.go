package classify_test

import (
	"os"
	"strconv"
	"testing"
)

// seed gives MAILSTEAD_SEED, or always the same number.
func seed(t testing.TB) uint64 {
	text := os.Getenv("MAILSTEAD_SEED")
	if text == "" {
		return 2026
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
