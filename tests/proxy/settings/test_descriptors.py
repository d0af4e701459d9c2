"""How many connections a proxy takes: what the system allows, and what its memory does."""

import resource

import pytest
from farmproxy.net import descriptors


@pytest.mark.parametrize(
    ("soft", "hard", "usable"),
    [
        (1024, 4096, 4096),
        (4096, 4096, 4096),
        (1024, 1_048_576, 40_000),
        (1024, resource.RLIM_INFINITY, 40_000),
    ],
)
def test_the_limit_is_the_systems_up_to_what_memory_allows(monkeypatch, soft, hard, usable):
    lifted = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: lifted.append(limits))
    assert descriptors.raise_limit() == usable
    assert lifted == ([] if soft == hard else [(hard, hard)])
