"""All settings of the proxy, read from the environment once. A start with a wrong setting names every problem
at once and changes nothing: variable, value, what is allowed.
"""

# ruff: noqa: RUF009  # _setting makes dataclass fields, not shared defaults

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

from farmproxy.config.parsers import (
    HostPort,
    Network,
    Pools,
    parse_api_url,
    parse_count,
    parse_host_port,
    parse_hosts,
    parse_name,
    parse_networks,
    parse_origins,
    parse_pools,
    parse_prefix,
    parse_seconds,
    parse_text,
    show,
)
from farmproxy.core.limits import Limits

PREFIX = "FARMPROXY_"
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # where a pod finds its token and CA
# What a kubelet injects for a Service called farmproxy or farmproxy-admin; nobody's typing slip.
_SERVICE_LINK = re.compile(r"(^|_)(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)$")

# Of all pools together: with everything else a proxy needs (docs/operating.md) it stays below the manifest's 512 MiB.
HOLD_BYTES = 192 * 1024 * 1024
ASK_PLACES, MIN_ASK_PLACES = 2048, 16  # long polls of a pool at once, a descriptor each

T = TypeVar("T")


class SettingsError(Exception):
    """One or more settings are wrong; ``problems`` has one line for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _setting(parse: Callable[[str], T], default: T, says: str) -> T:
    made: T = field(default=default, metadata={"parse": parse, "says": says})
    return made


def _seconds(default: float, says: str, least: float = 0.001) -> float:
    return _setting(parse_seconds(least=least), default, says)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Field ``hold_default_s`` is FARMPROXY_HOLD_DEFAULT_S. Empty text means: not set."""

    pools: Mapping[str, str] = field(
        default_factory=lambda: Pools(default="browsers"),
        metadata={"parse": parse_pools, "says": "pools as name=Service,...; queues and limits are per pool"},
    )
    namespace: str = _setting(parse_name, "farm", "namespace of the pools' Services")
    port_name: str = _setting(parse_name, "cdp", "name of the agents' port in the EndpointSlices")
    door: HostPort = _setting(parse_host_port, HostPort("0.0.0.0", 9222), "address of the door")
    admin: HostPort = _setting(parse_host_port, HostPort("0.0.0.0", 9223), "address of the admin port")
    kube_api: str = _setting(parse_api_url, "", "API server's URL; empty: the cluster this pod runs in")
    kube_token_file: str = _setting(parse_text, "", "bearer token for it; empty: the pod's own, in a cluster")
    kube_ca_file: str = _setting(parse_text, "", "its CA bundle; empty: the pod's own, in a cluster")
    hold_default_s: float = _seconds(300.0, "hold of a caller that names none; 0: do not hold", 0)
    hold_ceiling_s: float = _seconds(3600.0, "longest hold a caller may ask for", 0)
    hold_limit: int = _setting(parse_count(least=0), 10_000, "callers held at once, per pool")
    connect_timeout_s: float = _seconds(2.0, "for a pod to accept the connection")
    handshake_timeout_s: float = _seconds(2.0, "for the first answer of an agent, and between two")
    prepare_timeout_s: float = _seconds(30.0, "for the 101 of an agent")
    recycle_s: float = _seconds(30.0, "after a lease, how long the agent's word is waited for")
    set_aside_s: float = _seconds(2.0, "first time a faulty pod is left alone; doubles with each fault")
    set_aside_max_s: float = _seconds(60.0, "longest time a faulty pod is left alone")
    lease_default_s: float = _seconds(900.0, "longest time of a lease whose caller names none")
    lease_ceiling_s: float = _seconds(3600.0, "longest lease a caller may ask for")
    lease_idle_s: float = _seconds(0.0, "end a lease after this time without a caller's byte; 0: off", 0)
    first_use_s: float = _seconds(30.0, "end a POST /leases lease that nobody joined for so long")
    rejoin_s: float = _seconds(30.0, "end it so long after its last connection closed")
    head_timeout_s: float = _seconds(10.0, "for a caller to send its request's head")
    stall_s: float = _seconds(60.0, "end a session whose reader takes nothing for so long")
    keepalive_s: float = _seconds(15.0, "TCP keepalive: idle time before a vanished peer is probed", 1)
    watch_silence_s: float = _seconds(60.0, "a watch that is silent for so long is started anew", 1)
    linger_s: float = _seconds(5.0, "after SIGTERM, how long the door still takes new callers", 0)
    drain_s: float = _seconds(900.0, "after SIGTERM, how long sessions may still run", 0)
    tokens_file: str = _setting(
        parse_text, "", "callers' tokens, a line each: name:token; empty: no token asked"
    )
    agent_key_file: str = _setting(parse_text, "", "secret shared with the agents; empty: none")
    origins: frozenset[str] = _setting(
        parse_origins, frozenset(), "allowed Origins besides the door's own host"
    )
    hosts: frozenset[str] = _setting(parse_hosts, frozenset(), "Host names taken when no token is set")
    trusted_proxies: tuple[Network, ...] = _setting(
        parse_networks, (), "networks whose X-Forwarded-Proto, -Host and -Prefix are believed"
    )
    prefix: str = _setting(
        parse_prefix, "", "path under which an ingress serves the door, such as /farm; it stands in every URL"
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> "Settings":
        """Settings of this environment, defaults of the cluster filled in; SettingsError with every problem."""
        values, problems = _parsed(environ)
        settings = cls(**values)
        problems += _unknown(environ)
        problems += _contradictions(settings)
        if not settings.kube_api and not any(PREFIX + "KUBE_API " in problem for problem in problems):
            values, missing = _in_cluster(settings, environ, values)
            problems += missing
            settings = cls(**values)
        if problems:
            raise SettingsError(problems)
        return settings


def variables() -> Iterator[tuple[str, "Field[Any]"]]:
    """Every variable's name with its field, in the order of --help."""
    for each in fields(Settings):
        yield PREFIX + each.name.upper(), each


def help_text() -> str:
    """What ``python -m farmproxy --help`` prints."""
    defaults = Settings()
    lines = [
        "The lease proxy: holds callers, leases one free browser pod to each, relays bytes.",
        "It takes no arguments; its settings come from the environment.",
        "",
    ]
    for name, each in variables():
        default = show(getattr(defaults, each.name))
        lines.append(f"  {name:<31} {each.metadata['says']}" + (f" [{default}]" if default else ""))
    lines += ["", "Seconds may be decimal, addresses are host:port, lists are separated by commas."]
    return "\n".join(lines) + "\n"


def limits(settings: Settings, descriptors: int) -> dict[str, Limits]:
    """The core's numbers for each pool. ``descriptors``: what this process may have open."""
    pools = len(settings.pools)
    each = Limits(
        hold_limit=settings.hold_limit,
        hold_bytes=HOLD_BYTES // pools,
        ask_places=min(ASK_PLACES, max(MIN_ASK_PLACES, descriptors // 16 // pools)),
        set_aside_s=settings.set_aside_s,
        set_aside_max_s=settings.set_aside_max_s,
        recycle_s=settings.recycle_s,
    )
    return dict.fromkeys(settings.pools, each)


def _parsed(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    problems = []
    for name, each in variables():
        text = environ.get(name, "").strip()
        if not text:
            continue
        try:
            values[each.name] = each.metadata["parse"](text)
        except ValueError as error:
            problems.append(f"{name} is {text!r}; {error}")
    return values, problems


def _unknown(environ: Mapping[str, str]) -> list[str]:
    known = [name for name, _ in variables()]
    problems = []
    for name in sorted(environ):
        rest = name.removeprefix(PREFIX)
        if rest == name or name in known or _SERVICE_LINK.search(rest):
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "`python -m farmproxy --help` lists those that exist"
        problems.append(f"{name} is no setting; {hint}")
    return problems


def _contradictions(settings: Settings) -> list[str]:
    pairs = [
        ("hold_default_s", "hold_ceiling_s"),
        ("lease_default_s", "lease_ceiling_s"),
        ("set_aside_s", "set_aside_max_s"),
        ("handshake_timeout_s", "prepare_timeout_s"),
    ]
    problems = []
    for low, high in pairs:
        low_value, high_value = getattr(settings, low), getattr(settings, high)
        if low_value > high_value:
            low_name, high_name = PREFIX + low.upper(), PREFIX + high.upper()
            problems.append(
                f"{low_name} is {low_value:g}; allowed: at most {high_name}, which is {high_value:g}"
            )
    return problems


def _in_cluster(
    settings: Settings, environ: Mapping[str, str], values: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not port.isdecimal():
        return values, [f"{PREFIX}KUBE_API is not set and this is no pod; allowed: the API server's URL"]
    found = {
        "kube_api": f"https://{HostPort(host, int(port))}",
        "kube_token_file": settings.kube_token_file or f"{_ACCOUNT}/token",
        "kube_ca_file": settings.kube_ca_file or f"{_ACCOUNT}/ca.crt",
    }
    return {**values, **found}, []
