"""render and lease against a door made of a few lines: what is sent, and what each answer becomes."""

import contextlib

import pytest
from aiohttp import web

from farmctl.client import DoorUnreachable, JobLost, PageFailed, Refused, lease, render


@contextlib.asynccontextmanager
async def door(*routes):
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def test_render_sends_the_job_and_returns_whose_lease_made_it():
    seen = {}

    async def handle(request):
        seen.update(
            body=await request.json(), query=dict(request.query), auth=request.headers["Authorization"]
        )
        told = {"Farm-Lease": "01J", "Farm-Pod": "farm/p/u", "Farm-Waited-Ms": "12", "Farm-Dials": "2"}
        return web.Response(text="hello", headers=told)

    async with door(web.post("/render", handle)) as base:
        answer = await render(
            base, "http://page", options={"format": "text"}, token="t", label="me", hold_s=3
        )
    assert (answer.text, answer.lease, answer.pod, answer.waited_ms, answer.dials) == (
        "hello",
        "01J",
        "farm/p/u",
        12,
        2,
    )
    assert seen["body"] == {"format": "text", "url": "http://page", "timeout_s": 30.0}
    assert seen["query"] == {"hold": "3", "label": "me"}
    assert seen["auth"] == "Bearer t"


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [(502, "pod-lost", JobLost), (429, "queue-full", Refused), (422, "crash", PageFailed)],
)
async def test_render_answers_that_are_no_page(status, reason, kind):
    async def handle(_request):
        return web.json_response({"reason": reason, "retry_after_s": 1}, status=status)

    async with door(web.post("/render", handle)) as base:
        with pytest.raises(kind):
            await render(base, "http://page")


async def test_a_body_that_breaks_off_is_a_lost_job_and_never_a_short_page():
    async def handle(request):
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(b"half")
        request.transport.abort()
        return answer

    async with door(web.post("/render", handle)) as base:
        with pytest.raises(JobLost):
            await render(base, "http://page")


async def test_no_door_is_told_apart_because_nothing_was_sent(unused_tcp_port):
    with pytest.raises(DoorUnreachable) as caught:
        await render(f"http://127.0.0.1:{unused_tcp_port}", "http://page")
    assert caught.value.exit_code == 3
    assert "farmctl up" in caught.value.hint


async def test_a_lease_is_ended_with_its_block_also_by_an_error():
    calls = []

    async def make(request):
        calls.append(("POST", dict(request.query)))
        urls = {"http": "http://d/leases/1.K", "browser_ws": "ws://d/leases/1.K/devtools/browser/farm"}
        return web.json_response(
            {"id": "1", "pod": "p", "expires_at": 10, "connect_by": 5, "urls": urls}, status=201
        )

    async def renew(request):
        calls.append(("renew", await request.json()))
        return web.json_response({"id": "1", "expires_at": 99})

    async def end(request):
        calls.append(("DELETE", request.match_info["id"]))
        return web.Response(status=204)

    routes = (web.post("/leases", make), web.post("/leases/1/renew", renew), web.delete("/leases/{id}", end))
    async with door(*routes) as base:
        with pytest.raises(ZeroDivisionError):
            async with lease(base, max_s=10) as given:
                await given.renew(60)
                assert given.expires_at == 99
                raise ZeroDivisionError
    assert calls == [("POST", {"max": "10"}), ("renew", {"max": 60}), ("DELETE", "1")]
