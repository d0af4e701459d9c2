"""Progress on stderr while a cluster changes: a spinner on a terminal, and a line for each step that is over."""

import time
from types import TracebackType
from typing import Self


class Steps:
    """Call it with each step as it begins; one that is over stays behind as a line with the seconds it took."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._status = self._console.status("")
        self._began = self._step_began = time.monotonic()
        self._step = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __call__(self, step: str) -> None:
        if step != self._step:
            self._end_step()
            self._step, self._step_began = step, time.monotonic()
            self._status.update(step)

    def _end_step(self) -> None:
        if self._step:
            self._console.print(f"{time.monotonic() - self._step_began:6.1f} s  {self._step}", markup=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()
        self._end_step()
        if kind is None:
            self._console.print(f"whole after {time.monotonic() - self._began:.1f} s")
