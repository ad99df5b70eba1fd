package registrar

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/publicsuffix"
)

// SandboxName is the name of the sandbox registrar. It distinguishes pretend domains from real
// ones.
const SandboxName = "sandbox"

// sandboxPrices holds the prices of the first year and of later years, in cents.
var sandboxPrices = map[string][2]int64{
	"com": {1100, 1100}, "net": {1300, 1300}, "org": {1000, 1200}, "io": {3500, 4500}, "dev": {1200, 1200},
}

// A Sandbox sells pretend names for testing. Nothing is paid, and nothing is registered anywhere.
// Names that begin with "taken-" are taken, those with "premium-" have a premium price;
// example.com, .net and .org are taken, as in reality. Make it with NewSandbox.
type Sandbox struct {
	now  func() time.Time
	keep func(Registration) error

	mu   sync.Mutex
	sold map[string]Registration
}

// NewSandbox returns a sandbox that has already sold some names. keep stores each further
// registration; nil: they are lost with the process.
func NewSandbox(now func() time.Time, sold []Registration, keep func(Registration) error) *Sandbox {
	s := &Sandbox{now: now, keep: keep, sold: map[string]Registration{}}
	for _, r := range sold {
		s.sold[r.Domain] = r
	}
	return s
}

// Name returns SandboxName.
func (s *Sandbox) Name() string { return SandboxName }

// Quote answers from the price list.
func (s *Sandbox) Quote(_ context.Context, names []string) ([]Offer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Offer, 0, len(names))
	for _, name := range names {
		out = append(out, s.offer(name))
	}
	return out, nil
}

func (s *Sandbox) offer(name string) Offer {
	o := Offer{Domain: name}
	label, ending, _ := strings.Cut(name, ".")
	prices, ok := sandboxPrices[ending]
	if !ok {
		o.Err = ErrNotSold
		return o
	}
	_, sold := s.sold[name]
	o.Price, o.Renewal = prices[0], prices[1]
	if suffix, _ := publicsuffix.PublicSuffix(name); suffix == name {
		sold = true
	}
	if strings.HasPrefix(label, "premium-") {
		o.Premium, o.Price = true, 100*o.Price
	}
	o.Available = !sold && label != "example" && !strings.HasPrefix(label, "taken-")
	return o
}

// Register sells a name. A repeated order gets the result of the first.
func (s *Sandbox) Register(_ context.Context, o Order) (*Registration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.sold[o.Domain]; ok && r.Key == o.Key && o.Key != "" {
		return &r, nil
	}
	offer := s.offer(o.Domain)
	switch {
	case offer.Err != nil:
		return nil, offer.Err
	case !offer.Available:
		return nil, ErrTaken
	case offer.Premium:
		return nil, ErrPremium
	case o.Years < 1 || o.Years > 10:
		return nil, fmt.Errorf("%w: for %d years", ErrBadDomain, o.Years)
	case offer.Total(o.Years) > o.MaxPrice:
		return nil, ErrPrice
	}
	now := s.now().UTC()
	r := Registration{
		Domain: o.Domain, Key: o.Key, Price: offer.Total(o.Years), AutoRenew: o.AutoRenew, Nameservers: slices.Clone(o.Nameservers),
		RegisteredAt: now, ExpiresAt: now.AddDate(o.Years, 0, 0),
	}
	return &r, s.put(r)
}

// put stores a registration. After an error the registration is unchanged.
func (s *Sandbox) put(r Registration) error {
	if s.keep != nil {
		if err := s.keep(r); err != nil {
			return fmt.Errorf("keep the pretend registration of %s: %w", r.Domain, err)
		}
	}
	s.sold[r.Domain] = r
	return nil
}

// Find returns a name that was sold.
func (s *Sandbox) Find(_ context.Context, domain string) (*Registration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.sold[domain]
	if !ok {
		return nil, ErrNotFound
	}
	return &r, nil
}

// Delegate sets the name servers of a name that was sold.
func (s *Sandbox) Delegate(_ context.Context, domain string, nameservers []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.sold[domain]
	if !ok {
		return ErrNotFound
	}
	r.Nameservers = slices.Clone(nameservers)
	return s.put(r)
}

// SetAutoRenew sets whether a name that was sold is renewed.
func (s *Sandbox) SetAutoRenew(_ context.Context, domain string, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.sold[domain]
	if !ok {
		return ErrNotFound
	}
	r.AutoRenew = on
	return s.put(r)
}
