package auth

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/idn"
)

// A ReportTarget is an address to which DMARC aggregate reports are sent.
type ReportTarget struct {
	Address string // local@domain
	Most    int64  // maximum size of the attached report in bytes; 0 means no limit
}

// ReportTargets returns the addresses to which DMARC reports about a domain may be sent. uris are
// the URIs in rua= of the domain's record; only mailto: is supported. A URI in another organisation
// counts only if its host has published that it accepts the reports (RFC 9990 section 4).
// incomplete is true if DNS did not answer for some of the hosts.
func (v *Verifier) ReportTargets(ctx context.Context, domain string, uris []string) (targets []ReportTarget, incomplete bool) {
	look, cancel := v.newLookups(ctx)
	defer cancel()
	walks := newTreeWalker(look)
	for _, uri := range uris {
		target, ok := parseReportURI(uri)
		if !ok {
			continue
		}
		_, host := splitAddress(target.Address)
		same, settled := walks.aligned(host, domain, false)
		if !settled {
			incomplete = true
			continue
		}
		if same {
			targets = append(targets, target)
			continue
		}
		theirs, failed := lookUpConsent(look, domain, host)
		switch {
		case failed == TempError:
			incomplete = true
		case failed != "":
		case len(theirs) == 0:
			targets = append(targets, target)
		default:
			targets = append(targets, redirectedTargets(theirs, host)...)
		}
	}
	return targets, incomplete
}

// lookUpConsent looks up whether a host accepts reports about a domain that is not its own. uris
// are the URIs to which the host redirects such reports, if any. failed is "" if the host accepts,
// None if it does not, and TempError if DNS did not answer. Only the version and rua= of the host's
// DMARC record count.
func lookUpConsent(look *lookups, domain, host string) (uris []string, failed Result) {
	txts, err := look.LookupTXT(look.ctx, domain+"._report._dmarc."+host)
	if err != nil && !isNotFound(err) {
		return nil, TempError
	}
	for _, txt := range txts {
		if dmarc.IsRecord(txt) {
			return dmarc.ReportURIs(txt), ""
		}
	}
	return nil, None
}

// redirectedTargets returns the addresses to which a host redirects reports. Only addresses at the
// host itself count.
func redirectedTargets(uris []string, host string) (out []ReportTarget) {
	for _, uri := range uris {
		target, ok := parseReportURI(uri)
		if _, at := splitAddress(target.Address); ok && at == host {
			out = append(out, target)
		}
	}
	return out
}

// parseReportURI parses a URI such as mailto:local@domain!10m. RFC 7489 section 6.2 has the size
// limit after "!"; RFC 9989 no longer has it.
func parseReportURI(uri string) (target ReportTarget, ok bool) {
	uri, limit, limited := strings.Cut(uri, "!")
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "mailto" {
		return ReportTarget{}, false
	}
	address, err := url.PathUnescape(u.Opaque)
	local, name := splitAddress(address)
	domain, ok := idn.Host(name)
	if err != nil || !ok || !isPlainLocalPart(local) {
		return ReportTarget{}, false
	}
	t := ReportTarget{Address: local + "@" + domain}
	if limited {
		t.Most, ok = parseSize(limit)
	}
	return t, ok
}

// isPlainLocalPart reports whether s is a local part that needs no quotes (RFC 5321 section 4.1.2).
func isPlainLocalPart(s string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && !strings.ContainsRune("!#$%&'*+-/=?^_`{|}~.", rune(s[i])) {
			return false
		}
	}
	return s != "" && len(s) <= 64 && s[0] != '.' && s[len(s)-1] != '.' && !strings.Contains(s, "..")
}

// parseSize parses a number of bytes with an optional unit k, m, g or t (powers of 1024). It
// returns 0, which means no limit, for 1 TiB or more.
func parseSize(text string) (size int64, ok bool) {
	number := strings.TrimRight(text, "kKmMgGtT")
	shift, known := map[string]uint{"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[strings.ToLower(text[len(number):])]
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || !known {
		return 0, false
	}
	if n >= 1<<40>>shift {
		return 0, true
	}
	return n << shift, true
}
