//go:build !killpoints

package main

import (
	"log/slog"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// storeOptions returns the options with which the store is opened.
func storeOptions(log *slog.Logger) store.Options { return store.Options{Log: log, Program: version} }

// setCompactionPace does nothing. In the build for kill tests, it shortens the intervals of
// recurring jobs.
func setCompactionPace(*jobs.Queue) {}
