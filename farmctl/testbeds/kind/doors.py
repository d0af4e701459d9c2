"""Reaches a farm's door and admin port: straight over the host's loopback (kind), or by the API server's proxy where
nothing is published (an existing cluster). Asks the door end to end: a lease, or the reason why none is free.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from farmwire import paths

from farmctl.errors import StageError
from farmctl.images import catalogue as catalogues
from farmctl.images import engines
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say
from farmctl.testbeds.kind import programs
from farmctl.testbeds.kind.kubectl import Kubectl
from farmctl.testbeds.kind.shapes import Shape
from farmctl.testbeds.kind.state import Installed, KindFolder

ANSWER_S = 10
PROBE = "/leases?hold=0&max=10&label=farmctl-up"


class Reach(Protocol):
    def status(self) -> dict[str, Any]:
        """The proxy's own /status. Raises StageError when it does not answer."""
        ...

    def lease(self) -> str:
        """Take a lease and give it back: "leased", or the reason of the refusal. Raises StageError."""
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


@dataclass(frozen=True, slots=True)
class ClusterReach:
    """The API server passes requests on to a Service; nobody else has to be reachable."""

    kubectl: Kubectl
    namespace: str

    def status(self) -> dict[str, Any]:
        path = self._path("proxy-admin:admin") + paths.STATUS
        answer: dict[str, Any] = json.loads(
            self.kubectl("get", "--raw", path, f"--request-timeout={ANSWER_S}s")
        )
        return answer

    def lease(self) -> str:
        # kubectl itself can only send a body without its length, which the door refuses.
        with self.kubectl.proxied() as api:
            return lease_once(api + self._path("proxy:door"))

    def _path(self, service: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services/{service}/proxy"


def opened(there: Installed, folder: KindFolder, say: Say) -> tuple[Kubectl, Reach]:
    """Kubectl and the way to the door of the farm that the record tells of."""
    if there.shape is None:
        program = programs.find("kubectl", catalogues.read(), say)
        kubectl = Kubectl(program, there.kubeconfig, there.context)
        return kubectl, ClusterReach(kubectl, there.namespace)
    kubectl = own_kubectl(lambda: engines.find(there.engine), there.shape, folder)
    return kubectl, HostReach(there.shape.door, there.shape.admin)


def own_kubectl(engine: Callable[[], Engine], shape: Shape, folder: KindFolder) -> Kubectl:
    """Kubectl for a cluster of our own. Raises StageError."""

    def take(target: Path) -> None:
        programs.take_out(engine(), shape.node_image, f"{shape.name}-control-plane", target)

    program = programs.for_nodes(shape.node_image, catalogues.read(), folder.kubectl, take)
    return Kubectl(program, str(folder.kubeconfig), shape.context)


def lease_once(door: str) -> str:
    """Take a lease at the door's URL and give it back: "leased", or the reason of the refusal. Raises StageError."""
    try:
        lease = json.loads(_ask(f"{door}{PROBE}", method="POST"))
    except Refused as refused:
        return refused.reason
    _ask(f"{door}/leases/{lease['id']}", method="DELETE")
    return "leased"


class Refused(StageError):
    """The door answered, and gave a reason for not serving."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"the door refuses: {reason}: {detail}")
        self.reason = reason


def _ask(url: str, *, method: str = "GET") -> bytes:
    request = urllib.request.Request(url, method=method)  # noqa: S310 - http to an address of ours
    # A proxy for the internet (HTTP_PROXY) is not asked for the host's own loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=ANSWER_S) as answer:
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
