package handlers

import "github.com/mailstead/mailstead/service"

func domainOps(s *service.Service) []op {
	i := intents{s}
	return []op{
		{name: "list_domains", method: "GET", path: "/v1/domains", status: 200, scope: "read", roles: everyone, call: with(s.ListDomains)},
		{name: "search_domain", method: "GET", path: "/v1/domains/search", status: 200, scope: "read", roles: everyone, call: with(s.SearchDomain)},
		{name: "search_domains_bulk", method: "POST", path: "/v1/domains/search-bulk", status: 200, scope: "read", roles: everyone, call: with(s.SearchDomainsBulk)},
		{name: "suggest_domains", method: "GET", path: "/v1/domains/suggest", status: 200, scope: "read", roles: everyone, call: with(s.SuggestDomains)},
		{name: "connect_domains", method: "POST", path: "/v1/domains/connect", status: 200, scope: "write", roles: managers, call: with(s.ConnectDomains), strict: true},
		{name: "check_provider", method: "POST", path: "/v1/domains/check-provider", status: 200, scope: "read", roles: everyone, call: with(s.CheckProvider)},
		{name: "check_nameservers", method: "POST", path: "/v1/domains/check-ns", status: 200, scope: "write", roles: everyone, call: with(s.CheckNameservers)},
		{name: "setup_domain", method: "POST", path: "/v1/domains/setup", status: 202, scope: "write", roles: managers, call: with(s.SetupDomain), strict: true, confirm: askFirst(i.setupDomain)},
		{name: "get_domain", method: "GET", path: "/v1/domains/{domain_id}", status: 200, scope: "read", roles: everyone, call: with(s.GetDomain)},
		{name: "update_domain", method: "PATCH", path: "/v1/domains/{domain_id}", status: 200, scope: "write", roles: managers, call: with(s.UpdateDomain), confirm: askFirst(i.updateDomain)},
		{name: "delete_domain", method: "DELETE", path: "/v1/domains/{domain_id}", status: 202, scope: "write", roles: managers, call: with(s.DeleteDomain), confirm: askFirst(i.deleteDomain)},
		{name: "get_dns_status", method: "GET", path: "/v1/domains/{domain_id}/dns-status", status: 200, scope: "read", roles: everyone, call: with(s.GetDNSStatus)},
		{name: "get_dns_records", method: "GET", path: "/v1/domains/{domain_id}/dns-records", status: 200, scope: "read", roles: everyone, call: with(s.GetDNSRecords)},
		{name: "verify_dns", method: "POST", path: "/v1/domains/{domain_id}/verify-dns", status: 200, scope: "write", roles: everyone, call: with(s.VerifyDNS)},
	}
}
