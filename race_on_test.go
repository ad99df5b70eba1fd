//go:build race

package main

// buildArgs build the program that the tests drive with the race detector too.
var buildArgs = []string{"-race"}

// raceFactor is how much more memory the program may take.
const raceFactor = 10
