package dmarc

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const maxRecord = 1024 // bytes of a record

// Check returns an error unless value, a record to be published, is accepted by all receivers: the
// version, followed by tags, among them p. It is stricter than Parse, which is for records of
// others. The text of an error is for the person who typed the record.
func Check(value string) error {
	switch {
	case !strings.HasPrefix(value, "v=DMARC1"):
		return errors.New("must start with v=DMARC1, as in v=DMARC1; p=reject")
	case len(value) > maxRecord:
		return fmt.Errorf("must have at most %d characters", maxRecord)
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
		if err := checkTag(name, text); err != nil {
			return err
		}
	}
	if !seen["p"] {
		return errors.New("must say p=none, p=quarantine or p=reject")
	}
	return nil
}

var policies = []string{PolicyNone, PolicyQuarantine, PolicyReject}

// keywords has the allowed values of those tags that have a fixed set of values.
var keywords = map[string][]string{
	"p": policies, "sp": policies, "np": policies,
	"adkim": {"r", "s"}, "aspf": {"r", "s"}, "t": {"y", "n"}, "psd": {"y", "n", "u"},
}

// checkTag checks one tag. It allows unknown tags, since receivers ignore them (RFC 9989 section
// 4.6).
func checkTag(name, text string) error {
	if allowed := keywords[name]; allowed != nil && !slices.Contains(allowed, strings.ToLower(text)) {
		return fmt.Errorf("has %s=%.40s; it must be one of %s", name, text, strings.Join(allowed, ", "))
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
