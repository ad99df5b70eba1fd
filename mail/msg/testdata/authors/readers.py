"""Answers what Python's email package takes for the authors of a header.

Each line of standard input is a JSON list of header blocks. The answer is one line: a JSON
list with an object for each block. "policy" is what email.policy.default reads, "getaddresses"
what email.utils.getaddresses does. null stands for a header that the reader refuses.
"""
import email
import email.policy
import email.utils
import json
import re
import sys


def by_policy(text):
    try:
        message = email.message_from_string(text, policy=email.policy.default)
        fields = message.get_all("From") or []
        return [a.addr_spec for f in fields for a in f.addresses if a.domain]
    except Exception:
        return None


def by_getaddresses(text):
    try:
        message = email.message_from_string(text)
        fields = [re.sub(r"[\r\n]+", "", str(f)) for f in message.get_all("From") or []]
        return [address for _, address in email.utils.getaddresses(fields) if "@" in address]
    except Exception:
        return None


if "version" in sys.argv:
    print("%d.%d.%d" % sys.version_info[:3])
    sys.exit()
for line in sys.stdin:
    answers = [{"policy": by_policy(t), "getaddresses": by_getaddresses(t)} for t in json.loads(line)]
    sys.stdout.write(json.dumps(answers) + "\n")
    sys.stdout.flush()
