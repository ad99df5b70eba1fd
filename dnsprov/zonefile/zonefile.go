// Package zonefile reads and writes master files (RFC 1035 section 5), in which zones move from one
// DNS service to another. It does not know which records a domain may have.
package zonefile

import (
	"fmt"

	"github.com/mailstead/mailstead/dnsprov"
)

// Limits of a file.
const (
	MaxBytes   = 2 << 20 // bytes of a file
	MaxRecords = 20_000  // records in a file
)

// A Set is all records of one name and type in a file.
type Set struct {
	Name    string           // in the form of Record.Name
	Type    string           // such as MX; TYPE65280 for a type without a name; also ALIAS and ANAME
	TTL     uint32           // the shortest TTL of the records, in seconds
	Records []dnsprov.Record // with the TTL of the set; one of each value
	Line    int              // the line on which the first record begins; the first line of a file is 1
}

// An Error says why a file cannot be read.
type Error struct {
	Line   int    // the first line of a file is 1
	Reason string // shown to the person whose file it is
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

func errorAt(line int, format string, args ...any) error {
	return &Error{Line: line, Reason: fmt.Sprintf(format, args...)}
}
