package auth

import (
	"errors"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// errSPFRecord says that a record breaks the grammar of RFC 7208 section 12.
var errSPFRecord = errors.New("malformed SPF record")

// isSPF tells a record by its version (RFC 7208 section 4.5).
func isSPF(txt string) bool {
	version, _, _ := strings.Cut(txt, " ")
	return strings.EqualFold(version, "v=spf1")
}

// isSPFRecord tells whether all terms of a record are well formed, and its modifiers there once
// (RFC 7208 section 6).
func isSPFRecord(txt string) bool {
	_, terms, _ := strings.Cut(txt, " ")
	seen := map[string]bool{}
	for term := range strings.SplitSeq(terms, " ") {
		if term == "" {
			continue
		}
		name, value, isModifier := cutModifier(term)
		switch {
		case !isModifier && !isDirective(term):
			return false
		case !isModifier:
		case name == "redirect" || name == "exp":
			if seen[name] || !isDomainSpec(value) {
				return false
			}
			seen[name] = true
		case !isMacroString(value):
			return false
		}
	}
	return true
}

var modifierName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*=`)

func cutModifier(term string) (name, value string, ok bool) {
	name = modifierName.FindString(term)
	if name == "" {
		return "", "", false
	}
	return strings.ToLower(name[:len(name)-1]), term[len(name):], true
}

// isDirective checks a mechanism (RFC 7208 section 5) behind its qualifier.
func isDirective(term string) bool {
	if strings.IndexByte("+-?~", term[0]) >= 0 {
		term = term[1:]
	}
	end := strings.IndexAny(term, ":/")
	if end < 0 {
		end = len(term)
	}
	name, rest := strings.ToLower(term[:end]), term[end:]
	argument, given := strings.CutPrefix(rest, ":")
	switch name {
	case "all":
		return rest == ""
	case "include", "exists":
		return given && isDomainSpec(argument)
	case "ptr":
		return rest == "" || given && isDomainSpec(argument)
	case "a", "mx":
		argument, ok := cutLengths(rest)
		domain, given := strings.CutPrefix(argument, ":")
		return ok && (argument == "" || given && isDomainSpec(domain))
	case "ip4":
		return given && isNetwork(argument, netip.Addr.Is4, 32)
	case "ip6":
		return given && isNetwork(argument, netip.Addr.Is6, 128)
	}
	return false
}

// cutSpec cuts a term that is well formed around the name in it that may hold macros; none if there
// is none.
func cutSpec(term string) (before, spec, after string) {
	if name, value, ok := cutModifier(term); ok {
		if name != "redirect" {
			return term, "", ""
		}
		return term[:len(term)-len(value)], value, ""
	}
	name, argument, ok := strings.Cut(term, ":")
	switch strings.ToLower(strings.TrimLeft(name, "+-?~")) {
	case "include", "exists", "ptr":
		return name + ":", argument, ""
	case "a", "mx":
		if rest, _ := cutLengths(argument); ok {
			return name + ":", rest, argument[len(rest):]
		}
	}
	return term, "", ""
}

var dualLengths = regexp.MustCompile(`(/[0-9]+)?(//[0-9]+)?$`)

// cutLengths takes the prefix lengths off a mechanism: /24, //64 or both.
func cutLengths(s string) (rest string, ok bool) {
	at := dualLengths.FindStringSubmatchIndex(s)
	four, six := "", ""
	if at[2] >= 0 {
		four = s[at[2]+1 : at[3]]
	}
	if at[4] >= 0 {
		six = s[at[4]+2 : at[5]]
	}
	return s[:at[0]], (four == "" || isLength(four, 32)) && (six == "" || isLength(six, 128))
}

// isLength checks the length of a prefix, which has no zeros before it.
func isLength(s string, most int) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n <= most && strconv.Itoa(n) == s
}

func isNetwork(s string, family func(netip.Addr) bool, most int) bool {
	address, length, given := strings.Cut(s, "/")
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Zone() == "" && family(ip) && (!given || isLength(length, most))
}

const macroExpand = `%\{[sSlLoOdDiIpPhHcCrRtTvV][0-9]*[rR]?[-.+,/_=]*\}|%%|%_|%-`

var (
	macroString = regexp.MustCompile(`^(?:` + macroExpand + `|[!-$&-~])*$`)
	domainEnd   = regexp.MustCompile(`(?:` + macroExpand + `|\.([A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)\.?)$`)
	forExp      = regexp.MustCompile(`%\{[cCrRtT]`)
	zeroLabels  = regexp.MustCompile(`%\{[a-zA-Z]0+[^0-9]`)
)

func isMacroString(s string) bool { return macroString.MatchString(s) && !zeroLabels.MatchString(s) }

// isDomainSpec checks a name with macros (RFC 7208 section 7.1), which ends in a macro or in a
// label that may be at the top: one with anything but digits.
func isDomainSpec(s string) bool {
	if !isMacroString(s) || forExp.MatchString(s) {
		return false
	}
	end := domainEnd.FindStringSubmatch(s)
	return end != nil && (end[1] == "" || strings.Trim(end[1], "0123456789") != "")
}
