package domains

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
	"golang.org/x/net/publicsuffix"
)

// operatorsOfMX names the mail operators whose servers for mail clients have other names than those
// for incoming mail.
var operatorsOfMX = map[string]string{"gmail.com": "google.com", "office365.com": "outlook.com"}

// clientHosts are how operators call their servers for mail clients. Other names below theirs may
// be their customers' machines.
var clientHosts = []string{"imap", "imaps", "imap4", "mail", "outlook", "mx", "email", "secure", "imappro"}

// ProveByLogin notes that a log-in to a mailbox elsewhere, at the address `at`, has succeeded,
// which proves the claim of its domain. Of a domain whose mailboxes are anybody's it says nothing.
func (s *Service) ProveByLogin(ctx context.Context, mb *store.Mailbox, at netip.Addr) error {
	d, err := s.DomainByID(mb.DomainID)
	if err != nil || d.Claim == store.ClaimProven || d.Gone() || d.DNSProvider != store.DomainProviderExternal {
		return err
	}
	if store.PublicMail(d.Name) || !s.isServerOf(ctx, d.Name, mb, at) {
		return nil
	}
	_, err = s.SettleProof(d.ID, provenByLogin)
	if _, lost := core.AsError(err); lost { // which the domain shows; the mailbox is pulled all the same
		return nil
	}
	return err
}

// isServerOf reports whether the server that a mailbox has logged in to, at the address `at`, is
// one of its domain's, so that the log-in says something about the domain: an account may name any
// server, its own too, and have that name lead elsewhere a moment later. It is one if the domain's
// MX or SRV records (RFC 6186) name it, or if the connection led to the address of one that they
// name; else if it is called as servers for mail clients are, below the registered domain or right
// below that of the operator whom those records name. Outside of the domain only the mailbox's own
// address counts. In the sandbox, and at a private address, which the operator must allow, every
// server is.
func (s *Service) isServerOf(ctx context.Context, domain string, mb *store.Mailbox, at netip.Addr) bool {
	server := mb.External.IMAP
	if s.Config.Sandbox || s.Config.AllowPrivate && at.IsValid() && !isPublic(at) {
		return true
	}
	name := strings.ToLower(strings.TrimSuffix(server.Host, "."))
	operator := operatorOf(name)
	inside := operator == operatorOf(domain)
	if server.Security == "none" || !inside && !strings.EqualFold(server.Username, mb.Email) { // without TLS whoever is on the way could answer
		return false
	}
	first, rest, _ := strings.Cut(name, ".")
	official := slices.Contains(clientHosts, first) && (rest == operator || rest == domain)
	if inside && (official || name == operator || name == domain) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, zones.LookFor)
	defer cancel()
	for _, host := range s.mailHosts(ctx, domain) {
		if host == name || official && (operatorOf(host) == operator || operatorOf(host) == operatorsOfMX[operator]) {
			return true
		}
		if slices.Contains(s.addressesAt(ctx, host), at) {
			return true
		}
	}
	return false
}

// mailHosts are the hosts that a domain's MX and SRV records name, a bounded number of them.
func (s *Service) mailHosts(ctx context.Context, domain string) []string {
	const most = 20
	var out []string
	if found, err := s.Resolver.LookupMX(ctx, domain+"."); err == nil {
		for _, mx := range found {
			out = append(out, mx.Host)
		}
	}
	for _, service := range []string{"imaps", "imap"} {
		if _, found, err := s.Resolver.LookupSRV(ctx, service, "tcp", domain+"."); err == nil {
			for _, srv := range found {
				out = append(out, srv.Target)
			}
		}
	}
	for i, host := range out {
		out[i] = strings.ToLower(strings.TrimSuffix(host, "."))
	}
	out = slices.DeleteFunc(out, func(host string) bool { return host == "" })
	return out[:min(len(out), most)]
}

// addressesAt are those of a host, which may be an address itself.
func (s *Service) addressesAt(ctx context.Context, host string) []netip.Addr {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap()}
	}
	found, err := s.Resolver.LookupNetIP(ctx, "ip", host+".")
	if err != nil {
		return nil
	}
	for i, ip := range found {
		found[i] = ip.Unmap()
	}
	return found
}

func isPublic(ip netip.Addr) bool {
	return !ip.IsPrivate() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast()
}

// operatorOf is the registered domain of a host; an address has none but itself.
func operatorOf(host string) string {
	if net.ParseIP(host) != nil {
		return host
	}
	if name, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return name
	}
	return host
}
