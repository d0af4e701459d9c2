"""The local testbed with the real agent, the real proxy and a real Chrome, driven by a real Playwright."""

import sys
from dataclasses import replace

import pytest
from playwright.async_api import async_playwright

from farmctl import chromium
from farmctl.testbeds.base import Setup
from farmctl.testbeds.local.processes import proctree


@pytest.mark.chrome
@pytest.mark.timeout(240)
async def test_real_chrome_through_the_door_survives_a_killed_pod(up, settings):
    real = replace(
        settings,
        chrome=str(chromium.find()),
        setup=Setup(pods=1),
        agent_command=(sys.executable, "-m", "farmagent"),
        proxy_command=(sys.executable, "-m", "farmproxy"),
    )
    async with up(real, timeout_s=90) as farm:
        assert await title(farm, "one") == "one"
        (pod,) = await farm.testbed.pods()
        processes = proctree.carriers(settings.token)
        await farm.testbed.kill(pod.name)
        assert not [pid for pid in proctree.alive(processes) if pod.name in cmdline(pid)]
        assert await title(farm, "two") == "two"
        await farm.testbed.restore()
        assert (await farm.testbed.pods())[0].uid != pod.uid
    assert not proctree.carriers(settings.token)


def cmdline(pid):
    try:
        return (proctree.PROC / str(pid) / "cmdline").read_text()
    except OSError:
        return ""


async def title(farm, text):
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(farm.testbed.door, timeout=90_000)
        page = await browser.new_page()
        await page.goto(f"data:text/html,<title>{text}</title>")
        found = await page.title()
        await browser.close()
        return found
