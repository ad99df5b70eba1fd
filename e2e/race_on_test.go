//go:build race

package e2e

// buildArgs build the program that the tests drive with the race detector too.
var buildArgs = []string{"-race"}
