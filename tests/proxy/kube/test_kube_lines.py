"""The line splitter: any cut of the bytes gives the same lines."""

import pytest
from farmproxy.kube.lines import Lines, LineTooLongError
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.binary(max_size=20)))
def test_any_cut_gives_the_same_lines(chunks):
    lines = Lines()
    got = [line for chunk in chunks for line in lines.feed(chunk)]
    *whole, _rest = b"".join(chunks).split(b"\n")
    assert got == [line.strip() for line in whole if line.strip()]


def test_an_endless_line_is_refused():
    lines = Lines(longest=10)
    assert list(lines.feed(b"12345")) == []
    assert list(lines.feed(b"67890\nab")) == [b"1234567890"]
    with pytest.raises(LineTooLongError):
        list(lines.feed(b"c" * 9))
