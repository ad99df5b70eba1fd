"""From a domain to a message that was read. Usage: mailbox.py DOMAIN, with MAILSTEAD_URL and MAILSTEAD_TOKEN set."""

import json
import os
import sys
import time
import urllib.request


def api(method, path, body=None, **headers):
    """Calls the API; an error raises urllib.error.HTTPError, whose body says what to do."""
    request = urllib.request.Request(
        os.environ["MAILSTEAD_URL"] + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": "Bearer " + os.environ["MAILSTEAD_TOKEN"], "Content-Type": "application/json", **headers},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def wait(job_id):
    """Waits until a job has ended: each request does for 30 seconds at most."""
    while True:
        job = api("GET", f"/v1/jobs/{job_id}?wait=30")
        if job["completed_at"]:
            return job


domain = sys.argv[1]
address = "ann@" + domain

# Connect the domain. Delegate it to connected["nameservers"], then have the delegation checked: a job sets it up.
connected = api("POST", "/v1/domains/connect", {"domains": [domain]})
checked = api("POST", "/v1/domains/check-ns", {"domains": [domain]})
if not checked["all_verified"]:
    sys.exit(checked["domains"][0]["message"])
job_id = api("GET", "/v1/domains/" + connected["domains"][0]["domain_id"])["job_id"]
print("domain", domain + ":", wait(job_id)["status"])

# Create a mailbox. With a key the request can be repeated without making a second one. The password is shown only here.
mailbox = api("POST", "/v1/email-users", {"email": address, "name": "Ann"}, **{"Idempotency-Key": "create-" + address})
inbox = f"/v1/email-users/{mailbox['user_id']}/inbox"
print("mailbox", mailbox["email"])

# Send a message, here to herself, and wait until it is there.
api("POST", inbox + "/send", {"to": address, "subject": "Hello", "text": "It works."})
while not (messages := api("GET", inbox)["data"]):
    time.sleep(1)

# Read it, mark it as read, delete it.
path = f"{inbox}/{messages[0]['uid']}"
message = api("GET", path)
print("message", message["subject"] + ":", message["text"].strip())
api("PATCH", path, {"is_read": True})
api("DELETE", path)
