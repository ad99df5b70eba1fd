package service

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/mailstead/mailstead/store"
)

// operatorsOfMX names the mail operators whose servers for mail clients have other names than those
// for incoming mail.
var operatorsOfMX = map[string]string{"gmail.com": "google.com", "office365.com": "outlook.com"}

// proveByLogin notes that a log-in to a mailbox elsewhere has succeeded, which proves the claim of
// its domain.
func (s *Service) proveByLogin(ctx context.Context, mb *store.Mailbox) error {
	d, err := s.domainByID(mb.DomainID)
	if err != nil || d.Claim == store.ClaimProven || d.Status == domainDeleting || d.DNSProvider != providerExternal {
		return err
	}
	if !s.isServerOf(ctx, d.Name, mb) {
		return nil
	}
	_, err = s.settleProof(d.ID, provenByLogin)
	if _, lost := AsError(err); lost { // which the domain shows; the mailbox is pulled all the same
		return nil
	}
	return err
}

// isServerOf tells whether the server that a mailbox logs in to is one of its domain's, so that the
// log-in says something about the domain: an account may name any server, its own too. It is one if
// its name is at or below the registered domain, or if the domain's MX or SRV records (RFC 6186)
// lead to the same operator or address and the log-in is by the mailbox's own address. In the
// sandbox, and at a private address, which the operator must allow, every server is.
func (s *Service) isServerOf(ctx context.Context, domain string, mb *store.Mailbox) bool {
	at := mb.External.IMAP
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	addresses := s.addressesAt(ctx, at.Host)
	if s.Config.Sandbox || s.Config.AllowPrivate && len(addresses) > 0 && !slices.ContainsFunc(addresses, isPublic) {
		return true
	}
	if operatorOf(at.Host) == operatorOf(domain) {
		return at.Security != "none" // else whoever is on the way could answer
	}
	if !strings.EqualFold(at.Username, mb.Email) || at.Security == "none" {
		return false
	}
	for _, host := range s.mailHosts(ctx, domain) {
		if operatorOf(host) == operatorOf(at.Host) || operatorOf(host) == operatorsOfMX[operatorOf(at.Host)] {
			return true
		}
		if slices.ContainsFunc(s.addressesAt(ctx, host), func(ip netip.Addr) bool { return slices.Contains(addresses, ip) }) {
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
