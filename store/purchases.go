package store

import "time"

// A Purchase is the intent to buy a domain, and what came of it. It is written before the registrar
// is asked, and stays when the domain is deleted, so that nothing is bought twice.
type Purchase struct {
	ID          string // pur_…; the key of the order
	AccountID   string
	Domain      string // name
	Registrar   string
	Years       int
	MaxPrice    int64 // cents, of all years
	AutoRenew   bool
	State       string // one of the Purchase… constants
	RefusedCode string
	RefusedWhy  string
	TriedAt     time.Time
	Price       int64 // cents, paid; 0 where the registrar does not say
	CreatedAt   time.Time
	BoughtAt    time.Time
	ExpiresAt   time.Time
}

// States of a purchase.
const (
	PurchaseIntended = "intended" // the registrar has not been asked to sell
	PurchaseOrdering = "ordering" // it has been asked at TriedAt; what it did is not known
	PurchaseBought   = "bought"
	PurchaseRefused  = "refused" // nothing was bought, and nothing will be
)

// Purchases keeps them; of those that are not refused there is one for a name.
var (
	Purchases        = newTable("purchase", func(p *Purchase) string { return p.ID })
	PurchaseOfDomain = Purchases.unique("domain", func(p *Purchase) string {
		if p.State == PurchaseRefused {
			return ""
		}
		return p.Domain
	})
)

// A PretendDomain is a name that the sandbox registrar has sold.
type PretendDomain struct {
	Name         string
	Key          string // of the order
	Price        int64  // cents
	AutoRenew    bool
	Nameservers  []string
	RegisteredAt time.Time
	ExpiresAt    time.Time
}

// PretendDomains are the books of the sandbox registrar.
var PretendDomains = newTable("pretend_domain", func(d *PretendDomain) string { return d.Name })
