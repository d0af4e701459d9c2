"""The agent's answer as pure bytes: every class, in any pieces, and rubbish."""

import pytest
from farmproxy.upstream.handshakes import (
    LEASED,
    PREPARING,
    AnswerReader,
    Failed,
    join_head,
    lease_head,
    told_by,
    uid_of,
)
from farmproxy.upstream.response_heads import Garbage, read_head, read_same_head
from farmwire.reasons import FAULTS, Busy, DialResult
from hypothesis import example, given
from hypothesis import strategies as st

ID = "01M8NWAAWR7VZ1W090NQPYFS4R"
GOOD = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUPGRADE: Farm-Lease\r\n"
    b"farm-lease: " + ID.encode() + b"\r\nFarm-Pod: farm/browser-0/uid-1\r\n\r\n"
)
BUSY = b'HTTP/1.1 409 Conflict\r\nContent-Length: 18\r\n\r\n{"reason": "busy"}'
CALLER = b'HTTP/1.1 422 No\r\nContent-Length: 41\r\n\r\n{"reason": "profile", "scope": "caller" }'
WHOLE = {
    "good": (GOOD, LEASED),
    "102-good": (b"HTTP/1.1 102 Processing\r\n\r\n" * 2 + GOOD, LEASED),
    "busy": (BUSY, Failed(DialResult.BUSY, Busy.BUSY)),
    "caller": (
        CALLER.replace(b"41", b"%d" % len(CALLER.partition(b"\r\n\r\n")[2])),
        Failed(DialResult.CALLER, status=422, body=CALLER.partition(b"\r\n\r\n")[2]),
    ),
    "uid": (GOOD.replace(b"uid-1", b"uid-2"), Failed(DialResult.WRONG_POD)),
    "repeated": (GOOD.replace(b"\r\n\r\n", b"\r\nFarm-Pod: a/b/uid-1\r\n\r\n"), Failed(DialResult.GARBAGE)),
    "100": (b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD, Failed(DialResult.GARBAGE)),
}


def final(reader, pieces):
    for piece in pieces:
        outcome = reader.feed(piece)
        while outcome is PREPARING:
            outcome = reader.next()
        if outcome is not None:
            return outcome
    return None


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("name", WHOLE)
def test_answers_in_pieces(name, size):
    data, expected = WHOLE[name]
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert final(AnswerReader(ID, "uid-1"), pieces) == expected


def test_a_409_without_a_length_ends_with_the_connection():
    reader = AnswerReader(ID, "uid-1")
    assert reader.feed(b'HTTP/1.1 409 X\r\nConnection: close\r\n\r\n{"reason": "draining"}') is None
    assert reader.closed() == Failed(DialResult.BUSY, Busy.DRAINING)


def test_closing_without_a_word_is_refused_and_after_some_is_broken():
    assert AnswerReader(ID, "u").closed() == Failed(DialResult.REFUSED)
    for data in (b"HTTP/1.1 1", b"HTTP/1.1 102 P\r\n\r\n", BUSY[:-1]):
        reader = AnswerReader(ID, "u")
        final(reader, [data])
        assert reader.closed() == Failed(DialResult.BROKEN)


def test_bytes_after_the_101_are_garbage():
    assert AnswerReader(ID, "uid-1").feed(GOOD + b"x") == Failed(DialResult.GARBAGE)


def test_an_endpoint_without_a_uid_takes_any_pod():
    assert AnswerReader(ID, None).feed(GOOD) is LEASED


def test_a_join_needs_no_names_but_wrong_ones_count():
    bare = b"HTTP/1.1 101 X\r\nUpgrade: farm-lease\r\n\r\n"
    assert AnswerReader(ID, "uid-1", join=True).feed(bare) is LEASED
    assert AnswerReader(ID, "uid-1").feed(bare) == Failed(DialResult.GARBAGE)
    assert AnswerReader(ID, "uid-2", join=True).feed(GOOD) == Failed(DialResult.WRONG_POD)
    missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    assert AnswerReader(ID, "uid-1", join=True).feed(missing).status == 404


@given(
    st.one_of(
        st.binary(max_size=200), st.binary(max_size=80).map(lambda raw: b"HTTP/1.1 " + raw + b"\r\n\r\n")
    )
)
@example(b"HTTP/1.1 999 X\r\n\r\n")
@example(b"HTTP/1.1 409 X\r\nContent-Length: 99999999\r\n\r\n")
@example(b"HTTP/1.1 409 X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
def test_rubbish_is_a_fault_and_never_raises(data):
    reader = AnswerReader(ID, "uid-1")
    outcome = final(reader, [data]) or reader.closed()
    assert isinstance(outcome, Failed)
    assert outcome.result in FAULTS or outcome.result in {DialResult.BUSY, DialResult.CALLER}


@given(st.binary(max_size=200))
def test_heads_of_answers_are_read_or_garbage(data):
    try:
        head = read_head(data)
    except Garbage:
        return
    assert head is None or head.size <= len(data)


def test_requests_are_heads_that_an_agent_reads():
    text = lease_head(
        "10.0.0.1:9222", ID, key="k", max_s=900, waited_ms=5, dials=2, public_base="ws://door/leases/x.y"
    ).decode()
    assert text.startswith("GET /lease HTTP/1.1\r\nHost: 10.0.0.1:9222\r\n")
    assert text.endswith("\r\n\r\n")
    for line in (
        "Upgrade: farm-lease",
        f"Farm-Lease: {ID}",
        "Farm-Key: k",
        "Farm-Lease-Max-S: 900",
        "Farm-Dials: 2",
    ):
        assert f"\r\n{line}\r\n" in text
    assert (
        "Farm-Key"
        not in join_head("h", ID, key=None, max_s=1, waited_ms=0, dials=1, public_base="b").decode()
    )


def test_an_agent_s_answer_is_not_chunked():
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n"
    for read in (read_head, read_same_head):
        with pytest.raises(Garbage, match="chunked"):
            read(chunked)


def test_half_a_head_is_none_yet():
    assert read_same_head(b"HTTP/1.1 200 OK\r\nContent-Le") is None


def lines(request):
    assert request.endswith(b"\r\n\r\n")
    return request.decode().removesuffix("\r\n\r\n").split("\r\n")


TOLD = {"max_s": 60, "waited_ms": 1500, "dials": 2, "public_base": "http://farm.test"}
ASKED = [
    "Host: 10.0.0.9:9222",
    "Connection: Upgrade",
    "Upgrade: farm-lease",
    "Farm-Lease-Max-S: 60",
    "Farm-Waited-Ms: 1500",
    "Farm-Dials: 2",
    "Farm-Public-Base: http://farm.test",
]


def test_the_request_for_a_lease_says_what_is_known_and_nothing_else():
    start, *fields = lines(lease_head("10.0.0.9:9222", ID, key=None, **TOLD))
    assert start == "GET /lease HTTP/1.1"
    assert sorted(fields) == sorted([*ASKED, f"Farm-Lease: {ID}"])
    _, *fields = lines(lease_head("10.0.0.9:9222", ID, key="k", launch="lang=de", allow_origin="*", **TOLD))
    more = ["Farm-Key: k", "Farm-Launch: lang=de", "Farm-Allow-Origin: *"]
    assert sorted(fields) == sorted([*ASKED, f"Farm-Lease: {ID}", *more])


def test_the_request_for_a_join_names_the_lease_as_a_join():
    start, *fields = lines(join_head("10.0.0.9:9222", ID, key="k", **TOLD))
    assert start == "GET /lease HTTP/1.1"
    assert sorted(fields) == sorted([*ASKED, f"Farm-Join: {ID}", "Farm-Key: k"])


def test_a_key_of_an_address_is_no_uid():
    assert uid_of("10.0.0.9:9222") is None
    assert uid_of("uid-1") == "uid-1"


def test_an_agent_s_refusal_in_the_log_is_short_text():
    failed = Failed(DialResult.REJECTED, status=431, body=b"\xff" + b"x" * 400)
    assert told_by(failed) == {"status": 431, "answer": "\ufffd" + "x" * 299}


@pytest.mark.parametrize(
    ("status", "reason", "failed"),
    [
        (409, "recycling", Failed(DialResult.BUSY, Busy.RECYCLING)),
        (409, "something new", Failed(DialResult.GARBAGE)),
        (404, "busy", Failed(DialResult.GARBAGE)),
    ],
)
def test_busy_is_a_409_with_a_reason_that_is_known(status, reason, failed):
    body = b'{"reason": "%s"}' % reason.encode()
    answer = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
    assert AnswerReader(ID, "uid-1").feed(answer) == failed


@pytest.mark.parametrize("status", [400, 431])
def test_what_an_agent_did_not_take_of_ours_is_kept_with_its_words(status):
    body = b'{"reason": "a header is too long"}'
    answer = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
    assert AnswerReader(ID, "uid-1").feed(answer) == Failed(DialResult.REJECTED, status=status, body=body)
    stranger = b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\n<>" % status
    assert AnswerReader(ID, "uid-1").feed(stranger) == Failed(DialResult.GARBAGE)


def test_an_agent_that_closes_after_a_102_was_alive():
    reader = AnswerReader(ID, "uid-1")
    assert reader.feed(b"HTTP/1.1 102 Processing\r\n\r\n") is PREPARING
    assert reader.closed() == Failed(DialResult.BROKEN)
    assert AnswerReader(ID, "uid-1").closed() == Failed(DialResult.REFUSED)


def test_an_agent_never_answers_500():
    body = b'{"scope": "caller"}'
    answer = b"HTTP/1.1 500 X\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    assert AnswerReader(ID, "uid-1").feed(answer) == Failed(DialResult.GARBAGE)
