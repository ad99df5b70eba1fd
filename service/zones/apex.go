package zones

import (
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/store"
)

// MaxApexAddresses is how many addresses the owner's website may have at the domain itself.
const MaxApexAddresses = 8

// An Apex says where visitors of the domain itself go.
type Apex struct {
	// here: to this host, which redirects them. elsewhere: to your website. undecided: the
	// domain's present nameservers have not answered yet, so it is not known whether there is a
	// website.
	Mode string `json:"mode" enum:"here|elsewhere|undecided"`
	// The addresses of your website. They are your A and AAAA records of the name `@`; for a
	// `manual` domain, what was found.
	Addresses []string `json:"addresses" words:"ours" example:"[\"192.0.2.7\"]"`
	Alias     *string  `json:"alias" words:"ours" example:"site.example.net"` // A host whose addresses the domain itself has; null if there is none.
}

// ApexOf returns where visitors of a domain itself go; nil for an external domain.
func ApexOf(d *store.Domain) *Apex {
	if d.DNSProvider == store.DomainProviderExternal {
		return nil
	}
	out := &Apex{Mode: d.ApexMode(), Addresses: []string{}}
	if d.Apex != nil {
		out.Addresses, out.Alias = append(out.Addresses, d.Apex.Addresses...), core.OrNull(d.Apex.Alias)
	}
	return out
}

// ErrApexElsewhere is the error for a redirect of a domain whose website is elsewhere.
func ErrApexElsewhere(d *store.Domain) *core.Error {
	change := `PATCH /v1/domains/` + d.ID + ` with {"apex": {"mode": "here"}}`
	text := fmt.Sprintf("%s leads to a website elsewhere", d.Name)
	switch {
	case d.ApexMode() == store.ApexUndecided:
		text = fmt.Sprintf("It is not known whether %s has a website, since its present nameservers do not answer", d.Name)
	case d.Apex != nil && d.Apex.Alias != "":
		text += " (" + d.Apex.Alias + ")"
	case d.Apex != nil && len(d.Apex.Addresses) > 0:
		text += " (" + strings.Join(d.Apex.Addresses, ", ") + ")"
	case d.AtEdge():
		text = fmt.Sprintf("%s itself leads where its address records at %s say", d.Name, edge.Name(d.DNSProvider))
	}
	return core.Errorf("apex_elsewhere", "%s. A redirect would take its place: to permit that, call %s first.", text, change)
}

// ErrRedirected is the error for a website elsewhere at a domain that is redirected.
func ErrRedirected(d *store.Domain) *core.Error {
	return core.Errorf("apex_elsewhere", "%s is redirected to %s, which needs its addresses to lead to this host. Call DELETE /v1/domains/%s/redirect first.", d.Name, d.RedirectURL, d.ID)
}

// apexSetting returns what is chosen for a domain itself.
func apexSetting(d *store.Domain) store.ApexSetting {
	out := store.ApexSetting{Mode: d.ApexMode()}
	if d.Apex != nil {
		out.Alias = d.Apex.Alias
	}
	return out
}
