package auth

import (
	"net"
	"strings"

	"blitiri.com.ar/go/spf"
)

// checkSPF evaluates SPF for the reverse-path, or for postmaster@helo with the null sender (RFC 7208 section 2.4). It
// returns the domain that was judged, and whether that is the one of HELO.
func checkSPF(look *lookups, r Request) (result Result, domain string, helo bool) {
	local, name := splitAddress(r.MailFrom)
	if name == "" {
		helo = true
		local, name = "postmaster", r.Helo
	}
	domain, ok := asciiDomain(name)
	if !ok || !strings.Contains(domain, ".") {
		// RFC 7208 section 4.3: a malformed or single-label domain has no SPF.
		return None, domain, helo
	}
	if net.ParseIP(domain) != nil || !r.IP.IsValid() {
		return None, domain, helo
	}
	if local == "" {
		local = "postmaster"
	}
	// The library cuts a sender at its first @, so a quoted one must not reach it.
	sender := strings.ReplaceAll(local, "@", "_") + "@" + domain
	heloName, ok := asciiDomain(r.Helo)
	if !ok {
		heloName = "unknown"
	}
	got, _ := spf.CheckHostWithSender(net.IP(r.IP.Unmap().AsSlice()), heloName, sender,
		spf.WithContext(look.ctx), spf.WithResolver(spfLookups{look}))
	return Result(got), domain, helo
}
