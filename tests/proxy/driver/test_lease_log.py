"""How a lease ended is settled once, by the agent's word where it has one; then come its one line and its one count."""

import pytest
import structlog
from farmproxy.observe.metrics import Metrics
from farmproxy.registry.lease_log import LeaseLog
from farmproxy.registry.leases import Kind, Lease, LeaseBook
from farmwire.reasons import End


class Settling:
    def __init__(self, clock):
        self.clock = clock
        self.lines = []
        self.book = LeaseBook(clock)
        self.metrics = Metrics(["p"])
        log = structlog.wrap_logger(structlog.PrintLogger(), processors=[self.keep])
        self.lease_log = LeaseLog(self.book, self.metrics, log)

    def keep(self, _logger, level, event):
        self.lines.append({**event, "level": level})
        raise structlog.DropEvent

    def over(self, id_="L1", end=End.DONE, *, by_pod=False):
        """A lease that waited 1.00006 s and ran 7.00006 s."""
        lease = Lease(id_, Kind.SOCKET, owner="me", pool="p", label="job", max_s=60, now=self.clock.now)
        lease.pod, lease.by_pod, lease.dials = "pod-1", by_pod, 2
        lease.bytes_up, lease.bytes_down = 11, 22
        self.clock.now += 1.00006
        self.book.begin(lease)
        self.clock.now += 7.00006
        self.book.ended(lease, end)
        self.lease_log.begin(lease)
        return lease

    @property
    def ends(self):
        return [line["end"] for line in self.lines]

    def counted(self):
        return {end: count.value for end, count in self.metrics.leases_ended.items() if count.value}


@pytest.fixture
def settling(clock):
    return Settling(clock)


def test_the_one_line_of_a_lease(settling):
    settling.over()
    settling.lease_log.heard("L1", None, reached=True)
    assert settling.lines == [
        {
            "event": "lease-ended",
            "level": "info",
            "lease": "L1",
            "pool": "p",
            "pod": "pod-1",
            "label": "job",
            "end": End.DONE,
            "held_s": 1.0001,
            "lease_s": 7.0001,
            "dials": 2,
            "bytes_up": 11,
            "bytes_down": 22,
        }
    ]
    assert settling.metrics.lease_seconds._sum == pytest.approx(7.00006)


def test_the_agent_s_word_is_told_to_all_who_know_the_lease(settling):
    lease = settling.over()
    settling.lease_log.heard("L1", End.BROWSER_DIED, reached=True)
    assert lease.end is End.BROWSER_DIED
    assert settling.book.find("L1", "me", "").end is End.BROWSER_DIED
    assert settling.counted() == {End.BROWSER_DIED: 1}


def test_what_the_proxy_saw_stands_where_the_agent_says_nothing(settling):
    settling.over(end=End.STALL)
    settling.lease_log.heard("L1", None, reached=False)
    assert settling.book.find("L1", "me", "").end is End.STALL
    assert settling.ends == [End.STALL]


@pytest.mark.parametrize(
    ("by_pod", "reached", "end"),
    [(True, False, End.POD_LOST), (True, True, End.DONE), (False, False, End.DONE)],
)
def test_a_pod_is_lost_only_if_it_closed_and_cannot_be_reached(settling, by_pod, reached, end):
    settling.over(by_pod=by_pod)
    settling.lease_log.heard("L1", None, reached=reached)
    assert settling.ends == [end]


def test_a_lease_is_settled_once(settling):
    settling.over()
    for _ in range(2):
        settling.lease_log.heard("L1", None, reached=True)
    settling.lease_log.heard("nobody", End.MAX, reached=True)
    assert settling.counted() == {End.DONE: 1}
    assert len(settling.lease_log) == 0


def test_a_lease_waits_for_its_own_agent_only(settling):
    settling.over("L1", by_pod=True)
    settling.over("L2", by_pod=True)
    settling.lease_log.asked("L1")
    settling.lease_log.unless_asked("L1")
    settling.lease_log.unless_asked("L2")  # nobody asked: no word against its pod either
    assert [(line["lease"], line["end"]) for line in settling.lines] == [("L2", End.DONE)]
    assert len(settling.lease_log) == 1
    settling.lease_log.heard("L1", None, reached=True)
    assert settling.lease_log._asked == set()


def test_when_the_process_ends_what_is_known_stands(settling):
    settling.over("L1", by_pod=True)
    settling.over("L2", End.MAX)
    settling.lease_log.asked("L1")
    settling.lease_log.settle_all()
    assert settling.ends == [End.DONE, End.MAX]
    assert len(settling.lease_log) == 0
