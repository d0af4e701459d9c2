"""From start to exit: open the door, then list the pods; drain on SIGTERM, end at once on a second signal.

Drain: not ready at once; the door goes on for the linger time, until endpoints have moved; then new callers are refused,
the held are served until their deadlines, sessions run to the drain limit.
"""

import asyncio
import gc
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from farmwire.reasons import End
from structlog.typing import FilteringBoundLogger

from farmproxy.admin.server import admin_server
from farmproxy.config.settings import Settings
from farmproxy.config.tokens import Tokens
from farmproxy.core.events import DoorClosed
from farmproxy.kube.watcher import Watcher
from farmproxy.net.descriptors import raise_limit
from farmproxy.proxy import Proxy

_LOOK_S = 0.1  # how often a drain looks whether all is done
_LAST_WORDS_S = 2.0  # for answers on their way when the drain limit has come


class Signals:
    """SIGTERM and SIGINT: the first asks for a drain, the second for the end."""

    def __init__(self) -> None:
        self.drain = asyncio.Event()
        self.now = asyncio.Event()

    def received(self) -> None:
        if self.drain.is_set():
            self.now.set()
        self.drain.set()

    async def end_within(self, seconds: float) -> bool:
        """Wait so long, or until the second signal: then True."""
        try:
            await asyncio.wait_for(self.now.wait(), seconds)
        except TimeoutError:
            return False
        return True


async def serve(settings: Settings, log: FilteringBoundLogger) -> int:
    """Run until a signal ends it; the exit code. OSError when an address is taken."""
    tokens = Tokens(settings.tokens_file, settings.agent_key_file, log)
    proxy = Proxy(settings, tokens, log, descriptors=raise_limit())
    watchers = [
        Watcher(settings, pool, service, proxy.pods_changed, proxy.metrics, log)
        for pool, service in settings.pools.items()
    ]
    proxy.watch_age = _oldest(watchers)
    proxy.all_listed = lambda: all(watcher.listed for watcher in watchers)
    signals = Signals()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.received)
    proxy.start()
    gc.collect()
    gc.freeze()  # modules and settings live for ever: no need to look through them again and again
    try:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(admin_server(proxy, settings.admin))
            proxy.open_door()
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(watcher.run()) for watcher in watchers]
                code = await live(proxy, signals)
                for task in running:
                    task.cancel()
            return code
    finally:
        proxy.stop()


async def live(proxy: Proxy, signals: Signals) -> int:
    """Wait for the signal, then drain. 0, or 1 when a second signal cut sessions off."""
    await signals.drain.wait()
    settings, began_at = proxy.settings, time.monotonic()
    proxy.draining = True
    proxy.log.info("draining", linger_s=settings.linger_s, drain_s=settings.drain_s)
    if await signals.end_within(min(settings.linger_s, settings.drain_s)):
        return 1
    proxy.driver.tell(DoorClosed())
    ends_at = began_at + settings.drain_s
    while proxy.busy and time.monotonic() < ends_at:
        if await signals.end_within(_LOOK_S):
            return 1
    proxy.driver.end_all(End.DRAINED)
    ends_at = time.monotonic() + _LAST_WORDS_S
    while proxy.busy and time.monotonic() < ends_at:
        if await signals.end_within(_LOOK_S):
            break
    proxy.log.info("drained", drain_s=round(time.monotonic() - began_at, 3))
    return 0


def _oldest(watchers: list[Watcher]) -> Callable[[], float]:
    return lambda: max(watcher.age_s(time.monotonic()) for watcher in watchers)
