package handlers

// What the tests know of each operation: its name and path, who may call it, what it answers, and
// what the audit log says of it. A new operation gets its rows here.

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
POST /v1/auth/tokens/{token_id}/clear-taint clear_token_taint
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
PUT /v1/domains/{domain_id}/spf set_spf
DELETE /v1/domains/{domain_id}/spf reset_spf
GET /v1/domains/{domain_id}/zone get_zone
PUT /v1/domains/{domain_id}/zone/{name}/{type} set_zone_records
DELETE /v1/domains/{domain_id}/zone/{name}/{type} delete_zone_records
GET /v1/domains/{domain_id}/zone/questions get_zone_questions
GET /v1/domains/{domain_id}/zone/history list_zone_changes
POST /v1/domains/{domain_id}/zone/history/{id}/undo undo_zone_change
POST /v1/domains/{domain_id}/zone/scan scan_zone
POST /v1/domains/{domain_id}/zone/import import_zone
GET /v1/dns-credentials list_dns_credentials
POST /v1/dns-credentials create_dns_credential
PATCH /v1/dns-credentials/{credential_id} update_dns_credential
DELETE /v1/dns-credentials/{credential_id} delete_dns_credential
POST /v1/dns-plan preview_dns_plan
GET /v1/domains/{domain_id}/dns-plan get_dns_plan
POST /v1/domains/{domain_id}/zone/put-back put_back_zone_records
POST /v1/domains/{domain_id}/redirect set_redirect
DELETE /v1/domains/{domain_id}/redirect delete_redirect
POST /v1/domains/{domain_id}/forward set_forward
DELETE /v1/domains/{domain_id}/forward delete_forward
GET /v1/domains/{domain_id}/email-users list_domain_email_users
GET /v1/email-users list_email_users
POST /v1/email-users create_email_user
POST /v1/inboxes create_inbox
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
GET /v1/email-users/{user_id}/inbox/{message_id}/attachments get_message_attachments
DELETE /v1/email-users/{user_id}/inbox/{message_id} delete_message
PATCH /v1/email-users/{user_id}/inbox/{message_id} mark_message
GET /v1/inbox list_inbox
GET /v1/email-users/{user_id}/inbox/wait wait_for_message
GET /v1/inbox/wait wait_for_any_message
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
POST /v1/email-users/{user_id}/import import_messages
POST /v1/email-users/{user_id}/export export_messages
GET /v1/export/formats list_export_formats
GET /v1/health get_health
GET /v1/settings list_settings
PATCH /v1/settings update_settings
POST /v1/settings/test test_settings
POST /v1/health/check check_health
GET /v1/backups list_backups
POST /v1/backups create_backup
POST /v1/backups/drill drill_backup
GET /v1/audit list_audit
GET /v1/requests list_requests
GET /v1/requests/{request_id} get_request
POST /v1/email-users/{user_id}/held release_held_messages
GET /v1/email-users/{user_id}/folders list_folders
GET /v1/email-users/{user_id}/addresses suggest_addresses
POST /v1/email-users/{user_id}/inbox/{message_id}/unsubscribe unsubscribe_message
POST /v1/email-users/{user_id}/inbox/{message_id}/invitation answer_invitation
GET /v1/email-users/{user_id}/rules list_rules
POST /v1/email-users/{user_id}/rules create_rule
PATCH /v1/email-users/{user_id}/rules/{rule_id} update_rule
DELETE /v1/email-users/{user_id}/rules/{rule_id} delete_rule
POST /v1/email-users/{user_id}/rules/test test_rules
GET /v1/approvals list_approvals
GET /v1/approvals/{approval_id} get_approval
GET /v1/approvals/{approval_id}/raw get_approval_raw
POST /v1/approvals/{approval_id}/approve approve_message
POST /v1/approvals/{approval_id}/reject reject_message
GET /v1/email-users/{user_id}/vacation get_vacation
PUT /v1/email-users/{user_id}/vacation set_vacation
DELETE /v1/email-users/{user_id}/vacation delete_vacation
POST /v1/email-users/{user_id}/recovery-link create_recovery_link
POST /v1/email-users/{user_id}/drafts create_draft
PUT /v1/email-users/{user_id}/drafts/{message_id} update_draft
POST /v1/email-users/{user_id}/drafts/{message_id}/send send_draft
POST /v1/email-users/{user_id}/folders create_folder
PATCH /v1/email-users/{user_id}/folders/{folder_id} update_folder
DELETE /v1/email-users/{user_id}/folders/{folder_id} delete_folder
POST /v1/inbox/bulk-move bulk_move_messages
GET /v1/me get_me
PATCH /v1/me update_me
POST /v1/me/password change_my_password
GET /v1/groups list_groups
POST /v1/groups create_group
GET /v1/groups/{group_id} get_group
PATCH /v1/groups/{group_id} update_group
DELETE /v1/groups/{group_id} delete_group
GET /v1/email-users/{user_id}/credentials list_credentials
POST /v1/email-users/{user_id}/credentials create_credential
DELETE /v1/email-users/{user_id}/credentials/{credential_id} delete_credential
POST /v1/email-users/{user_id}/credentials/{credential_id}/clear-taint clear_credential_taint
GET /v1/domains/{domain_id}/smtp-credentials list_smtp_credentials
POST /v1/domains/{domain_id}/smtp-credentials create_smtp_credential
DELETE /v1/domains/{domain_id}/smtp-credentials/{credential_id} delete_smtp_credential
POST /v1/domains/{domain_id}/smtp-credentials/{credential_id}/clear-taint clear_smtp_credential_taint
GET /v1/message-templates list_message_templates
POST /v1/message-templates create_message_template
GET /v1/message-templates/{id} get_message_template
PATCH /v1/message-templates/{id} update_message_template
DELETE /v1/message-templates/{id} delete_message_template
POST /v1/message-templates/{id}/preview preview_message_template
POST /v1/email-users/{user_id}/inbox/send-batch send_email_batch
PATCH /v1/messages/{id} update_scheduled_message
GET /v1/reputation get_reputation
POST /v1/suppressions/import import_suppressions
GET /v1/accounts list_accounts
POST /v1/accounts create_account
GET /v1/accounts/{account_id} get_account_by_id
PATCH /v1/accounts/{account_id} update_account_by_id
DELETE /v1/accounts/{account_id} delete_account
GET /v1/accounts/{account_id}/usage get_account_usage
POST /v1/accounts/{account_id}/sign-in-link create_sign_in_link
`

// The contract's matrices: who may do what, with which permission.
var permitted = []struct{ scope, roles, operations string }{
	{"read", "owner admin member", `get_account get_usage list_team_users list_tokens list_domains get_domain get_dns_status get_dns_records search_domain
		search_domains_bulk suggest_domains check_provider list_custom_dns_records get_dns_plan get_zone get_zone_questions list_zone_changes list_domain_email_users list_email_users get_email_user generate_names
		list_templates get_template list_email_user_inbox get_message get_message_raw get_message_attachment get_message_attachments list_inbox get_inbox_message list_webhooks
		get_webhook list_webhook_deliveries lookup_message list_jobs get_job list_export_formats list_events list_messages get_sent_message list_suppressions
		list_dmarc_reports list_tls_reports list_message_templates get_message_template preview_message_template get_reputation list_groups get_group list_folders suggest_addresses list_rules test_rules get_vacation get_me wait_for_message wait_for_any_message`},
	{"write", "owner admin member", `create_token delete_token check_nameservers verify_dns create_template update_template delete_template
		send_email refresh_email_user_inbox delete_message mark_message refresh_inbox bulk_delete_messages bulk_mark_messages mark_inbox_message delete_inbox_message
		retry_message cancel_message create_suppression delete_suppression create_message_template update_message_template delete_message_template
		send_email_batch update_scheduled_message create_draft update_draft send_draft create_folder update_folder delete_folder bulk_move_messages unsubscribe_message answer_invitation`},
	{"write", "owner admin", `update_account connect_domains setup_domain update_domain delete_domain create_custom_dns_record update_custom_dns_record
		delete_custom_dns_record set_dmarc reset_dmarc set_spf reset_spf preview_dns_plan put_back_zone_records set_zone_records delete_zone_records undo_zone_change scan_zone import_zone set_redirect delete_redirect set_forward delete_forward create_email_user create_email_users_bulk
		delete_email_users_bulk update_email_user delete_email_user create_webhook update_webhook delete_webhook get_webhook_secret rotate_webhook_secret
		test_webhook redeliver_event set_universal_inbox create_export export_messages import_messages import_suppressions release_held_messages create_group update_group delete_group
		create_credential delete_credential create_smtp_credential delete_smtp_credential create_recovery_link create_rule update_rule delete_rule set_vacation delete_vacation
		approve_message reject_message create_inbox`},
	// Of the first account alone: its owner, and admins whom the owner allows it.
	{"read", "owner", "get_health list_settings list_backups list_accounts get_account_by_id get_account_usage"},
	{"admin", "owner", "update_settings test_settings check_health create_backup drill_backup create_account update_account_by_id delete_account create_sign_in_link"},
	{"read", "owner admin", "list_dns_credentials list_audit list_credentials list_smtp_credentials list_approvals get_approval get_approval_raw"},
	{"write", "mailbox", "update_me change_my_password"},
	{"admin", "owner admin", "list_requests get_request create_dns_credential update_dns_credential delete_dns_credential invite_team_user delete_team_user clear_token_taint clear_credential_taint clear_smtp_credential_taint"},
}

// ownRules are operations whose permission depends on whom they are about.
var ownRules = []string{"update_team_user"}

// longLists are the lists that come in pages, with their default and their maximum.
var longLists = []struct {
	path            string
	byDefault, most string
}{
	{"/v1/domains", "25", "100"},
	{"/v1/email-users", "25", "100"},
	{"/v1/domains/{builtin}/dmarc-reports", "25", "100"},
	{"/v1/domains/{builtin}/tls-reports", "25", "100"},
	{"/v1/domains/{builtin}/zone/history", "25", "100"},
	{"/v1/domains/{hosted}/email-users", "25", "100"},
	{"/v1/email-users/{ann}/inbox", "25", "100"},
	{"/v1/inbox", "100", "200"},
	{"/v1/webhooks/{hook}/deliveries", "25", "100"},
	{"/v1/events", "25", "100"},
	{"/v1/messages", "25", "100"},
	{"/v1/suppressions", "25", "100"},
	{"/v1/jobs", "25", "100"},
	{"/v1/audit", "25", "100"},
	{"/v1/approvals", "25", "100"},
	{"/v1/accounts", "25", "100"},
}

// notAudited are the operations other than GET that have no row in the audit log, since they change
// nothing, send, mark or fetch, or whose rows another test reads, since a person alone calls them.
var notAudited = []string{
	"search_domains_bulk", "check_provider", "preview_dns_plan", "put_back_zone_records", "generate_names", "create_draft", "update_draft", "send_draft", "send_email", "send_email_batch", "preview_message_template", "clear_token_taint", "clear_credential_taint", "clear_smtp_credential_taint", "retry_message", "mark_message", "mark_inbox_message",
	"bulk_mark_messages", "bulk_move_messages", "update_me", "change_my_password", "unsubscribe_message", "answer_invitation", "test_rules", "test_settings", "refresh_email_user_inbox", "refresh_inbox",
	"check_health", "create_backup", "drill_backup",
}

// changes has a request that takes effect for every other operation, in the order in which they are
// sent, with what its row must say. {name} stands for an id of the world, or for what an operation
// before has made.
var changes = []struct {
	operation, method, path, body string
	target, fields                string // type and name, with a space between; names, with spaces between
}{
	{"update_account", "PATCH", "/v1/account", `{"name":"Ours","unknown":1}`, "account Ours", "name"},
	{"create_token", "POST", "/v1/auth/tokens", `{"name":"deploy","permissions":["read"],"mailboxes":["{ann}"],"policy":{"taint":true}}`, "token deploy", "name permissions mailboxes policy"},
	{"delete_token", "DELETE", "/v1/auth/tokens/{create_token}", "", "token deploy", ""},
	{"invite_team_user", "POST", "/v1/account/users/invite", `{"email":"Ida@team.test","password":"not in the log"}`, "user ida@team.test", "email password"},
	{"update_team_user", "PATCH", "/v1/account/users/{invite_team_user}", `{"first_name":null,"password":"not in the log"}`, "user ida@team.test", "password first_name"},
	{"delete_team_user", "DELETE", "/v1/account/users/{invite_team_user}", "", "user ida@team.test", ""},
	{"connect_domains", "POST", "/v1/domains/connect", `{"domains":["more.test","boxes.test"]}`, "domain more.test", "domains"},
	{"check_nameservers", "POST", "/v1/domains/check-ns", `{"domains":["more.test"]}`, "domain more.test", "domains"},
	{"setup_domain", "POST", "/v1/domains/setup", `{"domain":"set.test"}`, "domain set.test", "domain"},
	{"verify_dns", "POST", "/v1/domains/{manual}/verify-dns", "", "domain manual.test", ""},
	{"update_domain", "PATCH", "/v1/domains/{builtin}", `{"notes":"not in the log"}`, "domain builtin.test", "notes"},
	{"create_custom_dns_record", "POST", "/v1/domains/{builtin}/custom-dns-records", `{"name":"x","type":"TXT","value":"not in the log"}`, "dns_record TXT x.builtin.test", "name type value"},
	{"update_custom_dns_record", "PATCH", "/v1/domains/{builtin}/custom-dns-records/{create_custom_dns_record}", `{"ttl":60}`, "dns_record TXT x.builtin.test", "ttl"},
	{"delete_custom_dns_record", "DELETE", "/v1/domains/{builtin}/custom-dns-records/{create_custom_dns_record}", "", "dns_record TXT x.builtin.test", ""},
	{"set_dmarc", "PUT", "/v1/domains/{builtin}/dmarc", `{"value":"v=DMARC1; p=none"}`, "domain builtin.test", "value"},
	{"reset_dmarc", "DELETE", "/v1/domains/{builtin}/dmarc", "", "domain builtin.test", ""},
	{"set_spf", "PUT", "/v1/domains/{builtin}/spf", `{"extra":["include:not-in-the-log.test"]}`, "domain builtin.test", "extra"},
	{"reset_spf", "DELETE", "/v1/domains/{builtin}/spf", "", "domain builtin.test", ""},
	{"set_zone_records", "PUT", "/v1/domains/{builtin}/zone/x/MX", `{"values":["10 not-in-the-log.test"]}`, "dns_record MX x.builtin.test", "values"},
	{"delete_zone_records", "DELETE", "/v1/domains/{builtin}/zone/x/MX", "", "dns_record MX x.builtin.test", ""},
	{"scan_zone", "POST", "/v1/domains/{builtin}/zone/scan", `{"nameservers":["ns1.not-in-the-log.test"]}`, "domain builtin.test", "nameservers"},
	{"import_zone", "POST", "/v1/domains/{builtin}/zone/import", `{"zone_file":"x 300 IN TXT not-in-the-log\n"}`, "domain builtin.test", "zone_file"},
	{"undo_zone_change", "POST", "/v1/domains/{builtin}/zone/history/{change}/undo", "", "zone_change builtin.test", ""},
	{"create_dns_credential", "POST", "/v1/dns-credentials", `{"provider":"hetzner","name":"ours","token":"edge-token"}`, "dns_credential ours", "provider name token"},
	{"update_dns_credential", "PATCH", "/v1/dns-credentials/{create_dns_credential}", `{"name":"renamed"}`, "dns_credential renamed", "name"},
	{"delete_dns_credential", "DELETE", "/v1/dns-credentials/{create_dns_credential}", "", "dns_credential renamed", ""},
	{"set_redirect", "POST", "/v1/domains/{builtin}/redirect", `{"url":"https://www.example.net/not-in-the-log"}`, "domain builtin.test", "redirect_url"},
	{"delete_redirect", "DELETE", "/v1/domains/{builtin}/redirect", "", "domain builtin.test", ""},
	{"set_forward", "POST", "/v1/domains/{builtin}/forward", `{"forward_address":"far@far.test"}`, "domain builtin.test", "forward_address"},
	{"delete_forward", "DELETE", "/v1/domains/{builtin}/forward", "", "domain builtin.test", ""},
	{"create_webhook", "POST", "/v1/webhooks", `{"url":"https://127.0.0.1:1/not-in-the-log","events":["domain.ready"]}`, "webhook 127.0.0.1", "url events"},
	{"get_webhook_secret", "GET", "/v1/webhooks/{create_webhook}/secret", "", "webhook 127.0.0.1", ""},
	{"rotate_webhook_secret", "POST", "/v1/webhooks/{create_webhook}/rotate-secret", "", "webhook 127.0.0.1", ""},
	{"test_webhook", "POST", "/v1/webhooks/{create_webhook}/test", "", "webhook 127.0.0.1", ""},
	{"redeliver_event", "POST", "/v1/webhooks/{create_webhook}/deliveries/{test_webhook}/redeliver", "", "webhook 127.0.0.1", ""},
	{"update_webhook", "PATCH", "/v1/webhooks/{create_webhook}", `{"status":"disabled"}`, "webhook 127.0.0.1", "status"},
	{"delete_webhook", "DELETE", "/v1/webhooks/{create_webhook}", "", "webhook 127.0.0.1", ""},
	{"set_universal_inbox", "POST", "/v1/account/universal-inbox", `{"enabled":true}`, "account Ours", "enabled"},
	{"create_email_user", "POST", "/v1/email-users", `{"username":"cleo","domain":"boxes.test","password":"not in the log"}`, "email_user cleo@boxes.test", "username domain password"},
	{"update_email_user", "PATCH", "/v1/email-users/{create_email_user}", `{"footer":"not in the log"}`, "email_user cleo@boxes.test", "footer"},
	{"import_messages", "POST", "/v1/email-users/{ann}/import", `{"imap":{"host":"127.0.0.1","port":1,"security":"tls","username":"a","password":"not in the log"}}`, "email_user ann@boxes.test", "imap"},
	{"export_messages", "POST", "/v1/email-users/{ann}/export", `{"format":"mbox"}`, "email_user ann@boxes.test", "format"},
	{"delete_email_user", "DELETE", "/v1/email-users/{create_email_user}", "", "email_user cleo@boxes.test", ""},
	{"create_email_users_bulk", "POST", "/v1/email-users/bulk", `{"domain":"boxes.test","users":[{"username":"dan"},{"username":"eve"},{"username":"abuse"}]}`, "domain boxes.test", "domain users"},
	{"delete_email_users_bulk", "DELETE", "/v1/email-users/bulk", `{"emails":["dan@boxes.test"]}`, "email_user dan@boxes.test", "emails"},
	{"delete_email_users_bulk", "POST", "/v1/email-users/bulk-delete", `{"emails":["dan@boxes.test","eve@boxes.test"]}`, "email_user eve@boxes.test", "emails"},
	{"create_template", "POST", "/v1/email-user-templates", `{"name":"Sales","usernames":["sue"]}`, "template Sales", "name usernames"},
	{"update_template", "PATCH", "/v1/email-user-templates/{create_template}", `{"usernames":["sam"]}`, "template Sales", "usernames"},
	{"delete_template", "DELETE", "/v1/email-user-templates/{create_template}", "", "template Sales", ""},
	{"create_export", "POST", "/v1/export", `{"all":true}`, "export default", "all"},
	{"delete_message", "DELETE", "/v1/email-users/{ann}/inbox/1", "", "message ann@boxes.test", ""},
	{"delete_inbox_message", "DELETE", "/v1/inbox/2?mailbox=ann@boxes.test", "", "message ann@boxes.test", ""},
	{"bulk_delete_messages", "POST", "/v1/inbox/bulk-delete", `{"messages":[{"uid":"3","mailbox":"ann@boxes.test"},{"uid":"4","mailbox":"ann@boxes.test"}]}`, "email_user ann@boxes.test", "messages"},
	{"create_message_template", "POST", "/v1/message-templates", `{"name":"Hello","subject":"not in the log","text":"t"}`, "message_template Hello", "name subject text"},
	{"update_message_template", "PATCH", "/v1/message-templates/{create_message_template}", `{"text":"not in the log"}`, "message_template Hello", "text"},
	{"delete_message_template", "DELETE", "/v1/message-templates/{create_message_template}", "", "message_template Hello", ""},
	{"create_folder", "POST", "/v1/email-users/{ann}/folders", `{"name":"not in the log"}`, "folder ann@boxes.test", "name"},
	{"update_folder", "PATCH", "/v1/email-users/{ann}/folders/{create_folder}", `{"name":"not in the log either"}`, "folder ann@boxes.test", "name"},
	{"delete_folder", "DELETE", "/v1/email-users/{ann}/folders/{create_folder}", "", "folder ann@boxes.test", ""},
	{"create_group", "POST", "/v1/groups", `{"email":"sales@boxes.test","members":[{"email":"ann@boxes.test"}]}`, "group sales@boxes.test", "email members"},
	{"update_group", "PATCH", "/v1/groups/{create_group}", `{"name":"not in the log"}`, "group sales@boxes.test", "name"},
	{"delete_group", "DELETE", "/v1/groups/{create_group}", "", "group sales@boxes.test", ""},
	{"create_rule", "POST", "/v1/email-users/{ann}/rules", `{"name":"Spring","actions":[{"type":"mark_read"}]}`, "rule Spring", "name actions"},
	{"update_rule", "PATCH", "/v1/email-users/{ann}/rules/{create_rule}", `{"enabled":false}`, "rule Spring", "enabled"},
	{"delete_rule", "DELETE", "/v1/email-users/{ann}/rules/{create_rule}", "", "rule Spring", ""},
	{"set_vacation", "PUT", "/v1/email-users/{ann}/vacation", `{"enabled":false}`, "email_user ann@boxes.test", "enabled"},
	{"delete_vacation", "DELETE", "/v1/email-users/{ann}/vacation", "", "email_user ann@boxes.test", ""},
	{"create_recovery_link", "POST", "/v1/email-users/{ann}/recovery-link", "", "email_user ann@boxes.test", ""},
	{"create_credential", "POST", "/v1/email-users/{ann}/credentials", `{"name":"Phone"}`, "credential Phone", "name"},
	{"delete_credential", "DELETE", "/v1/email-users/{ann}/credentials/{create_credential}", "", "credential Phone", ""},
	{"create_smtp_credential", "POST", "/v1/domains/{builtin}/smtp-credentials", `{"name":"Shop"}`, "credential Shop", "name"},
	{"delete_smtp_credential", "DELETE", "/v1/domains/{builtin}/smtp-credentials/{create_smtp_credential}", "", "credential Shop", ""},
	{"create_inbox", "POST", "/v1/inboxes", `{"domain":"boxes.test","username":"short","policy":{"allowed_recipients":["not-in-the-log@far.test"]}}`, "email_user short@boxes.test", "domain username policy"},
	{"release_held_messages", "POST", "/v1/email-users/{ann}/held", `{"action":"release"}`, "email_user ann@boxes.test", "action"},
	{"import_suppressions", "POST", "/v1/suppressions/import", `{"emails":["gone@far.test"]}`, "suppression gone@far.test", "emails"},
	{"update_scheduled_message", "PATCH", "/v1/messages/{scheduled}", `{"send_at":"{next_day}"}`, "message later@far.test", "send_at"},
	{"cancel_message", "POST", "/v1/messages/{sent}/cancel", "", "message far@far.test", ""},
	{"approve_message", "POST", "/v1/approvals/{held0}/approve", `{"content_hash":"{hash0}","note":"not in the log"}`, "approval ann@boxes.test", "content_hash note"},
	{"reject_message", "POST", "/v1/approvals/{held1}/reject", `{"note":"not in the log"}`, "approval ann@boxes.test", "note"},
	{"create_suppression", "POST", "/v1/suppressions", `{"email":"no@far.test"}`, "suppression no@far.test", "email"},
	{"delete_suppression", "DELETE", "/v1/suppressions/no@far.test", "", "suppression no@far.test", ""},
	{"update_settings", "PATCH", "/v1/settings", `{"values":{"limits.domains":77}}`, "settings mail.example.test", "limits.domains"},
	{"delete_domain", "DELETE", "/v1/domains/{builtin}", "", "domain builtin.test", ""},
	{"create_account", "POST", "/v1/accounts", `{"name":"Far Ltd","owner_email":"not-in-the-log@far.test","owner_password":"not in the log"}`, "account Far Ltd", "name owner_email owner_password"},
	{"update_account_by_id", "PATCH", "/v1/accounts/{create_account}", `{"limits":{"domains":3}}`, "account Far Ltd", "limits"},
	{"create_sign_in_link", "POST", "/v1/accounts/{create_account}/sign-in-link", "", "account Far Ltd", ""},
	{"delete_account", "DELETE", "/v1/accounts/{create_account}?confirm=Far+Ltd", "", "account Far Ltd", ""},
}

// counts are the rows that stand for several things.
var counts = map[string]string{"create_email_users_bulk": "2", "bulk_delete_messages": "2"}

// answers are requests in the order in which they are sent, with the status and the fields of what
// comes back. In paths and bodies {name} stands for an id.
var answers = []struct {
	method, path, body string
	status             int
	shape              string
}{
	{"GET", "/v1/account", "", 200, accountShape},
	{"PATCH", "/v1/account", `{"warmup_phrases":["warm"]}`, 200, accountShape},
	{"GET", "/v1/account/usage", "", 200, usageShape},
	{"POST", "/v1/auth/tokens", `{"expires_in_days":1}`, 201, tokenShape + " token"},
	{"GET", "/v1/auth/tokens", "", 200, "data[{" + tokenShape + "}] count"},
	{"DELETE", "/v1/auth/tokens/{spare}", "", 200, "message id"},
	{"POST", "/v1/domains/connect", `{"domains":["outside.test","bad name"],"external":true}`, 200, connectShape},
	{"POST", "/v1/domains/check-ns", `{"domains":["outside.test","nowhere.test"]}`, 200, nsShape},
	{"GET", "/v1/domains", "", 200, long(domainShape)},
	{"GET", "/v1/domains/{builtin}", "", 200, domainShape},
	{"POST", "/v1/domains/connect", `{"domains":["nozone.test","atedge.test"],"edge_api_token":"edge-token"}`, 200, connectShape},
	{"GET", "/v1/domains/{edge}", "", 200, domainShape},
	{"GET", "/v1/domains/{edge}/dns-status", "", 200, dnsStatusShape},
	{"POST", "/v1/domains/{edge}/custom-dns-records", `{"name":"x","type":"TXT","value":"y"}`, 200, "record{" + customShape + "}"},
	{"GET", "/v1/domains/{edge}/custom-dns-records", "", 200, "domain dns_provider(cloudflare) records[{" + customShape + "}] dmarc_override{value,updated_at}|null"},
	{"PUT", "/v1/domains/{edge}/dmarc", `{"value":"v=DMARC1; p=none"}`, 200, "dmarc_override{value,updated_at}"},
	{"DELETE", "/v1/domains/{edge}/dmarc", "", 200, "reset applied_default"},
	{"PUT", "/v1/domains/{builtin}/zone/x/MX", `{"values":["10 a.test","20 b.test"],"ttl":60}`, 200, zoneSetShape},
	{"GET", "/v1/domains/{builtin}/zone", "", 200, "domain dns_provider(builtin) records[{" + zoneSetShape + "}] count"},
	{"GET", "/v1/domains/{edge}/zone?live=true", "", 200, "domain dns_provider(cloudflare) records[{" + zoneSetShape + "}] count"},
	{"GET", "/v1/domains/{manual}/zone", "", 200, "domain dns_provider(manual) records[{" + zoneSetShape + "}] count"},
	{"POST", "/v1/domains/{builtin}/zone/import", `{"zone_file":"y 300 IN A 192.0.2.7\n@ 300 IN MX 10 mx.test.\n@ IN TXT \"v=spf1 ip4:192.0.2.9 -all\"\n"}`, 200,
		"imported(1) records[{" + zoneSetShape + "}] skipped[{name,type,value,reason}] merged[{name,type,value}] dry_run"},
	{"GET", "/v1/domains/{builtin}/zone/questions", "", 200, "domain since|null total last_asked_at|null hours[{hour,count}]"},
	{"GET", "/v1/domains/{builtin}/zone/history", "", 200, long(zoneChangeShape)},
	{"POST", "/v1/domains/{builtin}/zone/history/{change}/undo", "", 200, zoneChangeShape},
	{"DELETE", "/v1/domains/{builtin}/zone/x/MX", "", 200, "message name type"},
	{"PUT", "/v1/domains/{edge}/spf", `{"extra":["ip4:192.0.2.8"],"all":"-"}`, 200, "spf{extra[],all(~|-)}"},
	{"DELETE", "/v1/domains/{edge}/spf", "", 200, "reset applied_default"},
	{"POST", "/v1/dns-credentials", `{"provider":"hetzner","name":"ours","zones":["atedge.test"],"token":"edge-token"}`, 201, dnsCredentialShape},
	{"GET", "/v1/dns-credentials", "", 200, "data[{" + dnsCredentialShape + "}] count"},
	{"PATCH", "/v1/dns-credentials/{dns_credential}", `{"token":"edge-token"}`, 200, dnsCredentialShape},
	{"POST", "/v1/dns-plan", `{"domain":"new.atedge.test","dns_credential_id":"{dns_credential}"}`, 200, dnsPlanShape},
	{"GET", "/v1/domains/{edge}/dns-plan", "", 200, dnsPlanShape},
	{"GET", "/v1/domains/{builtin}/dns-plan", "", 200, "changes[] foreign_conflicts[] count"},
	{"DELETE", "/v1/dns-credentials/{dns_credential}", "", 200, "message id"},
	{"PATCH", "/v1/domains/{builtin}", `{"notes":"n"}`, 200, domainShape},
	{"GET", "/v1/domains/{builtin}/dns-status", "", 200, dnsStatusShape},
	{"GET", "/v1/domains/{builtin}/email-users", "", 200, "data[] " + pageShape},
	{"GET", "/v1/domains/{builtin}/dmarc-reports", "", 200, long(dmarcReportShape)},
	{"GET", "/v1/domains/{builtin}/tls-reports?org=far&date_from=2026-11-20&date_to=2026-11-20", "", 200, long(tlsReportShape)},
	{"GET", "/v1/domains/{manual}/dns-status?refresh=true", "", 200, dnsStatusShape},
	{"GET", "/v1/domains/{manual}/dns-records", "", 200, dnsRecordsShape},
	{"POST", "/v1/domains/{manual}/verify-dns", "", 200, verifyShape},
	{"DELETE", "/v1/domains/{manual}", "", 202, jobShape},
	{"POST", "/v1/email-users/{ann}/import", `{"imap":{"host":"127.0.0.1","port":1,"security":"tls","username":"a","password":"b"}}`, 202, jobShape},
	{"POST", "/v1/email-users/{ann}/export", `{"format":"maildir"}`, 202, jobShape},
	{"POST", "/v1/email-users", `{"username":"cleo","domain":"boxes.test"}`, 201, userShape + " password password_generated"},
	{"POST", "/v1/email-users/bulk", `{"domain":"boxes.test","users":[{"username":"dan"},{"username":"abuse"}]}`, 200, bulkShape},
	{"GET", "/v1/email-users", "", 200, long(userShape)},
	{"GET", "/v1/email-users/{ann}", "", 200, userShape},
	{"PATCH", "/v1/email-users/{ann}", `{"name":"Ann"}`, 200, userShape},
	{"GET", "/v1/domains/{hosted}/email-users", "", 200, long(userShape)},
	{"POST", "/v1/inboxes", `{"domain":"boxes.test","username":"short","policy":{"send":"reply_only","taint":true,"taint_seconds":3600}}`, 201, inboxShape},
	{"POST", "/v1/auth/tokens", `{"mailboxes":["{ann}"],"policy":{"trusted_senders":["@far.test"]}}`, 201, tokenShape + " token"},
	{"POST", "/v1/email-users/{ann}/credentials", `{"name":"Phone","policy":{"send":"approval"}}`, 201, credentialShape + " username password"},
	{"GET", "/v1/email-users/{ann}/credentials", "", 200, "data[{" + credentialShape + "}] count"},
	{"POST", "/v1/domains/{hosted}/smtp-credentials", `{"name":"Shop","policy":{"send":"deny"}}`, 201, credentialShape + " username password"},
	{"DELETE", "/v1/email-users/bulk", `{"emails":["dan@boxes.test","gone@boxes.test"]}`, 200, bulkGoneShape},
	{"POST", "/v1/email-users/bulk-delete", `{"user_ids":["eu_gone"]}`, 200, bulkGoneShape},
	{"DELETE", "/v1/email-users/{ben}", "", 200, "message user_id job_id"},
	{"POST", "/v1/email-users/{ann}/inbox/send", `{"to":["ann@boxes.test","far@far.test"],"subject":"s","text":"t"}`, 200, sentShape},
	{"GET", "/v1/email-users/{ann}/inbox", "", 200, long(messageShape) + " synced_at|null"},
	{"GET", "/v1/inbox", "", 200, long(messageShape) + " synced_at|null"},
	{"GET", "/v1/email-users/{cat}/inbox/wait?since=2001-02-03", "", 200, "message{" + messageShape + " reply_text|null} code|null links[{url,text,same_domain}] verified_domain|null now"},
	{"GET", "/v1/inbox/wait?timeout=1&subject=none", "", 200, "message|null code|null links[] verified_domain|null now"},
	{"GET", "/v1/email-users/{ann}/inbox/1", "", 200, detailShape},
	{"GET", "/v1/inbox/1?mailbox=ann@boxes.test", "", 200, detailShape},
	{"POST", "/v1/email-users/{ann}/rules", `{"name":"Far","conditions":[{"field":"from","op":"contains","value":"far"},{"field":"size","op":"above","value":1},{"field":"header","op":"exists","header":"X-Far","not":true}],"actions":[{"type":"move","value":"archive"}]}`, 201, ruleShape},
	{"GET", "/v1/email-users/{ann}/rules", "", 200, "data[{" + ruleShape + "}] count"},
	{"POST", "/v1/email-users/{ann}/rules/test", `{"message_id":"1"}`, 200, "matched[] actions[{rule_id,type,value|null}] folder|null copies[] flags[] skipped[]"},
	{"PATCH", "/v1/email-users/{ann}/rules/{rule}", `{"enabled":false}`, 200, ruleShape},
	{"DELETE", "/v1/email-users/{ann}/rules/{rule}", "", 200, "message id"},
	{"GET", "/v1/email-users/{ann}/vacation", "", 200, vacationShape},
	{"PUT", "/v1/email-users/{ann}/vacation", `{"enabled":true,"text":"Away.","ends_at":"2036-01-02T00:00:00Z"}`, 200, vacationShape},
	{"DELETE", "/v1/email-users/{ann}/vacation", "", 200, "message user_id"},
	{"PATCH", "/v1/email-users/{ann}/inbox/1", `{"is_read":true}`, 200, markedShape},
	{"PATCH", "/v1/inbox/1?mailbox=ann@boxes.test", `{"read":false}`, 200, markedShape},
	{"PATCH", "/v1/inbox/1?mailbox=ann@boxes.test", `{"is_flagged":true}`, 200, markedShape},
	{"POST", "/v1/inbox/bulk-mark", `{"messages":[{"uid":"2","mailbox":"ann@boxes.test"},{"uid":"99","mailbox":"ann@boxes.test"}],"is_read":true,"is_flagged":true}`, 200, "marked(1) failed(1) errors[{uid,mailbox,error,code}]"},
	{"POST", "/v1/email-users/{ann}/inbox/refresh", "", 200, "message email"},
	{"POST", "/v1/inbox/bulk-delete", `{"messages":[{"uid":"2","mailbox":"ann@boxes.test"},{"uid":"99","mailbox":"ann@boxes.test"}]}`, 200, "deleted(1) failed(1) errors[{uid,mailbox,error,code}]"},
	{"DELETE", "/v1/email-users/{ann}/inbox/1", "", 200, removedShape},
	{"DELETE", "/v1/inbox/3?mailbox=ann@boxes.test", "", 200, removedShape},
	{"POST", "/v1/webhooks", `{"url":"https://127.0.0.1:1/h","events":["*"]}`, 201, webhookShape + " secret"},
	{"GET", "/v1/webhooks", "", 200, "data[{" + webhookShape + "}] count limit(10)"},
	{"GET", "/v1/webhooks/{hook}", "", 200, webhookShape},
	{"PATCH", "/v1/webhooks/{hook}", `{"status":"disabled"}`, 200, webhookShape},
	{"GET", "/v1/webhooks/{hook}/secret", "", 200, secretShape},
	{"POST", "/v1/webhooks/{hook}/rotate-secret", "", 200, secretShape},
	{"POST", "/v1/webhooks/{hook}/test", "", 200, "event_id type(test.ping) queued message"},
	{"GET", "/v1/webhooks/{hook}/deliveries", "", 200, long(deliveryShape)},
	{"POST", "/v1/webhooks/{hook}/deliveries/{ping}/redeliver", "", 200, "event_id webhook_id queued message"},
	{"POST", "/v1/account/universal-inbox", `{"enabled":true}`, 200, "universal_inbox_enabled message"},
	{"POST", "/v1/inbox/refresh", "", 200, "message"},
	{"DELETE", "/v1/webhooks/{hook}", "", 200, "id deleted message"},
	{"GET", "/v1/messages", "", 200, long(logShape)},
	{"GET", "/v1/messages/{sent}", "", 200, logShape + " attempts_log[{at,host|null,ip|null,tls|null,authenticated(dane|mta-sts|certificate|none),code|null,enhanced,reply}]"},
	{"GET", "/v1/messages/lookup?original_message_id=one@boxes.test", "", 200, lookupShape},
	{"GET", "/v1/messages/lookup?provider_message_id=none@far.test", "", 200, "original_message_id|null provider_message_ids[] data[] count(0)"},
	{"POST", "/v1/suppressions", `{"email":"no@far.test"}`, 201, suppressionShape},
	{"POST", "/v1/suppressions/import", `{"emails":["no@far.test","new@far.test","no address"],"reason":"bounce"}`, 200, "added(1) already(1) invalid[]"},
	{"GET", "/v1/reputation", "", 200, reputationShape},
	{"POST", "/v1/message-templates", `{"name":"Hello","subject":"Hello {{name}}","text":"Hello {{ name }}"}`, 201, messageTemplateShape},
	{"GET", "/v1/message-templates", "", 200, long(messageTemplateShape)},
	{"POST", "/v1/email-users/{ann}/inbox/send-batch", `{"message":{"subject":"Hello","text":"Hello {{name}}"},"recipients":[{"to":"bob@boxes.test","variables":{"name":"Bob"}}]}`, 202, jobShape},
	{"POST", "/v1/email-users/{ann}/held", `{"action":"release"}`, 200, "released(0) discarded(0)"},
	{"GET", "/v1/approvals", "", 200, long(approvalShape + " subject preview")},
	{"GET", "/v1/approvals/{held}", "", 200, approvalShape + ` subject preview text|null html|null body_complete headers[{name,value}]
		attachments[{filename,content_type,size}]`},
	{"POST", "/v1/approvals/{held}/reject", `{}`, 403, errorShape},
	{"GET", "/v1/events?type=email.held", "", 200, eventList(approvalShape)},
	{"GET", "/v1/suppressions", "", 200, long(suppressionShape)},
	{"GET", "/v1/jobs", "", 200, long(jobShape)},
	{"GET", "/v1/jobs?job_id={job}", "", 200, jobShape},
	{"GET", "/v1/jobs/{job}?wait=1", "", 200, jobShape},
	{"GET", "/v1/events?type=domain.created", "", 200, eventList(domainEvent + "created_at")},
	{"GET", "/v1/events?type=domain.ready&limit=1", "", 200, eventList(domainEvent + "ready_at")},
	{"GET", "/v1/events?type=domain.dns_failed", "", 200, eventList(failedEvent)},
	{"GET", "/v1/events?type=email_user.created", "", 200, eventList(userEvent + "created_at")},
	{"GET", "/v1/events?type=email_user.deleted", "", 200, eventList(userEvent + "deleted_at")},
	{"GET", "/v1/events?type=email.received", "", 200, eventList(receivedEvent)},
	{"GET", "/v1/events?type=email.rule_matched", "", 200, eventList("rule_id rule_name value|null " + receivedEvent)},
	{"GET", "/v1/events?type=test.ping", "", 200, eventList("webhook_id message sent_at")},
	{"GET", "/v1/events?event_id={ping}", "", 200, eventList("webhook_id message sent_at")},
	{"GET", "/v1/events?event_id=evt_none", "", 200, "data[] pagination{cursor|null,has_more,count(0),limit}"},
	{"GET", "/v1/settings", "", 200, "data[{key,value|null,default|null,type,source(flag|environment|file|store|default),line|null,editable,restart,secret,description,ignored|null}] count"},
	{"GET", "/v1/audit", "", 200, long(auditShape)},
	{"GET", "/v1/requests", "", 200, long(requestShape)},
	{"GET", "/v1/accounts", "", 200, long(hostedShape)},
	{"GET", "/v1/domains/none", "", 404, errorShape},
	{"POST", "/v1/email-users", `{}`, 400, errorShape},
}

func long(record string) string { return "data[{" + record + "}] " + pageShape }

func eventList(data string) string {
	return long("id object(event) type api_version created account_id data{" + data + "}")
}

// The contract's field lists, as it writes them: `|null` may be null, `[]` is a list, `(a|b)` are
// the values that there are, `{…}` the fields of an object, `?` may be absent. Where it names a
// record by a long id, `id` is added.
const (
	pageShape    = "pagination{cursor|null,has_more,count,limit}"
	errorShape   = "error{code,message,details?[{field,code,message}],request_id,retry_after?}"
	accountShape = `id name email plan(startup|enterprise) status(active|suspended) domains_limit domains_used email_users_limit|null email_users_used
		team_users_limit team_users_used webhooks_limit(10) webhooks_used universal_inbox_enabled warmup_phrases[]
		warmup_headers[]{name,value|null} warmup_folder|null warmup_days default_dmarc(v=DMARC1; p=reject)
		rate_limit{per_minute,burst} nameservers[] mail{hostname,smtp_host,smtp_port,imap_host,imap_port,relay|null} registrars[]
		api_token{id,name,permissions[],expires_at|null} user{id,email,role}|null version created_at`
	usageShape = `domains{used,limit|null} email_users{used,limit|null} team_users{used,limit|null} webhooks{used,limit|null} api_tokens{used,limit|null}
		storage{used_bytes,limit_bytes|null,messages} messages{sent_today,sent_30d,received_30d,bounced_30d,complained_30d,queued}
		rate_limit{limit,remaining,reset} daily[]{date,sent,received,bounced,complained} as_of`
	tokenShape = `id name token_prefix permissions[](read|write|purchase|admin) created_by created_at expires_at|null last_used_at|null last_used_ip|null
		kind(api|mcp|oauth|session) client_name|null mailboxes[]|null ` + policyShape
	domainShape = `id domain_id domain domain_unicode status(pending|pending_ns|pending_dns_records|in_progress|complete|error|deleting) status_detail|null
		error{code,message}|null dns_provider(builtin|cloudflare|rfc2136|route53|hetzner|desec|manual|external) source(connected|registered) registrar|null expires_at|null auto_renew
		nameservers[] previous_nameservers[] scan_job_id|null delegation{nameservers[],ds[],ttl|null,looked_at}|null ns_status(pending|verified|lost|not_required) dns_status(pending|propagating|complete|failed)
		sending_paused{reason(bounces|complaints),at}|null tls_policy(opportunistic|required) sends_elsewhere[{host|null,network|null,selector}]
		dns_health{status(healthy|degraded|failing|unknown),issues[{code,purpose,host,message}],checked_at|null,failing_since|null} dkim_selector|null
		dnssec{status(unknown|unpublished|secure|bogus),ds[{key_tag,algorithm,digest_type,digest,value}],dnskey}|null
		dmarc_override{value,updated_at}|null spf{extra[],all(~|-)} redirect_url|null redirect{url,permanent,preserve_path}|null forward_address|null catch_all|null sending_mode(direct|relay) relay|null list_unsubscribe email_users_count
		dns_credential_id|null replaced[{name,type,value,ttl}] apex{mode,addresses[],alias|null}|null mx{mode,hosts[]}|null tags[] notes|null job_id|null next_look_at|null created_at updated_at completed_at|null`
	connectShape = `domains[{domain,domain_id|null,status(created|already_exists|error),dns_provider,nameservers[],error|null}] nameservers[] domains_used
		domain_limit edge_mode`
	customShape        = "id record_id name fqdn type(TXT|CNAME|A|AAAA) value ttl status(active|pending|error) error|null created_at updated_at"
	dnsCredentialShape = "id provider(cloudflare|rfc2136|route53|hetzner|desec) name zones[] error|null created_at last_used_at|null"
	dnsPlanShape       = `changes[{action(create|update|delete|keep),name,type,before[]|null,after[]|null,reason}] foreign_conflicts[{name,type,value,wanted}] count`
	zoneSetShape       = "name type ttl values[] source(managed|custom|foreign)"
	zoneChangeShape    = "id kind(set|delete|import|undo) name|null type|null added removed by created_at"
	nsShape            = `domains[{domain,domain_id|null,status(verified|failed|not_found|already_complete|error),message,verified,nameservers[],current_ns[]}]
		all_verified`
	dnsStatusShape = `domain_id domain dns_provider status(pending|propagating|complete|failed) ready nameservers{expected[],actual[],verified}
		records[{purpose(MX|SPF|DKIM|DMARC|A|TRACKING|MTA_STS|TLSRPT|AUTOCONFIG),type,host,critical,verified,expected,actual|null,error|null}]
		summary{mx,spf,dkim,dmarc} checked_at next_check_at|null cached`
	dnsRecordsShape = "status(ready) domain records[{type(A|MX|TXT),host,value,ttl,purpose,priority|null}]"
	verifyShape     = "domain all_verified critical_verified records[{type,host,purpose,verified,expected,actual|null}]"
	sendPolicyShape = "send(allow|reply_only|approval|deny) allowed_recipients[]"
	policyShape     = "own_words policy{" + sendPolicyShape + " trusted_senders[] taint taint_seconds|null} tainted{since,user_id|null,thread_id|null}|null"
	credentialShape = "id name protocols[] allowed_networks|null expires_at|null last_used_at|null last_used_ip|null created_at " + policyShape
	inboxShape      = "inbox{" + userShape + "} credential{" + credentialShape + "} password token mcp_url smtp{" + serverShape + "} imap{" + serverShape + "} expires_at"
	serverShape     = "host port security(tls|starttls|none)"
	userShape       = `id user_id email username domain domain_id name status(pending|active|suspended|error|deleting) error{code,message}|null type(hosted|external)
		aliases[] send_as[] signature|null recovery_email|null recovery_confirmed forward_keep_copy daily_send_limit|null sent_today sending_paused{reason(bounces|complaints),at}|null smtp_host smtp_port smtp_security(tls|starttls|none) imap_host imap_port imap_security(tls|starttls|none) footer|null
		forward_to|null relay|null quota_bytes|null used_bytes unread_count last_sync_at|null last_login_at|null
		send_policy{` + sendPolicyShape + `} expires_at|null created_at updated_at`
	bulkShape     = "domain created failed users[{" + userShape + ",password,password_generated}] errors[{index,username,code,message}] job_id|null"
	bulkGoneShape = "queued failed errors[{user_id|null,code,message}] job_id|null"
	messageShape  = `id uid uid_validity user_id mailbox recipient folder email_id message_id thread_id in_reply_to|null references[] from from_email from_name|null to[] cc[] bcc[]
		reply_to[] subject body_preview received_at date|null is_read is_answered is_flagged has_attachments
		attachments[{index,filename,content_type,size,content_id|null}] size is_warmup is_auto_reply is_bounce
		auth{spf(pass|fail|softfail|neutral|none|temperror|permerror),dkim(pass|fail|softfail|neutral|none|temperror|permerror),dmarc(pass|fail|softfail|neutral|none|temperror|permerror),reason|null,dmarc_policy(none|quarantine|reject)|null,dmarc_rfc7489{result,policy(none|quarantine|reject)|null}|null}
		original_message_id|null answered_by{kind(team|mailbox|token),name,at}|null spam{score,verdict(ham|unsure|spam),reasons[]{code,text,weight}}|null withheld`
	detailShape = messageShape + " text|null html|null reply_text|null headers[{name,value}] truncated invitation{summary,location,starts_at|null,ends_at|null,all_day,organizer,organizer_name,attendees[{name,email,answer(accepted|tentative|declined)|null}],answer(accepted|tentative|declined)|null}|null"
	sentShape   = `success message_id status(queued|scheduled|held) approval_id|null user_id from recipients[{id,email,status(queued|scheduled|suppressed|held),transport}]
		transport(direct|relay|local|capture|simulator|mixed) queued_at send_at|null`
	markedShape  = "message message_id uid mailbox is_read is_flagged"
	removedShape = "message message_id uid mailbox"
	webhookShape = `id url events[] description|null status(enabled|disabled) disabled_reason(null|manual|consecutive_failures|gone) disabled_at|null
		consecutive_failures api_version secret_hint last_delivery_at|null last_success_at|null created_at updated_at headers filters{mailboxes[],domains[]}|null`
	secretShape   = "id secret previous_secret_expires_at|null"
	deliveryShape = `id event_id event_type attempt outcome(success|failed|pending) http_status|null error|null
		error_code(null|timeout|dns|connect|tls|http_status|blocked_address) duration_ms response_excerpt|null url trigger(event|retry|test|redeliver)
		attempted_at next_attempt_at|null`
	lookupShape = `original_message_id|null provider_message_ids[]
		data[{original_message_id,provider_message_id,provider,recipient,sender,sending_domain,relayed_at}] count`
	logShape = `id message_id user_id sender recipient subject status(queued|scheduled|held|sent|delivered|relayed|captured|deferred|bounced|complained|suppressed|cancelled|rejected)
		transport provider|null provider_message_id|null attempts last_response|null next_attempt_at|null send_at|null tags require_tls approval_id|null request_id|null queued_at updated_at`
	messageTemplateShape = "id name subject text|null html|null variables[] created_at updated_at"
	windowShape          = "{sent,deferred,bounced,complained,bounce_rate,complaint_rate}"
	windowsShape         = "windows{1d" + windowShape + ",7d" + windowShape + ",30d" + windowShape + "}"
	pausedShape          = "sending_paused{reason(bounces|complaints),at}|null"
	reputationShape      = "account{" + windowsShape + "} domains[{domain_id,domain," + pausedShape + "," + windowsShape + "}] mailboxes[{user_id,email," + pausedShape + "," + windowsShape + "}] destinations[{operator,domains[],blocked{reply,advice,at}|null," + windowsShape + "}] as_of"
	jobShape             = `id job_id type status(queued|in_progress|completed|error|cancelled) status_detail|null progress{completed,total,percent}|null
		steps[{name,status(queued|in_progress|completed|error|skipped),error|null,at|null}] resource{type,id,name}|null result|null error{code,message}|null
		attempts next_attempt_at|null created_by created_at started_at|null updated_at completed_at|null`
	dmarcReportShape = `id report_id org_name email|null date_begin date_end policy{domain,p(none|quarantine|reject),sp(none|quarantine|reject),np(none|quarantine|reject)|null,adkim(r|s),aspf(r|s),testing,discovery_method|null,pct}
		records[{source_ip,count,disposition(none|quarantine|reject),dkim(pass|fail),spf(pass|fail),header_from,envelope_from|null,envelope_to|null,
		reasons[{type,comment|null}],dkim_results[{domain,selector|null,result}],spf_results[{domain,scope|null,result}]}] records_omitted
		totals{messages,passed,failed} authenticated received_from|null received_at`
	tlsReportShape = `id report_id org_name contact|null date_begin date_end policies[{type(sts|tlsa|no-policy-found),domain,strings[],mx_hosts[],
		successful,failed,failures[{result_type,sessions,sending_ip|null,mx_host|null,receiving_ip|null,reason|null}]}] totals{successful,failed}
		authenticated received_from|null received_at`
	suppressionShape = "email reason(bounce|complaint|manual) message_id|null created_at"
	approvalShape    = `approval_id status(pending|approved|rejected|expired) reason(policy|tainted) via(api|mcp|smtp|rule) token{id,name}|null user_id|null
		email to[] cc[] bcc[] size content_hash message_id created_at expires_at decided_at|null decided_by{id,name}|null note|null`
	auditShape = `id action actor{type(user|token|mailbox|operator|system),id|null,name} via(api|mcp|dashboard|command) ip|null target{type,id,name}|null fields[] count
		request_id|null created_at`
	requestShape = "request_id client_request_id|null at method path operation status duration_ms token{id,name}|null ip error_code|null"
	ruleShape    = `id name enabled position match(all|any) conditions[{field,op,value|null,header?,not?}]
		actions[{type,value|null}] created_at updated_at`
	vacationShape = "enabled subject|null text from|null starts_at|null ends_at|null"
	domainEvent   = "domain_id domain status dns_provider source job_id|null "
	userEvent     = "user_id email username domain domain_id name "
	receivedEvent = `user_id mailbox recipient sender sender_name from to[] cc[] subject message_id in_reply_to|null references[] thread_id folder uid
		received_at has_attachments size is_auto_reply to_count cc_count references_count original_message_id|null`
	failedEvent = "domain_id domain issues[{code,purpose,type,host,expected,actual|null,message}] failing_since checked_at"
)
