"""One number out of a metrics page."""

import pytest

from farmctl.testbeds.gauges import read

TEXT = """\
# HELP farmproxy_demand held, dialling and leased
# TYPE farmproxy_demand gauge
farmproxy_demand{pool="default"} 3.0
farmproxy_demand{pool="big",zone="a\\"b"} 4
farmproxy_demand_created{pool="default"} 9
farmproxy_leases{pool="default"} 7 1700000000000
up 1
"""


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("farmproxy_demand", {"pool": "default"}, 3),
        ("farmproxy_demand", {"pool": "big"}, 4),
        ("farmproxy_demand", {}, 7),
        ("farmproxy_leases", {"pool": "default"}, 7),
        ("up", {}, 1),
    ],
)
def test_reads(name, labels, value):
    assert read(TEXT, name, labels) == value


def test_absent_series_is_no_zero():
    # as an adapter without a sample: an autoscaler must see that nothing is known
    assert read(TEXT, "farmproxy_demand", {"pool": "gone"}) is None
    assert read("", "farmproxy_demand", {}) is None
