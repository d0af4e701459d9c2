"""Every scenario the testbed can stage, each as one test, in the words a user would type."""

import json

import pytest

from e2e.conftest import farmctl

LISTED = json.loads(farmctl("scenario", "--list", "-o", "json").stdout)


@pytest.mark.timeout(600, func_only=True)
@pytest.mark.parametrize("name", [scenario["name"] for scenario in LISTED])
def test_scenario(farm, testbed, name, pytestconfig):
    reports = pytestconfig.getoption("--logs") / "reports"
    reports.mkdir(parents=True, exist_ok=True)
    ran = farmctl("scenario", name, "-o", "json", "--report", str(reports / f"{name}.html"))
    assert ran.stdout, f"farmctl scenario exited {ran.returncode} without a result"
    [told] = json.loads(ran.stdout)["results"]
    if told["verdict"] == "not-here":
        pytest.skip(f"not on {testbed}: {told['reason']}")
    failed = [
        f"{check['name']}: expected {check['expected']}, got {check['got']}"
        for check in told["checks"]
        if not check["passed"]
    ]
    assert ran.returncode == 0, f"{told['verdict']}: {told['reason'] or '; '.join(failed)}\n{ran.stdout}"
