//go:build !race

package msg

// slower is how much more time the timed tests allow.
const slower = 1
