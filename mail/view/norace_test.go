//go:build !race

package view

// slower is how much more time the timed tests allow.
const slower = 1
