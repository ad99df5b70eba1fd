package imapd

import "strings"

const (
	maxPatterns    = 50
	maxPatternText = 2000 // bytes of all patterns of one LIST
)

// patterns are those of one LIST, each with its reference before it.
type patterns []string

func newPatterns(ref string, list []string) (patterns, error) {
	out, size := patterns{}, 0
	for _, p := range list {
		p = ref + p
		// go-imap folds INBOX in names but not in patterns.
		if top, _, _ := strings.Cut(p, string(delimiter)); strings.EqualFold(top, "INBOX") {
			p = "INBOX" + p[len(top):]
		}
		size += len(p)
		out = append(out, p)
	}
	if size > maxPatternText || len(out) > maxPatterns {
		return nil, badCommand("The patterns are too long")
	}
	return out, nil
}

func (p patterns) has(name string) bool {
	for _, pattern := range p {
		if matches(pattern, name) {
			return true
		}
	}
	return false
}

// stopsAt reports whether a pattern matches the name and no name below it.
func (p patterns) stopsAt(name string) bool {
	return p.has(name) && !p.has(name+string(delimiter)+"x")
}

// matches reports whether a name matches a pattern, in which "*" stands for any text and "%" for
// any without a separator (RFC 3501 section 6.3.8). It takes time in proportion to the product of
// the lengths; backtracking would take far more.
func matches(pattern, name string) bool {
	// at[i] says that the pattern so far fits name[:i].
	at := make([]bool, len(name)+1)
	at[0] = true
	for _, c := range []byte(pattern) {
		if c == '*' || c == '%' {
			for i := 1; i <= len(name); i++ {
				at[i] = at[i] || at[i-1] && (c == '*' || name[i-1] != delimiter)
			}
			continue
		}
		for i := len(name); i > 0; i-- {
			at[i] = at[i-1] && name[i-1] == c
		}
		at[0] = false
	}
	return at[len(name)]
}
