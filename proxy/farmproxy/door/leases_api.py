"""/leases as JSON: one's own leases, their ends, renewing and ending them. Taking one is ``reservations``'."""

import msgspec
from farmwire.reasons import End, Refusal

from farmproxy.door import responses
from farmproxy.door.context import Door
from farmproxy.door.joins import tell_renewed
from farmproxy.door.lease_options import OWN_KEYS, judge, unknown_key
from farmproxy.door.refusals import Refused
from farmproxy.door.routes import Does, Intent, check_launch
from farmproxy.registry.history import Ended
from farmproxy.registry.leases import Lease, shown

_BODY_KEYS = OWN_KEYS - {"token"}
_NUMBER_LIMIT = 10**9  # as many digits as the query may have
_Value = str | int | float | bool | list[str] | None
_decode = msgspec.json.Decoder(dict[str, _Value]).decode  # no nesting to speak of, so none too deep


class LeasesApi:
    def __init__(self, door: Door) -> None:
        self._door = door

    def answer(self, intent: Intent, body: bytes, *, close: bool) -> bytes:
        """The whole answer; Refused for what is not, or is another's."""
        now = self._door.clock()
        if intent.does is Does.SHOW_ALL:
            owner = self._door.owner(intent)
            label = intent.given.get("label")
            leases = [shown(lease.id, lease, now) for lease in self._door.book.of(owner, label)]
            return responses.ok({"leases": leases}, close=close)
        lease = self._find(intent)
        if intent.does is Does.END:
            if isinstance(lease, Lease):
                self._door.driver.lease_requests[lease.id].close(End.DELETED)
            return responses.nothing(close=close)
        if intent.does is Does.RENEW:
            told = self.options(body)
            check_launch(intent.does, told)
            self._renew(intent, lease, told)
        return responses.ok(shown(intent.id, lease, now), close=close)

    def options(self, body: bytes) -> dict[str, str]:
        """The own keys of a JSON body, as text like the query's; Refused (400) for anything else."""
        if not body.strip():
            return {}
        try:
            told = _decode(body)
        except msgspec.ValidationError as error:
            raise Refused(
                Refusal.BAD_REQUEST, "the body is no JSON object whose values are text or numbers"
            ) from error
        except msgspec.MsgspecError as error:
            raise Refused(Refusal.BAD_REQUEST, "the body is no JSON") from error
        unknown = sorted(key for key in told if key not in _BODY_KEYS)
        if unknown:
            raise unknown_key(unknown[0], _BODY_KEYS)
        return {key: _as_text(key, value) for key, value in told.items() if value is not None}

    def _find(self, intent: Intent) -> Lease | Ended:
        door = self._door
        owner = None if intent.key else door.owner(intent)
        found = door.book.find(intent.id, owner, intent.key)
        if found is None:
            raise Refused(Refusal.NOT_FOUND, "no such lease")
        return found

    def _renew(self, intent: Intent, lease: Lease | Ended, told: dict[str, str]) -> None:
        if not isinstance(lease, Lease):
            raise Refused(Refusal.NOT_FOUND, f"the lease has ended: {lease.end}")
        wanted = judge({**intent.given, **told}, self._door.rules)
        self._door.driver.renew(lease, wanted.max_s)
        tell_renewed(self._door, lease)


def _as_text(key: str, value: _Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and key == "args":
        return " ".join(value)
    if isinstance(value, bool | list) or value is None:
        raise Refused(Refusal.BAD_REQUEST, f"{key} is neither text nor a number")
    if not 0 <= value < _NUMBER_LIMIT:
        raise Refused(Refusal.BAD_REQUEST, f"{key}; allowed: numbers from 0 to below {_NUMBER_LIMIT}")
    return f"{value:.9f}".rstrip("0").rstrip(".")
