// Package soak gives tests their size: the small one of make test, or the full one of make soak.
package soak

import "os"

// Full is whether make soak runs the test.
func Full() bool { return os.Getenv("MAILSTEAD_SOAK") != "" }

// Size is one of two sizes of a test: CI's, or the full one.
func Size[T any](ci, full T) T {
	if Full() {
		return full
	}
	return ci
}
