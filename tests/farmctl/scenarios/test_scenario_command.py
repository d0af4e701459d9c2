"""The verb's own part: usage, what is listed, files, and one Ctrl-C that arrives as several signals."""

import asyncio
import json

import pytest

from farmctl import cli
from farmctl.commands.scenario import Interrupt
from farmctl.errors import StageError
from farmctl.scenarios import catalogue


@pytest.mark.parametrize(
    "words",
    [
        ["scenario"],
        ["scenario", "nope"],
        ["scenario", "--all", "mid-job-kill"],
        ["scenario", "--all", "-o", "xml"],
        ["scenario", "--all", "--report", "/no/such/folder/x.html"],
    ],
)
def test_wrong_words_are_exit_code_2(words):
    assert cli.main(words) == 2


def test_the_list_is_names_and_claims(capsys):
    assert cli.main(["scenario", "--list", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in told] == list(catalogue.NAMES)
    assert cli.main(["scenario", "--list", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == list(catalogue.NAMES)


def test_without_a_farm_it_is_exit_code_3_and_says_what_to_do(monkeypatch, capsys):
    async def none():
        raise StageError("no farm is up", hint="farmctl up")

    monkeypatch.setattr("farmctl.testbeds.finding.current", none)
    assert cli.main(["scenario", "caller-leaves", "-q"]) == 3
    assert "try: farmctl up" in capsys.readouterr().err


async def test_signals_of_one_moment_are_one_interrupt(monkeypatch):
    cancelled = []

    class Task:
        def get_loop(self):
            return asyncio.get_running_loop()

        def cancel(self):
            cancelled.append(True)

    interrupt = Interrupt(Task())
    interrupt()
    interrupt()
    assert len(cancelled) == 1
    interrupt._last -= 2 * Interrupt.SAME_S
    interrupt()
    assert len(cancelled) == 2
