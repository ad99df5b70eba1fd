"""Signs up at a site and confirms with the code that it mails. Usage: signup.py SITE DOMAIN, with MAILSTEAD_URL and MAILSTEAD_TOKEN set."""

import json
import os
import sys
import urllib.parse
import urllib.request


def post(url, body):
    """Posts to the site that is tested."""
    request = urllib.request.Request(url, method="POST", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=60).close()


def api(method, path, body=None, token=os.environ["MAILSTEAD_TOKEN"]):
    """Calls the API; an error raises urllib.error.HTTPError, whose body says what to do."""
    request = urllib.request.Request(
        os.environ["MAILSTEAD_URL"] + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=90) as response:
        return json.load(response)


site, domain = sys.argv[1:]

# An inbox for this test alone. It sends nothing, and goes by itself if the test does not come to its end.
made = api("POST", "/v1/inboxes", {"ttl_seconds": 900, "policy": {"send": "deny"}})
inbox = made["inbox"]
path = "/v1/email-users/" + inbox["user_id"]
try:
    post(site + "/signup", {"email": inbox["email"]})

    # Anybody may have written to the address since it was made. Only the code counts that DMARC proves to be of the site.
    query = {"kind": "code", "from_domain": domain, "since": inbox["created_at"], "timeout": 60}
    found = api("GET", f"{path}/inbox/wait?{urllib.parse.urlencode(query)}", token=made["token"])
    if not found["message"]:
        sys.exit("no code of " + domain + " has come")
    print("code", found["code"], "of", found["verified_domain"])
    post(site + "/confirm", {"email": inbox["email"], "code": found["code"]})
    print("confirmed")
finally:
    api("DELETE", path)
