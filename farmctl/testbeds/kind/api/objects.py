"""The farm's objects through the API server: asked for in threads, as plain JSON, by the farm's own kubeconfig.

Errors are mapped here and nowhere else: an API server that does not answer is ``ApiAway`` (a testbed that has stopped
it must tell that from a refusal), one that refuses is a StageError with its own words.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from farmctl.errors import StageError

Json = dict[str, Any]
ANSWER_S = (3.0, 15.0)  # to connect, and to answer
BROWSERS, PROXY = "browsers", "proxy"
BROWSER_PODS, PROXY_PODS = "app.kubernetes.io/name=browser", "app.kubernetes.io/name=proxy"
SERVICE_LABEL = "kubernetes.io/service-name"
NOT_FOUND, CONFLICT = 404, 409
STRATEGIC, MERGE = "application/strategic-merge-patch+json", "application/merge-patch+json"


class ApiAway(StageError):
    """The API server does not answer."""


class Api:
    """``namespace`` is the farm's. The `kubernetes` package is imported at the first request: that takes seconds."""

    def __init__(self, kubeconfig: str, context: str, namespace: str) -> None:
        self.namespace = namespace
        self._kubeconfig, self._context = kubeconfig, context
        self._made: tuple[Any, Any, Any] | None = None

    def reconnect(self) -> None:
        """Read the kubeconfig again: a restarted control plane may be published at another port."""
        self._made = None

    async def pods(self, selector: str = BROWSER_PODS) -> list[Json]:
        core, *_ = await self._groups()
        return await self._items(core.list_namespaced_pod, self.namespace, label_selector=selector)

    async def slices(self, service: str = BROWSERS) -> list[Json]:
        *_, discovery = await self._groups()
        wanted = f"{SERVICE_LABEL}={service}"
        return await self._items(
            discovery.list_namespaced_endpoint_slice, self.namespace, label_selector=wanted
        )

    async def create_slice(self, body: Json) -> None:
        *_, discovery = await self._groups()
        await self._ask(discovery.create_namespaced_endpoint_slice, self.namespace, body)

    async def delete_slice(self, name: str) -> None:
        *_, discovery = await self._groups()
        await self._gone(discovery.delete_namespaced_endpoint_slice, name, self.namespace)

    async def delete_pod(self, name: str, uid: str, *, grace_s: float | None = None) -> None:
        """Ask for the end of this incarnation and no other. ``grace_s`` None leaves the pod its own."""
        core, *_ = await self._groups()
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if grace_s is not None:
            body["gracePeriodSeconds"] = round(grace_s)
        await self._gone(core.delete_namespaced_pod, name, self.namespace, body=body)

    async def deployment(self, name: str) -> Json | None:
        _, apps, *_ = await self._groups()
        try:
            return await self._ask(apps.read_namespaced_deployment, name, self.namespace)
        except _Missing:
            return None

    async def create_deployment(self, body: Json) -> None:
        _, apps, *_ = await self._groups()
        await self._ask(apps.create_namespaced_deployment, self.namespace, body)

    async def delete_deployment(self, name: str) -> None:
        _, apps, *_ = await self._groups()
        await self._gone(apps.delete_namespaced_deployment, name, self.namespace)

    async def patch_deployment(self, name: str, body: Json | list[Json], kind: str = STRATEGIC) -> Json:
        _, apps, *_ = await self._groups()
        return await self._ask(
            apps.patch_namespaced_deployment, name, self.namespace, body, _content_type=kind
        )

    async def replica_sets(self, selector: str) -> list[Json]:
        _, apps, *_ = await self._groups()
        return await self._items(apps.list_namespaced_replica_set, self.namespace, label_selector=selector)

    async def patch_service(self, name: str, body: Json) -> None:
        core, *_ = await self._groups()
        await self._ask(core.patch_namespaced_service, name, self.namespace, body, _content_type=MERGE)

    async def nodes(self) -> list[Json]:
        core, *_ = await self._groups()
        return await self._items(core.list_node)

    async def patch_node(self, name: str, body: Json) -> None:
        core, *_ = await self._groups()
        await self._ask(core.patch_node, name, body, _content_type=MERGE)

    async def ready(self) -> bool:
        """Whether the API server serves us. One that has just started answers, and forbids everything at first."""
        try:
            await self.pods()
        except StageError:
            return False
        return True

    async def _groups(self) -> tuple[Any, Any, Any]:
        if self._made is None:
            self._made = await asyncio.to_thread(self._connect)
        return self._made

    def _connect(self) -> tuple[Any, Any, Any]:
        from kubernetes import client, config

        loader: Any = config  # partly typed
        try:
            made = loader.new_client_from_config(self._kubeconfig or None, self._context or None)
        except (config.ConfigException, OSError) as error:
            raise StageError(f"no way into the cluster: {error}", hint="farmctl up repairs it") from error
        made.configuration.retries = False
        # A cluster on this machine: a proxy of the environment has no way to it.
        made.configuration.proxy = None
        fresh = client.ApiClient(made.configuration)  # the pool takes the setting when it is made
        return (
            client.CoreV1Api(fresh),
            client.AppsV1Api(fresh),
            client.DiscoveryV1Api(fresh),
        )

    async def _items(self, call: Callable[..., Any], *words: Any, **given: Any) -> list[Json]:
        found: list[Json] = (await self._ask(call, *words, **given))["items"]
        return found

    async def _gone(self, call: Callable[..., Any], *words: Any, **given: Any) -> None:
        with suppress(_Missing):  # that is what was asked for
            await self._ask(call, *words, **given)

    async def _ask(self, call: Callable[..., Any], *words: Any, **given: Any) -> Json:
        return await asyncio.to_thread(_asked, call, words, given)


class _Missing(StageError):
    """There is no such object (any more), or another one of this name."""


def _asked(call: Callable[..., Any], words: tuple[Any, ...], given: Mapping[str, Any]) -> Json:
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        answer: Json = json.loads(
            call(*words, **given, _preload_content=False, _request_timeout=ANSWER_S).data
        )
    except ApiException as error:
        if error.status in (NOT_FOUND, CONFLICT) and call.__name__.startswith(("delete_", "read_")):
            raise _Missing(str(error.reason)) from error
        raise _refused(call.__name__, error) from error
    except (HTTPError, OSError) as error:
        raise ApiAway(
            f"the API server does not answer: {error}", hint="farmctl up repairs the cluster"
        ) from error
    return answer


def _refused(name: str, error: Any) -> StageError:
    try:
        said = json.loads(error.body)["message"]
    except (ValueError, TypeError, KeyError):
        said = error.reason
    # A server that starts or ends answers in this way: that is no refusal.
    if not error.status or error.status >= 500:
        return ApiAway(f"the API server does not serve: {error.status} {said}", hint="wait, or farmctl up")
    return StageError(f"the API server refused {name}: {said}")
