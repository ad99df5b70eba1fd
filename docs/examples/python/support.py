"""Answers questions, once a person has approved. Usage: support.py USER_ID COUNT, with MAILSTEAD_URL and MAILSTEAD_TOKEN set."""

import json
import os
import sys
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
    with urllib.request.urlopen(request, timeout=90) as response:
        return json.load(response)


def answer(question):
    """Here a model is asked. It may obey the question: whatever it writes, a person sees it before it is sent."""
    return "Thank you for your message. We have read:\n\n> " + "\n> ".join(question.splitlines()[:20]) + "\n"


mailbox = api("GET", "/v1/email-users/" + sys.argv[1])
inbox = f"/v1/email-users/{mailbox['user_id']}/inbox"
since, left = mailbox["created_at"], int(sys.argv[2])
while left:
    # The oldest message since the last one: none is missed, whatever arrives in between, or while this does not run.
    found = api("GET", f"{inbox}/wait?{urllib.parse.urlencode({'since': since, 'timeout': 60})}")
    since, message = found["now"], found["message"]
    if not message or message["is_read"] or message["is_auto_reply"] or message["is_bounce"]:
        continue
    sent = api("POST", inbox + "/send", {
        "to": message["reply_to"] or message["from_email"],
        "subject": "Re: " + message["subject"],
        "text": answer(message["reply_text"] or ""),
        "in_reply_to": message["message_id"],
    })
    print(sent["status"], sent["approval_id"], flush=True)
    api("PATCH", f"{inbox}/{message['uid']}", {"is_read": True})
    left -= 1
