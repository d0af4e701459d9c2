"""Every scenario the testbed can stage, each as one test, in the words a user would type."""

import json

import pytest

from e2e.conftest import farmctl

LISTED = json.loads(farmctl("scenario", "--list", "-o", "json").stdout)


@pytest.mark.timeout(600, func_only=True)
@pytest.mark.parametrize("name", [scenario["name"] for scenario in LISTED])
def test_scenario(farm, testbed, name, pytestconfig):
    entry = next(scenario for scenario in LISTED if scenario["name"] == name)
    if reason := entry.get("not_on", {}).get(testbed):
        pytest.skip(f"not on {testbed}: {reason}")
    reports = pytestconfig.getoption("--logs") / "reports"
    reports.mkdir(parents=True, exist_ok=True)
    ran = farmctl("scenario", name, "-o", "json", "--report", str(reports / f"{name}.html"))
    assert ran.returncode == 0, ran.stdout
