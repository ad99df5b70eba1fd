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

// operatorsOfMX maps domains of MX hosts to the domain of the same operator's servers for mail
// clients, where the two differ.
var operatorsOfMX = map[string]string{"gmail.com": "google.com", "office365.com": "outlook.com"}

// clientHosts are the first labels that operators give to their servers for mail clients. Hosts
// with other labels below an operator's domain may be customers' machines.
var clientHosts = []string{"imap", "imaps", "imap4", "mail", "outlook", "mx", "email", "secure", "imappro"}

// ProveByLogin proves the claim of an external mailbox's domain after a successful login to the
// mailbox's server, which had the address `at`. It does nothing for a public mail domain, where
// anybody can get a mailbox, or if the server may not be the domain's.
func (s *Service) ProveByLogin(ctx context.Context, mb *store.Mailbox, at netip.Addr) error {
	d, err := s.DomainByID(mb.DomainID)
	if err != nil || d.Claim == store.ClaimProven || d.Gone() || d.DNSProvider != store.DomainProviderExternal {
		return err
	}
	if store.PublicMail(d.Name) || !s.isServerOf(ctx, d.Name, mb, at) {
		return nil
	}
	_, err = s.SettleProof(d.ID, provenByLogin)
	if _, lost := core.AsError(err); lost { // the domain shows this error; the mailbox is pulled anyway
		return nil
	}
	return err
}

// isServerOf reports whether the server that an external mailbox logged in to, at the address `at`,
// belongs to the mailbox's domain. Otherwise the login proves nothing: an account may name any
// server, also its own, and point that name elsewhere a moment later. The server belongs to the
// domain if the domain's MX or SRV records (RFC 6186) name it or a host with its address; or if it
// has a usual name for mail clients right below the domain, or right below the operator's domain of
// those records. A server outside of the domain counts only if the login's username is the
// mailbox's address. In the sandbox, and at a private address, if the operator allows those, every
// server counts.
func (s *Service) isServerOf(ctx context.Context, domain string, mb *store.Mailbox, at netip.Addr) bool {
	server := mb.External.IMAP
	if s.Config.Sandbox || s.Config.AllowPrivate && at.IsValid() && !isPublic(at) {
		return true
	}
	name := strings.ToLower(strings.TrimSuffix(server.Host, "."))
	operator := operatorOf(name)
	inside := operator == operatorOf(domain)
	if server.Security == "none" || !inside && !strings.EqualFold(server.Username, mb.Email) { // without TLS an attacker on the path could answer
		return false
	}
	first, rest, _ := strings.Cut(name, ".")
	official := slices.Contains(clientHosts, first) && (rest == operator || rest == domain)
	if inside && (official || name == operator || name == domain) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, zones.LookupTimeout)
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

// mailHosts returns the hosts that a domain's MX and SRV records name, at most 20.
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

// addressesAt returns the addresses of a host, which may itself be an address.
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

// operatorOf returns the registered domain of a host. For an address it returns the address.
func operatorOf(host string) string {
	if net.ParseIP(host) != nil {
		return host
	}
	if name, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return name
	}
	return host
}
