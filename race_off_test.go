//go:build !race

package main

var buildArgs []string

const raceFactor = 1
