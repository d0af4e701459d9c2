"""Reaches a farm's door and admin port: straight over the host's loopback (kind), or by `kubectl port-forward` where
nothing is published (an existing cluster). Asks the door end to end: a lease, or that no pod is free. Every other answer
is a door that does not serve its callers.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from farmwire import paths
from farmwire.reasons import Refusal

from farmctl.errors import StageError
from farmctl.images import catalogue as catalogues
from farmctl.images import engines
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say
from farmctl.testbeds.kind.cluster import programs
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.kubectl import Kubectl
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder

ANSWER_S, PAGE_S = 10, 10
PROBE = "/leases?hold=0&max=10&label=farmctl-up"


class Reach(Protocol):
    def status(self) -> dict[str, Any]:
        """The proxy's own /status. Raises StageError when it does not answer."""
        ...

    def lease(self) -> str:
        """Take a lease and give it back: "leased", or "no-free-pod". Raises StageError for any other answer."""
        ...

    def page(self, url: str) -> str:
        """What a browser pod says of a page: "200", or what the refusal says. Raises StageError without an answer."""
        ...


@dataclass(frozen=True, slots=True)
class HostReach:
    """``door`` and ``admin`` are host:port."""

    door: str
    admin: str

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(_ask(f"http://{self.admin}{paths.STATUS}"))
        return answer

    def lease(self) -> str:
        return lease_once(f"http://{self.door}")

    def page(self, url: str) -> str:
        return page_once(f"http://{self.door}", url)


@dataclass(frozen=True, slots=True)
class ClusterReach:
    """Nobody but the API server has to be reachable. ``token``: what the door asks of callers ("" = nothing)."""

    kubectl: Kubectl
    namespace: str
    token: str = ""

    def status(self) -> dict[str, Any]:
        with self.kubectl.forwarded(self.namespace, "proxy-admin", 9223) as admin:
            return HostReach("", admin).status()

    def lease(self) -> str:
        with self._door() as door:
            return lease_once(f"http://{door}", self.token)

    def page(self, url: str) -> str:
        with self._door() as door:
            return page_once(f"http://{door}", url, self.token)

    def _door(self) -> AbstractContextManager[str]:
        return self.kubectl.forwarded(self.namespace, "proxy", 9222)


def opened(there: Installed, folder: KindFolder, say: Say) -> tuple[Kubectl, Reach]:
    """Kubectl and the way to the door of the farm that the record tells of."""
    if there.shape is None:
        program = programs.find("kubectl", catalogues.read(), say)
        kubectl = Kubectl(program, there.kubeconfig, there.context)
        return kubectl, ClusterReach(kubectl, there.namespace, folder.token())
    kubectl = own_kubectl(lambda: engines.find(there.engine), there.shape, folder)
    return kubectl, HostReach(there.shape.door, there.shape.admin)


def own_kubectl(engine: Callable[[], Engine], shape: Shape, folder: KindFolder) -> Kubectl:
    """Kubectl for a cluster of our own. Raises StageError."""

    def take(target: Path) -> None:
        programs.take_out(engine(), shape.node_image, f"{shape.name}-control-plane", target)

    program = programs.for_nodes(shape.node_image, catalogues.read(), folder.kubectl, take)
    return Kubectl(program, str(folder.kubeconfig), shape.context)


def lease_once(door: str, token: str = "") -> str:
    """Take a lease at the door's URL and give it back: "leased", or "no-free-pod". Raises StageError."""
    try:
        lease = json.loads(_ask(f"{door}{PROBE}", method="POST", token=token))
    except Refused as refused:
        if refused.reason != Refusal.NO_FREE_POD:
            raise
        return refused.reason
    _ask(f"{door}/leases/{lease['id']}", method="DELETE", token=token)
    return "leased"


def page_once(door: str, url: str, token: str = "") -> str:
    """Have a page rendered; "200", or the refusal's words. Raises StageError when the door does not answer."""
    job = {"url": url, "format": "text", "timeout_s": PAGE_S, "wait_until": "domcontentloaded"}
    try:
        _ask(f"{door}{paths.RENDER}", method="POST", token=token, job=job, timeout_s=3 * PAGE_S)
    except Refused as refused:
        return f"{refused.reason}: {refused.detail}"
    return "200"


class Refused(StageError):
    """The door answered, and gave a reason for not serving."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"the door refuses: {reason}: {detail}")
        self.reason, self.detail = reason, detail


def _ask(
    url: str,
    *,
    method: str = "GET",
    token: str = "",
    job: dict[str, Any] | None = None,
    timeout_s: float = ANSWER_S,
) -> bytes:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = json.dumps(job).encode() if job is not None else None
    if job is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url, method=method, headers=headers, data=body)  # noqa: S310 - an address of ours
    # A proxy for the internet (HTTP_PROXY) is not asked for the host's own loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            read: bytes = answer.read()
            return read
    except urllib.error.HTTPError as error:
        raise _refused(url, error) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise StageError(
            f"{url.partition('?')[0]} does not answer: {reason}", hint="farmctl up repairs it"
        ) from error


def _refused(url: str, error: urllib.error.HTTPError) -> StageError:
    try:
        said = json.loads(error.read())
        return Refused(said["reason"], said.get("detail", ""))
    except (OSError, ValueError, KeyError, TypeError):
        return StageError(f"{url.partition('?')[0]} answered {error.code}, which is no answer of the farm")
