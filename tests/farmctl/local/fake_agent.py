"""A stand-in for an agent: answers probes as it is told to, owns one child in Chrome's place, drains on SIGTERM.

GET /set?ready=0, /set?live=0 and /die steer it. It says one JSON line an event, as the real one does.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

state = {"ready": 1, "live": 1}
drain_s = float(os.environ.get("FAKE_DRAIN_S", "0"))


def say(event, **fields):
    print(json.dumps({"event": event, "t": time.time(), **fields}), flush=True)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/set":
            state.update({key: int(values[0]) for key, values in parse_qs(url.query).items()})
            self.answer(200)
        elif url.path == "/die":
            os._exit(3)
        else:
            good = state["live"] if url.path == "/livez" else state["ready"] and chrome_runs()
            self.answer(200 if good else 503)

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def chrome_runs():
    return chrome.poll() is None and comm() == "sleep"


def comm():
    return Path(f"/proc/{chrome.pid}/comm").read_text().strip()


def drain(*_):
    state["ready"] = 0
    say("draining")
    threading.Timer(drain_s, lambda: os._exit(0)).start()


if os.environ.get("FAKE_CRASH"):
    print("no Chrome: cannot start", file=sys.stderr)
    sys.exit(1)
host, _, port = os.environ["FARMAGENT_LISTEN"].rpartition(":")
# The "Chrome" is a sleep in a session of its own, so that only a walk of the tree finds it.
chrome = subprocess.Popen([os.environ["FARMAGENT_CHROME"], "3600"], start_new_session=True)
signal.signal(signal.SIGTERM, drain)
say("chrome-started", pod=os.environ["FARMAGENT_POD"])
ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
