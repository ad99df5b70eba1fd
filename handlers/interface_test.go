package handlers

import (
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service"
)

// interfaceRows are the operations that the interface promises, and those that the contract adds to
// it.
const interfaceRows = `
GET /v1/account get_account
PATCH /v1/account update_account
GET /v1/account/usage get_usage
POST /v1/account/universal-inbox set_universal_inbox
GET /v1/account/users list_team_users
POST /v1/account/users/invite invite_team_user
PATCH /v1/account/users/{user_id} update_team_user
DELETE /v1/account/users/{user_id} delete_team_user
GET /v1/auth/tokens list_tokens
POST /v1/auth/tokens create_token
DELETE /v1/auth/tokens/{token_id} delete_token
GET /v1/domains list_domains
GET /v1/domains/search search_domain
POST /v1/domains/search-bulk search_domains_bulk
GET /v1/domains/suggest suggest_domains
POST /v1/domains/connect connect_domains
POST /v1/domains/check-provider check_provider
POST /v1/domains/check-ns check_nameservers
POST /v1/domains/setup setup_domain
GET /v1/domains/{domain_id} get_domain
PATCH /v1/domains/{domain_id} update_domain
DELETE /v1/domains/{domain_id} delete_domain
GET /v1/domains/{domain_id}/dns-status get_dns_status
GET /v1/domains/{domain_id}/dns-records get_dns_records
POST /v1/domains/{domain_id}/verify-dns verify_dns
GET /v1/domains/{domain_id}/custom-dns-records list_custom_dns_records
POST /v1/domains/{domain_id}/custom-dns-records create_custom_dns_record
PATCH /v1/domains/{domain_id}/custom-dns-records/{record_id} update_custom_dns_record
DELETE /v1/domains/{domain_id}/custom-dns-records/{record_id} delete_custom_dns_record
PUT /v1/domains/{domain_id}/dmarc set_dmarc
DELETE /v1/domains/{domain_id}/dmarc reset_dmarc
POST /v1/domains/{domain_id}/redirect set_redirect
DELETE /v1/domains/{domain_id}/redirect delete_redirect
POST /v1/domains/{domain_id}/forward set_forward
DELETE /v1/domains/{domain_id}/forward delete_forward
GET /v1/domains/{domain_id}/email-users list_domain_email_users
GET /v1/email-users list_email_users
POST /v1/email-users create_email_user
POST /v1/email-users/generate-names generate_names
POST /v1/email-users/bulk create_email_users_bulk
DELETE /v1/email-users/bulk delete_email_users_bulk
POST /v1/email-users/bulk-delete delete_email_users_bulk
GET /v1/email-users/{user_id} get_email_user
PATCH /v1/email-users/{user_id} update_email_user
DELETE /v1/email-users/{user_id} delete_email_user
GET /v1/domains/{domain_id}/dmarc-reports list_dmarc_reports
GET /v1/domains/{domain_id}/tls-reports list_tls_reports
GET /v1/email-user-templates list_templates
POST /v1/email-user-templates create_template
GET /v1/email-user-templates/{template_id} get_template
PATCH /v1/email-user-templates/{template_id} update_template
DELETE /v1/email-user-templates/{template_id} delete_template
GET /v1/email-users/{user_id}/inbox list_email_user_inbox
POST /v1/email-users/{user_id}/inbox/send send_email
POST /v1/email-users/{user_id}/inbox/refresh refresh_email_user_inbox
GET /v1/email-users/{user_id}/inbox/{message_id} get_message
GET /v1/email-users/{user_id}/inbox/{message_id}/raw get_message_raw
GET /v1/email-users/{user_id}/inbox/{message_id}/attachments/{index} get_message_attachment
DELETE /v1/email-users/{user_id}/inbox/{message_id} delete_message
PATCH /v1/email-users/{user_id}/inbox/{message_id} mark_message
GET /v1/inbox list_inbox
POST /v1/inbox/refresh refresh_inbox
POST /v1/inbox/bulk-delete bulk_delete_messages
POST /v1/inbox/bulk-mark bulk_mark_messages
GET /v1/inbox/{message_id} get_inbox_message
PATCH /v1/inbox/{message_id} mark_inbox_message
DELETE /v1/inbox/{message_id} delete_inbox_message
GET /v1/webhooks list_webhooks
POST /v1/webhooks create_webhook
GET /v1/webhooks/{id} get_webhook
PATCH /v1/webhooks/{id} update_webhook
DELETE /v1/webhooks/{id} delete_webhook
GET /v1/webhooks/{id}/secret get_webhook_secret
POST /v1/webhooks/{id}/rotate-secret rotate_webhook_secret
POST /v1/webhooks/{id}/test test_webhook
GET /v1/webhooks/{id}/deliveries list_webhook_deliveries
POST /v1/webhooks/{id}/deliveries/{event_id}/redeliver redeliver_event
GET /v1/events list_events
GET /v1/messages list_messages
GET /v1/messages/lookup lookup_message
GET /v1/messages/{id} get_sent_message
POST /v1/messages/{id}/retry retry_message
POST /v1/messages/{id}/cancel cancel_message
GET /v1/suppressions list_suppressions
POST /v1/suppressions create_suppression
DELETE /v1/suppressions/{email} delete_suppression
GET /v1/jobs list_jobs
GET /v1/jobs/{job_id} get_job
POST /v1/export create_export
GET /v1/export/formats list_export_formats
`

// TestInterfaceIsComplete holds that every row of the interface is in the table, that the table has
// nothing else, and that every row is described.
func TestInterfaceIsComplete(t *testing.T) {
	have := map[string]bool{}
	for _, o := range operations(&service.Service{}) {
		have[o.method+" "+o.path+" "+o.name] = true
	}
	rows := strings.Split(strings.TrimSpace(interfaceRows), "\n")
	for _, row := range rows {
		name := row[strings.LastIndexByte(row, ' ')+1:]
		if !have[row] {
			t.Errorf("%s is missing", row)
		}
		if summary, _ := openapi.About(name); summary == "" {
			t.Errorf("%s has no summary", name)
		}
	}
	for row := range have {
		if !slices.Contains(rows, row) {
			t.Errorf("%s is not in the interface", row)
		}
	}
}
