package namecomtest

import (
	"encoding/json"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// isDomainName reports whether a name has the form of a domain name that the API accepts.
func isDomainName(name string) bool {
	labels := strings.Split(name, ".")
	if len(name) > 253 || len(labels) < 2 {
		return false
	}
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

// An item is the availability and price of a name.
type item struct {
	label, ending string
	price         Price
	sold          bool // whether the API sells names with this ending
	taken         bool // whether the name is not available
	premium       bool // whether the name has a premium price
}

// item returns the availability and price of a name. The caller must hold f.mu.
func (f *Fake) item(name string) (i item) {
	i.label, i.ending, _ = strings.Cut(name, ".")
	i.price, i.sold = f.Prices[i.ending]
	_, ours := f.visibleDomain(name)
	i.taken = ours || i.label == "example" || strings.HasPrefix(i.label, "taken-")
	i.premium = strings.HasPrefix(i.label, "premium-")
	if i.premium {
		i.price.First *= 100
	}
	return i
}

// visibleDomain returns a domain of the account, and whether its sale is already visible (see
// Fake.Lag). The caller must hold f.mu.
func (f *Fake) visibleDomain(name string) (*Domain, bool) {
	d := f.domains[name]
	return d, d != nil && time.Since(d.Created) >= f.Lag
}

// total returns the price of a number of years in cents, or 0 if the name is not sold for that
// number.
func (p Price) total(years int) int64 {
	if years < p.MinYears || years > 10 {
		return 0
	}
	return p.First + p.Renewal*int64(years-p.MinYears)
}

func dollars(cents int64) float64 { return float64(cents) / 100 }

// answerCheck answers checkAvailability.
func (c *call) answerCheck() *answer {
	if a := c.f.applyFate(c.f.nextFate("check", "")); a != nil {
		return a
	}
	var in struct {
		DomainNames  []string `json:"domainNames"`
		PurchaseType string   `json:"purchaseType"`
	}
	if a := c.decode(&in); a != nil {
		return a
	}
	if len(in.DomainNames) < 1 || len(in.DomainNames) > 50 {
		return invalid("'domainNames' must have 1 to 50 items")
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	results := []map[string]any{}
	for _, name := range in.DomainNames {
		if !isDomainName(name) {
			return invalid("Invalid domain %q", name)
		}
		i := c.f.item(name)
		if slices.Contains(c.f.Down, i.ending) {
			return refuse(502, "Registry Connection Unavailable", "")
		}
		if i.sold {
			results = append(results, i.result(name))
		}
	}
	if len(results) == 0 {
		return refuse(422, "Unprocessable Entity", "No valid domains to check")
	}
	slices.Reverse(results) // the API promises no order
	return &answer{status: 200, body: map[string]any{"results": results}}
}

// result returns the item in the form of checkAvailability.
func (i item) result(name string) map[string]any {
	out := map[string]any{"domainName": name, "sld": i.label, "tld": i.ending, "purchasable": !i.taken}
	if !i.taken {
		out["premium"], out["purchaseType"] = i.premium, "registration"
		out["purchasePrice"], out["renewalPrice"] = dollars(i.price.First), dollars(i.price.Renewal)
	}
	return out
}

// answerPricing answers getPricing.
func (c *call) answerPricing() *answer {
	if a := c.f.applyFate(c.f.nextFate("pricing", c.name)); a != nil {
		return a
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	i := c.f.item(c.name)
	if !i.sold {
		return refuse(422, "Unsupported TLD", "")
	}
	years := i.price.MinYears
	if text := c.r.URL.Query().Get("years"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || i.price.total(n) == 0 {
			return invalid("Invalid value for years for this domain")
		}
		years = n
	}
	return &answer{status: 200, body: map[string]any{
		"premium": i.premium, "purchasePrice": dollars(i.price.total(years) + c.f.Raise), "renewalPrice": dollars(i.price.Renewal), "transferPrice": dollars(i.price.First),
	}}
}

// An order is the body of a request that creates a domain.
type order struct {
	Domain struct {
		DomainName       string   `json:"domainName"`
		AutorenewEnabled bool     `json:"autorenewEnabled"`
		Nameservers      []string `json:"nameservers"`
	} `json:"domain"`
	PurchasePrice *json.Number `json:"purchasePrice"`
	PurchaseType  string       `json:"purchaseType"`
	Years         *int         `json:"years"`
}

// sellDomain sells a name. If the name was sold, it calls remember with the answer while it holds
// f.mu.
func (c *call) sellDomain(remember func(*answer)) *answer {
	var in order
	if a := c.decode(&in); a != nil {
		return a
	}
	name := in.Domain.DomainName
	if a := c.f.applyFate(c.f.nextFate("create", name)); a != nil {
		return a
	}
	c.f.mu.Lock()
	a := c.f.sell(in)
	sold := a.status == 200
	if sold {
		remember(a)
	}
	c.f.mu.Unlock()
	if sold {
		if broken := c.f.applyFate(c.f.nextFate("charged", name)); broken != nil {
			return broken
		}
	}
	return a
}

// sell charges the account and adds the domain to it. The caller must hold f.mu.
func (f *Fake) sell(in order) *answer {
	name := in.Domain.DomainName
	i := f.item(name)
	years := i.price.MinYears
	if in.Years != nil {
		years = *in.Years
	}
	total := i.price.total(years) + f.Raise
	switch {
	case !isDomainName(name):
		return invalid("Invalid domain %q", name)
	case !i.sold:
		return refuse(422, "Unsupported TLD", "")
	case i.price.total(years) == 0:
		return invalid("Invalid value for years for this domain")
	case in.PurchaseType != "" && in.PurchaseType != "registration":
		return invalid("Invalid purchaseType")
	case i.premium && in.PurchasePrice == nil:
		return invalid("Purchase price is required for premium domains in order to complete this request")
	case in.PurchasePrice != nil && !samePrice(*in.PurchasePrice, total):
		return invalid("The purchase price does not match")
	case !f.Oversells && (i.taken || f.domains[name] != nil):
		return invalid("The domain is not available")
	case !validNameservers(in.Domain.Nameservers, 0):
		return invalid("Invalid nameservers")
	case f.Balance < total:
		return refuse(402, "Payment failed", "Insufficient Funds")
	}
	f.Balance -= total
	f.orders++
	f.paid[name] = append(f.paid[name], total)
	now := time.Now().UTC().Truncate(time.Second)
	d := &Domain{Name: name, Created: now, Expires: now.AddDate(years, 0, 0), AutoRenew: in.Domain.AutorenewEnabled, Nameservers: slices.Clone(in.Domain.Nameservers)}
	if len(d.Nameservers) == 0 {
		d.Nameservers = []string{"ns1.name.com", "ns2.name.com"}
	}
	f.domains[name] = d
	return &answer{status: 200, body: map[string]any{"domain": d.toAPI(), "order": f.orders, "totalPaid": dollars(total)}}
}

// samePrice reports whether a price in dollars equals a price in cents.
func samePrice(price json.Number, cents int64) bool {
	v, err := price.Float64()
	return err == nil && int64(math.Round(v*100)) == cents
}

// validNameservers reports whether a list can be the nameservers of a domain. It has minimum to 12
// names.
func validNameservers(list []string, minimum int) bool {
	for _, ns := range list {
		if !isDomainName(ns) {
			return false
		}
	}
	return len(list) >= minimum && len(list) <= 12
}

// toAPI returns the domain in the form of the API.
func (d *Domain) toAPI() map[string]any {
	return map[string]any{
		"domainName": d.Name, "createDate": d.Created.Format(time.RFC3339), "expireDate": d.Expires.Format(time.RFC3339), "autorenewEnabled": d.AutoRenew,
		"locked": true, "privacyEnabled": false, "contacts": map[string]any{}, "nameservers": d.Nameservers, "renewalPrice": 12.99,
	}
}

// withDomain calls do with the domain of the request. It returns the answer of do or, if that is
// nil, an answer with the domain. kind is the kind of the call for Fake.Meddle.
func (c *call) withDomain(kind string, do func(d *Domain) *answer) *answer {
	if a := c.f.applyFate(c.f.nextFate(kind, c.name)); a != nil {
		return a
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	d, ok := c.f.visibleDomain(c.name)
	if !ok {
		return refuse(404, "Not Found", "The requested domain does not exist.")
	}
	if a := do(d); a != nil {
		return a
	}
	return &answer{status: 200, body: d.toAPI()}
}

func (c *call) get() *answer {
	return c.withDomain("get", func(*Domain) *answer { return nil })
}

func (c *call) updateDomain() *answer {
	return c.withDomain("update", func(d *Domain) *answer {
		var in struct {
			AutorenewEnabled *bool `json:"autorenewEnabled"`
			PrivacyEnabled   *bool `json:"privacyEnabled"`
			Locked           *bool `json:"locked"`
		}
		if a := c.decode(&in); a != nil {
			return a
		}
		if in.AutorenewEnabled == nil && in.PrivacyEnabled == nil && in.Locked == nil {
			return invalid("Nothing to update")
		}
		if in.AutorenewEnabled != nil {
			d.AutoRenew = *in.AutorenewEnabled
		}
		return nil
	})
}

func (c *call) setNameservers() *answer {
	return c.withDomain("nameservers", func(d *Domain) *answer {
		var in struct {
			Nameservers []string `json:"nameservers"`
		}
		if a := c.decode(&in); a != nil {
			return a
		}
		if !validNameservers(in.Nameservers, 1) {
			return invalid("Invalid nameservers")
		}
		for _, ns := range in.Nameservers {
			if strings.HasSuffix(ns, "."+d.Name) && len(d.Glue[ns]) == 0 {
				return invalid("%s has no addresses", ns)
			}
		}
		d.Nameservers = in.Nameservers
		return nil
	})
}

// validAddresses reports whether a list has at least one item, and all items are IP addresses.
func validAddresses(list []string) bool {
	for _, text := range list {
		if _, err := netip.ParseAddr(text); err != nil {
			return false
		}
	}
	return len(list) > 0
}

func (c *call) createGlue() *answer {
	var host string
	return c.withGlue(&host, func(d *Domain) *answer {
		var in struct {
			Hostname string   `json:"hostname"`
			IPs      []string `json:"ips"`
		}
		if a := c.decode(&in); a != nil {
			return a
		}
		host = in.Hostname + "." + d.Name
		switch {
		case strings.HasSuffix(in.Hostname, d.Name) || !isDomainName(host):
			return invalid("'hostname' must be the part before the domain")
		case d.Glue[host] != nil:
			return invalid("%s exists", host)
		case !validAddresses(in.IPs):
			return invalid("Invalid ips")
		}
		if d.Glue == nil {
			d.Glue = map[string][]string{}
		}
		d.Glue[host] = in.IPs
		return nil
	})
}

func (c *call) answerGlueCall() *answer {
	return c.withGlue(&c.host, func(d *Domain) *answer {
		switch {
		case d.Glue[c.host] == nil:
			return refuse(404, "Not Found", "The nameserver does not exist.")
		case c.r.Method == "GET":
			return nil
		case c.r.Method != "PUT":
			return refuse(405, "Method Not Allowed", "")
		}
		var in struct {
			IPs []string `json:"ips"`
		}
		if a := c.decode(&in); a != nil {
			return a
		}
		if !validAddresses(in.IPs) {
			return invalid("Invalid ips")
		}
		d.Glue[c.host] = in.IPs
		return nil
	})
}

// withGlue calls do with the domain of the request. It returns the answer of do or, if that is nil,
// an answer with the nameserver *host and its glue.
func (c *call) withGlue(host *string, do func(d *Domain) *answer) *answer {
	return c.withDomain("glue", func(d *Domain) *answer {
		if a := do(d); a != nil {
			return a
		}
		return &answer{status: 200, body: map[string]any{"domainName": d.Name, "hostname": *host, "ips": d.Glue[*host]}}
	})
}
