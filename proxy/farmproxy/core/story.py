"""What happened to each caller and pod, in order, for a person with a question or a test that replays it.

Rule: memory is bounded. A story keeps its first line and its newest ones; of what has ended only the
newest stories are kept. Events and commands are kept as they are and made into text only when read.
"""

from collections import OrderedDict
from typing import Any

LINES = 32  # a caller's longest story
POD_LINES = 16  # a pod's: the last few leases; there are thousands of pods
ENDED = 2048  # stories kept of callers and pods that are no more

Line = tuple[float, Any]  # a caller's: when, which event or command


def note(lines: list[Any], line: Any, most: int = LINES) -> None:
    """Add a line. A full story loses half of its middle at once, so that how it began stays readable and
    the cost of the loss is spread over many lines.
    """
    if len(lines) >= most:
        del lines[1 : most // 2]
    lines.append(line)


class Ended:
    """The newest ended stories by id."""

    def __init__(self, limit: int = ENDED) -> None:
        self._limit = limit
        self._stories: OrderedDict[str, list[Any]] = OrderedDict()

    def keep(self, id_: str, lines: list[Any]) -> None:
        self._stories.pop(id_, None)
        self._stories[id_] = lines
        if len(self._stories) > self._limit:
            self._stories.popitem(last=False)

    def get(self, id_: str) -> list[Any]:
        return self._stories.get(id_, [])

    def __len__(self) -> int:
        return len(self._stories)


def as_text(lines: list[Any]) -> list[str]:
    """``12.345 DialFailed(...)`` for callers, ``12.345 free: its agent says free`` for pods."""
    return [f"{line[0]:.3f} " + ": ".join(str(part) for part in line[1:]) for line in lines]
