"""A report as JSON: the contract of `farmctl scenario -o json`. Its shape is that of farmctl.scenarios.results."""

import msgspec

from farmctl.scenarios.results import Report


def as_json(report: Report) -> bytes:
    """Return the report as indented JSON, with the exit code it stands for."""
    shape = msgspec.to_builtins(report)
    shape["exit_code"] = report.exit_code
    return msgspec.json.format(msgspec.json.encode(shape), indent=2) + b"\n"
