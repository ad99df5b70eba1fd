//go:build killpoints

package main

import (
	"log/slog"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// storeOptions returns options with segments so small that one second of mail fills, compacts and
// removes some, which otherwise takes days.
func storeOptions(log *slog.Logger) store.Options {
	return store.Options{Log: log, Program: version, SegmentSize: 256 << 10, Grace: time.Millisecond}
}

// setPace makes the compaction of segments run all the time.
func setPace(q *jobs.Queue) { q.Every("compact", 200*time.Millisecond) }
