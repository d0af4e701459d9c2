"""Whatever JSON, number or text a request carries, its answer is one that docs/door.md names, and no handler raises."""

import asyncio
import contextlib
import json
from urllib.parse import quote_from_bytes

import pytest
from farmproxy.config.parsers import parse_count, parse_host_port, parse_seconds
from farmproxy.config.tokens import parse_key, parse_tokens
from farmwire.reasons import ANSWERS
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

DOCUMENTED = {(answer.status, reason) for reason, answer in ANSWERS.items()}
fuzz = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # one farm for all examples is what is meant

KEYS = st.sampled_from(["pool", "profile", "hold", "max", "label", "token", "colour", ""])
NUMBERS = (
    st.integers(0, 5000).map(lambda digits: b"9" * digits)
    | st.integers(0, 5000).map(lambda digits: b"-1" + b"0" * digits)
    | st.floats().map(lambda value: str(value).encode())  # nan and inf too
    | st.sampled_from(
        [b"1e400", b"-1e400", b"1e-400", b"0." + b"0" * 5000 + b"1", b"00", b"+1", b"0x1", b"1_0"]
    )
)
TEXTS = st.sampled_from(
    [b'"\\ud800"', b'"\\udc00x"', b'"\xff"', b'"\xed\xa0\x80"', b'"\\u0000"', b'"']
) | st.text(st.characters(codec="utf-8")).map(lambda text: json.dumps(text).encode())
DEEP = st.builds(
    lambda opening, depth: opening * depth,
    st.sampled_from([b"[", b'{"hold":', b'{"colour":[', b"[{}", b'[{"a":']),
    st.integers(1, 3000),
)
VALUES = NUMBERS | TEXTS | DEEP | st.sampled_from([b"null", b"true", b"[]", b"{}", b""])
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4).map(
    lambda pairs: (
        b"{" + b",".join(json.dumps(key).encode() + b":" + value for key, value in pairs.items()) + b"}"
    )
)
BODIES = (OBJECTS | VALUES | st.binary(max_size=300)).filter(lambda body: len(body) <= 16 * 1024)
QUERIES = st.lists(
    st.tuples(KEYS, NUMBERS | st.binary(max_size=40)).map(
        lambda pair: f"{pair[0]}={quote_from_bytes(pair[1])}"
    ),
    max_size=3,
).map("&".join)


@pytest.fixture
async def hasty(new_farm):
    """A door that holds nobody for long, whatever is asked."""
    return new_farm(hold_default_s=0.0, hold_ceiling_s=0.01)


async def answered(farm, data):
    """The answer to one request, checked against the page."""
    caller = await farm.caller(data)
    async with asyncio.timeout(5):
        status, _, body = await caller.answer()
    if status not in (200, 201, 204):
        told = json.loads(body)
        assert set(told) == {"reason", "detail", "retry_after_s"}
        assert (status, told["reason"]) in DOCUMENTED
    caller.close()
    return status


@fuzz
@example(b"[" * 12_000)
@example(b'{"hold":' * 2000)
@example(b'{"max":' + b"9" * 400 + b"}")
@example(b'{"hold":-' + b"9" * 400 + b"}")
@example(b'{"hold":' + b"9" * 5000 + b"}")
@example(b'{"\\ud800":1}')
@example(b'{"label":"\\ud800"}')
@given(BODIES)
async def test_any_body_gets_a_documented_answer(hasty, body):
    for path in ("/leases?hold=0", "/leases/01M8NWAAWR7VZ1W090NQPYFS4R/renew"):
        assert await answered(hasty, hasty.request("POST", path, body)) in (400, 404, 503)


@pytest.mark.parametrize(
    "body", [b"[" * 12_000, b'{"max":' + b"9" * 400 + b"}", b'{"max":-' + b"9" * 400 + b"}"]
)
async def test_deep_nesting_and_huge_numbers_are_a_bad_request(hasty, body):
    assert await answered(hasty, hasty.request("POST", "/leases?hold=0", body)) == 400


@fuzz
@example("hold=" + "9" * 400)
@example("hold=nan")
@example("max=inf")
@example("max=" + "%F0%9D%9F%99")  # a digit, but not one of ours
@example("hold=%D9%A1")
@given(QUERIES)
async def test_any_query_gets_a_documented_answer(hasty, query):
    for method, path in (
        ("POST", "/leases"),
        ("POST", "/render"),
        ("GET", "/json/version"),
        ("GET", "/leases"),
    ):
        status = await answered(hasty, hasty.request(method, f"{path}?{query}", Connection="close"))
        assert status in (200, 400, 404, 431, 503)


@fuzz
@given(
    st.sampled_from(
        ["Content-Length", "Host", "X-Forwarded-Host", "Origin", "Authorization", "Farm-Hold", "max"]
    ),
    NUMBERS | st.binary(max_size=60) | st.from_regex(rb"\A[a-z0-9.]{1,20}:[0-9]{1,400}\Z"),
)
async def test_any_value_of_a_header_that_the_door_reads_gets_a_documented_answer(hasty, name, value):
    lines = {b"Host": b"127.0.0.1", b"Connection": b"close", name.encode(): value}
    head = b"".join(b"%b: %b\r\n" % pair for pair in lines.items())
    for start in (b"POST /leases", b"GET /json/version"):
        caller = await hasty.caller(start + b" HTTP/1.1\r\n" + head + b"\r\n")
        caller.writer.write_eof()  # a body that is announced and never comes ends here, unanswered
        async with asyncio.timeout(5):
            told = await caller.reader.read()
        assert told == b"" or told.startswith(b"HTTP/1.1 ")
        if told and not told.startswith(b"HTTP/1.1 20"):
            answer = json.loads(told.partition(b"\r\n\r\n")[2])
            assert (int(told[9:12]), answer["reason"]) in DOCUMENTED
        caller.close()


@settings(max_examples=150, deadline=None)
@example("a:\ud800")
@example("9" * 5000)
@given(st.text(st.characters()) | NUMBERS.map(bytes.decode))
def test_any_text_of_a_setting_or_a_secret_is_a_value_or_a_value_error(text):
    for parse in (parse_tokens, parse_key, parse_host_port, parse_count(least=0), parse_seconds(least=0)):
        with contextlib.suppress(ValueError):
            parse(text)
