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

// mxDomainByClientDomain maps the domain of a mail provider's IMAP and SMTP servers to the domain
// of its MX hosts, for the providers for which the two differ.
var mxDomainByClientDomain = map[string]string{"gmail.com": "google.com", "office365.com": "outlook.com"}

// clientHostLabels are the first labels of host names that mail providers use for their servers for
// mail clients. Hosts with other labels in a provider's domain may belong to customers.
var clientHostLabels = []string{"imap", "imaps", "imap4", "mail", "outlook", "mx", "email", "secure", "imappro"}

// ProveByLogin proves the claim to an external mailbox's domain after a login to the mailbox's
// server, which had the IP address `at`. It does nothing if the server may belong to somebody else,
// or if the domain is a public mail domain, where everybody can get a mailbox.
func (s *Service) ProveByLogin(ctx context.Context, mb *store.Mailbox, at netip.Addr) error {
	d, err := s.DomainByID(mb.DomainID)
	if err != nil || d.Claim == store.ClaimProven || d.Gone() || d.DNSProvider != store.DomainProviderExternal {
		return err
	}
	if store.IsPublicMail(d.Name) || !s.isServerOf(ctx, d.Name, mb, at) {
		return nil
	}
	_, err = s.SettleProof(d.ID, provenByLogin)
	if _, lost := core.AsError(err); lost { // the domain shows this error, and the mailbox is synced anyway
		return nil
	}
	return err
}

// isServerOf reports whether the IMAP server of an external mailbox belongs to the mailbox's
// domain. `at` is the IP address that the server had at the login. A login to any other server
// proves nothing, because an account can name a server of its own.
//
// The server belongs to the domain if the domain's MX or SRV records (RFC 6186) name the server or
// a host with its IP address. It also belongs to the domain if its host name is the domain itself,
// or one of clientHostLabels directly below the domain, or one of these labels directly below the
// registered domain of a host that the records name.
//
// If the server's host name is not in the domain, the login's username must be the mailbox's
// address. A login without TLS proves nothing. In the sandbox every server counts. Outside of it,
// every server at a private IP address counts if this installation allows such addresses.
func (s *Service) isServerOf(ctx context.Context, domain string, mb *store.Mailbox, at netip.Addr) bool {
	server := mb.External.IMAP
	if s.Config.Sandbox || s.Config.AllowPrivate && at.IsValid() && !isPublic(at) {
		return true
	}
	name := strings.ToLower(strings.TrimSuffix(server.Host, "."))
	operator := operatorOf(name)
	inside := operator == operatorOf(domain)
	if server.Security == "none" || !inside && !strings.EqualFold(server.Username, mb.Email) { // without TLS, an attacker in the network could answer in the server's place
		return false
	}
	first, rest, _ := strings.Cut(name, ".")
	official := slices.Contains(clientHostLabels, first) && (rest == operator || rest == domain)
	if inside && (official || name == operator || name == domain) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, zones.LookupTimeout)
	defer cancel()
	for _, host := range s.mailHosts(ctx, domain) {
		if host == name || official && (operatorOf(host) == operator || operatorOf(host) == mxDomainByClientDomain[operator]) {
			return true
		}
		if slices.Contains(s.addressesAt(ctx, host), at) {
			return true
		}
	}
	return false
}

// mailHosts returns up to 20 hosts that a domain's MX and SRV records name.
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

// addressesAt returns the IP addresses of a host. If host is an IP address, it returns that.
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

// isPublic reports whether an IP address is not private, loopback or link-local.
func isPublic(ip netip.Addr) bool {
	return !ip.IsPrivate() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast()
}

// operatorOf returns the registered domain of a host name. It returns an IP address unchanged.
func operatorOf(host string) string {
	if net.ParseIP(host) != nil {
		return host
	}
	if name, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return name
	}
	return host
}
