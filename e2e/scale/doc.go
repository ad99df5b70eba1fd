// Package scale has the end-to-end tests of large stores, long runs and many connections. Most are
// small in make test, and have their full size in make soak.
package scale
