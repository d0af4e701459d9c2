"""The one exception by which reading and judging a request ends it."""

from farmwire.reasons import Refusal


class Refused(Exception):  # it is the door's answer, not a failure
    """The caller is refused for this reason; ``detail`` says what is wrong and what is allowed."""

    def __init__(self, reason: Refusal, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
