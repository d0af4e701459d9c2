"""Names of the metrics, in one place because dashboards, the adapter's rule and the HPA quote them.

No label ever holds an id, an address or a token.
"""

DEMAND = "farmproxy_demand"  # {pool}: held + dialling + leased on pods known and not terminating
LEASES = "farmproxy_leases"  # {pool}
HELD = "farmproxy_held"  # {pool}
PODS = "farmproxy_pods"  # {pool,state}
LEASES_GRANTED = "farmproxy_leases_granted_total"
LEASES_ENDED = "farmproxy_leases_ended_total"  # {reason}
REFUSALS = "farmproxy_refusals_total"  # {reason}
DIALS = "farmproxy_dials_total"  # {result}
HOLD_SECONDS = "farmproxy_hold_seconds"
GRANT_SECONDS = "farmproxy_grant_seconds"  # pod free (and caller there) to session
LEASE_SECONDS = "farmproxy_lease_seconds"
TUNNEL_BYTES = "farmproxy_tunnel_bytes_total"  # {direction}
WATCH_AGE_SECONDS = "farmproxy_watch_age_seconds"
WATCH_RESTARTS = "farmproxy_watch_restarts_total"  # {reason}
LOG_LINES_DROPPED = "farmproxy_log_lines_dropped_total"
LOOP_STALL_SECONDS = (
    "farmproxy_loop_stall_seconds"  # moments at which the process did nothing although it had to
)
ENDPOINTS_IGNORED = "farmproxy_endpoints_ignored_total"
BUILD_INFO = "farmproxy_build_info"

AGENT_STATE = "farmagent_state"  # {state}: 1 for the current one
AGENT_LEASES = "farmagent_leases_total"  # {end}
AGENT_RECYCLE_SECONDS = "farmagent_recycle_seconds"
AGENT_CHROME_STARTS = "farmagent_chrome_starts_total"  # {why}
AGENT_LOG_LINES_DROPPED = "farmagent_log_lines_dropped_total"
AGENT_ISOLATED = "farmagent_isolated"  # {what}: 1 where Chrome has a uid of its own, where its sandbox is on
