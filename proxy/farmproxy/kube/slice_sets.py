"""All EndpointSlices of one pool as one set of pods. Slices are a union: a pod may stand in several, the later event
wins, words of one list that disagree mean not free, and a pod is gone only when no slice has it.
"""

from collections.abc import Iterable

from farmproxy.core.events import PodKey, PodsChanged, PodSeen
from farmproxy.kube.endpoint_slices import (
    DIALLABLE_TYPES,
    LONGEST_NAME,
    EndpointSlice,
    Sight,
    can_be_dialled,
    disagree,
    sights_of,
)

_Slices = dict[str, dict[PodKey, Sight]]
_Places = dict[PodKey, tuple[str, ...]]  # the names of the slices a pod stands in


class SliceBook:
    """Keeps the slices and tells what each event changes. Only changed pods are told; a list proves no fresh
    readiness, for nobody knows when it changed.

    ``notices`` gathers what a person should know once; its reader empties it.
    """

    def __init__(self, pool: str, port_name: str) -> None:
        self.pool = pool
        self.notices: list[str] = []
        self._port_name = port_name
        self._slices: _Slices = {}
        self._places: _Places = {}
        self._turns: dict[str, int] = {}  # slice name: number of the event that last told of it
        self._turn = 0
        self._noticed: set[str] = set()
        self._ignored = 0

    def listed(self, slices: Iterable[EndpointSlice]) -> PodsChanged:
        """A list replaces all that is known."""
        listing = self.listing()
        for each in slices:
            listing.add(each)
        return listing.finish()

    def listing(self) -> "Listing":
        """A list in pieces, so that its pages need not stand in memory together. Unfinished, it changes nothing."""
        return Listing(self)

    def changed(self, seen: EndpointSlice) -> PodsChanged:
        """One slice was added or modified: ``seen`` is all of it."""
        return self._replace(seen.name, self.read(seen)) if seen.name else PodsChanged(self.pool)

    def deleted(self, slice_name: str) -> PodsChanged:
        change = self._replace(slice_name, {})
        self._slices.pop(slice_name, None)
        self._turns.pop(slice_name, None)
        self._noticed.discard(slice_name)
        return change

    def read(self, seen: EndpointSlice) -> dict[PodKey, Sight]:
        """What the slice says of each pod; the very dict that is known already when it says nothing new."""
        if seen.addressType not in DIALLABLE_TYPES and seen.name not in self._noticed:
            self._noticed.add(seen.name)
            self.notices.append(f"EndpointSlice {seen.name} has addressType {seen.addressType}: ignored")
        self._notice_undiallable(seen)
        sights, known = sights_of(seen, self._port_name), self._slices.get(seen.name)
        return known if known is not None and known == sights else sights

    def take_ignored(self) -> int:
        """How many endpoints could not be dialled, in slices that were noticed since the last time."""
        ignored, self._ignored = self._ignored, 0
        return ignored

    def _notice_undiallable(self, seen: EndpointSlice) -> None:
        if seen.name in self._noticed or seen.addressType not in DIALLABLE_TYPES:
            return
        wrong = [one for one in seen.endpoints or () if one and one.addresses and not can_be_dialled(one)]
        if wrong:
            self._noticed.add(seen.name)
            self._ignored += len(wrong)
            address = str((wrong[0].addresses or ("",))[0])[:60]
            self.notices.append(
                f"EndpointSlice {seen.name[:LONGEST_NAME]} has {len(wrong)} endpoints that cannot be dialled, "
                f"the first at {address!r}: ignored"
            )

    def take_over(self, slices: _Slices) -> PodsChanged:
        """Make these all that is known."""
        was, was_places, was_turns = self._slices, self._places, self._turns
        self._turn += 1
        self._slices = slices
        self._turns = dict.fromkeys(slices, self._turn)
        self._noticed &= slices.keys()
        self._places = _places_of(slices)
        seen = []
        for key, places in self._places.items():
            now = _union(key, places, slices, self._turns)
            before = was_places.get(key)
            if before is None or now != _union(key, before, was, was_turns):
                seen.append(_told(key, now, fresh_ready=False))
        gone = tuple(key for key in was_places if key not in self._places)
        return PodsChanged(self.pool, tuple(seen), gone)

    def _replace(self, name: str, new: dict[PodKey, Sight]) -> PodsChanged:
        old = self._slices.get(name, {})
        touched = self._touched(old, new)
        before = {key: self._state(key) for key in touched}
        self._turn += 1
        self._turns[name] = self._turn
        self._slices[name] = new
        self._move(name, old, new)
        seen, gone = [], []
        for key in touched:
            now = self._state(key)
            if now is None:
                gone.append(key)
                continue
            fresh_ready = key in new and new[key].ready and key in old and not old[key].ready
            if fresh_ready or now != before[key]:
                seen.append(_told(key, now, fresh_ready=fresh_ready))
        return PodsChanged(self.pool, tuple(seen), tuple(gone))

    def _touched(self, old: dict[PodKey, Sight], new: dict[PodKey, Sight]) -> list[PodKey]:
        """Pods whose union may differ: a pod in several slices even if this one repeats itself, for it is the
        later word now.
        """
        touched = [key for key, sight in new.items() if old.get(key) != sight or len(self._places[key]) > 1]
        return touched + [key for key in old if key not in new]

    def _move(self, name: str, old: dict[PodKey, Sight], new: dict[PodKey, Sight]) -> None:
        alone = (name,)
        for key in new.keys() - old.keys():
            self._places[key] = (*self._places[key], name) if key in self._places else alone
        for key in old.keys() - new.keys():
            left = tuple(place for place in self._places[key] if place != name)
            if left:
                self._places[key] = left
            else:
                del self._places[key]

    def _state(self, key: PodKey) -> Sight | None:
        places = self._places.get(key)
        return None if places is None else _union(key, places, self._slices, self._turns)


class Listing:
    """A list while its pages come in."""

    def __init__(self, book: SliceBook) -> None:
        self._book = book
        self._slices: _Slices = {}

    def add(self, seen: EndpointSlice) -> None:
        if seen.name:
            self._slices[seen.name] = self._book.read(seen)

    def finish(self) -> PodsChanged:
        """The list is whole: it replaces all that was known."""
        return self._book.take_over(self._slices)


def _places_of(slices: _Slices) -> _Places:
    places: _Places = {}
    for name, sights in slices.items():
        alone = (name,)
        for key in sights:
            places[key] = (*places[key], name) if key in places else alone
    return places


def _union(key: PodKey, places: tuple[str, ...], slices: _Slices, turns: dict[str, int]) -> Sight:
    """The latest word on the pod, at its IPv4 address if any slice has one."""
    if len(places) == 1:
        return slices[places[0]][key]
    latest = max(turns[place] for place in places)
    ranked = sorted(places, key=lambda place: (":" in slices[place][key].address, -turns[place], place))
    kept = slices[ranked[0]][key]
    words = [slices[place][key] for place in places if turns[place] == latest]
    said = words[0]
    for word in words[1:]:
        said = disagree(said, word)
    return Sight(kept.name, kept.address, kept.port, said.ready, said.terminating)


def _told(key: PodKey, now: Sight, *, fresh_ready: bool) -> PodSeen:
    return PodSeen(key, now.name, now.address, now.port, now.ready, now.terminating, fresh_ready)
