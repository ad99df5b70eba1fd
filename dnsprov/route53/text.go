package route53

import (
	"fmt"
	"strconv"
	"strings"
)

// The API writes bytes as a backslash and three octal digits, and zone files as a backslash and
// three decimal ones (RFC 1035 section 5.1).

// decimal converts a value of the API to the notation of zone files.
func decimal(text string) string { return convert(text, 8, "%03d") }

// octal converts a value in the notation of zone files to that of the API.
func octal(text string) string { return convert(text, 10, "%03o") }

func convert(text string, base int, format string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		b.WriteByte(text[i])
		if text[i] != '\\' || i+1 == len(text) {
			continue
		}
		if i+3 < len(text) {
			if code, err := strconv.ParseUint(text[i+1:i+4], base, 8); err == nil {
				fmt.Fprintf(&b, format, code)
				i += 3
				continue
			}
		}
		i++
		b.WriteByte(text[i])
	}
	return b.String()
}

// decodeName converts a name of the API to the form of dnsprov.Record.Name. Bytes that are in no
// name of ours stay as the API writes them.
func decodeName(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSuffix(name, ".")), `\052`, "*")
}
