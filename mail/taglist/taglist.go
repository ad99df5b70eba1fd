// Package taglist reads the lists of tags that DKIM, ARC and DMARC are written in (RFC 6376 section
// 3.2, RFC 7489 section 6.4). It does not know what a tag means.
package taglist

import "strings"

// Parse gives the tags of a list by their names, without the white space around them. Of a repeated
// tag the first counts; what is no tag is passed over. wellFormed is false for a list with either.
func Parse(list string) (tags map[string]string, wellFormed bool) {
	tags, wellFormed = make(map[string]string), true
	for part := range strings.SplitSeq(list, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if _, repeated := tags[name]; !ok || repeated {
			wellFormed = false
			continue
		}
		tags[name] = strings.TrimSpace(value)
	}
	return tags, wellFormed
}
