"""How long a pod is left alone after a fault.

Rule: 2 s, doubling to 60 s (Limits), but not while a third of the pool is set aside: a starved machine is not a
dead one, and a pool must not talk itself into a minute's rest because of one bad second.
"""

from farmproxy.core.limits import Limits
from farmproxy.core.pods import Pod


def next_aside_s(pod: Pod, limits: Limits, *, others_aside: int, known: int) -> float:
    """Length of the set-aside that begins now. ``others_aside`` leaves this pod out, else the one dead address
    in a pool of two or three would be retried every 2 s for ever (field case 8).
    """
    if pod.aside_s <= 0.0:
        return min(limits.set_aside_s, limits.set_aside_max_s)
    if others_aside * 3 >= known:
        return pod.aside_s
    return min(pod.aside_s * 2, limits.set_aside_max_s)


def clear_faults(pod: Pod) -> None:
    """After a success, or a slice seen going from not ready to ready. (A new UID is a new record.)"""
    pod.faults = 0
    pod.aside_s = 0.0
