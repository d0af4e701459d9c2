"""URL paths of the door, the admin port and the agent, and the agent's port."""

AGENT_PORT = 9222

# agent
LEASE = "/lease"
READYZ = "/readyz"  # ?wait=S&lease=ID
LIVEZ = "/livez"
METRICS = "/metrics"

# door (and, inside a lease, the agent)
JSON_VERSION = "/json/version"
RENDER = "/render"
LEASES = "/leases"
BROWSER_PREFIX = "/devtools/browser"
FARM_BROWSER = "/devtools/browser/farm"  # the browser path that stands for "a lease of its own"

# admin
STATUS = "/status"

SERVICE_NAME_LABEL = "kubernetes.io/service-name"  # on every EndpointSlice of a Service
