"""The process's descriptor limit: lifted to what the system allows, so that refusals come as late as they can."""

import resource


def raise_limit() -> int:
    """Lift the soft limit to the hard one; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1_000_000
