"""A pod as the core knows it, and the table of the moves its state can make.

Rule: a state changes along an edge of TABLE or not at all. Terminating is a flag beside the state, and so
is ``known`` (some slice has the pod): a pod that is gone keeps its record until its lease has ended.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from farmproxy.core.event_context import Timer
from farmproxy.core.events import PodKey, PodSeen


class PodState(StrEnum):
    UNREADY = "unready"
    FREE = "free"
    DIALLING = "dialling"
    LEASED = "leased"
    RECYCLING = "recycling"
    SET_ASIDE = "set-aside"

    __hash__ = str.__hash__  # Enum's own is a Python call each time a member is a key


class AskKind(Enum):
    """Why an agent is being asked; it decides what the answer means."""

    RECYCLE = "recycle"  # after a lease: tell when the pod is clean
    DOUBT = "doubt"  # free by the agent's word, not ready by a slice that may lag
    BUSY = "busy"  # unready: tell when it turns free (long poll)
    SET_ASIDE = "set-aside"  # callers are held and nothing is free: is it alive after all?


UNREADY, FREE, DIALLING = PodState.UNREADY, PodState.FREE, PodState.DIALLING
LEASED, RECYCLING, SET_ASIDE = PodState.LEASED, PodState.RECYCLING, PodState.SET_ASIDE

Edge = tuple[PodState | None, PodState | None]

TABLE: dict[Edge, str] = {
    (None, UNREADY): "a slice shows it, not ready or terminating",
    (None, FREE): "a slice shows it ready",
    (UNREADY, FREE): "a slice turned to ready, or its agent says free",
    (FREE, UNREADY): "a slice turned to not ready or terminating, or its agent says not free",
    (FREE, DIALLING): "granted to the caller whose turn it is",
    (DIALLING, LEASED): "101, and the caller's first bytes written",
    (DIALLING, FREE): "the caller left or was itself at fault, so it is given back unused",
    (DIALLING, UNREADY): "409, or given back while terminating or no longer ready",
    (DIALLING, SET_ASIDE): "a fault",
    (LEASED, RECYCLING): "the session ended",
    (RECYCLING, FREE): "its agent says free",
    (RECYCLING, UNREADY): "the recycle limit passed, or it drains or terminates",
    (
        SET_ASIDE,
        FREE,
    ): "its time is over and the slice says ready, its agent says free, or a slice turned to ready",
    (
        SET_ASIDE,
        UNREADY,
    ): "its time is over and the slice says not ready, its agent says not free, or it terminates",
    (UNREADY, None): "no slice has it",
    (FREE, None): "no slice has it",
    (SET_ASIDE, None): "no slice has it",
    (DIALLING, None): "no slice has it and its dial failed",
    (RECYCLING, None): "no slice has it and its lease has ended",
}

# While one of these lasts, slices change what is remembered of the pod but not its state.
ENGAGED = frozenset({DIALLING, LEASED, RECYCLING})


@dataclass(slots=True, eq=False)
class Pod:
    """All that is known of one incarnation. Times are the core's clock, lengths are seconds."""

    key: PodKey
    name: str
    address: str
    port: int
    state: PodState
    known: bool = True  # some slice has it
    terminating: bool = False

    ready: bool = False  # what the slices said last
    # The agent's last word (None: none, or overtaken by a lease or a fault), and whether a slice has shown
    # ready since: only then may a slice's "not ready" overrule it (slices lag by seconds and carry no time).
    word: bool | None = None
    ready_since_word: bool = False
    doubted: bool = False  # a slice turned to not ready during the dial and could not overrule the word

    lease: str | None = None  # the caller of the dial or lease; while recycling the lease that ended
    free_since: float = 0.0
    recycle_until: float = 0.0

    faults: int = 0  # in a row
    aside_s: float = 0.0  # length of the last set-aside, 0 when cleared
    aside_until: float = 0.0

    ask: AskKind | None = None  # the question under way
    asked_at: float = 0.0
    ask_wait_s: float = 0.0
    pause_s: float = 0.0  # grows with each not-free answer that came too soon
    ask_after: float = 0.0  # set aside: not asked before this
    asked_always: bool = False  # unready by the agent's word: asked although no caller is held
    queue: "OrderedDict[PodKey, Pod] | None" = None  # where it waits to be asked

    timer: Timer | None = None  # the state's own: end of the set-aside, end of a pause
    story: list[tuple[float, str, str]] = field(default_factory=list)  # (time, state, why)

    @property
    def leasable(self) -> bool:
        return self.known and not self.terminating

    @property
    def fit(self) -> bool:
        """Free as far as agent and slice say: the agent's word stands until a slice has shown ready again."""
        return self.ready or (self.word is True and not self.ready_since_word)

    def heard(self, word: bool | None) -> None:
        self.word = word
        self.ready_since_word = False

    @property
    def keyed_by_address(self) -> bool:
        """No UID: the key can be inherited by another pod, so nothing said of it is for ever."""
        return self.key.endswith(f":{self.port}") and self.address in self.key


def new_pod(seen: PodSeen) -> Pod:
    return Pod(
        key=seen.key,
        name=seen.name,
        address=seen.address,
        port=seen.port,
        state=UNREADY,
        terminating=seen.terminating,
        ready=seen.ready,
        ready_since_word=seen.ready,
    )


def state_diagram() -> str:
    """A ``stateDiagram-v2`` with one arrow an edge of the table, in the table's order."""
    lines = ["stateDiagram-v2"]
    lines += [f"    {_node(state)}: {state}" for state in PodState]
    lines += [f"    {_node(start)} --> {_node(end)}: {why}" for (start, end), why in TABLE.items()]
    return "\n".join(lines) + "\n"


def _node(state: PodState | None) -> str:
    return "[*]" if state is None else state.name.lower()
