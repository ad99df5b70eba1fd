package openapi

// idempotencyText describes the Idempotency-Key in the document.
const idempotencyText = "Up to 255 characters of your choice. A second POST with the same key within 24 hours does nothing and gets the answer of the first; where that has more than 256 KiB it is not kept, and the second gets 409 `answer_not_kept`. Operations that only read take no key."

const exampleRequestID = "req_01k9a2b3c4d5e6f7g8h9j0k1m2"

// apiInfo is the beginning of the document: its title and description.
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

// operationGroups are the tags of operations, in the order of the reference.
var operationGroups = []tag{
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
	{"Settings", "What the operator sets, while the server runs too."},
	{"Accounts", "The accounts of the installation, for its operator."},
	{"Events", "What endpoints are sent."},
}

// apiHeaders are the response headers that operations refer to.
var apiHeaders = Dict[*header]{
	{"X-Request-Id", &header{Description: "The request's id: your own if you sent one, of up to 64 letters, digits, dots, underscores and hyphens. `list_requests` finds a request by either.", Schema: &Schema{Type: "string", Examples: []any{exampleRequestID}}}},
	{"X-RateLimit-Limit", &header{Description: "Requests a minute of the account's plan.", Schema: &Schema{Type: "integer"}}},
	{"X-RateLimit-Remaining", &header{Description: "Requests left in this window at the steady rate. It reaches 0 before any request is refused.", Schema: &Schema{Type: "integer"}}},
	{"X-RateLimit-Reset", &header{Description: "When the window ends, in Unix seconds.", Schema: &Schema{Type: "integer"}}},
	{"Retry-After", &header{Description: "Seconds to wait.", Schema: &Schema{Type: "integer"}}},
	{"Location", &header{Description: "The job: /v1/jobs/{job_id}.", Schema: &Schema{Type: "string"}}},
	{"Idempotent-Replayed", &header{Description: "`true` when this is the answer to an earlier request with the same Idempotency-Key.", Schema: &Schema{Type: "string", Enum: []any{"true"}}}},
	{"WWW-Authenticate", &header{Description: "How to authenticate: `Bearer`.", Schema: &Schema{Type: "string"}}},
}

// deliveryHeaders are the headers of every request to a webhook endpoint.
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

// neverNull has the names of fields with times that are never null in responses. A name may have
// the schema before it.
var neverNull = []string{
	"created_at", "updated_at", "created", "as_of", "queued_at", "received_at", "attempted_at", "sent_at", "relayed_at", "bounced_at", "complained_at", "deleted_at", "ready_at",
	"Alert.since", "Answerer.at", "Approval.expires_at", "ApprovalDetail.expires_at", "ApprovalEvent.expires_at", "DNSFailure.checked_at", "DNSFailure.failing_since", "DNSStatus.checked_at",
	"DelayedData.next_attempt_at", "Delegation.looked_at", "Health.checked_at", "Health.started_at", "HourOfQuestions.hour", "NameserversChanged.changed_at", "Paused.paused_at", "ScanFinished.finished_at",
	"Backup.at", "BlockedReply.at", "RequestRow.at", "RequestDetail.at", "CertificateHealth.expires_at", "ExportCreated.expires_at", "InboxCreated.expires_at", "RecoveryLink.expires_at", "SendingPause.at", "SignInLink.expires_at",
	"SentAttempt.at", "Tainted.since", "WaitAnswer.now",
}
