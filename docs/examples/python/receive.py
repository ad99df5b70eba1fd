"""Receives events. It listens on 127.0.0.1:PORT (8000), behind a proxy that does HTTPS; MAILSTEAD_SECRET is the secret."""

import hashlib
import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def genuine(secret: str, timestamp: str, signatures: str, body: bytes) -> bool:
    """Says whether a delivery comes from Mailstead: body is what came, byte for byte, before anything reads it."""
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > 300:
        return False
    mac = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    want = "v1=" + mac.hexdigest()
    return any(hmac.compare_digest(want.encode(), s.encode()) for s in signatures.split(","))


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        timestamp = self.headers.get("X-Service-Timestamp", "")
        signatures = self.headers.get("X-Service-Signature", "")
        if not genuine(os.environ["MAILSTEAD_SECRET"], timestamp, signatures, body):
            self.send_error(400)
            return
        event = json.loads(body)
        print(event["type"], event["id"], flush=True)  # An id may come twice: remember those that are done.
        self.send_response(204)
        self.end_headers()


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8000"))), Receiver).serve_forever()
