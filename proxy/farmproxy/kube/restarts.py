"""Why a watch was started anew: the closed label of farmproxy_watch_restarts_total and of the log line."""

from enum import StrEnum


class Restart(StrEnum):
    CLOSED = "closed"  # the API server ended the watch, as it does in time
    GONE = "gone"  # 410 in any form: the resume point is too old, list again
    SILENCE = "silence"  # nothing for the silence limit, bookmarks included
    UNAUTHORIZED = "unauthorized"  # 401: the token is read again
    REFUSED = "refused"  # any other HTTP status than 200
    ERROR = "error"  # an ERROR event that is no 410
    BROKEN = "broken"  # no connection, or it broke
    GARBAGE = "garbage"  # an answer that is no list or a line that is no event
