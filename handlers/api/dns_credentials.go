package api

import (
	"github.com/mailstead/mailstead/service"
)

// planErrors are the codes of operations that read the zone of a domain at its DNS provider.
const planErrors = " credential_invalid edge_token_invalid zone_not_found upstream_error not_configured"

// dnsCredentialOperations returns the operations on other DNS providers, at which records are made
// by their API.
func dnsCredentialOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "list_dns_credentials", Route: GET("/v1/dns-credentials"), Status: 200,
			May:   May{Scope: Read, Roles: Managers, Access: true},
			Call:  Plain(s.Edge.ListDNSCredentials),
			Group: "DNS", Summary: "List the credentials for DNS providers",
			Text: "Never with their secret fields.",
			Tool: Tool{NoTool: true},
		},
		{
			Name: "create_dns_credential", Route: POST("/v1/dns-credentials"), Status: 201,
			May:   May{Scope: Admin, Roles: Managers, Access: true},
			Call:  With(s.Edge.CreateDNSCredential),
			Group: "DNS", Summary: "Add a credential for a DNS provider",
			Text:   "Mailstead tries it first. `connect_domains`, `setup_domain` and `update_domain` take its id; Mailstead then makes the records there. An account can have 100.",
			Errors: errorCodes("credential_invalid upstream_error not_configured too_many_items"),
			Show:   "provider name token",
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "update_dns_credential", Route: PATCH("/v1/dns-credentials/{credential_id}"), Status: 200,
			May:   May{Scope: Admin, Roles: Managers, Access: true},
			Call:  With(s.Edge.UpdateDNSCredential),
			Group: "DNS", Summary: "Change a credential for a DNS provider",
			Text:   "Fields that are left out stay as they are. New secret fields and zones are tried first.",
			Errors: errorCodes("credential_invalid upstream_error not_configured domain_busy"),
			Show:   "token",
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "delete_dns_credential", Route: DELETE("/v1/dns-credentials/{credential_id}"), Status: 200,
			May:   May{Scope: Admin, Roles: Managers, Access: true},
			Call:  With(s.Edge.DeleteDNSCredential),
			Group: "DNS", Summary: "Delete a credential for a DNS provider",
			Errors: errorCodes("in_use"),
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "preview_dns_plan", Route: POST("/v1/dns-plan"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Edge.PreviewDNSPlan),
			Group: "DNS", Summary: "Show what connecting a domain would change at its DNS provider",
			Text:   "Nothing is changed. `foreign_conflicts` has the records of others that stand in the way. A plan is kept for 60 seconds.",
			Errors: errorCodes("invalid_domain" + planErrors),
			Tool:   Tool{Outward: true},
		},
		{
			Name: "get_dns_plan", Route: GET("/v1/domains/{domain_id}/dns-plan"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, Taints: true},
			Call:  With(s.Edge.GetDNSPlan),
			Group: "DNS", Summary: "Show what Mailstead would change now at a domain's DNS provider",
			Text:   "It is empty for domains that Mailstead's own nameservers serve. A plan is kept for 60 seconds.",
			Errors: errorCodes("dns_provider_unsupported" + planErrors),
			Tool:   Tool{Outward: true},
		},
		{
			Name: "put_back_zone_records", Route: POST("/v1/domains/{domain_id}/zone/put-back"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Edge.PutBackZoneRecords),
			Group: "DNS", Summary: "Put back the mail records of others that were replaced",
			Text:   "What `replaced` of the domain lists takes the place of our MX and SPF records at its DNS provider again. Mail then goes where it went before.",
			Errors: errorCodes("domain_busy dns_provider_unsupported zone_conflict" + planErrors),
			Tool:   Tool{Outward: true, Destructive: true},
		},
	}
}
