// Package taglist parses the tag lists of DKIM, ARC and DMARC (RFC 6376 section 3.2, RFC 9989
// section 4.7). It does not know the meaning of tags.
package taglist

import "strings"

// Parse returns the values of the tags by name, without surrounding white space. Of a repeated tag
// the first counts, and text that is not a tag is skipped; in either case wellFormed is false.
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

// ParseStrict is like Parse, but returns false for a list that violates the grammar of RFC 6376
// section 3.2: each tag must occur once, its name must consist of letters, digits and underscores
// and begin with a letter, and only the last tag may be empty.
func ParseStrict(list string) (map[string]string, bool) {
	tags, ok := Parse(list)
	for part := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(list), ";"), ";") {
		ok = ok && strings.TrimSpace(part) != ""
	}
	for name := range tags {
		ok = ok && isName(name)
	}
	if !ok {
		return nil, false
	}
	return tags, true
}

func isName(s string) bool {
	for i := range len(s) {
		letter := s[i]|0x20 >= 'a' && s[i]|0x20 <= 'z'
		if !letter && (i == 0 || s[i] != '_' && (s[i] < '0' || s[i] > '9')) {
			return false
		}
	}
	return s != ""
}
