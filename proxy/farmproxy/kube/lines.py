"""A watch's bytes as lines, however they were cut. A line may be megabytes long, but not endless."""

from collections.abc import Iterator

LONGEST_LINE_BYTES = 64 * 1024 * 1024


class LineTooLongError(ValueError):
    """The peer sends no line end: this is no watch."""


class Lines:
    """Feed it chunks, take the lines that are whole; each byte is searched once."""

    def __init__(self, longest: int = LONGEST_LINE_BYTES) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Whole lines without their end, empty ones left out. Take them all before the next feed."""
        *whole, rest = chunk.split(b"\n")
        for index, end in enumerate(whole):
            line = end if index else self._with_pieces(end)
            if line := line.strip():
                yield line
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
        if self._size > self._longest:
            msg = f"a line of more than {self._longest} bytes"
            raise LineTooLongError(msg)

    def _with_pieces(self, end: bytes) -> bytes:
        if not self._pieces:
            return end
        line = b"".join((*self._pieces, end))
        self._pieces.clear()
        self._size = 0
        return line
