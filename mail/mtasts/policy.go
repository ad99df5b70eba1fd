// Package mtasts fetches and evaluates MTA-STS policies (RFC 8461). A policy has the MX hosts of a
// domain, and says whether mail may be sent to others. The package does not know how policies are
// cached or how mail is sent.
package mtasts

import (
	"errors"
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Modes of a policy (RFC 8461 section 5).
const (
	Enforce = "enforce" // send mail only to hosts that the policy names and that have a valid certificate
	Testing = "testing" // send mail to any host, but report failures
	None    = "none"    // as if there were no policy
)

const (
	// MaxAge is the maximum lifetime of a policy (RFC 8461 section 3.2).
	MaxAge    = 31557600 * time.Second
	maxPolicy = 64 << 10
	maxHosts  = 256
	maxID     = 32
)

// ErrInvalid is wrapped if what a domain serves is not a valid policy.
var ErrInvalid = errors.New("not a valid MTA-STS policy")

// A Policy is the MTA-STS policy of a domain.
type Policy struct {
	Mode   string
	MX     []string // host names in lower case; "*." at the start stands for exactly one label
	MaxAge time.Duration
}

// ParseRecord returns the id of the policy. texts are the TXT records of _mta-sts.DOMAIN (RFC 8461
// section 3.1). ok is false if these have no policy record or more than one.
func ParseRecord(texts []string) (id string, ok bool) {
	found := 0
	for _, text := range texts {
		fields := strings.Split(text, ";")
		if strings.TrimRight(fields[0], " \t") != "v=STSv1" {
			continue
		}
		found++
		for _, f := range fields[1:] {
			if key, value, _ := strings.Cut(strings.TrimSpace(f), "="); strings.TrimSpace(key) == "id" && id == "" {
				id = strings.TrimSpace(value)
			}
		}
	}
	if found != 1 || !isID(id) {
		return "", false
	}
	return id, true
}

func isID(s string) bool {
	return s != "" && len(s) <= maxID && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}) < 0
}

// ParsePolicy parses a policy file (RFC 8461 section 3.2). Errors wrap ErrInvalid.
func ParsePolicy(text []byte) (*Policy, error) {
	if len(text) > maxPolicy {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrInvalid, maxPolicy)
	}
	p, version, age := &Policy{}, "", ""
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(strings.TrimRight(line, " \t\r\n"), ":")
		value = strings.Trim(value, " \t")
		switch {
		case !ok:
		case key == "version" && version == "":
			version = value
		case key == "mode" && p.Mode == "":
			p.Mode = value
		case key == "max_age" && age == "":
			age = value
		case key == "mx":
			host := strings.ToLower(value)
			if !isMXPattern(host) {
				return nil, fmt.Errorf("%w: its mx %.100q is not a host name", ErrInvalid, value)
			}
			if len(p.MX) == maxHosts {
				return nil, fmt.Errorf("%w: more than %d mx lines", ErrInvalid, maxHosts)
			}
			p.MX = append(p.MX, host)
		}
	}
	return p, p.checkAndSetAge(version, age)
}

func (p *Policy) checkAndSetAge(version, age string) error {
	seconds, err := strconv.ParseUint(age, 10, 32)
	switch {
	case version != "STSv1":
		return fmt.Errorf("%w: its version is %.20q, not STSv1", ErrInvalid, version)
	case !slices.Contains([]string{Enforce, Testing, None}, p.Mode):
		return fmt.Errorf("%w: its mode is %.20q, not enforce, testing or none", ErrInvalid, p.Mode)
	case err != nil:
		return fmt.Errorf("%w: its max_age is %.20q, not a number of seconds", ErrInvalid, age)
	case len(p.MX) == 0 && p.Mode != None:
		return fmt.Errorf("%w: it has no mx line", ErrInvalid)
	}
	p.MaxAge = min(time.Duration(seconds)*time.Second, MaxAge)
	return nil
}

func isMXPattern(host string) bool {
	host = strings.TrimPrefix(host, "*.")
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return strings.IndexFunc(host, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	}) < 0
}

// Matches reports whether the policy allows an MX host (RFC 8461 section 4.1). host must be in
// ASCII without a final dot.
func (p *Policy) Matches(host string) bool {
	host = strings.ToLower(host)
	_, parent, _ := strings.Cut(host, ".")
	return slices.ContainsFunc(p.MX, func(pattern string) bool {
		if wild, ok := strings.CutPrefix(pattern, "*."); ok {
			return parent == wild
		}
		return pattern == host
	})
}

// Lines returns the lines of a policy file for the policy, without line ends.
func (p *Policy) Lines() []string {
	out := []string{"version: STSv1", "mode: " + p.Mode}
	for _, host := range p.MX {
		out = append(out, "mx: "+host)
	}
	return append(out, fmt.Sprintf("max_age: %d", int64(p.MaxAge/time.Second)))
}

// isPlainText reports whether a media type is text/plain, which a policy file must have.
func isPlainText(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == "text/plain"
}
