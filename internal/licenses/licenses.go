// Package licenses holds the licence notices of everything that is built into the binary: Mailstead
// itself, Go, the linked modules and the dashboard's libraries. It does not know how they are
// collected: the program in generate does that, and its test says when they are out of date.
package licenses

import _ "embed"

// Text is the notices for people. Each part of the binary has a line "=== NAME VERSION", and parts
// with the same notice stand together above it.
//
//go:embed notices.txt
var Text string
