package api

import (
	"context"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/edge"
)

// domainOperations returns the operations on finding, connecting and setting up domains.
func domainOperations(s *service.Service) []Operation {
	i := intents{s}
	return []Operation{
		{
			Name: "list_domains", Route: GET("/v1/domains"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Domains.ListDomains),
			Group: "Domains", Summary: "List the domains",
		},
		{
			Name: "search_domain", Route: GET("/v1/domains/search"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, Taints: true},
			Call:  With(s.Domains.SearchDomain),
			Group: "Domains", Summary: "Check whether a domain is available, and its price",
			Text:   "Mailstead asks the registrar, else the registry by RDAP, else the DNS; `checked_via` says which answered. `available` is null if none of them knows.",
			Errors: errorCodes("invalid_domain"),
			Tool:   Tool{Outward: true},
		},
		{
			Name: "search_domains_bulk", Route: POST("/v1/domains/search-bulk"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, Taints: true},
			Call:  With(s.Domains.SearchDomainsBulk),
			Group: "Domains", Summary: "Check whether up to 100 domains are available",
			Text: "The results are in the order of the names; one invalid name does not stop the others.",
			Tool: Tool{Outward: true},
		},
		{
			Name: "suggest_domains", Route: GET("/v1/domains/suggest"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, Taints: true},
			Call:  With(s.Domains.SuggestDomains),
			Group: "Domains", Summary: "Suggest domain names for keywords",
			Tool: Tool{Outward: true},
		},
		{
			Name: "connect_domains", Route: POST("/v1/domains/connect"), Status: 200,
			May:    May{Scope: Write, Roles: Managers, AccessFields: "edge_api_token"},
			Call:   With(s.Domains.ConnectDomains),
			Strict: true,
			Group:  "Domains", Summary: "Connect domains that you own",
			Text:   "One invalid name does not stop the others. With `dns_credential_id` or `edge_api_token` (Cloudflare) the records are created at that DNS provider; each name is checked there first. Records of others stay, unless `replace` is set.",
			Errors: errorCodes("domain_limit_exceeded"),
			Tool:   Tool{Outward: true, Confirm: AskFirst(i.connectDomainsIntent), Asks: "The replacement of records of others, and apex here,"},
		},
		{
			Name: "check_provider", Route: POST("/v1/domains/check-provider"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, Taints: true},
			Call:  With(s.Domains.CheckProvider),
			Group: "Domains", Summary: "Show a domain's registrar, nameservers and DNS provider",
			Text: "Mailstead asks its own registrars, else the registry by RDAP, about the registered name. An unregistered domain has no registrar and no nameservers. Without an answer the status is 502; in a sandbox the registrar is then null, and the nameservers come from the DNS. " +
				"`dns_credential_id` can be given to `connect_domains`.",
			Errors: errorCodes("invalid_domain upstream_error"),
			Tool:   Tool{Outward: true},
		},
		{
			Name: "check_nameservers", Route: POST("/v1/domains/check-ns"), Status: 200,
			May:   May{Scope: Write, Roles: Everyone},
			Call:  With(s.Domains.CheckNameservers),
			Group: "Domains", Summary: "Check whether domains are delegated to Mailstead",
			Text: "Those that are delegated are set up. Mailstead also looks by itself; see `next_look_at` of a domain.",
			Tool: Tool{Outward: true},
		},
		{
			Name: "setup_domain", Route: POST("/v1/domains/setup"), Status: 202,
			May:         May{Scope: Write, Roles: Managers, AccessFields: "edge_api_token users template_id"},
			Call:        With(s.Domains.SetupDomain),
			Strict:      true,
			ShowsSecret: true,
			Group:       "Domains", Summary: "Set up a domain, and register it if requested",
			Text:   "Registration needs `register: true`, the quoted `price` and the `purchase` permission. A second run repairs the domain, and never buys twice. Passwords are generated unless given; an export shows them.",
			Errors: errorCodes("invalid_domain domain_limit_exceeded email_user_limit_exceeded domain_busy apex_elsewhere not_configured insufficient_scope forbidden_role"),
			Tool:   Tool{Outward: true, Destructive: true, Confirm: AskFirst(i.setupDomainIntent), Asks: "A purchase, the replacement of records of others, apex here, and a forward address,"},
		},
		{
			Name: "get_domain", Route: GET("/v1/domains/{domain_id}"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Domains.GetDomain),
			Group: "Domains", Summary: "Show a domain",
		},
		{
			Name: "update_domain", Route: PATCH("/v1/domains/{domain_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Domains.UpdateDomain),
			Group: "Domains", Summary: "Change a domain",
			Errors: errorCodes("domain_busy domain_not_ready upstream_error not_configured apex_elsewhere"),
			Text: "`dns_credential_id` moves the records of the domain to another DNS provider; the job is the domain's `job_id`. `apex` says where visitors of the domain itself go, " +
				"and `mx` where its mail goes; the answer to a change that brings the mail here has `warnings`. At a DNS provider by API MX records of others stay in its way, unless `replace` is true.",
			Show: "tags notes",
			Tool: Tool{Confirm: AskFirst(i.updateDomainIntent), Asks: "A catch_all, a change of apex or mx, a move to another DNS provider, and the replacement of records of others"},
		},
		{
			Name: "delete_domain", Route: DELETE("/v1/domains/{domain_id}"), Status: 202,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Domains.DeleteDomain),
			Group: "Domains", Summary: "Delete a domain with its mailboxes and their mail",
			Errors: errorCodes("domain_busy"),
			Tool:   Tool{Confirm: AskFirst(i.deleteDomainIntent), Asks: "It"},
		},
		{
			Name: "get_dns_status", Route: GET("/v1/domains/{domain_id}/dns-status"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, Taints: true},
			Call:  With(s.Domains.GetDNSStatus),
			Group: "Domains", Summary: "Show a domain's DNS status",
			Text: "With `refresh=true` the DNS is checked now.",
			Tool: Tool{Outward: true},
		},
		{
			Name: "get_dns_records", Route: GET("/v1/domains/{domain_id}/dns-records"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Domains.GetDNSRecords),
			Group: "Domains", Summary: "List the records to enter for a manual domain",
			Errors: errorCodes("not_manual_domain"),
		},
		{
			Name: "verify_dns", Route: POST("/v1/domains/{domain_id}/verify-dns"), Status: 200,
			May:   May{Scope: Write, Roles: Everyone},
			Call:  With(s.Domains.VerifyDNS),
			Group: "Domains", Summary: "Check whether a manual domain's records exist",
			Text:   "If the critical ones exist, the domain is set up. Mailstead also looks by itself; see `next_look_at` of the domain.",
			Errors: errorCodes("not_manual_domain records_not_ready"),
			Tool:   Tool{Outward: true},
		},
	}
}

func (i intents) setupDomainIntent(ctx context.Context, who core.Actor, in domains.SetupDomainIn) (*Intent, error) {
	quote, err := i.s.Domains.QuoteSetup(ctx, who, in)
	if err != nil {
		return nil, err
	}
	var actions []string
	if quote != nil {
		actions = append(actions, "buy "+quote.Domain)
	}
	if in.Replace {
		actions = append(actions, "replace the mail records of others for "+in.Domain+" at its DNS provider")
	}
	if in.Apex == "here" {
		actions = append(actions, fmt.Sprintf(visitorsHere, in.Domain))
	}
	if in.ForwardAddress != "" {
		actions = append(actions, fmt.Sprintf("forward mail to %s that matches no mailbox to %s", in.Domain, in.ForwardAddress))
	}
	if actions == nil {
		return nil, nil
	}
	return &Intent{Would: strings.Join(actions, ", and "), Quote: quote}, nil
}

func (i intents) connectDomainsIntent(_ context.Context, _ core.Actor, in domains.ConnectDomainsIn) (*Intent, error) {
	names := strings.Join(in.Domains, ", ")
	would := []string{"connect " + names}
	if in.Replace {
		would = append(would, "replace the mail records of others there")
	}
	if in.Apex == "here" {
		would = append(would, fmt.Sprintf(visitorsHere, names))
	}
	if len(would) == 1 {
		return nil, nil
	}
	return newIntent("%s", strings.Join(would, ", and "))
}

// visitorsHere says what the mode here of apex means for a domain.
const visitorsHere = "send visitors of %s itself to this host"

func (i intents) updateDomainIntent(ctx context.Context, who core.Actor, in domains.UpdateDomainIn) (*Intent, error) {
	if in.CatchAll.Value == "" && in.Apex == nil && in.MX == nil && in.DNSCredentialID == nil && !in.Replace {
		return nil, nil
	}
	d, err := i.s.Domains.GetDomain(ctx, who, domains.DomainIn{DomainID: in.DomainID})
	if err != nil {
		return nil, err
	}
	var would []string
	if in.CatchAll.Value != "" {
		would = append(would, fmt.Sprintf("deliver mail to %s that matches no mailbox to %s", d.Domain, in.CatchAll.Value))
	}
	if in.Apex != nil && d.Apex != nil {
		switch {
		case in.Apex.Mode == "here":
			would = append(would, fmt.Sprintf(visitorsHere, d.Domain))
		case in.Apex.Alias.Value != "":
			would = append(would, fmt.Sprintf("send visitors of %s itself to the addresses of %s", d.Domain, in.Apex.Alias.Value))
		case in.Apex.Addresses != nil && len(*in.Apex.Addresses) > 0:
			would = append(would, fmt.Sprintf("send visitors of %s itself to %s", d.Domain, strings.Join(*in.Apex.Addresses, ", ")))
		case in.Apex.Addresses != nil || in.Apex.Alias.Set:
			would = append(would, fmt.Sprintf("leave %s itself without addresses", d.Domain))
		case d.Apex.Mode != in.Apex.Mode:
			would = append(would, fmt.Sprintf("leave the addresses of %s itself to a website elsewhere", d.Domain))
		}
	}
	if in.MX != nil && d.MX != nil && d.MX.Mode != in.MX.Mode {
		to := "to this host"
		if in.MX.Mode == "elsewhere" {
			to = "to its previous hosts"
		}
		would = append(would, fmt.Sprintf("send the mail of %s %s", d.Domain, to))
	}
	if in.DNSCredentialID != nil {
		list, err := i.s.Edge.ListDNSCredentials(ctx, who)
		if err != nil {
			return nil, err
		}
		to := "the DNS provider of the credential " + *in.DNSCredentialID
		for _, c := range list.Data {
			if c.ID == *in.DNSCredentialID {
				to = fmt.Sprintf("%s, with the credential %q", edge.Name(c.Provider), c.Name)
			}
		}
		would = append(would, fmt.Sprintf("move the DNS records of %s to %s", d.Domain, to))
	}
	if in.Replace {
		would = append(would, "replace the mail records of others for "+d.Domain+" at its DNS provider")
	}
	if len(would) == 0 {
		return nil, nil
	}
	return newIntent("%s", strings.Join(would, ", and "))
}

func (i intents) deleteDomainIntent(ctx context.Context, who core.Actor, in domains.DomainIn) (*Intent, error) {
	d, err := i.s.Domains.GetDomain(ctx, who, in)
	if err != nil {
		return nil, err
	}
	return newIntent("delete %s for good, with its %s and all mail in them", d.Domain, plural(d.EmailUsersCount, "mailbox", "mailboxes"))
}
