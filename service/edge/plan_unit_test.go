package edge

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestPlanCacheIsBounded: plans are kept for a minute, as long as they take little memory together.
func TestPlanCacheIsBounded(t *testing.T) {
	now, made := time.Unix(1e9, 0), 0
	cache := planCache{}
	ask := func(key string, rows int) {
		t.Helper()
		_, err := cache.get(key, now, func() (*DNSPlan, error) {
			made++
			values := []string{strings.Repeat("x", 1000)}
			out := &DNSPlan{}
			for range rows {
				out.Changes = append(out.Changes, PlannedChange{Before: &values, After: &values})
			}
			return out, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ask("a", 5)
	ask("a", 5)
	if made != 1 {
		t.Errorf("a plan was made %d times within a minute", made)
	}
	now = now.Add(planLifetime)
	ask("b", 5)
	if len(cache.plans) != 1 {
		t.Errorf("%d plans are kept after a minute", len(cache.plans))
	}
	for n := range 100 {
		ask(fmt.Sprint(n), 1000)
		if cache.bytes > maxPlansBytes || len(cache.plans) > 8 {
			t.Fatalf("%d plans with %d bytes are kept", len(cache.plans), cache.bytes)
		}
	}
	ask("huge", 10_000)
	if cache.bytes > maxPlansBytes {
		t.Errorf("%d bytes are kept", cache.bytes)
	}
	if _, err := cache.get("none", now, func() (*DNSPlan, error) { return nil, errors.New("no answer") }); err == nil {
		t.Error("no error")
	}
}
