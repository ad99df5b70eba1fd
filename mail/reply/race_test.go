//go:build race

package reply

// slower is how much more time the timed tests allow under the race detector.
const slower = 20
