package handlers

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

// largestSend is the most bytes of a request that sends a message.
const largestSend = core.MaxRequest

// largestList is the most bytes of a request that brings a long list.
const largestList = 16 << 20

// largestTemplate is the most bytes of a request with the texts of a template.
const largestTemplate = 4 << 20

// operations is the table: every operation of the interface, one row each. The routes, the checks
// of scope and role, the tools of assistants and the OpenAPI description all come from it.
//
// scope and roles are the coarse permission: what the token and the role of the caller must allow,
// whatever the call is about. op.permit asks for it once, before the body is read. Whether this
// caller may do it to this very object (a token of somebody else, the owner of the account, a field
// that costs money) is the second question. Only the service asks that, since it has the object.
func operations(s *service.Service) []op {
	i := intents{s}
	return []op{
		// The account and its tokens.
		{name: "get_account", method: "GET", path: "/v1/account", status: 200, scope: "read", roles: everyone, call: plain(s.Accounts.GetAccount), bound: clean},
		{name: "update_account", method: "PATCH", path: "/v1/account", status: 200, scope: "write", roles: managers, call: with(s.Accounts.UpdateAccount)},
		{name: "get_usage", method: "GET", path: "/v1/account/usage", status: 200, scope: "read", roles: everyone, call: plain(s.Accounts.GetUsage), bound: clean},
		{name: "list_tokens", method: "GET", path: "/v1/auth/tokens", status: 200, scope: "read", roles: everyone, call: plain(s.Accounts.ListTokens), bound: clean},
		{name: "create_token", method: "POST", path: "/v1/auth/tokens", status: 201, scope: "write", roles: everyone, call: with(s.Accounts.CreateToken)},
		{name: "delete_token", method: "DELETE", path: "/v1/auth/tokens/{token_id}", status: 200, scope: "write", roles: everyone, call: with(s.Accounts.DeleteToken)},
		{name: "clear_token_taint", method: "POST", path: "/v1/auth/tokens/{token_id}/clear-taint", status: 200, scope: "admin", roles: managers, call: with(s.Accounts.ClearTokenTaint), person: true},
		{name: "list_audit", method: "GET", path: "/v1/audit", status: 200, scope: "read", roles: managers, call: with(s.Accounts.ListAudit), bound: clean, taints: true},

		// Whoever asks.
		{name: "get_me", method: "GET", path: "/v1/me", status: 200, scope: "read", roles: people, call: plain(s.Accounts.GetMe), own: true, bound: always},
		{name: "update_me", method: "PATCH", path: "/v1/me", status: 200, scope: "write", roles: mailboxOnly, call: with(s.Accounts.UpdateMe), own: true, confirm: askFirst(i.updateMe)},
		{name: "change_my_password", method: "POST", path: "/v1/me/password", status: 200, scope: "write", roles: mailboxOnly, call: with(s.Accounts.ChangeMyPassword), own: true},

		// The people who share the account.
		{name: "list_team_users", method: "GET", path: "/v1/account/users", status: 200, scope: "read", roles: everyone, call: plain(s.Accounts.ListTeamUsers), bound: clean},
		{name: "invite_team_user", method: "POST", path: "/v1/account/users/invite", status: 200, scope: "admin", roles: managers, call: with(s.Accounts.InviteTeamUser)},
		{name: "update_team_user", method: "PATCH", path: "/v1/account/users/{user_id}", status: 200, scope: "write", roles: everyone, call: with(s.Accounts.UpdateTeamUser)},
		{name: "delete_team_user", method: "DELETE", path: "/v1/account/users/{user_id}", status: 200, scope: "admin", roles: managers, call: with(s.Accounts.DeleteTeamUser)},

		// Domains.
		{name: "list_domains", method: "GET", path: "/v1/domains", status: 200, scope: "read", roles: everyone, call: with(s.Domains.ListDomains), bound: clean},
		{name: "search_domain", method: "GET", path: "/v1/domains/search", status: 200, scope: "read", roles: everyone, call: with(s.Domains.SearchDomain), bound: clean, taints: true},
		{name: "search_domains_bulk", method: "POST", path: "/v1/domains/search-bulk", status: 200, scope: "read", roles: everyone, call: with(s.Domains.SearchDomainsBulk), bound: clean, taints: true},
		{name: "suggest_domains", method: "GET", path: "/v1/domains/suggest", status: 200, scope: "read", roles: everyone, call: with(s.Domains.SuggestDomains), bound: clean, taints: true},
		{name: "connect_domains", method: "POST", path: "/v1/domains/connect", status: 200, scope: "write", roles: managers, call: with(s.Domains.ConnectDomains), strict: true},
		{name: "check_provider", method: "POST", path: "/v1/domains/check-provider", status: 200, scope: "read", roles: everyone, call: with(s.Domains.CheckProvider), bound: clean, taints: true},
		{name: "check_nameservers", method: "POST", path: "/v1/domains/check-ns", status: 200, scope: "write", roles: everyone, call: with(s.Domains.CheckNameservers)},
		{name: "setup_domain", method: "POST", path: "/v1/domains/setup", status: 202, scope: "write", roles: managers, call: with(s.Domains.SetupDomain), strict: true, confirm: askFirst(i.setupDomain)},
		{name: "get_domain", method: "GET", path: "/v1/domains/{domain_id}", status: 200, scope: "read", roles: everyone, call: with(s.Domains.GetDomain), bound: clean},
		{name: "update_domain", method: "PATCH", path: "/v1/domains/{domain_id}", status: 200, scope: "write", roles: managers, call: with(s.Domains.UpdateDomain), confirm: askFirst(i.updateDomain)},
		{name: "delete_domain", method: "DELETE", path: "/v1/domains/{domain_id}", status: 202, scope: "write", roles: managers, call: with(s.Domains.DeleteDomain), confirm: askFirst(i.deleteDomain)},
		{name: "get_dns_status", method: "GET", path: "/v1/domains/{domain_id}/dns-status", status: 200, scope: "read", roles: everyone, call: with(s.Domains.GetDNSStatus), bound: clean, taints: true},
		{name: "get_dns_records", method: "GET", path: "/v1/domains/{domain_id}/dns-records", status: 200, scope: "read", roles: everyone, call: with(s.Domains.GetDNSRecords), bound: clean},
		{name: "verify_dns", method: "POST", path: "/v1/domains/{domain_id}/verify-dns", status: 200, scope: "write", roles: everyone, call: with(s.Domains.VerifyDNS)},

		// A domain's own records, DMARC, reports, redirect and forward.
		{name: "list_custom_dns_records", method: "GET", path: "/v1/domains/{domain_id}/custom-dns-records", status: 200, scope: "read", roles: everyone, call: with(s.Domains.ListCustomDNSRecords), bound: clean},
		{name: "create_custom_dns_record", method: "POST", path: "/v1/domains/{domain_id}/custom-dns-records", status: 200, scope: "write", roles: managers, call: with(s.Domains.CreateCustomDNSRecord)},
		{name: "update_custom_dns_record", method: "PATCH", path: "/v1/domains/{domain_id}/custom-dns-records/{record_id}", status: 200, scope: "write", roles: managers, call: with(s.Domains.UpdateCustomDNSRecord)},
		{name: "delete_custom_dns_record", method: "DELETE", path: "/v1/domains/{domain_id}/custom-dns-records/{record_id}", status: 200, scope: "write", roles: managers, call: with(s.Domains.DeleteCustomDNSRecord)},
		{name: "set_dmarc", method: "PUT", path: "/v1/domains/{domain_id}/dmarc", status: 200, scope: "write", roles: managers, call: with(s.Domains.SetDMARC)},
		{name: "reset_dmarc", method: "DELETE", path: "/v1/domains/{domain_id}/dmarc", status: 200, scope: "write", roles: managers, call: with(s.Domains.ResetDMARC)},
		{name: "list_dmarc_reports", method: "GET", path: "/v1/domains/{domain_id}/dmarc-reports", status: 200, scope: "read", roles: everyone, call: with(s.Reports.ListDMARCReports), bound: clean, taints: true},
		{name: "list_tls_reports", method: "GET", path: "/v1/domains/{domain_id}/tls-reports", status: 200, scope: "read", roles: everyone, call: with(s.Reports.ListTLSReports), bound: clean, taints: true},
		{name: "set_redirect", method: "POST", path: "/v1/domains/{domain_id}/redirect", status: 200, scope: "write", roles: managers, call: with(s.Domains.SetRedirect)},
		{name: "delete_redirect", method: "DELETE", path: "/v1/domains/{domain_id}/redirect", status: 200, scope: "write", roles: managers, call: with(s.Domains.DeleteRedirect)},
		{name: "set_forward", method: "POST", path: "/v1/domains/{domain_id}/forward", status: 200, scope: "write", roles: managers, call: with(s.Domains.SetForward), confirm: askFirst(i.setForward)},
		{name: "delete_forward", method: "DELETE", path: "/v1/domains/{domain_id}/forward", status: 200, scope: "write", roles: managers, call: with(s.Domains.DeleteForward)},

		// Webhooks and events.
		{name: "list_webhooks", method: "GET", path: "/v1/webhooks", status: 200, scope: "read", roles: everyone, call: plain(s.Events.ListWebhooks), whole: true, bound: clean},
		{name: "create_webhook", method: "POST", path: "/v1/webhooks", status: 201, scope: "write", roles: managers, call: with(s.Events.CreateWebhook), confirm: askFirst(i.createWebhook)},
		{name: "get_webhook", method: "GET", path: "/v1/webhooks/{id}", status: 200, scope: "read", roles: everyone, call: with(s.Events.GetWebhook), whole: true, bound: clean},
		{name: "update_webhook", method: "PATCH", path: "/v1/webhooks/{id}", status: 200, scope: "write", roles: managers, call: with(s.Events.UpdateWebhook), confirm: askFirst(i.updateWebhook)},
		{name: "delete_webhook", method: "DELETE", path: "/v1/webhooks/{id}", status: 200, scope: "write", roles: managers, call: with(s.Events.DeleteWebhook)},
		{name: "get_webhook_secret", method: "GET", path: "/v1/webhooks/{id}/secret", status: 200, scope: "write", roles: managers, call: with(s.Events.GetWebhookSecret)},
		{name: "rotate_webhook_secret", method: "POST", path: "/v1/webhooks/{id}/rotate-secret", status: 200, scope: "write", roles: managers, call: with(s.Events.RotateWebhookSecret)},
		{name: "test_webhook", method: "POST", path: "/v1/webhooks/{id}/test", status: 200, scope: "write", roles: managers, call: with(s.Events.TestWebhook)},
		{name: "list_webhook_deliveries", method: "GET", path: "/v1/webhooks/{id}/deliveries", status: 200, scope: "read", roles: everyone, call: with(s.Events.ListWebhookDeliveries), whole: true, bound: clean, taints: true},
		{name: "redeliver_event", method: "POST", path: "/v1/webhooks/{id}/deliveries/{event_id}/redeliver", status: 200, scope: "write", roles: managers, call: with(s.Events.RedeliverEvent)},
		{name: "list_events", method: "GET", path: "/v1/events", status: 200, scope: "read", roles: everyone, call: with(s.Events.ListEvents), whole: true, bound: clean, taints: true},
		{name: "set_universal_inbox", method: "POST", path: "/v1/account/universal-inbox", status: 200, scope: "write", roles: managers, call: with(s.Inbox.SetUniversalInbox)},

		// Jobs.
		{name: "list_jobs", method: "GET", path: "/v1/jobs", status: 200, scope: "read", roles: people, call: with(s.ListJobs), bound: clean, taints: true},
		{name: "get_job", method: "GET", path: "/v1/jobs/{job_id}", status: 200, scope: "read", roles: people, call: with(s.GetJob), bound: clean, taints: true},

		// Mailboxes, which the interface calls email users.
		{name: "list_email_users", method: "GET", path: "/v1/email-users", status: 200, scope: "read", roles: everyone, call: with(s.Mailboxes.ListEmailUsers), bound: clean},
		{name: "create_email_user", method: "POST", path: "/v1/email-users", status: 201, scope: "write", roles: managers, call: with(s.Mailboxes.CreateEmailUser), confirm: askFirst(i.createEmailUser)},
		{name: "generate_names", method: "POST", path: "/v1/email-users/generate-names", status: 200, scope: "read", roles: everyone, call: with(s.Mailboxes.GenerateNames), bound: clean},
		{name: "create_email_users_bulk", method: "POST", path: "/v1/email-users/bulk", status: 200, scope: "write", roles: managers, call: with(s.Mailboxes.CreateEmailUsersBulk)},
		{name: "delete_email_users_bulk", method: "DELETE", path: "/v1/email-users/bulk", status: 200, scope: "write", roles: managers, call: with(s.Mailboxes.DeleteEmailUsersBulk), confirm: askFirst(i.deleteEmailUsers)},
		{name: "delete_email_users_bulk", method: "POST", path: "/v1/email-users/bulk-delete", status: 200, scope: "write", roles: managers, call: with(s.Mailboxes.DeleteEmailUsersBulk), alias: true, confirm: askFirst(i.deleteEmailUsers)},
		{name: "get_email_user", method: "GET", path: "/v1/email-users/{user_id}", status: 200, scope: "read", roles: people, call: with(s.Mailboxes.GetEmailUser), bound: always},
		{name: "update_email_user", method: "PATCH", path: "/v1/email-users/{user_id}", status: 200, scope: "write", roles: managers, call: with(s.Mailboxes.UpdateEmailUser), confirm: askFirst(i.updateEmailUser)},
		{name: "delete_email_user", method: "DELETE", path: "/v1/email-users/{user_id}", status: 200, scope: "write", roles: managers, call: with(s.Mailboxes.DeleteEmailUser)},
		{name: "create_inbox", method: "POST", path: "/v1/inboxes", status: 201, scope: "write", roles: managers, call: with(s.Mailboxes.CreateInbox)},
		{name: "release_held_messages", method: "POST", path: "/v1/email-users/{user_id}/held", status: 200, scope: "write", roles: managers, call: with(s.MTA.ReleaseHeldMessages), confirm: askFirst(i.releaseHeld)},
		{name: "create_recovery_link", method: "POST", path: "/v1/email-users/{user_id}/recovery-link", status: 200, scope: "write", roles: managers, call: with(s.Accounts.CreateRecoveryLink), confirm: askFirst(i.createRecoveryLink)},
		{name: "list_domain_email_users", method: "GET", path: "/v1/domains/{domain_id}/email-users", status: 200, scope: "read", roles: everyone, call: with(s.Mailboxes.ListDomainEmailUsers), bound: clean},

		// Passwords beside that of a mailbox, and those of domains.
		{name: "list_credentials", method: "GET", path: "/v1/email-users/{user_id}/credentials", status: 200, scope: "read", roles: holders, call: with(s.Mailboxes.ListCredentials), own: true, bound: clean},
		{name: "create_credential", method: "POST", path: "/v1/email-users/{user_id}/credentials", status: 201, scope: "write", roles: holders, call: with(s.Mailboxes.CreateCredential), own: true, confirm: askFirst(i.createCredential)},
		{name: "delete_credential", method: "DELETE", path: "/v1/email-users/{user_id}/credentials/{credential_id}", status: 200, scope: "write", roles: holders, call: with(s.Mailboxes.DeleteCredential), own: true},
		{name: "clear_credential_taint", method: "POST", path: "/v1/email-users/{user_id}/credentials/{credential_id}/clear-taint", status: 200, scope: "admin", roles: managers, call: with(s.Mailboxes.ClearCredentialTaint), person: true},
		{name: "list_smtp_credentials", method: "GET", path: "/v1/domains/{domain_id}/smtp-credentials", status: 200, scope: "read", roles: managers, call: with(s.Mailboxes.ListSMTPCredentials), bound: clean},
		{name: "create_smtp_credential", method: "POST", path: "/v1/domains/{domain_id}/smtp-credentials", status: 201, scope: "write", roles: managers, call: with(s.Mailboxes.CreateSMTPCredential), confirm: askFirst(i.createSMTPCredential)},
		{name: "delete_smtp_credential", method: "DELETE", path: "/v1/domains/{domain_id}/smtp-credentials/{credential_id}", status: 200, scope: "write", roles: managers, call: with(s.Mailboxes.DeleteSMTPCredential)},
		{name: "clear_smtp_credential_taint", method: "POST", path: "/v1/domains/{domain_id}/smtp-credentials/{credential_id}/clear-taint", status: 200, scope: "admin", roles: managers, call: with(s.Mailboxes.ClearSMTPCredentialTaint), person: true},

		// What a mailbox does with mail by itself.
		{name: "list_rules", method: "GET", path: "/v1/email-users/{user_id}/rules", status: 200, scope: "read", roles: people, call: with(s.Rules.ListRules), bound: clean},
		{name: "create_rule", method: "POST", path: "/v1/email-users/{user_id}/rules", status: 201, scope: "write", roles: holders, call: with(s.Rules.CreateRule), strict: true, confirm: askFirst(i.createRule)},
		{name: "update_rule", method: "PATCH", path: "/v1/email-users/{user_id}/rules/{rule_id}", status: 200, scope: "write", roles: holders, call: with(s.Rules.UpdateRule), strict: true, confirm: askFirst(i.updateRule)},
		{name: "delete_rule", method: "DELETE", path: "/v1/email-users/{user_id}/rules/{rule_id}", status: 200, scope: "write", roles: holders, call: with(s.Rules.DeleteRule)},
		{name: "test_rules", method: "POST", path: "/v1/email-users/{user_id}/rules/test", status: 200, scope: "read", roles: people, call: with(s.Rules.TestRules), strict: true, bound: clean},
		{name: "get_vacation", method: "GET", path: "/v1/email-users/{user_id}/vacation", status: 200, scope: "read", roles: people, call: with(s.Rules.GetVacation), bound: clean},
		{name: "set_vacation", method: "PUT", path: "/v1/email-users/{user_id}/vacation", status: 200, scope: "write", roles: holders, call: with(s.Rules.SetVacation), strict: true},
		{name: "delete_vacation", method: "DELETE", path: "/v1/email-users/{user_id}/vacation", status: 200, scope: "write", roles: holders, call: with(s.Rules.DeleteVacation)},

		// Groups of mailboxes and addresses elsewhere.
		{name: "list_groups", method: "GET", path: "/v1/groups", status: 200, scope: "read", roles: everyone, call: with(s.Mailboxes.ListGroups), bound: clean},
		{name: "create_group", method: "POST", path: "/v1/groups", status: 201, scope: "write", roles: managers, call: with(s.Mailboxes.CreateGroup), confirm: askFirst(i.createGroup)},
		{name: "get_group", method: "GET", path: "/v1/groups/{group_id}", status: 200, scope: "read", roles: everyone, call: with(s.Mailboxes.GetGroup), bound: clean},
		{name: "update_group", method: "PATCH", path: "/v1/groups/{group_id}", status: 200, scope: "write", roles: managers, call: with(s.Mailboxes.UpdateGroup), confirm: askFirst(i.updateGroup)},
		{name: "delete_group", method: "DELETE", path: "/v1/groups/{group_id}", status: 200, scope: "write", roles: managers, call: with(s.Mailboxes.DeleteGroup)},

		// Templates of mailboxes.
		{name: "list_templates", method: "GET", path: "/v1/email-user-templates", status: 200, scope: "read", roles: everyone, call: plain(s.Mailboxes.ListTemplates), bound: clean},
		{name: "create_template", method: "POST", path: "/v1/email-user-templates", status: 200, scope: "write", roles: everyone, call: with(s.Mailboxes.CreateTemplate)},
		{name: "get_template", method: "GET", path: "/v1/email-user-templates/{template_id}", status: 200, scope: "read", roles: everyone, call: with(s.Mailboxes.GetTemplate), bound: clean},
		{name: "update_template", method: "PATCH", path: "/v1/email-user-templates/{template_id}", status: 200, scope: "write", roles: everyone, call: with(s.Mailboxes.UpdateTemplate)},
		{name: "delete_template", method: "DELETE", path: "/v1/email-user-templates/{template_id}", status: 200, scope: "write", roles: everyone, call: with(s.Mailboxes.DeleteTemplate)},

		// Templates of messages.
		{name: "list_message_templates", method: "GET", path: "/v1/message-templates", status: 200, scope: "read", roles: everyone, call: with(s.Templates.ListMessageTemplates), bound: clean},
		{name: "create_message_template", method: "POST", path: "/v1/message-templates", status: 201, scope: "write", roles: everyone, call: with(s.Templates.CreateMessageTemplate), body: largestTemplate},
		{name: "get_message_template", method: "GET", path: "/v1/message-templates/{id}", status: 200, scope: "read", roles: everyone, call: with(s.Templates.GetMessageTemplate), bound: clean},
		{name: "update_message_template", method: "PATCH", path: "/v1/message-templates/{id}", status: 200, scope: "write", roles: everyone, call: with(s.Templates.UpdateMessageTemplate), body: largestTemplate},
		{name: "delete_message_template", method: "DELETE", path: "/v1/message-templates/{id}", status: 200, scope: "write", roles: everyone, call: with(s.Templates.DeleteMessageTemplate)},
		{name: "preview_message_template", method: "POST", path: "/v1/message-templates/{id}/preview", status: 200, scope: "read", roles: everyone, call: with(s.Templates.PreviewMessageTemplate), bound: clean},

		// Exports.
		{name: "create_export", method: "POST", path: "/v1/export", status: 200, scope: "write", roles: managers, call: with(s.Mailboxes.CreateExport)},
		{name: "import_messages", method: "POST", path: "/v1/email-users/{user_id}/import", status: 202, scope: "write", roles: holders, call: with(s.Mailboxes.ImportMail), upload: mailUpload(s)},
		{name: "export_messages", method: "POST", path: "/v1/email-users/{user_id}/export", status: 202, scope: "write", roles: holders, call: with(s.Mailboxes.ExportMail)},
		{name: "list_export_formats", method: "GET", path: "/v1/export/formats", status: 200, scope: "read", roles: everyone, call: plain(s.Mailboxes.ListExportFormats), bound: clean},

		// The installation.
		{name: "get_health", method: "GET", path: "/v1/health", status: 200, scope: "read", roles: owners, call: plain(s.Health.GetHealth), bound: clean, taints: true},

		// Mail in mailboxes.
		{name: "list_email_user_inbox", method: "GET", path: "/v1/email-users/{user_id}/inbox", status: 200, scope: "read", roles: people, call: with(s.Inbox.ListEmailUserInbox), bound: always},
		{name: "wait_for_message", method: "GET", path: "/v1/email-users/{user_id}/inbox/wait", status: 200, scope: "read", roles: people, call: with(s.Inbox.WaitForMessage), waits: true, bound: always},
		{name: "refresh_email_user_inbox", method: "POST", path: "/v1/email-users/{user_id}/inbox/refresh", status: 200, scope: "write", roles: people, call: with(s.Inbox.RefreshEmailUserInbox), bound: always},
		{name: "get_message", method: "GET", path: "/v1/email-users/{user_id}/inbox/{message_id}", status: 200, scope: "read", roles: people, call: with(s.Inbox.GetMessage), bound: always},
		{name: "get_message_raw", method: "GET", path: "/v1/email-users/{user_id}/inbox/{message_id}/raw", status: 200, scope: "read", roles: people, call: with(s.Inbox.GetMessageRaw), bound: always},
		{name: "get_message_attachment", method: "GET", path: "/v1/email-users/{user_id}/inbox/{message_id}/attachments/{index}", status: 200, scope: "read", roles: people, call: with(s.Inbox.GetMessageAttachment), bound: always},
		{name: "mark_message", method: "PATCH", path: "/v1/email-users/{user_id}/inbox/{message_id}", status: 200, scope: "write", roles: people, call: with(s.Inbox.MarkMessage), bound: always, boundFields: "is_read is_flagged"},
		{name: "unsubscribe_message", method: "POST", path: "/v1/email-users/{user_id}/inbox/{message_id}/unsubscribe", status: 200, scope: "write", roles: people, call: with(s.MTA.UnsubscribeMessage), bound: clean},
		{name: "answer_invitation", method: "POST", path: "/v1/email-users/{user_id}/inbox/{message_id}/invitation", status: 200, scope: "write", roles: people, call: with(s.MTA.AnswerInvitation), strict: true, bound: clean},
		{name: "suggest_addresses", method: "GET", path: "/v1/email-users/{user_id}/addresses", status: 200, scope: "read", roles: people, call: with(s.Inbox.SuggestAddresses), bound: clean, taints: true},
		{name: "delete_message", method: "DELETE", path: "/v1/email-users/{user_id}/inbox/{message_id}", status: 200, scope: "write", roles: people, call: with(s.Inbox.DeleteMessage), confirm: askFirst(i.deleteMessage), bound: always, whileTainted: "to=trash"},
		{name: "list_inbox", method: "GET", path: "/v1/inbox", status: 200, scope: "read", roles: people, call: with(s.Inbox.ListInbox), bound: always},
		{name: "wait_for_any_message", method: "GET", path: "/v1/inbox/wait", status: 200, scope: "read", roles: everyone, call: with(s.Inbox.WaitForAnyMessage), waits: true, bound: always, limited: true},
		{name: "refresh_inbox", method: "POST", path: "/v1/inbox/refresh", status: 200, scope: "write", roles: everyone, call: plain(s.Inbox.RefreshInbox), bound: clean},
		{name: "bulk_delete_messages", method: "POST", path: "/v1/inbox/bulk-delete", status: 200, scope: "write", roles: people, call: with(s.Inbox.BulkDeleteMessages), confirm: askFirst(i.deleteMessages), bound: clean},
		{name: "bulk_mark_messages", method: "POST", path: "/v1/inbox/bulk-mark", status: 200, scope: "write", roles: people, call: with(s.Inbox.BulkMarkMessages), bound: always},
		{name: "bulk_move_messages", method: "POST", path: "/v1/inbox/bulk-move", status: 200, scope: "write", roles: people, call: with(s.Inbox.BulkMoveMessages), bound: always},
		{name: "get_inbox_message", method: "GET", path: "/v1/inbox/{message_id}", status: 200, scope: "read", roles: people, call: with(s.Inbox.GetInboxMessage), bound: always},
		{name: "mark_inbox_message", method: "PATCH", path: "/v1/inbox/{message_id}", status: 200, scope: "write", roles: people, call: with(s.Inbox.MarkInboxMessage), bound: always, boundFields: "is_read is_flagged"},
		{name: "delete_inbox_message", method: "DELETE", path: "/v1/inbox/{message_id}", status: 200, scope: "write", roles: people, call: with(s.Inbox.DeleteInboxMessage), confirm: askFirst(i.deleteInboxMessage), bound: always, whileTainted: "to=trash"},

		// Folders of mailboxes.
		{name: "list_folders", method: "GET", path: "/v1/email-users/{user_id}/folders", status: 200, scope: "read", roles: people, call: with(s.Inbox.ListFolders), bound: always},
		{name: "create_folder", method: "POST", path: "/v1/email-users/{user_id}/folders", status: 201, scope: "write", roles: people, call: with(s.Inbox.CreateMailFolder)},
		{name: "update_folder", method: "PATCH", path: "/v1/email-users/{user_id}/folders/{folder_id}", status: 200, scope: "write", roles: people, call: with(s.Inbox.UpdateMailFolder)},
		{name: "delete_folder", method: "DELETE", path: "/v1/email-users/{user_id}/folders/{folder_id}", status: 200, scope: "write", roles: people, call: with(s.Inbox.DeleteMailFolder)},

		// Sent mail.
		{name: "send_email", method: "POST", path: "/v1/email-users/{user_id}/inbox/send", status: 200, scope: "write", roles: people, call: with(s.MTA.SendEmail), body: largestSend, strict: true, bound: always},
		{name: "create_draft", method: "POST", path: "/v1/email-users/{user_id}/drafts", status: 201, scope: "write", roles: people, call: with(s.MTA.CreateDraft), body: largestSend, strict: true, bound: always},
		{name: "update_draft", method: "PUT", path: "/v1/email-users/{user_id}/drafts/{message_id}", status: 200, scope: "write", roles: people, call: with(s.MTA.UpdateDraft), body: largestSend, strict: true, bound: always},
		{name: "send_draft", method: "POST", path: "/v1/email-users/{user_id}/drafts/{message_id}/send", status: 200, scope: "write", roles: people, call: with(s.MTA.SendDraft), strict: true, bound: always},
		{name: "lookup_message", method: "GET", path: "/v1/messages/lookup", status: 200, scope: "read", roles: everyone, call: with(s.MTA.LookupMessage), whole: true, bound: clean, taints: true},
		{name: "list_messages", method: "GET", path: "/v1/messages", status: 200, scope: "read", roles: people, call: with(s.MTA.ListMessages), bound: always},
		{name: "get_sent_message", method: "GET", path: "/v1/messages/{id}", status: 200, scope: "read", roles: people, call: with(s.MTA.GetSentMessage), bound: always},
		{name: "send_email_batch", method: "POST", path: "/v1/email-users/{user_id}/inbox/send-batch", status: 202, scope: "write", roles: people, call: with(s.MTA.SendEmailBatch), body: largestSend, strict: true, confirm: askFirst(i.sendBatch), bound: always},
		{name: "get_reputation", method: "GET", path: "/v1/reputation", status: 200, scope: "read", roles: everyone, call: with(s.Reputation.GetReputation), whole: true, bound: clean, taints: true},
		{name: "update_scheduled_message", method: "PATCH", path: "/v1/messages/{id}", status: 200, scope: "write", roles: people, call: with(s.MTA.UpdateScheduledMessage), strict: true, bound: clean, boundFields: "send_at"},
		{name: "retry_message", method: "POST", path: "/v1/messages/{id}/retry", status: 200, scope: "write", roles: people, call: with(s.MTA.RetryMessage), bound: clean},
		{name: "cancel_message", method: "POST", path: "/v1/messages/{id}/cancel", status: 200, scope: "write", roles: people, call: with(s.MTA.CancelMessage), bound: clean},

		// Messages that wait until a person approves them.
		{name: "list_approvals", method: "GET", path: "/v1/approvals", status: 200, scope: "read", roles: managers, call: with(s.MTA.ListApprovals), bound: clean, taints: true},
		{name: "get_approval", method: "GET", path: "/v1/approvals/{approval_id}", status: 200, scope: "read", roles: managers, call: with(s.MTA.GetApproval), bound: clean},
		{name: "get_approval_raw", method: "GET", path: "/v1/approvals/{approval_id}/raw", status: 200, scope: "read", roles: managers, call: with(s.MTA.GetApprovalRaw), bound: clean},
		{name: "approve_message", method: "POST", path: "/v1/approvals/{approval_id}/approve", status: 200, scope: "write", roles: managers, call: with(s.MTA.ApproveMessage), strict: true, person: true},
		{name: "reject_message", method: "POST", path: "/v1/approvals/{approval_id}/reject", status: 200, scope: "write", roles: managers, call: with(s.MTA.RejectMessage), strict: true, person: true},

		// Addresses that get no mail.
		{name: "list_suppressions", method: "GET", path: "/v1/suppressions", status: 200, scope: "read", roles: everyone, call: with(s.MTA.ListSuppressions), bound: clean, taints: true},
		{name: "create_suppression", method: "POST", path: "/v1/suppressions", status: 201, scope: "write", roles: everyone, call: with(s.MTA.CreateSuppression)},
		{name: "import_suppressions", method: "POST", path: "/v1/suppressions/import", status: 200, scope: "write", roles: managers, call: with(s.MTA.ImportSuppressions), body: largestList, csv: true, strict: true},
		{name: "delete_suppression", method: "DELETE", path: "/v1/suppressions/{email}", status: 200, scope: "write", roles: everyone, call: with(s.MTA.DeleteSuppression)},
	}
}

// An op is one row of the table of operations. Its route, its checks and the form of its body come
// from it.
type op struct {
	name   string // operationId, MCP tool, `mailstead call`
	action string // in the audit log; "": name
	method string
	path   string // with {name} for what varies
	status int    // of success
	scope  string // read write purchase admin
	roles  []string
	call   caller
	body   int64     // most bytes of the request body; 1 MiB if 0
	upload *uploader // takes a file in the place of a JSON body; nil: nothing does
	csv    bool      // takes a CSV file in the place of a JSON body: it is the body's field csv
	alias  bool      // another way to the operation of the row before
	own    bool      // the person of a mailbox does it, and no token of the mailbox
	waits  bool      // for what comes after the call, and so long that the token may have ended meanwhile
	whole  bool      // it is about the whole account, so nobody may who sees some mailboxes alone
	strict bool      // an unknown body field is an error, since the operation spends money or sends mail

	// What a token may do whose holder may be a program that obeys what it reads; see
	// core.Actor.Bound.
	bound        boundUse // by a bound token
	boundFields  string   // the body fields that it may give; "": all, but none of a PATCH
	whileTainted string   // what the query must have, once the token is tainted
	taints       bool     // the answer may repeat what strangers wrote, of any message
	limited      bool     // a token that is limited to mailboxes may call it, though their people may not
	person       bool     // it is for whoever is signed in to the dashboard as a team user, and for no token

	// confirm says what a call would do that a person must agree to; nil if this call needs no
	// agreement. An assistant gets that answer first, and must call again with a confirmation. It
	// takes what call takes, and answers an *intent.
	confirm caller
}

// A boundUse says whether a bound token may call an operation: it may not, unless its row says so.
// It reads without secrets, marks, moves, drafts, sends and waits.
type boundUse int

const (
	clean  boundUse = iota + 1 // until the token is tainted
	always                     // also then
)

var (
	everyone = []string{"owner", "admin", "member"}
	managers = []string{"owner", "admin"}
	owners   = []string{"owner"}

	// With the person of a mailbox, who sees it alone.
	people      = []string{"owner", "admin", "member", "mailbox"}
	holders     = []string{"owner", "admin", "mailbox"}
	mailboxOnly = []string{"mailbox"}
)

// A caller is a service method with its types hidden.
type caller struct {
	in  reflect.Type
	out reflect.Type
	do  func(ctx context.Context, who core.Actor, decode func(in any) error) (any, error)
}

// with makes a caller of a method that takes a request.
func with[In, Out any](method func(context.Context, core.Actor, In) (Out, error)) caller {
	return callerOf(method)
}

// noInput is the request of an operation that takes none.
type noInput struct{}

// plain makes a caller of a method without a request.
func plain[Out any](method func(context.Context, core.Actor) (Out, error)) caller {
	return callerOf(method)
}

// callerOf makes a caller of a method as with and plain demand it. It calls by reflection, since
// code for the types of each method would be as large as some rooms.
func callerOf(method any) caller {
	call := reflect.ValueOf(method)
	c := caller{in: reflect.TypeFor[noInput](), out: call.Type().Out(0)}
	takes := call.Type().NumIn() == 3
	if takes {
		c.in = call.Type().In(2)
	}
	c.do = func(ctx context.Context, who core.Actor, decode func(any) error) (any, error) {
		in := reflect.New(c.in)
		if err := decode(in.Interface()); err != nil {
			return nil, err
		}
		args := []reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(who), in.Elem()}
		if !takes {
			args = args[:2]
		}
		out := call.Call(args)
		err, _ := out[1].Interface().(error)
		return out[0].Interface(), err
	}
	return c
}

// openToBound tells whether a bound token may call the operation.
func (o *op) openToBound() bool { return o.bound == clean || o.bound == always }

// permit is the one place where the coarse permission of a row is asked for, see operations.
func (o *op) permit(who core.Actor) error {
	wrongRole := func() error {
		return core.Errorf("forbidden_role", "The role %q may not use %s. Ask the account's owner or an admin.", who.Role, o.name)
	}
	if who.Role == core.RoleMailbox && !slices.Contains(o.roles, who.Role) { // whatever its session may do
		return wrongRole()
	}
	if who.TokenOf && !o.limited && !slices.Contains(o.roles, core.RoleMailbox) {
		return core.Errorf("forbidden_role", "This token is limited to some mailboxes, and may do only what the people of those may. %s is not among it.", o.name)
	}
	if who.Bound && !o.openToBound() {
		return core.Errorf("forbidden_role", "This token is bound: it may read, mark, move, draft, send and wait. %s is for a person, or for a token without mailboxes and policy.", o.name)
	}
	if !who.Can(o.scope) {
		return core.Errorf("insufficient_scope",
			"This token lacks the %q permission that %s needs. Use a token that has it.", o.scope, o.name)
	}
	if o.own && who.Role == core.RoleMailbox && who.TokenKind != core.SessionKind {
		return core.Errorf("forbidden_role", "This token reads and sends mail of a mailbox. %s is for its person, who signs in.", o.name)
	}
	if !slices.Contains(o.roles, who.Role) {
		return wrongRole()
	}
	if o.person && !who.IsPerson() {
		return core.Errorf("person_required", "Only a person may use %s: an owner or admin of the account, signed in to the dashboard with a password of their own choice.", o.name)
	}
	if o.whole && !who.SeesAll() {
		return core.Errorf("forbidden_role", "You can see some mailboxes alone, and %s is about the whole account. Ask the account's owner or an admin.", o.name)
	}
	return nil
}

// describedAPI is the table of operations as the package openapi takes it.
func describedAPI(ops []op, url string) openapi.API {
	api := openapi.API{URL: url, Errors: exampleErrors}
	for i := range ops {
		api.Operations = append(api.Operations, ops[i].described())
	}
	return api
}

func (o *op) described() openapi.Operation {
	return openapi.Operation{
		Name: o.name, Method: o.method, Path: o.path, Status: o.status, Scope: o.scope, Roles: o.roles, Restricted: o.own || !slices.Equal(o.roles, people),
		Strict: o.strict, Alias: o.alias, Whole: o.whole, Bound: o.openToBound(), Taintable: o.bound == clean || o.whileTainted != "", In: o.call.in, Out: o.call.out,
	}
}

func exampleErrors(status int, code, message, requestID string) (own, rfc9457 any) {
	p := problem{Code: code, Message: message, RequestID: requestID}
	if status == http.StatusTooManyRequests {
		p.RetryAfter = 17
	}
	return errorBody{p}, problemBody{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: message, Instance: "/v1/…", problem: p}
}

// A page is a body that never changes while the server runs, with its ETag.
type page struct {
	contentType string
	body        []byte
	zipped      []byte
	tag         string
}

func newPage(contentType string, body []byte) page {
	sum := sha256.Sum256(body)
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(body) // a bytes.Buffer takes all
	_ = w.Close()
	return page{contentType, body, zipped.Bytes(), hex.EncodeToString(sum[:12])}
}

// A description is what is served about the API, by path.
type description map[string]page

// makeDescription describes the API. Its only input is what is compiled in, so an error is a bug,
// and tests find it.
func (s *Server) makeDescription() *description {
	doc := openapi.Describe(describedAPI(s.ops, s.svc.Core.Config.BaseURL))
	text, err := doc.JSON()
	if err != nil {
		panic(err)
	}
	yaml, err := doc.YAML()
	if err != nil {
		panic(err)
	}
	reference, err := doc.Reference()
	if err != nil {
		panic(err)
	}
	return &description{
		"/v1/openapi.json":    newPage("application/json", text),
		"/v1/openapi.yaml":    newPage("application/yaml", yaml),
		"/docs":               newPage("text/html; charset=utf-8", reference),
		"/docs/reference.css": newPage("text/css; charset=utf-8", openapi.ReferenceCSS),
	}
}

// sendDescription answers GET and HEAD of a page of the description.
func (s *Server) sendDescription(c *call) {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		s.notAllowed(c, []string{"GET", "HEAD"})
		return
	}
	p := (*s.description())[c.r.URL.Path]
	h := c.w.Header()
	h.Set("Content-Type", p.contentType)
	h.Set("Vary", "Accept-Encoding")
	body, tag := p.body, p.tag
	if strings.Contains(c.r.Header.Get("Accept-Encoding"), "gzip") {
		body, tag = p.zipped, p.tag+"-gzip"
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", `"`+tag+`"`)
	h.Set("Cache-Control", "public, max-age=300")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	http.ServeContent(c.w, c.r, "", time.Time{}, bytes.NewReader(body))
}
