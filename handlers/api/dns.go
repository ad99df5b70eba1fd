package api

import (
	"context"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/zones"
)

// dnsOperations returns the operations on a domain's own records, DMARC, reports, redirect and
// forward.
func dnsOperations(s *service.Service) []Operation {
	i := intents{s}
	return []Operation{
		{
			Name: "list_custom_dns_records", Route: GET("/v1/domains/{domain_id}/custom-dns-records"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Zones.ListCustomDNSRecords),
			Group: "DNS", Summary: "List a domain's custom records",
			Errors: errorCodes(dnsErrorCodes),
		},
		{
			Name: "create_custom_dns_record", Route: POST("/v1/domains/{domain_id}/custom-dns-records"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Zones.CreateCustomDNSRecord),
			Group: "DNS", Summary: "Add a record",
			Text:   "At a DNS provider by API it is `pending` until it is created, and `error` if that fails.",
			Errors: errorCodes(recordErrorCodes),
		},
		{
			Name: "update_custom_dns_record", Route: PATCH("/v1/domains/{domain_id}/custom-dns-records/{record_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Zones.UpdateCustomDNSRecord),
			Group: "DNS", Summary: "Change a record",
			Errors: errorCodes(recordErrorCodes),
			Show:   "value ttl",
		},
		{
			Name: "delete_custom_dns_record", Route: DELETE("/v1/domains/{domain_id}/custom-dns-records/{record_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Zones.DeleteCustomDNSRecord),
			Group: "DNS", Summary: "Delete a record",
			Errors: errorCodes(dnsErrorCodes + " domain_busy"),
		},
		{
			Name: "set_dmarc", Route: PUT("/v1/domains/{domain_id}/dmarc"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Zones.SetDMARC),
			Group: "DNS", Summary: "Set a custom DMARC policy",
			Text:   "A DMARC record of others at a DNS provider by API stays, unless `replace` is set.",
			Errors: errorCodes(dnsErrorCodes + " domain_busy invalid_dmarc zone_conflict"),
			Tool:   Tool{Confirm: AskFirst(i.setDMARCIntent), Asks: "The replacement of a record of others"},
		},
		{
			Name: "reset_dmarc", Route: DELETE("/v1/domains/{domain_id}/dmarc"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Zones.ResetDMARC),
			Group: "DNS", Summary: "Reset the DMARC policy to p=reject",
			Errors: errorCodes(dnsErrorCodes + " domain_busy zone_conflict"),
		},
		{
			Name: "set_spf", Route: PUT("/v1/domains/{domain_id}/spf"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Zones.SetSPF),
			Group: "DNS", Summary: "Set what is added to the SPF record",
			Text:   "For other servers that send mail of the domain. Mailstead's own terms come first, then these, then `all`.",
			Errors: errorCodes(dnsErrorCodes + " domain_busy"),
		},
		{
			Name: "reset_spf", Route: DELETE("/v1/domains/{domain_id}/spf"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Zones.ResetSPF),
			Group: "DNS", Summary: "Reset the SPF record to Mailstead's own terms",
			Errors: errorCodes(dnsErrorCodes + " domain_busy"),
		},
		{
			Name: "list_dmarc_reports", Route: GET("/v1/domains/{domain_id}/dmarc-reports"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, Taints: true},
			Call:  With(s.Reports.ListDMARCReports),
			Group: "DNS", Summary: "List DMARC reports about a domain",
			Text: reportsText,
			Tool: Tool{Outward: true},
		},
		{
			Name: "list_tls_reports", Route: GET("/v1/domains/{domain_id}/tls-reports"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, Taints: true},
			Call:  With(s.Reports.ListTLSReports),
			Group: "DNS", Summary: "List TLS reports about a domain's mail hosts",
			Text: reportsText,
			Tool: Tool{Outward: true},
		},
		{
			Name: "set_redirect", Route: POST("/v1/domains/{domain_id}/redirect"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Domains.SetRedirect),
			Group: "DNS", Summary: "Redirect a domain's website",
			Errors: errorCodes("domain_busy apex_elsewhere"),
		},
		{
			Name: "delete_redirect", Route: DELETE("/v1/domains/{domain_id}/redirect"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Domains.DeleteRedirect),
			Group: "DNS", Summary: "End a redirect",
			Errors: errorCodes("domain_busy"),
		},
		{
			Name: "set_forward", Route: POST("/v1/domains/{domain_id}/forward"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Domains.SetForward),
			Group: "DNS", Summary: "Forward a domain's mail that matches no mailbox",
			Errors: errorCodes("domain_busy"),
			Tool:   Tool{Outward: true, Confirm: AskFirst(i.setForwardIntent), Asks: "It"},
		},
		{
			Name: "delete_forward", Route: DELETE("/v1/domains/{domain_id}/forward"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Domains.DeleteForward),
			Group: "DNS", Summary: "End a forward",
			Errors: errorCodes("domain_busy"),
		},
	}
}

func (i intents) setForwardIntent(ctx context.Context, who core.Actor, in domains.SetForwardIn) (*Intent, error) {
	d, err := i.s.Domains.GetDomain(ctx, who, domains.DomainIn{DomainID: in.DomainID})
	if err != nil {
		return nil, err
	}
	return newIntent("forward mail to %s that matches no mailbox to %s", d.Domain, in.ForwardAddress)
}

func (i intents) setDMARCIntent(ctx context.Context, who core.Actor, in zones.SetDMARCIn) (*Intent, error) {
	if !in.Replace {
		return nil, nil
	}
	d, err := i.s.Domains.GetDomain(ctx, who, domains.DomainIn{DomainID: in.DomainID})
	if err != nil {
		return nil, err
	}
	return newIntent("publish the DMARC policy %s for %s, in place of a record of others", in.Value, d.Domain)
}

// Error codes that several operations share.
const (
	dnsErrorCodes    = "dns_provider_unsupported"
	recordErrorCodes = dnsErrorCodes + " domain_busy invalid_record cname_at_apex managed_record_collision duplicate_record too_many_items"
)

// reportsText is part of the texts about DMARC reports and TLS reports.
const reportsText = "Newest first; kept for 90 days. They come from mail about the domain to any address of the account. Anyone can send one: " +
	"`authenticated` says whether its message really came from `received_from`. The dates are those that a report covers; `org` filters by a part of `org_name`."
