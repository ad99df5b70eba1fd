package openapi

const idempotencyText = "Up to 255 characters of your choice. A second POST with the same key within 24 hours does nothing and gets the answer of the first; where that has more than 256 KiB it is not kept, and the second gets 409 `answer_not_kept`. Operations that only read take no key."

var apiInfo = documentInfo{
	Title: "Mailstead API", Version: "1.0.0", Summary: "Domains, mailboxes, mail and webhooks of a Mailstead installation.",
	Description: "Send `Authorization: Bearer mst_…` with every request, and bodies as JSON.\n\n" +
		"Long lists have `data` and `pagination`: send `pagination.cursor` as `cursor` to get the next page, until it is null. A filter `x=` can also be written as `filter[x]=`.\n\n" +
		"Errors have one form, with a `code` for programs and a `message` that says what to do next; with `Accept: application/problem+json` they follow RFC 9457. A wrong method is 405 `method_not_allowed`, an unknown path 404 `not_found`.\n\n" +
		"Requests are counted for each account in windows of one minute: see the `X-RateLimit-` headers. Requests above the burst limit get 429 until the window ends.\n\n" +
		"Send an `Idempotency-Key` with a POST that changes something to make it safe to repeat.\n\n" +
		"Long work is answered with 202 and a job, or names a job in `job_id`: follow it with `get_job`.\n\n" +
		"Times are RFC 3339 in UTC with milliseconds. New fields, codes and event types may be added; existing ones stay.",
}

var groups = []tag{
	{"Account", "The account, its limits and its use of them."},
	{"Team", "The people who share the account."},
	{"Tokens", "Credentials for this API."},
	{"Domains", "Finding, connecting, setting up and watching domains."},
	{"DNS", "Custom records, DMARC, redirects and forwards."},
	{"Email users", "Mailboxes."},
	{"Templates", "Sets of usernames to create mailboxes from."},
	{"Me", "Who asks, and one's own mailbox."},
	{"Folders", "Folders of mailboxes. Programs see the same ones over IMAP."},
	{"Credentials", "Passwords for devices and programs, beside a mailbox's own, and those that send for a domain."},
	{"Rules", "What mailboxes do with mail by themselves: rules, and an automatic reply."},
	{"Groups", "Addresses whose mail goes to several members."},
	{"Message templates", "Texts with variables that messages are made of."},
	{"Inbox", "Reading, sending and deleting mail."},
	{"Sending log", "The status of sent messages, and the suppression list."},
	{"Approvals", "Messages that wait until a person approves them."},
	{"Webhooks", "Endpoints that receive events."},
	{"Jobs and export", "Background work, and files of credentials."},
	{"Health", "How the installation is."},
	{"Events", "What endpoints are sent."},
}

var apiHeaders = Dict[*header]{
	{"X-Request-Id", &header{Description: "The request's id: your own if you sent one, of up to 64 letters, digits, dots, underscores and hyphens.", Schema: &Schema{Type: "string", Examples: []any{"req_01k9a2b3c4d5e6f7g8h9j0k1m2"}}}},
	{"X-RateLimit-Limit", &header{Description: "Requests a minute of the account's plan.", Schema: &Schema{Type: "integer"}}},
	{"X-RateLimit-Remaining", &header{Description: "Requests left in this window at the steady rate. It reaches 0 before any request is refused.", Schema: &Schema{Type: "integer"}}},
	{"X-RateLimit-Reset", &header{Description: "When the window ends, in Unix seconds.", Schema: &Schema{Type: "integer"}}},
	{"Retry-After", &header{Description: "Seconds to wait.", Schema: &Schema{Type: "integer"}}},
	{"Location", &header{Description: "The job: /v1/jobs/{job_id}.", Schema: &Schema{Type: "string"}}},
	{"Idempotent-Replayed", &header{Description: "`true` when this is the answer to an earlier request with the same Idempotency-Key.", Schema: &Schema{Type: "string", Enum: []any{"true"}}}},
	{"WWW-Authenticate", &header{Description: "How to authenticate: `Bearer`.", Schema: &Schema{Type: "string"}}},
}

// deliveryHeaders are those of every request to an endpoint.
var deliveryHeaders = []Member[string]{
	{"X-Service-Timestamp", "When it was sent, in Unix seconds. Refuse requests that are more than 300 seconds old or early."},
	{"X-Service-Signature", "`v1=` and the hexadecimal HMAC-SHA256, keyed with the endpoint's secret, of timestamp, dot and body. For 24 hours after a rotation there are two values, separated by a comma: accept either."},
	{"X-Service-Event", "The event's type."},
	{"X-Service-Event-Id", "The event's id."},
	{"X-Service-Delivery", "This attempt's id."},
	{"X-Service-Attempt", "Which attempt this is, from 1."},
	{"webhook-id", "The event's id (Standard Webhooks)."},
	{"webhook-timestamp", "As X-Service-Timestamp."},
	{"webhook-signature", "`v1,` and the base64 signature (Standard Webhooks)."},
}

// alwaysKnown are the times that are never null.
var alwaysKnown = []string{
	"created_at", "updated_at", "created", "as_of", "queued_at", "received_at", "attempted_at", "sent_at", "relayed_at", "bounced_at", "complained_at", "deleted_at", "ready_at",
	"Alert.since", "Answerer.at", "Approval.expires_at", "ApprovalDetail.expires_at", "ApprovalEvent.expires_at", "DNSFailure.checked_at", "DNSFailure.failing_since", "DNSStatus.checked_at",
	"DelayedData.next_attempt_at", "Health.checked_at", "Health.started_at", "Paused.paused_at",
	"BlockedReply.at", "ExportCreated.expires_at", "InboxCreated.expires_at", "RecoveryLink.expires_at", "SendingPause.at",
	"SentAttempt.at", "Tainted.since", "WaitAnswer.now",
}

// An operationText says of an operation what its row does not.
type operationText struct {
	group   string
	summary string
	text    string
	errors  string // codes besides those that follow from the row
	show    string // fields of the example body; the required ones if ""
	media   string // of an answer that is a file
}

// What several operations may answer.
const (
	dnsErrors    = "dns_provider_unsupported"
	recordErrors = dnsErrors + " domain_busy invalid_record cname_at_apex managed_record_collision duplicate_record"
)

// reportsText is about both kinds of reports.
const reportsText = "Newest first; kept for 90 days. They come from mail about the domain to any address of the account. Anyone can send one: " +
	"`authenticated` says whether its message really came from `received_from`. The dates are those that a report covers; `org` filters by a part of `org_name`."

var operationTexts = map[string]operationText{
	"get_account":         {group: "Account", summary: "Show the account", text: "Its plan, limits and mail servers, and the caller's token."},
	"update_account":      {group: "Account", summary: "Change the account's name or warm-up phrases", show: "name warmup_phrases"},
	"get_usage":           {group: "Account", summary: "Show the usage of limits, storage and traffic"},
	"set_universal_inbox": {group: "Account", summary: "Turn the universal inbox on or off", text: "Without `enabled` it toggles.", errors: "universal_inbox_required", show: "enabled"},

	"list_team_users":  {group: "Team", summary: "List the team users", text: "The owner first, then admins, then members, each by address."},
	"invite_team_user": {group: "Team", summary: "Invite a team user", text: "Without a password the answer has a `reset_link` that works once, for 72 hours.", errors: "user_limit_reached email_already_exists insufficient_scope forbidden_role"},
	"update_team_user": {group: "Team", summary: "Change a team user", text: "With `write` you may change your own name and, in a session, your own password. A password with a token, and whatever belongs to others, needs the `admin` permission.", errors: "wrong_password user_not_in_account owner_protected email_already_exists insufficient_scope forbidden_role", show: "first_name last_name role"},
	"delete_team_user": {group: "Team", summary: "Delete a team user", text: "Their tokens are revoked.", errors: "user_not_in_account owner_protected insufficient_scope forbidden_role"},

	"list_audit": {group: "Account", summary: "List what was changed, by whom", text: "Newest first; kept for 400 days. One row for each change that took effect and each read of a secret, but not for sending, marking or refreshing; `fields` are names, never values. `login` and `login_failed` are sign-ins to the dashboard. What the operator does on the server has the actor `operator`."},

	"list_tokens":       {group: "Tokens", summary: "List the API tokens", text: "The owner sees all, an admin all but the owner's, a member their own."},
	"create_token":      {group: "Tokens", summary: "Create an API token", text: "Its value is shown only once. With `mailboxes` or a `policy` it is bound: it can give nobody access, and change nothing that happens by itself; what it may call has `x-bound`.", errors: "insufficient_scope forbidden_role person_required too_many_items", show: "name permissions expires_in_days"},
	"clear_token_taint": {group: "Tokens", summary: "End the taint of an API token", text: "As if nothing had been read with it. Only for a person who is signed in to the dashboard.", errors: "person_required"},
	"delete_token":      {group: "Tokens", summary: "Revoke an API token", text: "This cannot be undone.", errors: "insufficient_scope"},

	"list_domains":        {group: "Domains", summary: "List the domains"},
	"search_domain":       {group: "Domains", summary: "Check whether a domain is available, and its price", text: "Mailstead asks the registrar, else the registry by RDAP, else the DNS; `checked_via` says which answered. `available` is null if none of them knows.", errors: "invalid_domain"},
	"search_domains_bulk": {group: "Domains", summary: "Check whether up to 100 domains are available", text: "The results are in the order of the names; one invalid name does not stop the others."},
	"suggest_domains":     {group: "Domains", summary: "Suggest domain names for keywords"},
	"connect_domains":     {group: "Domains", summary: "Connect domains that you own", text: "One invalid name does not stop the others. With `edge_api_token` the records are created at Cloudflare; each name is checked there first.", errors: "domain_limit_exceeded"},
	"check_provider":      {group: "Domains", summary: "Show a domain's registrar and nameservers", text: "Mailstead asks its own registrars, else the registry by RDAP, about the registered name. An unregistered domain has no registrar and no nameservers. Without an answer the status is 502; in a sandbox the registrar is then null, and the nameservers come from the DNS.", errors: "invalid_domain upstream_error"},
	"check_nameservers":   {group: "Domains", summary: "Check whether domains are delegated to Mailstead", text: "Those that are delegated are set up."},
	"setup_domain":        {group: "Domains", summary: "Set up a domain, and register it if requested", text: "Registration needs `register: true`, the quoted `price` and the `purchase` permission. A second run repairs the domain, and never buys twice. Passwords are generated unless given; an export shows them.", errors: "invalid_domain domain_limit_exceeded email_user_limit_exceeded domain_busy not_configured insufficient_scope forbidden_role"},
	"get_domain":          {group: "Domains", summary: "Show a domain"},
	"update_domain":       {group: "Domains", summary: "Change a domain", errors: "domain_busy upstream_error not_configured", show: "tags notes"},
	"delete_domain":       {group: "Domains", summary: "Delete a domain with its mailboxes and their mail", errors: "domain_busy"},
	"get_dns_status":      {group: "Domains", summary: "Show a domain's DNS status", text: "With `refresh=true` the DNS is checked now."},
	"get_dns_records":     {group: "Domains", summary: "List the records to enter for a manual domain", errors: "not_manual_domain"},
	"verify_dns":          {group: "Domains", summary: "Check whether a manual domain's records exist", errors: "not_manual_domain records_not_ready"},

	"list_custom_dns_records":  {group: "DNS", summary: "List a domain's custom records", errors: dnsErrors},
	"create_custom_dns_record": {group: "DNS", summary: "Add a record", text: "At Cloudflare it is `pending` until it is created, and `error` if that fails.", errors: recordErrors},
	"update_custom_dns_record": {group: "DNS", summary: "Change a record", errors: recordErrors, show: "value ttl"},
	"delete_custom_dns_record": {group: "DNS", summary: "Delete a record", errors: dnsErrors + " domain_busy"},
	"set_dmarc":                {group: "DNS", summary: "Set a custom DMARC policy", errors: dnsErrors + " domain_busy invalid_dmarc"},
	"reset_dmarc":              {group: "DNS", summary: "Reset the DMARC policy to p=reject", errors: dnsErrors + " domain_busy"},
	"list_dmarc_reports":       {group: "DNS", summary: "List DMARC reports about a domain", text: reportsText},
	"list_tls_reports":         {group: "DNS", summary: "List TLS reports about a domain's mail hosts", text: reportsText},
	"set_redirect":             {group: "DNS", summary: "Redirect a domain's website", errors: "domain_busy"},
	"delete_redirect":          {group: "DNS", summary: "End a redirect", errors: "domain_busy"},
	"set_forward":              {group: "DNS", summary: "Forward a domain's mail that matches no mailbox", errors: "domain_busy"},
	"delete_forward":           {group: "DNS", summary: "End a forward", errors: "domain_busy"},

	"list_email_users":        {group: "Email users", summary: "List the mailboxes"},
	"list_domain_email_users": {group: "Email users", summary: "List a domain's mailboxes"},
	"create_email_user":       {group: "Email users", summary: "Create a mailbox", text: "Give `username` and `domain`, or `email`. The answer holds its password; later an export shows it.", errors: "email_user_exists email_user_limit_exceeded domain_busy", show: "username domain name"},
	"create_inbox":            {group: "Email users", summary: "Create a mailbox that is deleted after a time", text: "For a test or a program: a mailbox, a password for IMAP and submission, and an API token, both good for this mailbox alone. At `expires_at` the mailbox is deleted with all of it; `update_email_user` moves that time.", errors: "domain_required domain_not_ready domain_busy email_user_exists email_user_limit_exceeded too_many_items", show: "domain ttl_seconds"},
	"generate_names":          {group: "Email users", summary: "Generate names and usernames", text: "The same request with the same `seed` gives the same answer, except for `available`, which is null unless the domain is yours.", errors: "invalid_domain", show: "count domain"},
	"create_email_users_bulk": {group: "Email users", summary: "Create up to 100 mailboxes on one domain", text: "Give `users` or `template_id`. One that fails does not stop the others.", errors: "email_user_limit_exceeded domain_busy", show: "domain users"},
	"delete_email_users_bulk": {group: "Email users", summary: "Delete up to 100 mailboxes", text: "Give `user_ids` or `emails`.", show: "user_ids"},
	"get_email_user":          {group: "Email users", summary: "Show a mailbox"},
	"update_email_user":       {group: "Email users", summary: "Change a mailbox", errors: "domain_busy domain_not_ready too_many_items", show: "name footer"},
	"delete_email_user":       {group: "Email users", summary: "Delete a mailbox with its mail"},

	"create_recovery_link": {group: "Email users", summary: "Make a link to choose a password", text: "For a holder who has forgotten it. Whoever has the link sets the mailbox's password, once, within 72 hours.", errors: "validation_error"},

	"release_held_messages": {group: "Email users", summary: "Send or discard what a mailbox has held", text: "What waited when the mailbox was suspended, deleted or got a new password with `hold`. It works for a deleted mailbox for 14 days.", show: "action"},

	"list_templates":  {group: "Templates", summary: "List the templates"},
	"create_template": {group: "Templates", summary: "Create a template"},
	"get_template":    {group: "Templates", summary: "Show a template"},
	"update_template": {group: "Templates", summary: "Change a template", show: "usernames"},
	"delete_template": {group: "Templates", summary: "Delete a template"},

	"get_me":             {group: "Me", summary: "Say who asks", text: "A team user, or the person of a mailbox, who sees it alone."},
	"update_me":          {group: "Me", summary: "Change one's own mailbox", text: "For the person of a mailbox.", errors: "nothing_to_update", show: "name signature"},
	"change_my_password": {group: "Me", summary: "Change the password of one's own mailbox", text: "Nobody can read it again: exports show it as `\"\"`. Other sessions, and programs that use the old password, are signed out; app passwords stay.", errors: "wrong_password", show: "current_password new_password"},

	"list_folders":       {group: "Folders", summary: "List the folders of a mailbox", text: "Inbox, Drafts, Sent, Archive, Junk and Trash, then the others by name. Operations on messages take a folder by its role or its name as `folder`."},
	"create_folder":      {group: "Folders", summary: "Create a folder", text: "`/` stands between levels; folders above it that are missing are made.", errors: "folder_exists too_many_items", show: "name"},
	"update_folder":      {group: "Folders", summary: "Rename a folder", text: "With all below it.", errors: "folder_exists folder_protected nothing_to_update", show: "name"},
	"delete_folder":      {group: "Folders", summary: "Delete a folder", text: "Its messages go to Trash.", errors: "folder_protected folder_has_children"},
	"bulk_move_messages": {group: "Inbox", summary: "Move up to 200 messages", text: "Into one folder of their mailboxes, by its role or its name. `results` tells where each is now: a message has another UID there, and the same `email_id`. Messages of external mailboxes stay where they are.", errors: "too_many_items", show: "messages to"},

	"list_credentials":            {group: "Credentials", summary: "List the passwords of a mailbox", text: "Those beside its own: one for each device or program. Never with their values."},
	"create_credential":           {group: "Credentials", summary: "Create a password for a device or program", text: "It works for IMAP and submission, by PLAIN, LOGIN, SCRAM-SHA-256 and, in the place of a token, by OAUTHBEARER and XOAUTH2. The answer has `password` this once. A mailbox can have 25.", errors: "credential_limit_reached too_many_items", show: "name"},
	"delete_credential":           {group: "Credentials", summary: "Revoke a password", text: "What is connected with it is cut off within a second."},
	"clear_credential_taint":      {group: "Credentials", summary: "End the taint of a password", text: "As if nothing had been read with it. Only for a person who is signed in to the dashboard.", errors: "person_required"},
	"list_smtp_credentials":       {group: "Credentials", summary: "List the passwords of a domain"},
	"create_smtp_credential":      {group: "Credentials", summary: "Create a password that sends for a domain", text: "A program that logs in to submission with it may send as any address of the domain, within the domain's limits. The user name is the credential's id. The answer has `password` this once.", errors: "credential_limit_reached person_required domain_busy too_many_items", show: "name"},
	"delete_smtp_credential":      {group: "Credentials", summary: "Revoke a password of a domain", text: "What is connected with it is cut off within a second."},
	"clear_smtp_credential_taint": {group: "Credentials", summary: "End the taint of a password of a domain", text: "As if nothing had been read with it. Only for a person who is signed in to the dashboard.", errors: "person_required"},

	"list_rules":      {group: "Rules", summary: "List the rules of a mailbox", text: "By position, which is the order in which they are looked at."},
	"create_rule":     {group: "Rules", summary: "Create a rule", text: "It is about mail that arrives from now on. Every enabled rule whose conditions fit acts, until one has `stop`; the first `move`, `discard` or `reject` decides where the message lies.", errors: "rule_limit_reached too_many_items", show: "name conditions actions"},
	"update_rule":     {group: "Rules", summary: "Change a rule", text: "`conditions` and `actions` replace the lists.", errors: "too_many_items nothing_to_update", show: "enabled"},
	"delete_rule":     {group: "Rules", summary: "Delete a rule"},
	"test_rules":      {group: "Rules", summary: "Say what the rules would do with a message", text: "Of a message that is in the mailbox. Nothing is done. `folder` is null where it would be discarded or rejected.", show: "message_id"},
	"get_vacation":    {group: "Rules", summary: "Show the automatic reply of a mailbox"},
	"set_vacation":    {group: "Rules", summary: "Set the automatic reply of a mailbox", text: "It goes once in seven days to each sender, and not to lists, machines and mail that does not name the mailbox (RFC 3834). A new text begins anew.", show: "enabled text"},
	"delete_vacation": {group: "Rules", summary: "Delete the automatic reply of a mailbox"},

	"list_groups":  {group: "Groups", summary: "List the groups"},
	"create_group": {group: "Groups", summary: "Create a group", text: "Mail to its address is filed once for each member here, and sent on to members elsewhere. A member is a mailbox by its `user_id`, or an `email`: of a mailbox, an alias, another group, or elsewhere.", errors: "group_loop email_user_exists domain_not_ready", show: "email name members send_as"},
	"get_group":    {group: "Groups", summary: "Show a group"},
	"update_group": {group: "Groups", summary: "Change a group", text: "`members` replaces the list. The address stays as it is.", errors: "group_loop nothing_to_update", show: "members"},
	"delete_group": {group: "Groups", summary: "Delete a group", text: "Its address is free at once."},

	"list_message_templates":   {group: "Message templates", summary: "List the message templates"},
	"create_message_template":  {group: "Message templates", summary: "Create a message template", text: "`{{name}}` in the subject, text or html is a variable.", errors: "invalid_template", show: "name subject text html"},
	"get_message_template":     {group: "Message templates", summary: "Show a message template"},
	"update_message_template":  {group: "Message templates", summary: "Change a message template", text: "Null takes `text` or `html` away. Messages that were made of it stay as they are.", errors: "invalid_template nothing_to_update", show: "subject"},
	"delete_message_template":  {group: "Message templates", summary: "Delete a message template"},
	"preview_message_template": {group: "Message templates", summary: "Show what a message would be with some values", errors: "missing_variable", show: "variables"},

	"list_email_user_inbox":    {group: "Inbox", summary: "List a mailbox's INBOX", text: "Newest first."},
	"get_message":              {group: "Inbox", summary: "Show a message with its text", text: "It does not mark it read."},
	"get_message_raw":          {group: "Inbox", summary: "Get a message as it was received", media: "message/rfc822"},
	"get_message_attachment":   {group: "Inbox", summary: "Get an attachment"},
	"send_email":               {group: "Inbox", summary: "Send a message from a mailbox", text: "With `send_at` it waits until then, at most 30 days, and its copy in Sent comes when it leaves. With `template_id` and `variables` it is made of a message template.", errors: "sending_not_allowed recipient_not_allowed tainted domain_not_ready daily_send_limit_reached new_recipient_limit_reached sending_paused missing_variable invalid_template", show: "to subject text"},
	"suggest_addresses":        {group: "Inbox", summary: "Suggest addresses", text: "Of people whom the mailbox has written to, the latest first."},
	"answer_invitation":        {group: "Inbox", summary: "Answer an invitation", text: "Sends the organizer of the event what `invitation` of the message is about an answer (RFC 5546), which their calendar reads.", errors: "sending_not_allowed recipient_not_allowed no_invitation domain_not_ready sending_paused daily_send_limit_reached new_recipient_limit_reached", show: "answer"},
	"unsubscribe_message":      {group: "Inbox", summary: "Unsubscribe from a message's list", text: "By one click (RFC 8058): a POST to the https address that the message offers, where a valid DKIM signature covers the offer. `http_status` is what the list's server answered.", errors: "sending_not_allowed cannot_unsubscribe"},
	"create_draft":             {group: "Inbox", summary: "Save a draft", text: "It takes what `send_email` takes, and requires nothing. The draft is a message of the folder Drafts, so mail clients see it: read and delete it with `folder=drafts`.", errors: "quota_exceeded tainted", show: "to subject text"},
	"update_draft":             {group: "Inbox", summary: "Replace a draft", text: "Give the whole draft. It gets a new `uid`.", errors: "quota_exceeded tainted", show: "to subject text"},
	"send_draft":               {group: "Inbox", summary: "Send a draft", text: "It goes out as `send_email` would send it, and leaves Drafts at the same moment. A draft that cannot be sent stays.", errors: "sending_not_allowed recipient_not_allowed tainted domain_not_ready daily_send_limit_reached new_recipient_limit_reached sending_paused missing_variable invalid_template"},
	"send_email_batch":         {group: "Inbox", summary: "Send up to 1 000 messages at once", text: "Give `messages`, each with its own recipients, or `recipients` with `template_id` or `message`: then each recipient gets a message of their own. A job sends them; its `result` is `{sent, failed, items}`, and one that cannot be sent fails alone.", errors: "sending_not_allowed domain_not_ready sending_paused invalid_template", show: "template_id recipients"},
	"refresh_email_user_inbox": {group: "Inbox", summary: "Fetch new mail of a mailbox", text: "Mail of hosted mailboxes appears as it arrives. For an external mailbox this starts a job of type `inbox_sync`, even if the universal inbox is off; it also resumes a mailbox whose log-in was refused."},
	"delete_message":           {group: "Inbox", summary: "Delete a message", text: "A message of an external mailbox is deleted on its server first; if that fails, nothing is changed and the answer is 502.", errors: "upstream_error"},
	"mark_message":             {group: "Inbox", summary: "Mark a message as read or flagged, or undo it", text: "Give `is_read`, `is_flagged`, or both. A message of an external mailbox is marked on its server first; if that fails, nothing is changed and the answer is 502.", errors: "upstream_error", show: "is_read is_flagged"},
	"wait_for_message":         {group: "Inbox", summary: "Wait for a message in a mailbox", text: waitText, errors: "rate_limited"},
	"wait_for_any_message":     {group: "Inbox", summary: "Wait for a message in any mailbox", text: waitText, errors: "rate_limited"},
	"list_inbox":               {group: "Inbox", summary: "List the INBOX of every mailbox together", text: "Newest first; 100 a page by default, at most 200."},
	"refresh_inbox":            {group: "Inbox", summary: "Fetch new mail of every mailbox", text: "It returns at once.", errors: "universal_inbox_disabled"},
	"bulk_delete_messages":     {group: "Inbox", summary: "Delete up to 200 messages", text: "Messages of external mailboxes are deleted on their servers first; each failure is an item of `errors` and does not stop the others."},
	"bulk_mark_messages":       {group: "Inbox", summary: "Mark up to 200 messages as read or flagged, or undo it", text: "Give `is_read`, `is_flagged`, or both. A message that is marked already counts as marked. Messages of external mailboxes are marked on their servers first; each failure is an item of `errors` and does not stop the others.", errors: "nothing_to_update", show: "messages is_read"},
	"get_inbox_message":        {group: "Inbox", summary: "Show a message by UID and mailbox", errors: "mailbox_required"},
	"mark_inbox_message":       {group: "Inbox", summary: "Mark a message by UID and mailbox", errors: "mailbox_required upstream_error", show: "is_read is_flagged"},
	"delete_inbox_message":     {group: "Inbox", summary: "Delete a message by UID and mailbox", errors: "mailbox_required upstream_error"},

	"list_messages":            {group: "Sending log", summary: "List sent messages, one row for each recipient"},
	"get_sent_message":         {group: "Sending log", summary: "Show a sent message with its newest attempts", text: "Up to 30 attempts, the newest last: the host, its TLS, how it was authenticated, and its reply."},
	"lookup_message":           {group: "Sending log", summary: "Find the Message-ID that a relay gave, or the one that it replaced", errors: "exactly_one_parameter"},
	"retry_message":            {group: "Sending log", summary: "Retry a waiting message now", errors: "not_queued"},
	"update_scheduled_message": {group: "Sending log", summary: "Change when a scheduled message is sent", errors: "not_scheduled", show: "send_at"},
	"cancel_message":           {group: "Sending log", summary: "Cancel a message that is still queued", text: "One that is being delivered at this moment ends as it ends: it is sent, or cancelled if no host took it. One that is held for approval is rejected, for all of its recipients."},
	"get_reputation":           {group: "Sending log", summary: "Show what became of the account's mail", text: "Counted by recipients over 1, 7 and 30 days, for the account, its domains and mailboxes, and those who take the mail. Sending pauses by itself above 10 % of hard bounces or 0.3 % of complaints in a day."},
	"import_suppressions":      {group: "Sending log", summary: "Suppress many addresses", text: "Give `emails`, or a CSV file with a header line (`email`, and `reason` if you like) as the body with `Content-Type: text/csv`. An address that is suppressed already stays as it is.", show: "emails reason"},
	"list_suppressions":        {group: "Sending log", summary: "List the suppressed addresses"},
	"create_suppression":       {group: "Sending log", summary: "Suppress an address"},
	"delete_suppression":       {group: "Sending log", summary: "Remove an address from the suppression list"},

	"list_approvals":   {group: "Approvals", summary: "List the messages that are held for approval", text: "Newest first, with those that were decided in the last 30 days."},
	"get_approval":     {group: "Approvals", summary: "Show a held message with all that it says", text: "The recipients are those of the envelope: `to` and `cc` are those that these header fields name, `bcc` all others. Text and HTML are cut at 1 MiB each; `body_complete` is false then. The message was made anew when it was held, from its text, subject, recipients and files alone; files in an attached message are listed after it as `message.eml/file.pdf`. A token with `taint` has read the mailbox that sends it."},
	"get_approval_raw": {group: "Approvals", summary: "Get the bytes that are sent once the message is approved", text: "Signatures and trace fields are added when it is sent.", media: "message/rfc822"},
	"approve_message":  {group: "Approvals", summary: "Approve a held message", text: "`content_hash` is that of the approval that the person has read; another one is 409 `content_changed`. Limits and suppression are judged now; where a limit is passed the message stays held.", errors: "person_required content_changed already_decided approval_expired daily_send_limit_reached new_recipient_limit_reached", show: "content_hash"},
	"reject_message":   {group: "Approvals", summary: "Reject a held message", text: "It is never sent. Whoever sent it by SMTP gets a delivery report with 5.7.1.", errors: "person_required already_decided approval_expired", show: "note"},

	"list_webhooks":           {group: "Webhooks", summary: "List the endpoints"},
	"create_webhook":          {group: "Webhooks", summary: "Create an endpoint", text: "One that subscribes to email.received turns the universal inbox on.", errors: "webhook_limit_reached", show: "url events description"},
	"get_webhook":             {group: "Webhooks", summary: "Show an endpoint"},
	"update_webhook":          {group: "Webhooks", summary: "Change, disable or enable an endpoint", show: "status"},
	"delete_webhook":          {group: "Webhooks", summary: "Delete an endpoint"},
	"get_webhook_secret":      {group: "Webhooks", summary: "Show an endpoint's signing secret"},
	"rotate_webhook_secret":   {group: "Webhooks", summary: "Replace an endpoint's signing secret", text: "The old secret also signs for 24 hours."},
	"test_webhook":            {group: "Webhooks", summary: "Send a test.ping to an endpoint", text: "Disabled endpoints get it too."},
	"list_webhook_deliveries": {group: "Webhooks", summary: "List the attempts of the last 30 days"},
	"redeliver_event":         {group: "Webhooks", summary: "Send an event again"},
	"list_events":             {group: "Webhooks", summary: "List the events of the last 30 days", text: "Also those that no endpoint received."},

	"list_jobs":           {group: "Jobs and export", summary: "List the jobs of the last 30 days", text: "With `job_id` the answer has only that job.", errors: "not_found"},
	"get_job":             {group: "Jobs and export", summary: "Show a job", text: "With `wait` the answer comes when the job ends, or after that many seconds."},
	"import_messages":     {group: "Jobs and export", summary: "Import mail into a mailbox", text: "From the folders of a mailbox on another server, or from an mbox file, which is sent as the body with `Content-Type: application/mbox` and may be as long as the mailbox's quota has room for. The job's `result` counts messages and names those that failed. What came with an import before is left out, so that an import can be begun again.", errors: "quota_exceeded", show: "imap"},
	"export_messages":     {group: "Jobs and export", summary: "Export all mail of a mailbox", text: "A tar with a Maildir, or with an mbox file for each folder. The job's `result` is `{url, expires_at}`: the link works once, for 15 minutes, and needs no token.", show: "format"},
	"create_export":       {group: "Jobs and export", summary: "Export mailboxes with their passwords", text: "Give exactly one of `domains`, `emails`, `user_ids` and `all`. The link works once, for 15 minutes, and needs no token. With `inline`, or `Accept: text/csv`, the answer is the file itself. One export every five seconds.", errors: "export_rate_limited exactly_one_parameter credential_limit_reached", show: "format all", media: "text/csv"},
	"list_export_formats": {group: "Jobs and export", summary: "List the formats of exports"},

	"get_health": {group: "Health", summary: "Show how the installation is", text: "For its operator: the owner of the first account. The checks are at most 15 minutes old; every warning and error says in `mend` what to do."},
}

const waitText = "It answers as soon as a message arrives that fits, with the oldest one, its one-time code and its links; after the timeout `message` is null. Pass `now` as the next call's `since`, and no message is missed. " +
	"Mail in Junk and Trash does not fit, nor what was imported, appended or sent from the mailbox. `from_domain` takes only mail that passed DMARC here. At most 2000 requests of an account wait at a time."
