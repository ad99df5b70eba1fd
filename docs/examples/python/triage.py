"""Sorts the unread mail of a mailbox. Usage: triage.py USER_ID, with MAILSTEAD_URL and MAILSTEAD_TOKEN set."""

import json
import os
import sys
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


def judge(message):
    """Here a model is asked. It may obey the message: then the message is in the wrong folder, and no more has happened."""
    words = (message["subject"] + " " + (message["text"] or "")).lower()
    if "invoice" in words:
        return "Invoices"
    return "trash" if "unsubscribe" in words else "flag"


inbox = f"/v1/email-users/{sys.argv[1]}/inbox"
for row in api("GET", inbox + "?is_read=false&limit=100")["data"]:
    message = api("GET", f"{inbox}/{row['uid']}")
    verdict = judge(message)
    print(verdict + ":", message["subject"])
    api("PATCH", f"{inbox}/{row['uid']}", {"is_read": True, "is_flagged": verdict == "flag"})
    if verdict != "flag":
        api("POST", "/v1/inbox/bulk-move", {"messages": [{"uid": row["uid"], "mailbox": message["mailbox"]}], "to": verdict})
