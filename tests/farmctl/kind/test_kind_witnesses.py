import pytest

from farmctl.errors import StageError
from farmctl.testbeds.kind.cluster import pod_logs
from farmctl.testbeds.kind.cluster.pod_logs import Witnesses

STAMP = "2026-11-30T10:00:00.000000000Z stdout"


def printed(pod, container, *lines):
    return (
        f"==> farm_{pod}_uid-1/{container}/77.log\n" + "".join(f"{STAMP} {line}\n" for line in lines) + "\n"
    )


class FakeContainers:
    def __init__(self, said):
        self.said, self.scripts = said, []

    async def run(self, node, script):
        self.scripts.append((node, script))
        if node not in self.said:
            raise StageError("the node is away")
        return self.said[node]


def test_what_the_runtime_wrote_is_read_back():
    text = printed("browsers-1", "browser", 'F {"event":"free","t":1.5}', "P half a ", "F line")
    text += printed("proxy-1", "proxy", "F hello")
    assert pod_logs.parsed(text) == [
        pod_logs.Spoken("browsers-1", "browser", ['{"event":"free","t":1.5}', "half a line"]),
        pod_logs.Spoken("proxy-1", "proxy", ["hello"]),
    ]
    assert pod_logs.parsed("") == []


def test_a_line_cut_by_a_kill_is_left_out():
    assert pod_logs.unwrapped([f"{STAMP} F whole", f"{STAMP} P never fini", "garbage"]) == ["whole"]


def test_lines_before_the_mark_do_not_count_and_a_traceback_goes_with_its_line():
    old = ['{"event":"failed","t":1.0}', "Traceback (most recent call last):"]
    new = ['{"event":"failed","t":2.0}', "Traceback (most recent call last):", "ValueError"]
    assert pod_logs.since([*old, *new], 1.5) == new


def test_one_account_of_several_processes():
    first = ['{"event":"a","t":1.0}', "no time", '{"event":"c","t":3.0}']
    assert pod_logs.in_order([*first, '{"event":"b","t":2.0}']) == [
        *first[:2],
        '{"event":"b","t":2.0}',
        first[2],
    ]


async def test_dead_pods_count_and_a_lost_node_keeps_nobody_from_speaking():
    containers = FakeContainers({"a": printed("browsers-1", "browser", 'F {"event":"free","t":5.0}')})
    found = await Witnesses(containers, "farm").since(["a", "lost"], 4.0, "browser")
    assert found == {"browsers-1": ['{"event":"free","t":5.0}']}
    assert all("./farm_*" in script for _, script in containers.scripts)


@pytest.mark.parametrize("restarts", [1, 2])
async def test_every_start_of_a_pod_is_heard(restarts):
    text = "".join(
        printed("browsers-1", "browser", f'F {{"event":"free","t":{n + 5}.0}}') for n in range(restarts)
    )
    found = await Witnesses(FakeContainers({"a": text}), "farm").since(["a"], 0.0, "browser")
    assert len(found["browsers-1"]) == restarts
