"""Run by test_parts: write the policy, start Chromium through the agent's own code, say what pages may be opened."""

import asyncio
import json
import os
import tempfile
from pathlib import Path

from farmagent.chrome import binaries, cdp, policies
from farmagent.chrome.directories import WorkDirectory
from farmagent.chrome.processes import Start, launch
from farmagent.chrome.uids import Uids
from farmagent.settings import CHROME_UIDS, Settings

URLS = ("file:///etc/passwd", "chrome://settings", "view-source:http://127.0.0.1:1/", "about:blank")


async def main() -> None:
    policies.write(Path("/etc/chromium/policies/managed"))
    settings, uids = Settings.from_env({}), Uids(CHROME_UIDS if os.geteuid() == 0 else None)
    with tempfile.TemporaryDirectory(prefix="fp-") as folder:
        Path(folder).chmod(0o711)
        work = WorkDirectory(Path(folder, "w"))
        work.open()
        user = await uids.take()
        process = launch(binaries.find(settings, work.path), work.fresh(user), Start(user))
        await process.listening(timeout_s=60)
        async with cdp.connect(process.ws_url) as browser:
            said = {}
            for url in URLS:
                # A page each: Chromium 156 crashes at chrome: in a page where something was blocked before.
                target = await browser.send("Target.createTarget", {"url": "about:blank"})
                session = await browser.attach(target["targetId"])
                answer = await browser.send("Page.navigate", {"url": url}, session_id=session)
                said[url] = answer.get("errorText", "")
        process.kill()
        await process.exited.wait()
        work.close()
    print(json.dumps(said))


asyncio.run(main())
