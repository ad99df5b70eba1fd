package handlers

import "github.com/mailstead/mailstead/service"

func dnsOps(s *service.Service) []op {
	const (
		records  = "/v1/domains/{domain_id}/custom-dns-records"
		dmarc    = "/v1/domains/{domain_id}/dmarc"
		redirect = "/v1/domains/{domain_id}/redirect"
		forward  = "/v1/domains/{domain_id}/forward"
	)
	i := intents{s}
	return []op{
		{name: "list_custom_dns_records", method: "GET", path: records, status: 200, scope: "read", roles: everyone, call: with(s.ListCustomDNSRecords)},
		{name: "create_custom_dns_record", method: "POST", path: records, status: 200, scope: "write", roles: managers, call: with(s.CreateCustomDNSRecord)},
		{name: "update_custom_dns_record", method: "PATCH", path: records + "/{record_id}", status: 200, scope: "write", roles: managers, call: with(s.UpdateCustomDNSRecord)},
		{name: "delete_custom_dns_record", method: "DELETE", path: records + "/{record_id}", status: 200, scope: "write", roles: managers, call: with(s.DeleteCustomDNSRecord)},
		{name: "set_dmarc", method: "PUT", path: dmarc, status: 200, scope: "write", roles: managers, call: with(s.SetDMARC)},
		{name: "reset_dmarc", method: "DELETE", path: dmarc, status: 200, scope: "write", roles: managers, call: with(s.ResetDMARC)},
		{name: "list_dmarc_reports", method: "GET", path: "/v1/domains/{domain_id}/dmarc-reports", status: 200, scope: "read", roles: everyone, call: with(s.ListDMARCReports)},
		{name: "list_tls_reports", method: "GET", path: "/v1/domains/{domain_id}/tls-reports", status: 200, scope: "read", roles: everyone, call: with(s.ListTLSReports)},
		{name: "set_redirect", method: "POST", path: redirect, status: 200, scope: "write", roles: managers, call: with(s.SetRedirect)},
		{name: "delete_redirect", method: "DELETE", path: redirect, status: 200, scope: "write", roles: managers, call: with(s.DeleteRedirect)},
		{name: "set_forward", method: "POST", path: forward, status: 200, scope: "write", roles: managers, call: with(s.SetForward), confirm: askFirst(i.setForward)},
		{name: "delete_forward", method: "DELETE", path: forward, status: 200, scope: "write", roles: managers, call: with(s.DeleteForward)},
	}
}
