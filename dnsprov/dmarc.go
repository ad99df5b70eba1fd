package dnsprov

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const maxDMARC = 1024 // bytes

// CheckDMARC tells whether a text is a policy that receivers heed (RFC 7489 section 6.3): the
// version, then tags, among them p. The error is written for the person who typed it.
func CheckDMARC(value string) error {
	switch {
	case !strings.HasPrefix(value, "v=DMARC1"):
		return errors.New("must start with v=DMARC1, as in v=DMARC1; p=reject")
	case len(value) > maxDMARC:
		return fmt.Errorf("must have at most %d characters", maxDMARC)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
		return errors.New("must consist of printable ASCII characters")
	}
	seen := map[string]bool{}
	for i, part := range strings.Split(strings.TrimSuffix(strings.TrimSpace(value), ";"), ";") {
		name, text, ok := strings.Cut(part, "=")
		name, text = strings.TrimSpace(name), strings.TrimSpace(text)
		switch {
		case !ok || name == "" || strings.ContainsAny(name, " \""):
			return fmt.Errorf("has %.40q where a tag such as p=reject must be", strings.TrimSpace(part))
		case seen[name]:
			return fmt.Errorf("has the tag %.40s twice", name)
		case i == 0 && text != "DMARC1":
			return errors.New("must have a semicolon after v=DMARC1, as in v=DMARC1; p=reject")
		}
		seen[name] = true
		if err := checkDMARCTag(name, text); err != nil {
			return err
		}
	}
	if !seen["p"] {
		return errors.New("must say p=none, p=quarantine or p=reject")
	}
	return nil
}

// dmarcWords are the tags whose values are one of a few words.
var dmarcWords = map[string][]string{
	"p": {"none", "quarantine", "reject"}, "sp": {"none", "quarantine", "reject"}, "np": {"none", "quarantine", "reject"},
	"adkim": {"r", "s"}, "aspf": {"r", "s"}, "t": {"y", "n"}, "psd": {"y", "n", "u"},
}

// checkDMARCTag checks one tag. Tags that we do not know are for those who do (RFC 7489 section
// 6.3).
func checkDMARCTag(name, text string) error {
	if words := dmarcWords[name]; words != nil && !slices.Contains(words, strings.ToLower(text)) {
		return fmt.Errorf("has %s=%.40s; it must be one of %s", name, text, strings.Join(words, ", "))
	}
	switch name {
	case "pct":
		if n, err := strconv.ParseUint(text, 10, 8); err != nil || n > 100 {
			return fmt.Errorf("has pct=%.40s; it must be a whole number from 0 to 100", text)
		}
	case "rua", "ruf":
		for uri := range strings.SplitSeq(text, ",") {
			if scheme, rest, ok := strings.Cut(strings.TrimSpace(uri), ":"); !ok || scheme == "" || rest == "" {
				return fmt.Errorf("has %s=%.80s; it must be addresses such as mailto:reports@example.com, with commas between", name, text)
			}
		}
	}
	return nil
}
