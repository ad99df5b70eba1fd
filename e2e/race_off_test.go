//go:build !race

package e2e

var buildArgs []string
