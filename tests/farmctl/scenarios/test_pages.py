"""The harness's own web: the work's length, its gate, and how often it began."""

import asyncio

import aiohttp

from farmctl.scenarios import pages


async def test_a_page_names_its_job_and_its_work_waits_for_the_gate():
    gate = asyncio.Event()
    async with pages.serve() as served, aiohttp.ClientSession() as http:
        job = served.job("a", until=gate)
        async with http.get(job.url) as answer:
            text = await answer.text()
        assert "<title>a</title>" in text
        assert "/work/a" in text
        async with asyncio.TaskGroup() as group:
            work = group.create_task(http.get(f"{served.base}/work/a"))
            await job.underway.wait()
            assert (job.began, job.finished) == (1, 0)
            gate.set()
            (await work).release()
        assert (job.began, job.finished) == (1, 1)


async def test_a_replay_would_be_counted():
    async with pages.serve() as served, aiohttp.ClientSession() as http:
        job = served.job("a")
        for _ in range(2):
            async with http.get(f"{served.base}/work/a") as answer:
                assert answer.status == 200
                assert answer.headers["Cache-Control"] == "no-store"
        assert job.began == 2


async def test_an_unknown_job_is_404_and_the_end_lets_all_go():
    async with pages.serve() as served, aiohttp.ClientSession() as http:
        async with http.get(f"{served.base}/jobs/none") as answer:
            assert answer.status == 404
        gate = asyncio.Event()
        served.job("a", until=gate)
    assert gate.is_set()
