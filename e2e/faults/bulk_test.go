package faults

import (
	"strings"

	"github.com/mailstead/mailstead/e2e/rig"
)

// bulk is a message of about size bytes in lines of 76.
func bulk(subject string, size int) string {
	return rig.Letter(subject) + strings.Repeat(strings.Repeat("A", 76)+"\r\n", size/78)
}
