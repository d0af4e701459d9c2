import pytest

from farmctl.errors import StageError
from farmctl.images import farm, records


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "farmctl"


class Engine:
    """Builds in no time, or not at all."""

    def __init__(self, problem="", reused=False):
        self.problem, self.reused, self.images = problem, reused, set()

    def has_image(self, tag):
        return tag in self.images or tag.startswith("docker.io/library/debian")

    def build(self, _context, tag):
        if self.problem:
            raise StageError(self.problem)
        self.images.add(tag)
        return self.reused


def test_a_build_that_ran_is_recorded_once_and_one_that_was_not_needed_never(cache):
    engine = Engine()
    for _ in range(2):
        tag = farm.ensure(engine, "proxy", print, pull=False)
    [built] = records.read(cache)
    assert (built.step, built.what) == ("image: proxy", tag)
    assert built.at.startswith("20")
    assert built.seconds >= 0


def test_a_build_that_failed_is_no_record(cache):
    with pytest.raises(StageError, match="no space"):
        farm.ensure(Engine("no space left"), "proxy", print, pull=False)
    assert records.read(cache) == []


@pytest.mark.parametrize("reused", [False, True])
def test_a_build_that_took_layers_of_an_earlier_one_is_no_cold_one(cache, reused):
    farm.ensure(Engine(reused=reused), "proxy", print, pull=False)
    assert [built.cold for built in records.read(cache)] == [not reused]
    assert list(records.coldest(records.read(cache))) == ([] if reused else ["image: proxy"])


def test_the_coldest_of_a_step_is_its_longest(cache):
    for seconds in (6.0, 240.0, 5.0):
        records.keep(cache, "image: browser", "tag", seconds)
    records.keep(cache, "go: kubelet", "v1", 712.0)
    found = records.coldest(records.read(cache))
    assert {step: built.seconds for step, built in found.items()} == {
        "image: browser": 240.0,
        "go: kubelet": 712.0,
    }


def test_records_are_bounded_and_survive_a_torn_line(cache):
    for number in range(records.KEPT_LINES + 5):
        records.keep(cache, "step", str(number), 1.0)
    with (cache / records.FILE).open("ab") as out:
        out.write(b'{"step": "torn')
    found = records.read(cache)
    assert len(found) == records.KEPT_LINES - 1
    assert found[-1].what == str(records.KEPT_LINES + 4)


def test_the_file_does_not_grow_for_ever(cache, monkeypatch):
    monkeypatch.setattr(records, "MOST_BYTES", 1000)
    monkeypatch.setattr(records, "KEPT_LINES", 5)
    for number in range(50):
        records.keep(cache, "step", str(number), 1.0)
    assert (cache / records.FILE).stat().st_size < 1200
    assert records.read(cache)[-1].what == "49"


def test_nothing_was_built_yet(cache):
    assert records.read(cache) == []
