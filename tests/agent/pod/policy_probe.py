"""Run by test_parts: write the policy, start Chromium through the agent's own code, say what pages may be opened."""

import asyncio
import json
import os
import tempfile
from pathlib import Path

from farmagent import binaries, cdp, policies
from farmagent.chrome import launch
from farmagent.directories import WorkDirectory
from farmagent.settings import Settings

URLS = ("file:///etc/passwd", "chrome://settings", "view-source:http://127.0.0.1:1/", "about:blank")


async def main() -> None:
    policies.write(Path("/etc/chromium/policies/managed"))
    settings = Settings.from_env({"FARMAGENT_CHROME_USER": "65534" if os.geteuid() == 0 else ""})
    binary = binaries.find(settings)
    with tempfile.TemporaryDirectory(prefix="fp-") as folder:
        Path(folder).chmod(0o711)
        work = WorkDirectory(Path(folder, "w"), owner=(65534, 65534) if binary.user else None)
        work.open()
        process = launch(binary, work.fresh())
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
