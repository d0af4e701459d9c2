"""The head reader against h11, against itself in pieces, and against rubbish."""

import contextlib

import h11
import pytest
from farmproxy.door.refusals import Refused
from farmproxy.door.request_heads import HEAD_LIMIT, check_part, end_of, for_pod, parse
from farmproxy.door.routes import route
from farmwire.reasons import Refusal
from hypothesis import given
from hypothesis import strategies as st

TOKEN = st.text("abcXYZ019-_.!~*'", min_size=1, max_size=12).map(str.encode)
VALUE = st.binary(max_size=30).map(lambda raw: bytes(byte for byte in raw if byte == 9 or 32 <= byte != 127))
GOOD_LINE = st.one_of(
    st.tuples(TOKEN, VALUE),
    st.sampled_from(
        [
            (b"Connection", b"close, Upgrade"),
            (b"upgrade", b"websocket"),
            (b"Expect", b"100-continue"),
            (b"Farm-Key", b"x"),
        ]
    ),
)
SINGLE_LINE = st.sampled_from(
    [
        (b"Content-Length", b"1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"HOST", b"b"),
        (b"Content-Length", b"x"),
    ]
)
TARGETS = st.one_of(
    st.text("abc/?=&%.:@[]", max_size=20).map(lambda text: b"/" + text.encode()),
    st.sampled_from(
        [b"/", b"*", b"/#", b"http://h/x", b"HTTP://h:1?q", b"/leases/01M8NWAAWR7VZ1W090NQPYFS4R.k/x"]
    ),
)


def mostly(usual, *others):
    return st.sampled_from([usual] * 12 + list(others))


@st.composite
def heads(draw):
    """Nine in ten are good heads, the others wrong in one or two places."""
    newline = draw(mostly(b"\r\n", b"\n", b"\r", b"\r\n "))
    method = draw(
        st.one_of(st.sampled_from([b"GET", b"POST"]), mostly(b"HEAD", b"get", b"CONNECT", b"G T", b""))
    )
    version = draw(mostly(b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.", b"http/1.1"))
    fields = [(b"Host", draw(mostly(b"a.b:1", b"[::1]", b"", b"a b")))][: draw(mostly(1, 0))]
    fields += draw(st.lists(GOOD_LINE, max_size=5)) + draw(
        st.lists(SINGLE_LINE, max_size=draw(mostly(0, 1, 1, 2)))
    )
    lines = [b" ".join([method, draw(TARGETS), version])]
    lines += [
        name + draw(mostly(b":", b": ", b":\t", b" :")) + value
        for name, value in draw(st.permutations(fields))
    ]
    return newline.join(lines) + b"\r\n\r\n"


def outcome(head):
    try:
        return parse(head)
    except Refused as refused:
        return refused.reason


@given(heads())
def test_what_is_accepted_means_the_same_to_h11(head):
    ours = outcome(head)
    if isinstance(ours, Refusal):
        return
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT * 2)
    reader.receive_data(head)
    theirs = reader.next_event()
    assert isinstance(theirs, h11.Request)
    assert theirs.method == ours.method
    assert theirs.http_version == (b"1.0" if ours.old else b"1.1")
    # h11 writes what it understood of Transfer-Encoding in lower case.
    lowered = {b"transfer-encoding"}
    assert list(theirs.headers) == [
        (name, value.lower() if name in lowered else value) for name, value, _ in ours.fields
    ]


@given(st.one_of(heads(), st.binary(max_size=300).map(lambda raw: raw + b"\r\n\r\n")))
def test_pieces_change_nothing(head):
    """A part is refused only if the whole is; and whatever is refused as a whole is never routed."""
    end = end_of(bytearray(head))
    whole = outcome(head[:end])
    for at in range(1, end):
        try:
            check_part(bytearray(head[:at]))
        except Refused:
            break
    else:
        return
    assert isinstance(whole, Refusal)


@given(heads())
def test_what_reaches_a_pod_is_clean(head):
    """Parsed again, the rewritten head is the same request without what a pod must not see."""
    first = outcome(head)
    if isinstance(first, Refusal):
        return
    drop = frozenset({b"host", b"origin", b"authorization", b"expect"})
    second = outcome(b"10.0.0.1:9222".join(for_pod(first, b"/x", drop=drop)))
    assert not isinstance(second, Refusal)
    assert second.host == b"10.0.0.1:9222"
    assert [field for field in second.fields if field[0] != b"host"] == [
        field for field in first.fields if field[0] not in drop and not field[0].startswith(b"farm-")
    ]
    assert (second.content_length, second.chunked) == (first.content_length, first.chunked and not first.old)


@given(heads())
def test_routing_raises_nothing_but_refusals(head):
    found = outcome(head)
    if isinstance(found, Refusal):
        return
    with contextlib.suppress(Refused):
        route(found)


def test_pod_host_of_an_ipv6_address():
    head = parse(b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n")
    assert b"[fd00::9]:9222".join(for_pod(head, b"/", drop=frozenset({b"host"}))) == (
        b"GET / HTTP/1.1\r\nHost: [fd00::9]:9222\r\nX: y\r\n\r\n"
    )


def test_a_key_in_a_path_is_not_repeated_in_a_refusal():
    head = parse(b"PATCH /leases/01M8NWAAWR7VZ1W090NQPYFS4R.5ec3e7 HTTP/1.1\r\nHost: a\r\n\r\n")
    with pytest.raises(Refused) as caught:
        route(head)
    assert "5ec3e7" not in caught.value.detail
    assert caught.value.reason is Refusal.NOT_FOUND


def test_a_long_run_of_blanks_is_read_in_no_time():
    head = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b" " * 15_000 + b"y" + b" " * 500 + b"\r\n\r\n"
    assert parse(head).value(b"x") == b"y"
