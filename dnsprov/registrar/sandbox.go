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

// SandboxName is the name of the sandbox registrar. Domains that were bought there are not real.
const SandboxName = "sandbox"

// sandboxPrices has the prices, in US cents, of the first year and of each further year by suffix.
var sandboxPrices = map[string][2]int64{
	"com": {1100, 1100}, "net": {1300, 1300}, "org": {1000, 1200}, "io": {3500, 4500}, "dev": {1200, 1200},
}

// A Sandbox is a Registrar for testing. Nothing is paid, and nothing is registered anywhere. Names
// that begin with "taken-" are not available, and names that begin with "premium-" have a premium
// price. example.com, .net and .org are not available. Use NewSandbox to make one.
type Sandbox struct {
	now  func() time.Time
	save func(Registration) error

	mu   sync.Mutex
	sold map[string]Registration
}

// NewSandbox returns a Sandbox that has already sold some names. It calls save to store each new or
// changed registration; with a nil save, they are only in memory.
func NewSandbox(now func() time.Time, sold []Registration, save func(Registration) error) *Sandbox {
	s := &Sandbox{now: now, save: save, sold: map[string]Registration{}}
	for _, r := range sold {
		s.sold[r.Domain] = r
	}
	return s
}

// Name returns SandboxName.
func (s *Sandbox) Name() string { return SandboxName }

// Quote returns offers from a fixed price list.
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

// Register sells a name. A repeated order with the same Key gets the same registration.
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
		return nil, fmt.Errorf("%w: it cannot be registered for %d years", ErrBadDomain, o.Years)
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

// put stores a registration. If it returns an error, nothing has changed.
func (s *Sandbox) put(r Registration) error {
	if s.save != nil {
		if err := s.save(r); err != nil {
			return fmt.Errorf("store the sandbox registration of %s: %w", r.Domain, err)
		}
	}
	s.sold[r.Domain] = r
	return nil
}

// Find returns a name that was sold, or ErrNotFound.
func (s *Sandbox) Find(_ context.Context, domain string) (*Registration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.sold[domain]
	if !ok {
		return nil, ErrNotFound
	}
	return &r, nil
}

// Delegate sets the nameservers of a name that was sold.
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

// SetAutoRenew switches the automatic renewal of a name that was sold on or off.
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
