"""The web that scenarios browse: pages on this machine whose length the harness decides.

A job's page is loaded only when its work has answered, so a caller's "load" event is the job's end. The
server counts how often each job's work began: the witness that nothing was replayed behind a caller's back.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import escape

from aiohttp import web

from farmctl.testbeds.base import NotStaged

DOT = "<svg xmlns='http://www.w3.org/2000/svg' width='1' height='1'/>"
NO_STORE = {"Cache-Control": "no-store"}


@dataclass(slots=True)
class PageJob:
    """``length_s`` of work, and not done before ``until`` is set. ``began`` counts the times work began."""

    id: str
    url: str
    length_s: float
    until: asyncio.Event | None
    began: int = 0
    finished: int = 0
    underway: asyncio.Event = field(default_factory=asyncio.Event)


class Pages:
    def __init__(self) -> None:
        self.jobs: dict[str, PageJob] = {}
        self.base = ""

    def job(self, job_id: str, *, length_s: float = 0.0, until: asyncio.Event | None = None) -> PageJob:
        """Make a page whose load takes ``length_s`` and waits for ``until``."""
        job = PageJob(job_id, f"{self.base}/jobs/{job_id}", length_s, until)
        self.jobs[job_id] = job
        return job

    def forget(self) -> None:
        """Drop all jobs; those under way answer at once."""
        for job in self.jobs.values():
            if job.until is not None:
                job.until.set()
        self.jobs.clear()

    async def page(self, request: web.Request) -> web.Response:
        job = self._job(request)
        name = escape(job.id)
        html = (
            f"<!doctype html><meta charset=utf-8><title>{name}</title>"
            f"<p>job {name}</p><img alt='' src='/work/{name}'>"
        )
        return web.Response(text=html, content_type="text/html", headers=NO_STORE)

    async def work(self, request: web.Request) -> web.Response:
        job = self._job(request)
        job.began += 1
        job.underway.set()
        await asyncio.sleep(job.length_s)
        if job.until is not None:
            await job.until.wait()
        job.finished += 1
        return web.Response(text=DOT, content_type="image/svg+xml", headers=NO_STORE)

    def _job(self, request: web.Request) -> PageJob:
        try:
            return self.jobs[request.match_info["id"]]
        except KeyError:
            raise web.HTTPNotFound from None


@asynccontextmanager
async def serve(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Pages]:
    """Serve pages for the length of the block, on a free port of ``host``.

    Raises NotStaged where that is no address of this machine: the nodes' gateway under Docker Desktop, in podman's
    machine and of a rootless engine is inside of theirs.
    """
    pages = Pages()
    app = web.Application()
    app.router.add_get("/jobs/{id}", pages.page)
    app.router.add_get("/work/{id}", pages.work)
    app.router.add_get("/favicon.ico", _nothing)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise NotStaged(
                f"scenarios serve their pages at {host}, which the pods reach, and this machine cannot: {error.strerror}; "
                "the container engine runs in a virtual machine or rootless. Here: farmctl up --testbed local on Linux, or "
                "a rootful engine of this machine"
            ) from error
        bound = runner.addresses[0]
        pages.base = f"http://{bound[0]}:{bound[1]}"
        yield pages
    finally:
        pages.forget()
        await runner.cleanup()


async def _nothing(_request: web.Request) -> web.Response:
    return web.Response(status=204)
