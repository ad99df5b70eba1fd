//go:build !killpoints

package main

import (
	"log/slog"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// storeOptions are how the store is opened.
func storeOptions(log *slog.Logger) store.Options { return store.Options{Log: log, Program: version} }

// setPace leaves recurring jobs their intervals. A build for kill tests has others.
func setPace(*jobs.Queue) {}
