//go:build !killpoints

package main

import (
	"log/slog"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// storeOptions returns the options of the store.
func storeOptions(log *slog.Logger) store.Options { return store.Options{Log: log, Program: version} }

// setPace keeps the intervals of recurring jobs; the build for kill tests changes them.
func setPace(*jobs.Queue) {}
