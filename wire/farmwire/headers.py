"""HTTP header names of the lease handshake and of the caller's answer.

Every header that starts with ``Farm-`` belongs to the farm: the proxy strips a caller's own.
"""

LEASE = "Farm-Lease"  # the lease's id (a ULID); in the request, the 101 and the caller's answer
JOIN = "Farm-Join"  # in place of Farm-Lease: add a connection to the running lease of this id
KEY = "Farm-Key"  # secret shared by proxy and agents, when one is set
LEASE_MAX_S = "Farm-Lease-Max-S"  # whole seconds; the agent ends the lease then, should the proxy not
WAITED_MS = "Farm-Waited-Ms"  # whole milliseconds the caller was held
DIALS = "Farm-Dials"  # dials it took, this one counted
PUBLIC_BASE = "Farm-Public-Base"  # ws://door/leases/ID.KEY: what the agent's /json answers build URLs on
PROFILE = "Farm-Profile"  # a stored Chrome profile, when asked for
LAUNCH = (
    "Farm-Launch"  # JSON of launch_options: what this lease's Chrome is to be started with, when asked for
)
ALLOW_ORIGIN = (
    "Farm-Allow-Origin"  # a web page's Origin that the door allows: the answer says so to its browser
)
POD = "Farm-Pod"  # namespace/name/uid of the pod that answers

PAGE_STATUS = "Farm-Page-Status"  # of /render's answer: the page's own HTTP status
PAGE_URL = "Farm-Page-Url"  # where the page ended, redirects followed
PAGE_URL_CHARS = "Farm-Page-Url-Chars"  # its whole length, when Farm-Page-Url had to be cut
PAGE_REFUSED = "Farm-Page-Refused"  # how many targets of the page were refused, when any was


def readable_by(origin: str) -> list[tuple[str, str]]:
    """Headers (Fetch standard, CORS) by which a browser lets a page of this Origin read an answer and the farm's own headers."""
    exposed = (
        LEASE,
        POD,
        WAITED_MS,
        DIALS,
        PAGE_STATUS,
        PAGE_URL,
        PAGE_URL_CHARS,
        PAGE_REFUSED,
        "Retry-After",
    )
    return [
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", ", ".join(exposed)),
        ("Vary", "Origin"),
    ]


UPGRADE_TOKEN = "farm-lease"  # the Upgrade header's value in request and 101
