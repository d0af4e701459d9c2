"""How large things may be that the door takes and an agent is then handed: the door never takes more than the agent does.

An agent that answers 400 to a proxy's own request is therefore a fault of the proxy's (``reasons.DialResult.REJECTED``).
"""

HEAD_BYTES = 16 * 1024  # of a request; a browser's largest cookies and a long token fit
REWRITTEN_HEAD_BYTES = 2 * HEAD_BYTES  # a caller's own head, whose Host the proxy has replaced by the pod's
RENDER_BODY_BYTES = 256 * 1024  # of POST /render
HOST_CHARS = 255  # of a name in a Host header, its port not counted (RFC 1035, 2.3.4)
KEY_CHARS = 1024  # of Farm-Key
ORIGIN_CHARS = 512  # of an allowed Origin
PUBLIC_BASE_CHARS = 2000  # of Farm-Public-Base, its scheme not counted
WHOLE_NUMBER = (
    10**10
)  # of Farm-Lease-Max-S, -Waited-Ms and -Dials: a month, the longest setting, in ms is a quarter of it
