package cloudflaretest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A Purchase is a domain that was registered successfully.
type Purchase struct {
	Domain    string
	Years     int
	AutoRenew bool
}

// A domain is a registration with the state of its workflows.
type domain struct {
	Name      string     `json:"domain_name"`
	Status    string     `json:"status"`
	AutoRenew bool       `json:"auto_renew"`
	Locked    bool       `json:"locked"`
	Privacy   string     `json:"privacy_mode"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"`

	years    int
	state    string // state of the workflow that registers the domain
	polls    int    // number of polls until that workflow ends
	renews   bool   // the new value of AutoRenew in the last change
	changing int    // number of polls until the last change takes effect
}

// Purchases returns the domains that were registered, sorted by name.
func (s *Server) Purchases() []Purchase {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Purchase
	for _, d := range s.domains {
		if d.state == "succeeded" {
			out = append(out, Purchase{d.Name, d.years, d.AutoRenew})
		}
	}
	slices.SortFunc(out, func(a, b Purchase) int { return strings.Compare(a.Domain, b.Domain) })
	return out
}

// answerRegistrarCall answers requests about registrations. Names that begin with "taken-" are not
// available, and names that begin with "premium-" have a premium price.
func (c *call) answerRegistrarCall() reply {
	reads := c.r.Method == http.MethodGet || len(c.parts) == 4 && c.parts[3] == "domain-check"
	if c.parts[1] != AccountID || reads && !c.hasPermission(ReadDomains) || !reads && !c.hasPermission(BuyDomains) {
		return forbidden()
	}
	switch what := strings.Join(c.parts[3:], "/"); {
	case what == "domain-check" && c.r.Method == http.MethodPost:
		return c.checkDomains()
	case what == "registrations" && c.r.Method == http.MethodPost:
		return c.registerDomain()
	case c.parts[3] == "registrations" && (len(c.parts) == 5 || len(c.parts) == 6 && c.parts[5] == "update-status"):
		d := c.domains[c.parts[4]]
		switch {
		case d == nil || d.Status == "":
			return refuse(http.StatusNotFound, 10404, "Registration not found")
		case len(c.parts) == 6 && c.r.Method == http.MethodGet:
			return c.answerChange(d)
		case c.r.Method == http.MethodGet:
			return ok(d)
		case len(c.parts) == 5 && c.r.Method == http.MethodPatch:
			return c.changeDomain(d)
		}
	case c.parts[3] == "registrations" && len(c.parts) == 6 && c.parts[5] == "registration-status" && c.r.Method == http.MethodGet:
		if d := c.domains[c.parts[4]]; d != nil {
			return c.answerWorkflow(http.StatusOK, d)
		}
		return refuse(http.StatusNotFound, 10404, "Workflow not found")
	}
	return refuse(http.StatusNotFound, 7000, "No route for that URI")
}

// checkDomains answers a check of up to 20 names. It leaves out invalid names.
func (c *call) checkDomains() reply {
	var in struct {
		Domains []string `json:"domains"`
	}
	if err := c.decodeBody(&in); err != nil || len(in.Domains) == 0 || len(in.Domains) > 20 {
		return refuse(http.StatusBadRequest, 10400, "domains must have 1 to 20 names")
	}
	out := []map[string]any{}
	for _, name := range in.Domains {
		if item := c.offer(name); item != nil {
			out = append(out, item)
		}
	}
	return ok(map[string]any{"domains": out})
}

// offer returns the answer to a check of one name, or nil if the name is invalid.
func (c *call) offer(name string) map[string]any {
	label, ending, isName := strings.Cut(name, ".")
	if !isName || label == "" || strings.ContainsAny(name, " _") {
		return nil
	}
	prices, sold := c.Prices[ending]
	item := map[string]any{"name": name, "registrable": false}
	switch {
	case ending == "link":
		item["reason"] = "extension_not_supported_via_api"
	case !sold:
		item["reason"] = "extension_not_supported"
	case strings.HasPrefix(label, "premium-"):
		item["reason"], item["tier"] = "domain_premium", "premium"
	case strings.HasPrefix(label, "taken-"), c.isTaken(name):
		item["reason"] = "domain_unavailable"
	default:
		item["registrable"], item["tier"] = true, "standard"
		item["pricing"] = map[string]string{"currency": "USD", "registration_cost": prices[0], "renewal_cost": prices[1]}
	}
	return item
}

// isTaken reports whether a name is registered or being registered.
func (c *call) isTaken(name string) bool {
	d := c.domains[name]
	return d != nil && d.state != "failed"
}

// registerDomain starts the workflow that registers a domain.
func (c *call) registerDomain() reply {
	var in struct {
		Domain    string `json:"domain_name"`
		Years     int    `json:"years"`
		AutoRenew bool   `json:"auto_renew"`
		Privacy   string `json:"privacy_mode"`
	}
	if err := c.decodeBody(&in); err != nil {
		return refuse(http.StatusBadRequest, 10400, "Request body is invalid")
	}
	item := c.offer(in.Domain)
	switch {
	case item == nil, in.Years < 1 || in.Years > 10:
		return refuse(http.StatusBadRequest, 10400, "Validation failed")
	case c.NoBilling:
		return refuse(http.StatusPaymentRequired, 10402, "The account has no valid default payment method")
	case item["registrable"] != true:
		return refuse(http.StatusConflict, 10409, "The domain cannot be registered: %v", item["reason"])
	}
	d := &domain{Name: in.Domain, AutoRenew: in.AutoRenew, Locked: true, Privacy: "redaction", years: in.Years, state: "in_progress", polls: c.Polls}
	c.domains[in.Domain] = d
	if c.Stuck {
		d.state = "action_required"
	}
	if d.polls == 0 {
		return c.answerWorkflow(http.StatusCreated, d)
	}
	return c.answerWorkflow(http.StatusAccepted, d)
}

// answerWorkflow answers with the state of the workflow that registers a domain. Each call counts
// as a poll.
func (c *call) answerWorkflow(status int, d *domain) reply {
	if d.state == "in_progress" {
		if d.polls == 0 {
			c.finishRegistration(d)
		}
		d.polls--
	}
	out := map[string]any{
		"state": d.state, "completed": d.state == "succeeded" || d.state == "failed", "created_at": c.Now(), "updated_at": c.Now(),
		"context": map[string]any{"domain_name": d.Name}, "error": nil,
		"links": map[string]string{
			"self":     fmt.Sprintf("/accounts/%s/registrar/registrations/%s/registration-status", AccountID, d.Name),
			"resource": fmt.Sprintf("/accounts/%s/registrar/registrations/%s", AccountID, d.Name),
		},
	}
	switch d.state {
	case "succeeded":
		out["context"] = map[string]any{"domain_name": d.Name, "registration": d}
	case "failed":
		out["error"] = map[string]string{"code": c.FailPurchases, "message": "The registry said no"}
	case "action_required":
		out["context"] = map[string]any{"domain_name": d.Name, "action": "confirm_email"}
	}
	return reply{status: status, result: out}
}

// changeDomain starts a change of a domain. Only the automatic renewal can be changed.
func (c *call) changeDomain(d *domain) reply {
	var in struct {
		AutoRenew *bool `json:"auto_renew"`
	}
	if err := c.decodeBody(&in); err != nil || in.AutoRenew == nil {
		return refuse(http.StatusBadRequest, 10400, "Request body is invalid")
	}
	d.renews, d.changing = *in.AutoRenew, c.Polls
	out := c.answerChange(d)
	if c.Polls > 0 {
		out.status = http.StatusAccepted
	}
	return out
}

// answerChange answers with the state of the last change of a domain. Each call counts as a poll.
func (c *call) answerChange(d *domain) reply {
	if d.changing > 0 {
		d.changing--
		return ok(map[string]any{"state": "in_progress", "completed": false, "context": map[string]any{"domain_name": d.Name}})
	}
	d.AutoRenew = d.renews
	return ok(map[string]any{"state": "succeeded", "completed": true, "context": map[string]any{"domain_name": d.Name, "registration": d}})
}

// finishRegistration ends the workflow that registers a domain.
func (c *call) finishRegistration(d *domain) {
	if c.FailPurchases != "" {
		d.state = "failed"
		return
	}
	now := c.Now().UTC()
	end := now.AddDate(d.years, 0, 0)
	d.state, d.Status, d.CreatedAt, d.ExpiresAt = "succeeded", "active", now, &end
	c.addZone(d.Name, "active") // a registered domain gets a zone in the account
}
