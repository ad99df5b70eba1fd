//go:build !race

package main

var buildArgs []string
