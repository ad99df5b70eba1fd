//go:build killpoints

package main

import (
	"log/slog"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// storeOptions returns the options with which the store is opened. Its segments are so small that a
// kill test fills, compacts and removes some of them within a second.
func storeOptions(log *slog.Logger) store.Options {
	return store.Options{Log: log, Program: version, SegmentSize: 256 << 10, Grace: time.Millisecond}
}

// setCompactionPace lets the job that compacts segments run every 200 ms.
func setCompactionPace(q *jobs.Queue) { q.Every("compact", 200*time.Millisecond) }
