#!/bin/sh
# An endpoint for events, from its making to its end. Usage: webhooks.sh URL
# Needs curl, jq, and MAILSTEAD_URL and MAILSTEAD_TOKEN in the environment.
set -eu
url=${1:?usage: webhooks.sh URL}

# api METHOD PATH [OPTION…] prints the answer; an error goes to standard error and ends the script.
api() {
	method=$1 path=$2
	shift 2
	answer=$(curl -sS --fail-with-body -X "$method" "$MAILSTEAD_URL$path" -H "Authorization: Bearer $MAILSTEAD_TOKEN" "$@") ||
		{ printf '%s\n' "$answer" >&2 && exit 1; }
	printf '%s\n' "$answer"
}

# Make the endpoint. The receiver needs its secret.
webhook=$(api POST /v1/webhooks --json "{\"url\": \"$url\", \"events\": [\"email.received\", \"email.bounced\"]}")
endpoint=/v1/webhooks/$(printf '%s\n' "$webhook" | jq -er '.id')
echo "secret $(printf '%s\n' "$webhook" | jq -er '.secret[:6]')…"

# Send it a test event and look how that went.
tested=$(api POST "$endpoint/test")
event_id=$(printf '%s\n' "$tested" | jq -er '.event_id')
outcome=
while [ -z "$outcome" ]; do
	attempts=$(api GET "$endpoint/deliveries?event_id=$event_id")
	outcome=$(printf '%s\n' "$attempts" | jq -r '.data[0].outcome // empty')
	[ -n "$outcome" ] || sleep 1
done
echo "test $outcome"

# Change the secret. For 24 hours deliveries carry a signature with each, so the receiver can change over at leisure.
rotated=$(api POST "$endpoint/rotate-secret")
echo "rotated, old secret until $(printf '%s\n' "$rotated" | jq -er '.previous_secret_expires_at')"

# Events are kept for 30 days whether or not an endpoint took them. A cursor leads from page to page.
cursor=
while [ "$cursor" != null ]; do
	page=$(api GET "/v1/events?limit=2&cursor=$cursor")
	printf '%s\n' "$page" | jq -r '.data[] | "event \(.type)"'
	cursor=$(printf '%s\n' "$page" | jq -r '.pagination.cursor')
done

deleted=$(api DELETE "$endpoint")
echo "deleted $(printf '%s\n' "$deleted" | jq '.deleted')"
