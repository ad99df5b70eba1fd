//go:build race

package rig

// Race says that the program is built with the race detector, as the tests are.
const Race = true
