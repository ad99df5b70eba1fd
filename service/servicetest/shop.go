package servicetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov/registrar"
)

// A Shop is a registrar with the sandbox's prices. It charges every order, even for a name that is
// already sold or with an order key that it has seen, so that a test notices when a domain is
// bought twice. It misbehaves as its fields say.
type Shop struct {
	mu      sync.Mutex
	prices  *registrar.Sandbox
	sold    map[string]registrar.Registration
	Charged map[string]int          // how often a name was paid for
	Raise   int64                   // cents that are added to all prices
	Lag     time.Duration           // time after which a sale is visible
	Keyless bool                    // the shop drops the keys of orders
	Meddle  func(call string) error // called before each call and, as "charged", after a charge; the shop returns its error
}

// NewShop returns a shop with the sandbox registrar's name.
func NewShop() *Shop {
	return &Shop{prices: registrar.NewSandbox(time.Now, nil, nil), sold: map[string]registrar.Registration{}, Charged: map[string]int{}}
}

// Set changes fields of the shop under its lock.
func (s *Shop) Set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Charges returns how often a name was paid for.
func (s *Shop) Charges(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Charged[name]
}

// Registrar returns the shop for one installation. meddle is called only for calls of this
// installation.
func (s *Shop) Registrar(meddle func(call string) error) registrar.Registrar {
	return &counter{s, meddle}
}

// A counter is one installation's access to the shop.
type counter struct {
	*Shop
	meddle func(call string) error
}

func (c *counter) begin(call string) error {
	if c.meddle != nil {
		if err := c.meddle(call); err != nil {
			return err
		}
	}
	c.mu.Lock()
	meddle := c.Meddle
	c.mu.Unlock()
	if meddle != nil {
		return meddle(call)
	}
	return nil
}

// Name implements registrar.Registrar.
func (c *counter) Name() string { return c.prices.Name() }

// shown returns the sale of a name if it is visible already.
func (s *Shop) shown(name string) (registrar.Registration, bool) {
	r, ok := s.sold[name]
	return r, ok && time.Since(r.RegisteredAt) >= s.Lag
}

// Quote implements registrar.Registrar.
func (c *counter) Quote(ctx context.Context, names []string) ([]registrar.Offer, error) {
	if err := c.begin("quote"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	offers, err := c.prices.Quote(ctx, names)
	for i := range offers {
		_, sold := c.shown(names[i])
		offers[i].Available = offers[i].Available && !sold
		offers[i].Price += c.Raise
	}
	return offers, err
}

// Register implements registrar.Registrar.
func (c *counter) Register(ctx context.Context, o registrar.Order) (*registrar.Registration, error) {
	if err := c.begin("register"); err != nil {
		return nil, err
	}
	offers, err := c.prices.Quote(ctx, []string{o.Domain})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	total := offers[0].Total(o.Years) + c.Raise
	r := registrar.Registration{
		Domain: o.Domain, Key: o.Key, Price: total, AutoRenew: o.AutoRenew, Nameservers: slices.Clone(o.Nameservers),
		RegisteredAt: time.Now(), ExpiresAt: time.Now().AddDate(o.Years, 0, 0),
	}
	if c.Keyless {
		r.Key = ""
	}
	if total > o.MaxPrice {
		c.mu.Unlock()
		return nil, registrar.ErrPrice
	}
	c.Charged[o.Domain]++
	c.sold[o.Domain] = r
	c.mu.Unlock()
	if err := c.begin("charged"); err != nil {
		return nil, err
	}
	return &r, nil
}

// Find implements registrar.Registrar.
func (c *counter) Find(_ context.Context, domain string) (*registrar.Registration, error) {
	if err := c.begin("find"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.shown(domain)
	if !ok {
		return nil, registrar.ErrNotFound
	}
	return &r, nil
}

// Delegate implements registrar.Registrar.
func (c *counter) Delegate(_ context.Context, domain string, nameservers []string) error {
	if err := c.begin("delegate"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.sold[domain]
	if !ok {
		return registrar.ErrNotFound
	}
	r.Nameservers = slices.Clone(nameservers)
	c.sold[domain] = r
	return nil
}

// Sell registers a name for another customer.
func (s *Shop) Sell(name string, at time.Time, nameservers ...string) {
	s.Set(func() {
		s.sold[name] = registrar.Registration{Domain: name, Key: "somebody else's", Nameservers: nameservers, RegisteredAt: at, ExpiresAt: at.AddDate(1, 0, 0)}
	})
}

// NameserversOf returns the nameservers of a sold name.
func (s *Shop) NameserversOf(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sold[name].Nameservers
}

// SandboxRegistrar returns an empty sandbox registrar.
func SandboxRegistrar() registrar.Registrar { return registrar.NewSandbox(time.Now, nil, nil) }

// Errors of a registrar.
var (
	ErrNoFunds = registrar.ErrNoFunds
	ErrTaken   = registrar.ErrTaken
)

// Registrar is the type of registrars in the configuration.
type Registrar = registrar.Registrar
