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

// SandboxName is the name of the sandbox registrar, so that whatever comes of it can be told from
// the real thing.
const SandboxName = "sandbox"

// sandboxPrices are those of the first year and of the others, in cents.
var sandboxPrices = map[string][2]int64{
	"com": {1100, 1100}, "net": {1300, 1300}, "org": {1000, 1200}, "io": {3500, 4500}, "dev": {1200, 1200},
}

// A Sandbox sells pretend names to try things out with. Nothing is paid and nothing is registered
// anywhere. Names that begin with "taken-" are somebody else's, those with "premium-" have a
// premium price; example.com, .net and .org are taken, as they are in the world. Make it with
// NewSandbox.
type Sandbox struct {
	now  func() time.Time
	keep func(Registration) error

	mu   sync.Mutex
	sold map[string]Registration
}

// NewSandbox makes a sandbox that has sold these names already. keep makes what it sells last; nil:
// it is forgotten with the process.
func NewSandbox(now func() time.Time, sold []Registration, keep func(Registration) error) *Sandbox {
	s := &Sandbox{now: now, keep: keep, sold: map[string]Registration{}}
	for _, r := range sold {
		s.sold[r.Domain] = r
	}
	return s
}

// Name is SandboxName.
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

// Register sells a name. An order that it knows already is answered with what came of it.
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

// put keeps a registration, or none of it.
func (s *Sandbox) put(r Registration) error {
	if s.keep != nil {
		if err := s.keep(r); err != nil {
			return fmt.Errorf("keep the pretend registration of %s: %w", r.Domain, err)
		}
	}
	s.sold[r.Domain] = r
	return nil
}

// Find gives a name that was sold.
func (s *Sandbox) Find(_ context.Context, domain string) (*Registration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.sold[domain]
	if !ok {
		return nil, ErrNotFound
	}
	return &r, nil
}

// Delegate notes the nameservers of a name that was sold.
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

// SetAutoRenew notes whether a name that was sold is to be renewed.
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
