"""Undoes what a scenario left that was killed midway, on the way of `farmctl up`: found by its record of faults.

In two steps. What lies in the nodes goes before anything else is asked of them: with the API server cut off no
repair would come to an end. What lies in the API goes once the manifests are applied.
(`farmctl down` needs neither: a frozen node, or one without a way to it, is removed like any other.)
"""

import asyncio

from farmctl.images.gobuild import Say
from farmctl.testbeds.kind.cluster import nodes
from farmctl.testbeds.kind.cluster.cluster import Cluster
from farmctl.testbeds.kind.cluster.containers import MENDING
from farmctl.testbeds.kind.cluster.state import Installed
from farmctl.testbeds.kind.faults.records import FaultsFile
from farmctl.testbeds.kind.testbed import KindTestbed, Opened


def mend_nodes(running: Cluster, say: Say) -> None:
    """Take faults out of the nodes that run, if there is a record of any. Raises StageError."""
    told = FaultsFile(running.folder.path).read().told
    if not told:
        return
    say(f"undoing what a broken-off run left: {'; '.join(told)}")
    for each in running.nodes():
        if each.running and not each.paused:
            nodes.sh(running.engine, each.name, MENDING)


def undo(running: Cluster, there: Installed, say: Say) -> None:
    """Take faults out of the API and the settings, if there is a record of any. Raises StageError."""
    if not FaultsFile(running.folder.path).read().told:
        return
    names = tuple(each.name for each in running.nodes())
    testbed = KindTestbed(Opened(running.folder, there, running, names, pages_host=""))
    told = asyncio.run(testbed.undo())
    say(f"undone: {len(told)} faults")
