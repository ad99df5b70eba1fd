// Package code has the error codes of the API, each with its HTTP status. It does not know what an
// error is about.
package code

// A Code is a value of error.code, with its HTTP status and meaning.
type Code struct {
	Status int
	Code   string
	Means  string
}

// Status returns the HTTP status of an error code; 500 for an unknown code. A code has the same
// status everywhere.
func Status(code string) int {
	if status, ok := statusByCode[code]; ok {
		return status
	}
	return 500
}

var statusByCode = func() map[string]int {
	all := map[string]int{}
	for _, c := range Documented {
		all[c.Code] = c.Status
	}
	for status, codes := range otherCodes {
		for _, code := range codes {
			all[code] = status
		}
	}
	return all
}()

// Documented lists the codes that the API documents, in rising order of status.
var Documented = []Code{
	{400, "validation_error", "a field is wrong; `details` names every one"},
	{400, "invalid_json", "the body is not one JSON object"},
	{400, "invalid_cursor", "the cursor does not belong to this list with these filters"},
	{400, "invalid_domain", "this is not a valid domain name"},
	{400, "invalid_record", "the DNS record is not valid"},
	{400, "cname_at_apex", "the domain itself cannot be a CNAME"},
	{400, "invalid_dmarc", "a DMARC policy begins with v=DMARC1"},
	{400, "not_manual_domain", "this is only for domains whose DNS you manage yourself"},
	{400, "nothing_to_update", "no field that can change was given"},
	{400, "mailbox_required", "the query must name the mailbox"},
	{400, "exactly_one_parameter", "give exactly one of the parameters"},
	{400, "too_many_items", "the list is longer than one request allows"},
	{400, "group_loop", "mail to the group would come back to it"},
	{400, "invalid_template", "braces in a template hold no variable"},
	{400, "missing_variable", "a template needs a value that is not given; `details` names it"},
	{400, "domain_required", "no domain is set up, or several are; name one"},
	{400, "edge_token_invalid", "Cloudflare does not accept the `edge_api_token`, or that lacks a permission"},
	{400, "credential_invalid", "the DNS provider does not accept the credential, or it may change nothing there"},
	{400, "universal_inbox_disabled", "turn the universal inbox on first"},
	{400, "invalid_setting", "the setting is unknown, may not be changed here, or its value is wrong"},
	{401, "unauthorized", "there is no valid API token"},
	{401, "token_expired", "the token has expired"},
	{401, "token_revoked", "the token was revoked"},
	{401, "sign_in_again", "the session began more than 15 minutes ago, and what was asked concerns the whole installation"},
	{403, "insufficient_scope", "the token lacks the permission"},
	{403, "forbidden_role", "the role of the token's creator, or the policy of the token, does not allow this"},
	{403, "user_limit_reached", "the account has reached its limit of team users"},
	{403, "email_already_exists", "the address belongs to another user"},
	{403, "domain_limit_exceeded", "the account would exceed its limit of domains"},
	{403, "email_user_limit_exceeded", "the limit of mailboxes is reached"},
	{403, "credential_limit_reached", "the mailbox or domain has as many passwords as it may"},
	{403, "rule_limit_reached", "the mailbox has as many rules as it may"},
	{403, "webhook_limit_reached", "the account has reached its limit of endpoints"},
	{403, "owner_protected", "the account's owner cannot be changed or deleted, and the first account cannot be suspended or deleted"},
	{403, "user_not_in_account", "the team user belongs to another account"},
	{403, "daily_send_limit_reached", "the mailbox, its domain or its account has reached its limit of recipients for this day"},
	{403, "new_recipient_limit_reached", "the mailbox, its domain or its account has reached its limit of new recipients for this day"},
	{403, "tainted", "what a stranger wrote was read with the token or the password; a person can clear that"},
	{403, "sending_not_allowed", "a sending policy, of the mailbox or the token, lets this not be sent"},
	{403, "recipient_not_allowed", "the sending policy allows only answers, to the people of the message that is answered"},
	{403, "sending_paused", "the mailbox or its domain cannot send until an owner or admin resumes it"},
	{403, "wrong_password", "the current password is another one"},
	{403, "person_required", "only a person may do it: an owner or admin who is signed in to the dashboard"},
	{403, "account_suspended", "the operator of this installation has suspended the account"},
	{404, "not_found", "it does not exist in this account"},
	{404, "zone_not_found", "the DNS provider has no zone of the domain that the credential or token may change"},
	{405, "method_not_allowed", "the path has other methods; see the header Allow"},
	{406, "not_acceptable", "the answer has no form that the client takes"},
	{409, "email_user_exists", "a mailbox with this address exists already"},
	{409, "managed_record_collision", "Mailstead manages a record of this name and type itself"},
	{409, "duplicate_record", "the record exists already"},
	{409, "zone_changed", "what the change has made was changed since"},
	{409, "in_use", "something else needs it; the message names what"},
	{409, "apex_elsewhere", "the domain itself leads to a website elsewhere, which a redirect would replace"},
	{409, "zone_conflict", "records of others are in the place of ours at the DNS provider"},
	{409, "records_not_ready", "the records are still being computed; as the error of a domain: they were not found within 14 days"},
	{409, "folder_exists", "the mailbox has a folder of this name"},
	{409, "folder_has_children", "delete the folders below it first"},
	{409, "folder_protected", "a standard folder can be neither renamed nor deleted"},
	{409, "domain_not_ready", "the domain is not set up yet"},
	{409, "domain_busy", "a job works on the domain; `details` names it"},
	{409, "universal_inbox_required", "enabled endpoints subscribe to email.received; `details` names them"},
	{409, "not_scheduled", "the message is not scheduled, or is being sent at this moment, so its time cannot be changed"},
	{409, "cannot_unsubscribe", "the message offers no one-click unsubscribing that can be trusted, or the list's server does not answer"},
	{409, "external_mailbox", "the messages of a mailbox on another server cannot be moved here"},
	{409, "no_invitation", "the message is no invitation, or the event was cancelled"},
	{409, "not_queued", "the message is scheduled, held, parked, rejected or cancelled, so it cannot be tried now"},
	{409, "content_changed", "`content_hash` is not that of this message and its recipients; read the approval again"},
	{409, "already_decided", "the message is approved or rejected already"},
	{409, "set_in_file", "the settings file, a flag or an environment variable sets it; the message names it"},
	{409, "backup_running", "a backup or a drill is running already"},
	{409, "idempotency_in_progress", "the first request with this key is still running"},
	{409, "answer_not_kept", "the first request with this key was carried out, and its answer was too large to be kept"},
	{410, "approval_expired", "nobody approved the message within seven days, and it is not sent"},
	{413, "payload_too_large", "the body is larger than this operation accepts"},
	{415, "unsupported_media_type", "the body must be application/json"},
	{422, "zone_unreadable", "the zone file cannot be read; the message names the line"},
	{422, "idempotency_key_reused", "this key was used with another body"},
	{429, "rate_limited", "too many requests; wait for Retry-After seconds"},
	{429, "export_rate_limited", "one export every five seconds"},
	{500, "internal_error", "an error of the server; report the request id"},
	{502, "upstream_error", "another service did not answer; `details` names it"},
	{503, "dns_provider_unsupported", "the domain's DNS is not managed by Mailstead"},
	{503, "not_configured", "this installation is not set up for that"},
	{503, "busy", "too many log-ins are waiting; try again after Retry-After seconds"},
	{503, "shutting_down", "the server is stopping; try again in a moment"},
	{503, "storage_unavailable", "the server's disk does not do what is asked; try again after Retry-After seconds"},
	{507, "quota_exceeded", "the mailbox or the storage of the account is full; delete messages, or raise `quota_bytes` or `storage_bytes`"},
	{507, "storage_full", "the server's disk is full; try again after Retry-After seconds"},
}

// otherCodes are the codes of the dashboard, of IMAP and of jobs, by status.
var otherCodes = map[int][]string{
	400: {"append_too_large", "folder_name_invalid", "invalid_code", "keywords_invalid", "message_empty"},
	401: {"invalid_credentials", "second_factor_required"},
	403: {"cross_origin", "folder_limit_reached", "forbidden", "forbidden_origin", "https_required", "mailbox_closed", "mailbox_unavailable"},
	404: {"folder_not_found", "message_gone"},
	409: {"already_initialised", "claim_expired", "domain_claimed_elsewhere", "domain_unavailable", "folder_exists", "folder_has_children", "insufficient_funds", "ns_timeout", "passkey_exists", "passkeys_unavailable", "premium_not_supported", "price_changed", "special_use_invalid", "too_many_passkeys", "totp_enabled", "totp_not_started"},
	410: {"expired"},
	422: {"image_unavailable", "no_preview"},
	429: {"folder_changes_limited"},
	502: {"backup_failed", "registrar_error"},
	503: {"not_ready"},
}
