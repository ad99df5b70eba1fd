#!/bin/sh
# From a domain to a message that was read. Usage: mailbox.sh DOMAIN
# Needs curl, jq, and MAILSTEAD_URL and MAILSTEAD_TOKEN in the environment.
set -eu
domain=${1:?usage: mailbox.sh DOMAIN}

# api METHOD PATH [OPTION…] prints the answer; an error goes to standard error and ends the script.
api() {
	method=$1 path=$2
	shift 2
	answer=$(curl -sS --fail-with-body -X "$method" "$MAILSTEAD_URL$path" -H "Authorization: Bearer $MAILSTEAD_TOKEN" "$@") ||
		{ printf '%s\n' "$answer" >&2 && exit 1; }
	printf '%s\n' "$answer"
}

# Connect the domain. Delegate it to the nameservers of the answer, then have the delegation checked.
connected=$(api POST /v1/domains/connect --json "{\"domains\": [\"$domain\"]}")
checked=$(api POST /v1/domains/check-ns --json "{\"domains\": [\"$domain\"]}")
printf '%s\n' "$checked" | jq -e '.all_verified' >/dev/null

# A job sets the domain up. Each request waits for it, 30 seconds at most.
found=$(api GET "/v1/domains/$(printf '%s\n' "$connected" | jq -er '.domains[0].domain_id')")
job_id=$(printf '%s\n' "$found" | jq -er '.job_id')
status=queued
while [ "$status" = queued ] || [ "$status" = in_progress ]; do
	job=$(api GET "/v1/jobs/$job_id?wait=30")
	status=$(printf '%s\n' "$job" | jq -er '.status')
done
echo "domain $domain: $status"

# Create a mailbox. With a key the request can be repeated without making a second one. The password is shown only here.
mailbox=$(api POST /v1/email-users --json "{\"email\": \"ann@$domain\", \"name\": \"Ann\"}" -H "Idempotency-Key: create-ann@$domain")
inbox=/v1/email-users/$(printf '%s\n' "$mailbox" | jq -er '.user_id')/inbox
echo "mailbox $(printf '%s\n' "$mailbox" | jq -er '.email')"

# Send a message, here to herself, and wait until it is there.
api POST "$inbox/send" --json "{\"to\": \"ann@$domain\", \"subject\": \"Hello\", \"text\": \"It works.\"}" >/dev/null
uid=
while [ -z "$uid" ]; do
	page=$(api GET "$inbox")
	uid=$(printf '%s\n' "$page" | jq -r '.data[0].uid // empty')
	[ -n "$uid" ] || sleep 1
done

# Read it, mark it as read, delete it.
message=$(api GET "$inbox/$uid")
echo "message $(printf '%s\n' "$message" | jq -er '"\(.subject): \(.text)"')"
api PATCH "$inbox/$uid" --json '{"is_read": true}' >/dev/null
api DELETE "$inbox/$uid" >/dev/null
