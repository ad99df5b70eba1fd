// Package taglist reads the lists of tags that DKIM, ARC and DMARC are written in (RFC 6376 section
// 3.2, RFC 9989 section 4.7). It does not know what a tag means.
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

// ParseStrict is Parse for a list that keeps to the grammar of RFC 6376 section 3.2: each tag once,
// by a name of letters, digits and underscores that begins with a letter, and no empty tag but at
// the end. It is false for any other list.
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
