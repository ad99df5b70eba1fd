package domains

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Codes of what is wrong with the names of this host's addresses.
const (
	ptrMissing  = "ptr_missing"
	ptrMismatch = "ptr_mismatch"
)

const (
	purposePTR  = "PTR"
	reverseKept = time.Hour
	reverseFor  = 5 * time.Second // all look-ups together: nobody's records wait longer for them
	reverseWait = 5 * time.Minute // after one that was not answered
)

// reverse is what the reverse DNS says of this host's addresses. It is the installation's, the same
// for every domain.
type reverse struct {
	looking sync.Mutex // whoever looks; others go on with what is known
	mu      sync.Mutex
	next    time.Time // when to look again
	issues  []DNSIssue
}

// lookAtReverse looks the names of this host's public addresses up, unless it was done lately.
func (s *Service) lookAtReverse(ctx context.Context) {
	r := &s.reverse
	if s.Config.Sandbox || !r.looking.TryLock() {
		return
	}
	defer r.looking.Unlock()
	r.mu.Lock()
	fresh := s.Now().Before(r.next)
	r.mu.Unlock()
	if fresh {
		return
	}
	issues, err := s.findReverseIssues(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil { // what was known stays
		r.next = s.Now().Add(reverseWait)
		return
	}
	r.next, r.issues = s.Now().Add(reverseKept), issues
}

func (s *Service) findReverseIssues(ctx context.Context) ([]DNSIssue, error) {
	ctx, cancel := context.WithTimeout(ctx, reverseFor)
	defer cancel()
	var out []DNSIssue
	for _, ip := range s.Config.PublicIPs {
		issue, err := s.reverseIssue(ctx, ip.Unmap())
		if err != nil {
			return nil, err
		}
		if issue != nil {
			out = append(out, *issue)
		}
	}
	return out, nil
}

// reverseIssue says what is wrong with the names of an address, nil if nothing is: one of them has
// to lead back to it, since many receivers refuse mail from where that is not so (RFC 1912 section
// 2.1).
func (s *Service) reverseIssue(ctx context.Context, ip netip.Addr) (*DNSIssue, error) {
	if ip.IsPrivate() || !ip.IsGlobalUnicast() {
		return nil, nil
	}
	names, err := s.Resolver.LookupAddr(ctx, ip.String())
	if err != nil && !isNotFound(err) {
		return nil, err
	}
	ask := fmt.Sprintf("Ask the hosting provider to set the reverse DNS (PTR) of %s to %s.", ip, s.Config.Hostname)
	if len(names) == 0 {
		return &DNSIssue{ptrMissing, purposePTR, ip.String(), fmt.Sprintf("%s has no name in the reverse DNS, so many receivers refuse mail from it. %s", ip, ask)}, nil
	}
	for _, name := range names {
		back, err := s.Resolver.LookupNetIP(ctx, "ip", strings.TrimSuffix(name, ".")+".")
		switch {
		case err != nil && !isNotFound(err):
			return nil, err
		case slices.ContainsFunc(back, func(a netip.Addr) bool { return a.Unmap() == ip }):
			return nil, nil
		}
	}
	return &DNSIssue{ptrMismatch, purposePTR, ip.String(), fmt.Sprintf(
		"The reverse DNS names %s as %s, which does not lead back to it, so many receivers refuse mail from it. %s", ip, strings.Join(names, ", "), ask)}, nil
}

func isNotFound(err error) bool {
	var e *net.DNSError
	return errors.As(err, &e) && e.IsNotFound
}

// reverseIssues are those that concern a domain: its mail goes out from this host, and not through
// a relay.
func (s *Service) reverseIssues(d *store.Domain) []DNSIssue {
	if d.DNSProvider == core.ProviderExternal || s.sendingMode(d) != core.ViaDirect {
		return nil
	}
	s.reverse.mu.Lock()
	defer s.reverse.mu.Unlock()
	return slices.Clone(s.reverse.issues)
}
