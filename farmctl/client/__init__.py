"""What a caller's code uses to reach the farm: a browser, a rendered page, a lease, and the retry of a lost job.

    async with connect("http://127.0.0.1:9222", label="shop") as browser:
        page = await browser.new_page()

All of it is plain HTTP and WebSocket at the door, so any other client works as well; this one adds the error
tree and a retry policy with a name.
"""

from farmwire.launch_options import LaunchOptions

from farmctl.client.browsers import connect
from farmctl.client.errors import DoorUnreachable, FarmError, JobLost, PageFailed, Refused
from farmctl.client.leases import Lease, lease
from farmctl.client.renders import Rendered, render
from farmctl.client.retries import LostJobPolicy, run_job

__all__ = [
    "DoorUnreachable",
    "FarmError",
    "JobLost",
    "LaunchOptions",
    "Lease",
    "LostJobPolicy",
    "PageFailed",
    "Refused",
    "Rendered",
    "connect",
    "lease",
    "render",
    "run_job",
]
