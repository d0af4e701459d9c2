"""A proxy is taken away for good: no controller that is late may bring one of the old settings back."""

import pytest
from aiohttp import web

from farmctl.errors import StageError
from farmctl.testbeds.base import NotStaged
from farmctl.testbeds.kind.api import limits
from farmctl.testbeds.kind.api.admin import Admin
from farmctl.testbeds.kind.api.objects import PROXY
from farmctl.testbeds.kind.faults import deployments as deployments_module
from farmctl.testbeds.kind.faults.deployments import Deployments
from farmctl.testbeds.kind.faults.proxies import Proxies
from farmctl.testbeds.kind.faults.records import FaultsFile
from farmctl.testbeds.kind.faults.restore import Wholeness


class LateControllers:
    """An API whose controllers act on a change only after ``looks`` looks at it, and replace what dies before that."""

    def __init__(self, looks):
        self.looks, self.generation, self.observed, self.wanted, self.scaled_to = looks, 1, 1, 1, 1
        self.living = ["p0"]

    async def deployment(self, _name):
        if self.observed < self.generation:
            self.looks -= 1
            if self.looks <= 0:
                self.observed, self.scaled_to = self.generation, self.wanted
                self.living += [f"new-{self.generation}"] * (self.wanted - len(self.living))
        return {
            "metadata": {"name": PROXY, "generation": self.generation},
            "spec": {"replicas": self.wanted},
            "status": {"observedGeneration": self.observed, "updatedReplicas": len(self.living)},
        }

    async def patch_deployment(self, _name, body):
        self.generation, self.wanted = self.generation + 1, body["spec"]["replicas"]

    async def patch_service(self, _name, _body): ...

    async def pods(self, _selector=""):
        ready = [{"type": "Ready", "status": "True"}]
        return [
            {"metadata": {"name": name, "uid": name}, "spec": {}, "status": {"conditions": ready}}
            for name in self.living
        ]

    async def delete_pod(self, name, _uid, *, grace_s=None):
        self.living.remove(name)
        self.living += ["replaced"] * (self.scaled_to - len(self.living))


class Killer:
    async def kill(self, _place): ...


class ReadyAdmin:
    """``late``: how often the door is still shut when the admin port says ready."""

    def __init__(self, late=0):
        self.shut = late

    async def ready(self):
        return True

    async def opens(self):
        self.shut -= 1
        return self.shut < 0


def made(api, tmp_path, admin=None):
    return Proxies(api, Killer(), Deployments(api, admin or ReadyAdmin(), FaultsFile(tmp_path)))


async def test_late_controllers_are_waited_for_before_the_proxy_dies(tmp_path):
    api = LateControllers(looks=3)
    await made(api, tmp_path).take_away()
    assert api.living == []


async def test_controllers_that_never_act_are_no_proxy_taken_away(tmp_path, monkeypatch):
    monkeypatch.setattr(deployments_module, "SCALED_S", 0.05)
    api = LateControllers(looks=1000)
    with pytest.raises(NotStaged, match="controllers have seen"):
        await made(api, tmp_path).take_away()
    assert api.living == ["p0"]


async def test_the_new_one_counts_only_when_its_controller_has_acted(tmp_path):
    api = LateControllers(looks=0)
    proxies = made(api, tmp_path)
    await proxies.take_away()
    api.looks = 3
    await proxies.put_back()
    assert api.living == [f"new-{api.generation}"]


async def test_a_ready_proxy_counts_only_when_the_door_leads_to_it(tmp_path):
    api, admin = LateControllers(looks=0), ReadyAdmin(late=3)
    proxies = made(api, tmp_path, admin)
    await proxies.take_away()
    await proxies.put_back()
    assert admin.shut == -deployments_module.SERVES_IN_A_ROW


async def test_a_door_opens_whatever_it_says(unused_tcp_port):
    app = web.Application()  # answers 404 to all
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    admin = Admin("http://127.0.0.1:1", f"http://127.0.0.1:{unused_tcp_port}")
    assert await admin.opens()
    await runner.cleanup()
    assert not await admin.opens()


async def test_a_proxy_that_does_not_serve_is_told_by_what_it_lacks(tmp_path, monkeypatch):
    monkeypatch.setattr(deployments_module, "PROXY_S", 0.05)
    with pytest.raises(NotStaged, match=r"a new proxy is ready and the only one: its door does not open"):
        await made(LateControllers(looks=0), tmp_path, ReadyAdmin(late=10**6)).put_back()


class Nothing:
    """Whatever is asked of it is done: nothing was broken there."""

    def __getattr__(self, _name):
        async def done(*_words, **_given):
            return []

        return done


class Starved(Nothing):
    """The first question after a pause is not answered in time."""

    def __init__(self):
        self.asked = 0

    async def start_api(self):
        self.asked += 1
        if self.asked == 1:
            raise StageError("`podman exec farm-control-plane` failed")

    async def slices_late(self, _delay_s):
        if self.asked == 1:
            self.asked += 1
            raise StageError("`podman exec farm-control-plane` failed")


async def test_what_a_starved_node_refuses_once_and_a_proxy_that_stays_unready_do_not_end_a_restore(
    tmp_path, monkeypatch
):
    """An outage under load leaves the proxy's pod unready for minutes: another one takes its place."""
    monkeypatch.setattr(deployments_module, "PROXY_S", 3.0)  # four looks in a row take 0.8 s
    api = LateControllers(looks=0)

    class OnlyOfANewProxy(ReadyAdmin):
        async def opens(self):
            return "p0" not in api.living

    faults = FaultsFile(tmp_path)
    deployments = Deployments(api, OnlyOfANewProxy(), faults)

    whole = Wholeness(
        api=Nothing(),
        admin=Nothing(),
        containers=Nothing(),
        control=Starved(),
        deployments=Nothing(),
        proxies=Proxies(api, Killer(), deployments),
        spot=Nothing(),
        faults=faults,
    )
    await whole.undo(["farm-control-plane"], 4)
    assert len(api.living) == 1
    assert api.living != ["p0"]


READY_POD = {
    "metadata": {"name": "browsers-0", "uid": "u0"},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}


async def test_a_farm_is_whole_only_when_a_lease_was_had_and_its_pod_is_free_again(tmp_path, monkeypatch):
    """After an outage API and proxy may both say that all is well when the way to a pod does not work yet."""
    monkeypatch.setattr(limits, "PAUSE_S", 0.001)

    class OnePod(Nothing):
        async def pods(self, *_words):
            return [READY_POD]

    class Refusing(Nothing):
        """The door gives nothing out at first; a pod recycles for a while after a lease."""

        asked, recycling = 0, 3

        async def lends(self):
            self.asked += 1
            return self.asked > 2

        async def pool(self):
            if self.asked > 2:
                self.recycling -= 1
            state = "recycling" if self.asked > 2 and self.recycling >= 0 else "free"
            return {"held": [], "leases": [], "pods": [{"state": state}]}

    admin = Refusing()
    await Wholeness(
        api=OnePod(),
        admin=admin,
        containers=Nothing(),
        control=Nothing(),
        deployments=Nothing(),
        proxies=Nothing(),
        spot=Nothing(),
        faults=FaultsFile(tmp_path),
    ).restore(["farm-control-plane"], 1)
    assert (admin.asked, admin.recycling) == (3, -1)
