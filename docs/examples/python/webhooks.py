"""An endpoint for events, from its making to its end. Usage: webhooks.py URL, with MAILSTEAD_URL and MAILSTEAD_TOKEN set."""

import json
import os
import sys
import time
import urllib.parse
import urllib.request


def api(method, path, body=None):
    """Calls the API; an error raises urllib.error.HTTPError, whose body says what to do."""
    request = urllib.request.Request(
        os.environ["MAILSTEAD_URL"] + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": "Bearer " + os.environ["MAILSTEAD_TOKEN"], "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def every(path, **query):
    """Yields the rows of a long list, page by page."""
    while True:
        page = api("GET", path + "?" + urllib.parse.urlencode(query))
        yield from page["data"]
        query["cursor"] = page["pagination"]["cursor"]
        if query["cursor"] is None:
            return


# Make the endpoint. The receiver needs its secret.
webhook = api("POST", "/v1/webhooks", {"url": sys.argv[1], "events": ["email.received", "email.bounced"]})
path = "/v1/webhooks/" + webhook["id"]
print("secret", webhook["secret"][:6] + "…")

# Send it a test event and look how that went.
event_id = api("POST", path + "/test")["event_id"]
while not (attempts := api("GET", f"{path}/deliveries?event_id={event_id}")["data"]):
    time.sleep(1)
print("test", attempts[0]["outcome"])

# Change the secret. For 24 hours deliveries carry a signature with each, so the receiver can change over at leisure.
print("rotated, old secret until", api("POST", path + "/rotate-secret")["previous_secret_expires_at"])

# Events are kept for 30 days whether or not an endpoint took them.
for event in every("/v1/events", limit=2):
    print("event", event["type"])

print("deleted", str(api("DELETE", path)["deleted"]).lower())
