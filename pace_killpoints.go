//go:build killpoints

package main

import (
	"log/slog"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// storeOptions has segments so small that a second of mail fills, compacts and removes some, which
// is what takes days otherwise.
func storeOptions(log *slog.Logger) store.Options {
	return store.Options{Log: log, Program: version, SegmentSize: 256 << 10, Grace: time.Millisecond}
}

// setPace has segments compacted all the time.
func setPace(q *jobs.Queue) { q.Every("compact", 200*time.Millisecond) }
