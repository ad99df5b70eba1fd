package openapi

const idempotencyText = "Up to 255 characters of your choice. A second POST with the same key within 24 hours gets the first one's answer, and does nothing."

var apiInfo = documentInfo{
	Title: "Mailstead API", Version: "1.0.0", Summary: "Domains, mailboxes, mail and webhooks of a Mailstead installation.",
	Description: "Send `Authorization: Bearer mst_…` with every request, and bodies as JSON.\n\n" +
		"Long lists answer `data` and `pagination`: send `pagination.cursor` as `cursor` to get the next page, until it is null. A filter `x=` may be written `filter[x]=` too.\n\n" +
		"Errors have one form, with a `code` for programs and a `message` that says what to do next; with `Accept: application/problem+json` they come as RFC 9457 has it. A wrong method is 405 `method_not_allowed`, an unknown path 404 `not_found`.\n\n" +
		"Requests are counted for each account in windows of one minute: see the `X-RateLimit-` headers. Past the burst cap they get 429 until the window ends.\n\n" +
		"Send an `Idempotency-Key` with a POST to be able to repeat it safely.\n\n" +
		"Work that takes long answers 202 with a job, or names one in `job_id`: follow it with `get_job`.\n\n" +
		"Times are RFC 3339 in UTC with milliseconds. New fields, codes and event types may come; what is here stays.",
}

var groups = []tag{
	{"Account", "The account, its limits and its use of them."},
	{"Team", "The people who share the account."},
	{"Tokens", "Credentials for this API."},
	{"Domains", "Finding, connecting, setting up and watching domains."},
	{"DNS", "Records of your own, DMARC, redirects and forwards."},
	{"Email users", "Mailboxes."},
	{"Templates", "Sets of usernames to make mailboxes from."},
	{"Inbox", "Reading, sending and deleting mail."},
	{"Sending log", "What became of sent messages, and who gets no more."},
	{"Webhooks", "Endpoints that are told of events."},
	{"Jobs and export", "Work in the background, and files of credentials."},
	{"Events", "What endpoints are sent."},
}

var apiHeaders = Dict[*header]{
	{"X-Request-Id", &header{Description: "The request's id: your own, if you sent one of up to 64 letters, digits, dots, underscores and hyphens.", Schema: &Schema{Type: "string", Examples: []any{"req_01k9a2b3c4d5e6f7g8h9j0k1m2"}}}},
	{"X-RateLimit-Limit", &header{Description: "Requests a minute of the account's plan.", Schema: &Schema{Type: "integer"}}},
	{"X-RateLimit-Remaining", &header{Description: "Requests left in this window, counted against the steady rate: 0 comes before anything is refused.", Schema: &Schema{Type: "integer"}}},
	{"X-RateLimit-Reset", &header{Description: "When the window ends, in Unix seconds.", Schema: &Schema{Type: "integer"}}},
	{"Retry-After", &header{Description: "Seconds to wait.", Schema: &Schema{Type: "integer"}}},
	{"Location", &header{Description: "The job: /v1/jobs/{job_id}.", Schema: &Schema{Type: "string"}}},
	{"Idempotent-Replayed", &header{Description: "`true` when this is the answer to an earlier request with the same Idempotency-Key.", Schema: &Schema{Type: "string", Enum: []any{"true"}}}},
	{"WWW-Authenticate", &header{Description: "How to authenticate: `Bearer`.", Schema: &Schema{Type: "string"}}},
}

// deliveryHeaders are those of every request to an endpoint.
var deliveryHeaders = []Member[string]{
	{"X-Service-Timestamp", "When it was sent, in Unix seconds. Refuse what is more than 300 seconds away."},
	{"X-Service-Signature", "`v1=` and the hexadecimal HMAC-SHA256, keyed with the endpoint's secret, of timestamp, dot and body. Two values, with a comma between, for 24 hours after a rotation: accept either."},
	{"X-Service-Event", "The event's type."},
	{"X-Service-Event-Id", "The event's id."},
	{"X-Service-Delivery", "This attempt's id."},
	{"X-Service-Attempt", "Which attempt this is, from 1."},
	{"webhook-id", "The event's id, as Standard Webhooks has it."},
	{"webhook-timestamp", "As X-Service-Timestamp."},
	{"webhook-signature", "`v1,` and the base64 signature, as Standard Webhooks has it."},
}

// alwaysKnown are the times that are never null.
var alwaysKnown = []string{
	"created_at", "updated_at", "created", "as_of", "queued_at", "received_at", "attempted_at", "sent_at", "relayed_at", "bounced_at", "complained_at", "deleted_at", "ready_at",
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
const reportsText = "Newest first; kept for 90 days. They are taken from mail that reaches any address of the account and is about the domain. Anybody can send one: " +
	"`authenticated` tells whether the message that brought it is from `received_from`. Dates are of what a report is about; `org` is a part of `org_name`."

var operationTexts = map[string]operationText{
	"get_account":         {group: "Account", summary: "Show the account", text: "Its plan, limits, mail servers, and whose token asks."},
	"update_account":      {group: "Account", summary: "Change the account's name or warm-up phrases", show: "name warmup_phrases"},
	"get_usage":           {group: "Account", summary: "Show the use of limits, storage and traffic"},
	"set_universal_inbox": {group: "Account", summary: "Switch the universal inbox on or off", text: "Without `enabled` it toggles.", errors: "universal_inbox_required", show: "enabled"},

	"list_team_users":  {group: "Team", summary: "List the team users", text: "The owner first, then admins, then members, each by address."},
	"invite_team_user": {group: "Team", summary: "Invite a team user", text: "Without a password the answer has a `reset_link` that works once, for 72 hours.", errors: "user_limit_reached email_already_exists insufficient_scope forbidden_role"},
	"update_team_user": {group: "Team", summary: "Change a team user", errors: "user_not_in_account owner_protected email_already_exists insufficient_scope forbidden_role", show: "first_name last_name role"},
	"delete_team_user": {group: "Team", summary: "Delete a team user", text: "Their tokens are revoked.", errors: "user_not_in_account owner_protected insufficient_scope forbidden_role"},

	"list_tokens":  {group: "Tokens", summary: "List the API tokens", text: "The owner sees all, an admin all but the owner's, a member their own."},
	"create_token": {group: "Tokens", summary: "Make an API token", text: "Its value is shown this once.", errors: "insufficient_scope forbidden_role", show: "name permissions expires_in_days"},
	"delete_token": {group: "Tokens", summary: "Revoke an API token", text: "There is no way back.", errors: "insufficient_scope"},

	"list_domains":        {group: "Domains", summary: "List the domains"},
	"search_domain":       {group: "Domains", summary: "Look whether a domain can be had, and for how much", text: "The registrar is asked, else the registry by RDAP, else the DNS; `checked_via` tells who answered. `available` is null where none of them knows.", errors: "invalid_domain"},
	"search_domains_bulk": {group: "Domains", summary: "Look whether up to 100 domains can be had", text: "The results are in the order of the names; one bad name does not stop its neighbours."},
	"suggest_domains":     {group: "Domains", summary: "Suggest domain names for keywords"},
	"connect_domains":     {group: "Domains", summary: "Connect domains that you own", text: "One bad name does not stop its neighbours. With `edge_api_token` the records are made at Cloudflare; each name is looked at there first.", errors: "domain_limit_exceeded"},
	"check_provider":      {group: "Domains", summary: "Show who keeps a domain", text: "Our own registrars are asked, else the registry by RDAP, about the name that was registered. A domain that nobody has registered has no registrar and no nameservers. Without an answer it is 502; in a sandbox the registrar is null then, and the nameservers are those that the DNS knows.", errors: "invalid_domain upstream_error"},
	"check_nameservers":   {group: "Domains", summary: "Look whether domains are delegated to us", text: "Those that are go on to be set up."},
	"setup_domain":        {group: "Domains", summary: "Set a domain up, and buy it if asked to", text: "Buying needs `register: true`, the quoted `price` and the `purchase` permission. Run again it repairs, and never buys twice. Passwords that are not given are made; an export shows them.", errors: "invalid_domain domain_limit_exceeded email_user_limit_exceeded domain_busy not_configured insufficient_scope forbidden_role"},
	"get_domain":          {group: "Domains", summary: "Show a domain"},
	"update_domain":       {group: "Domains", summary: "Change a domain", errors: "domain_busy upstream_error not_configured", show: "tags notes"},
	"delete_domain":       {group: "Domains", summary: "Delete a domain with its mailboxes and their mail", errors: "domain_busy"},
	"get_dns_status":      {group: "Domains", summary: "Show how a domain's DNS stands", text: "With `refresh=true` it looks now."},
	"get_dns_records":     {group: "Domains", summary: "List the records to enter for a manual domain", errors: "not_manual_domain"},
	"verify_dns":          {group: "Domains", summary: "Look whether a manual domain's records are there", errors: "not_manual_domain records_not_ready"},

	"list_custom_dns_records":  {group: "DNS", summary: "List a domain's own records", errors: dnsErrors},
	"create_custom_dns_record": {group: "DNS", summary: "Add a record", text: "At Cloudflare it is `pending` until it is made, and `error` where it cannot be.", errors: recordErrors},
	"update_custom_dns_record": {group: "DNS", summary: "Change a record", errors: recordErrors, show: "value ttl"},
	"delete_custom_dns_record": {group: "DNS", summary: "Delete a record", errors: dnsErrors + " domain_busy"},
	"set_dmarc":                {group: "DNS", summary: "Set a DMARC policy of your own", errors: dnsErrors + " domain_busy invalid_dmarc"},
	"reset_dmarc":              {group: "DNS", summary: "Go back to the policy p=reject", errors: dnsErrors + " domain_busy"},
	"list_dmarc_reports":       {group: "DNS", summary: "List what others report about mail in a domain's name", text: reportsText},
	"list_tls_reports":         {group: "DNS", summary: "List what others report about TLS with a domain's mail hosts", text: reportsText},
	"set_redirect":             {group: "DNS", summary: "Redirect a domain's website", errors: "domain_busy"},
	"delete_redirect":          {group: "DNS", summary: "End a redirect", errors: "domain_busy"},
	"set_forward":              {group: "DNS", summary: "Forward a domain's mail that no mailbox takes", errors: "domain_busy"},
	"delete_forward":           {group: "DNS", summary: "End a forward", errors: "domain_busy"},

	"list_email_users":        {group: "Email users", summary: "List the mailboxes"},
	"list_domain_email_users": {group: "Email users", summary: "List a domain's mailboxes"},
	"create_email_user":       {group: "Email users", summary: "Make a mailbox", text: "Give `username` and `domain`, or `email`. The answer holds its password; later an export shows it.", errors: "email_user_exists email_user_limit_exceeded domain_busy", show: "username domain name"},
	"generate_names":          {group: "Email users", summary: "Make up names and usernames", text: "The same request with the same `seed` has the same answer, but for `available`, which is null unless the domain is yours.", errors: "invalid_domain", show: "count domain"},
	"create_email_users_bulk": {group: "Email users", summary: "Make up to 100 mailboxes on one domain", text: "Give `users` or `template_id`. One that fails does not stop the others.", errors: "email_user_limit_exceeded domain_busy", show: "domain users"},
	"delete_email_users_bulk": {group: "Email users", summary: "Delete up to 100 mailboxes", text: "Give `user_ids` or `emails`.", show: "user_ids"},
	"get_email_user":          {group: "Email users", summary: "Show a mailbox"},
	"update_email_user":       {group: "Email users", summary: "Change a mailbox", errors: "domain_busy domain_not_ready", show: "name footer"},
	"delete_email_user":       {group: "Email users", summary: "Delete a mailbox with its mail"},

	"list_templates":  {group: "Templates", summary: "List the templates"},
	"create_template": {group: "Templates", summary: "Make a template"},
	"get_template":    {group: "Templates", summary: "Show a template"},
	"update_template": {group: "Templates", summary: "Change a template", show: "usernames"},
	"delete_template": {group: "Templates", summary: "Delete a template"},

	"list_email_user_inbox":    {group: "Inbox", summary: "List a mailbox's INBOX", text: "Newest first."},
	"get_message":              {group: "Inbox", summary: "Show a message with its text", text: "It does not mark it read."},
	"get_message_raw":          {group: "Inbox", summary: "Get a message as it came", media: "message/rfc822"},
	"get_message_attachment":   {group: "Inbox", summary: "Get an attachment"},
	"send_email":               {group: "Inbox", summary: "Send a message from a mailbox", errors: "domain_not_ready daily_send_limit_reached", show: "to subject text"},
	"refresh_email_user_inbox": {group: "Inbox", summary: "Fetch new mail of a mailbox", text: "Mail of hosted mailboxes is there the moment it arrives. That of an external one is fetched by a job of type `inbox_sync`, which this starts, whether or not the universal inbox is on; it also resumes a mailbox whose log-in was refused."},
	"delete_message":           {group: "Inbox", summary: "Delete a message", text: "One of an external mailbox is deleted on its server first; without that nothing is changed and the answer is 502.", errors: "upstream_error"},
	"mark_message":             {group: "Inbox", summary: "Mark a message read or flagged, or not", text: "Give `is_read`, `is_flagged`, or both. One of an external mailbox is marked on its server first; without that nothing is changed and the answer is 502.", errors: "upstream_error", show: "is_read is_flagged"},
	"list_inbox":               {group: "Inbox", summary: "List the INBOX of every mailbox together", text: "Newest first; 100 a page unless given, 200 at most."},
	"refresh_inbox":            {group: "Inbox", summary: "Fetch new mail of every mailbox", text: "It returns at once.", errors: "universal_inbox_disabled"},
	"bulk_delete_messages":     {group: "Inbox", summary: "Delete up to 200 messages", text: "Those of external mailboxes are deleted on their servers first; what a server does not do is an item of `errors` and holds up no other."},
	"bulk_mark_messages":       {group: "Inbox", summary: "Mark up to 200 messages read or flagged, or not", text: "Give `is_read`, `is_flagged`, or both. One that is marked so already counts as marked. Those of external mailboxes are marked on their servers first; what a server does not do is an item of `errors` and holds up no other.", errors: "nothing_to_update", show: "messages is_read"},
	"get_inbox_message":        {group: "Inbox", summary: "Show a message by UID and mailbox", errors: "mailbox_required"},
	"mark_inbox_message":       {group: "Inbox", summary: "Mark a message by UID and mailbox", errors: "mailbox_required upstream_error", show: "is_read is_flagged"},
	"delete_inbox_message":     {group: "Inbox", summary: "Delete a message by UID and mailbox", errors: "mailbox_required upstream_error"},

	"list_messages":      {group: "Sending log", summary: "List sent messages, one row for each recipient"},
	"get_sent_message":   {group: "Sending log", summary: "Show a sent message with its newest attempts", text: "Up to 30 attempts, the newest last: the host, its TLS, what vouched for it, and its reply."},
	"lookup_message":     {group: "Sending log", summary: "Find the Message-ID that a relay gave, or the one that it replaced", errors: "exactly_one_parameter"},
	"retry_message":      {group: "Sending log", summary: "Try a waiting message now"},
	"cancel_message":     {group: "Sending log", summary: "Take back a message that still waits"},
	"list_suppressions":  {group: "Sending log", summary: "List the addresses that get no more mail"},
	"create_suppression": {group: "Sending log", summary: "Send no more to an address"},
	"delete_suppression": {group: "Sending log", summary: "Send to an address again"},

	"list_webhooks":           {group: "Webhooks", summary: "List the endpoints"},
	"create_webhook":          {group: "Webhooks", summary: "Make an endpoint", text: "One that wants email.received switches the universal inbox on.", errors: "webhook_limit_reached", show: "url events description"},
	"get_webhook":             {group: "Webhooks", summary: "Show an endpoint"},
	"update_webhook":          {group: "Webhooks", summary: "Change, disable or enable an endpoint", show: "status"},
	"delete_webhook":          {group: "Webhooks", summary: "Delete an endpoint"},
	"get_webhook_secret":      {group: "Webhooks", summary: "Show an endpoint's signing secret"},
	"rotate_webhook_secret":   {group: "Webhooks", summary: "Replace an endpoint's signing secret", text: "For 24 hours the old one signs too."},
	"test_webhook":            {group: "Webhooks", summary: "Send a test.ping to an endpoint", text: "Disabled endpoints get it too."},
	"list_webhook_deliveries": {group: "Webhooks", summary: "List the attempts of the last 30 days"},
	"redeliver_event":         {group: "Webhooks", summary: "Send an event again"},
	"list_events":             {group: "Webhooks", summary: "List the events of the last 30 days", text: "Whether or not an endpoint was told of them."},

	"list_jobs":           {group: "Jobs and export", summary: "List the jobs of the last 30 days", text: "With `job_id` it answers that job alone."},
	"get_job":             {group: "Jobs and export", summary: "Show a job", text: "With `wait` it answers when the job ends, or after so many seconds."},
	"create_export":       {group: "Jobs and export", summary: "Export mailboxes with their passwords", text: "Name exactly one of `domains`, `emails`, `user_ids` and `all`. The link works once, for 15 minutes, and needs no token. With `inline`, or `Accept: text/csv`, the answer is the file itself. One export every five seconds.", errors: "export_rate_limited exactly_one_parameter", show: "format all", media: "text/csv"},
	"list_export_formats": {group: "Jobs and export", summary: "List the formats of exports"},
}
