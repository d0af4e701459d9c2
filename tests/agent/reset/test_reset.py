"""Nothing on the written list survives a lease, whichever way the agent recycles."""

import importlib.util
import os
from pathlib import Path

import pytest
from farmagent.chrome import cdp

pytestmark = [pytest.mark.chrome, pytest.mark.timeout(300)]

_spec = importlib.util.spec_from_file_location("farm_leak_names", Path(__file__).with_name("leaks.py"))
_leaks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_leaks)
NEEDS_OWN_USER = ("download in a shared folder", "download in shared memory")


@pytest.mark.parametrize("name", [leak.name for leak in _leaks.LEAKS])
def test_what_one_caller_leaves_the_next_does_not_find(findings, name):
    if name in NEEDS_OWN_USER and os.geteuid() != 0:
        pytest.skip("only root can give Chrome a user of its own, and only by its user are its files known")
    if _leaks.BLOCKED in findings.errors.get(name, "") and name not in findings.same_lease:
        pytest.skip(findings.errors[name])
    assert name not in findings.errors, findings.errors[name]
    assert findings.same_lease[name], "the look is blind: the one who left it does not find it"
    assert not findings.next_lease[name], "the next caller found it"


async def test_an_abrupt_leave_and_ten_times_browser_close(folder, running_agent):
    async with running_agent(folder) as agent:
        async with agent.lease() as lease, cdp.connect(lease.ws_url, timeout_s=30) as browser:
            for _ in range(3):
                await browser.send("Target.createTarget", {"url": "about:blank"})
            cookie = {"name": "left", "value": "1", "url": "http://127.0.0.1/"}
            await browser.send("Storage.setCookies", {"cookies": [cookie]})
            assert (await browser.send("Storage.getCookies"))["cookies"]
            lease.leave()
        assert (await agent.until_free(lease.id))["end"] == "done"

        async with agent.lease() as lease, cdp.connect(lease.ws_url, timeout_s=30) as browser:
            assert (await browser.send("Storage.getCookies"))["cookies"] == []
            found = (await browser.send("Target.getTargets"))["targetInfos"]
            assert [one["url"] for one in found if one["type"] == "page"] == ["about:blank"]

        for _ in range(10):
            await agent.until_free()
            async with agent.lease() as lease, cdp.connect(lease.ws_url, timeout_s=30) as browser:
                await browser.post("Browser.close")
                await browser.ended.wait()
                assert not await agent.ready(), "ready before Chrome is back"
            assert (await agent.until_free(lease.id))["end"] in ("done", "browser-died")
        assert agent.process.poll() is None
