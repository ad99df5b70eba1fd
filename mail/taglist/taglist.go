// Package taglist parses the tag lists of DKIM, ARC and DMARC (RFC 6376 section 3.2, RFC 9989
// section 4.7). It does not know what tags mean.
package taglist

import "strings"

// Parse returns the value of each tag by its name, without white space around it. If a tag is
// repeated, its first value counts; text that is not a tag is skipped. In both cases wellFormed is
// false.
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

// ParseStrict is like Parse, but also returns false if the list violates the grammar of RFC 6376
// section 3.2. By that grammar each tag occurs once, its name begins with a letter and consists of
// letters, digits and underscores, and only the last tag may be empty.
func ParseStrict(list string) (tags map[string]string, wellFormed bool) {
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
