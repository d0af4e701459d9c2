"""The process's descriptor limit: lifted to what the system allows, so that refusals come as late as they can, and to what
a proxy's memory allows: a machine may let it have a million, and connections that say nothing would cost it its life.
"""

import resource

MOST = 40_000  # at 4 KiB of the kernel's memory and 0.4 KiB of ours (docs/operating.md): 172 MiB


def raise_limit() -> int:
    """Lift the soft limit to the hard one; how many of them may be used."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
