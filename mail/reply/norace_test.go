//go:build !race

package reply

// slower is how much more time the timed tests allow.
const slower = 1
