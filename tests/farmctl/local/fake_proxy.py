"""A stand-in for the proxy: lists the slices often, shows every ready endpoint as a free pod, and a demand that is
whatever the file named by FARMPROXY_FAKE_DEMAND says, told after FARMPROXY_FAKE_SLOW_S seconds.
"""

import json
import os
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SLICES = "/apis/discovery.k8s.io/v1/namespaces/farm/endpointslices?labelSelector=kubernetes.io/service-name%3Dbrowsers"
demand = os.environ.get("FARMPROXY_FAKE_DEMAND", "")
api = os.environ["FARMPROXY_KUBE_API"]
known = []


def pods():
    try:
        with urllib.request.urlopen(api + SLICES, timeout=1) as answer:
            slices = json.load(answer)["items"]
    except OSError:
        return known
    known[:] = [
        {
            "uid": endpoint.get("targetRef", {}).get("uid", ""),
            "name": endpoint.get("targetRef", {}).get("name", ""),
            "address": f"{endpoint['addresses'][0]}:{one['ports'][0]['port']}",
            "state": "free" if endpoint["conditions"]["ready"] else "unready",
            "terminating": endpoint["conditions"]["terminating"],
            "lease": None,
            "faults": 0,
            "set_aside_s": 0,
        }
        for one in slices
        for endpoint in one["endpoints"]
    ]
    return known


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/status":
            body = json.dumps({"pools": {"default": {"demand": 0, "pods": pods(), "held": [], "leases": []}}})
        elif self.path == "/metrics":
            time.sleep(float(os.environ.get("FARMPROXY_FAKE_SLOW_S", "0")))
            text = Path(demand).read_text() if demand and Path(demand).exists() else ""
            body = f'farmproxy_demand{{pool="default"}} {text}\n' if text else ""
        else:
            body = os.environ.get("FARMPROXY_MARK", "")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args):
        pass


if os.environ.get("FARMPROXY_FAKE_CRASH"):
    print("bad setting", file=sys.stderr)
    sys.exit(1)
host, _, port = os.environ["FARMPROXY_ADMIN"].rpartition(":")
print(json.dumps({"event": "door-open", "t": 0}), flush=True)
ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
