"""Progress on stderr while a farm changes: a spinner with counts on a terminal, one line at the end elsewhere."""

import time
from types import TracebackType
from typing import Any, Self


class PodProgress:
    """Call it with each new state of the farm."""

    def __init__(self, wanted: int, *, quiet: bool) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, quiet=quiet)
        self._status = self._console.status(f"starting {wanted} pods")
        self._began = time.monotonic()
        self._ready = 0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __call__(self, state: dict[str, Any]) -> None:
        pods = state["pods"]
        self._ready = sum(pod["ready"] for pod in pods)
        proxy = "ready" if state["proxy"]["ready"] else "starting"
        self._status.update(f"pods ready: {self._ready} of {state['wanted']}, proxy {proxy}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()
        if kind is None:
            self._console.print(f"whole after {time.monotonic() - self._began:.1f} s")
