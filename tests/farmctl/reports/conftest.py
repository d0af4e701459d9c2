import pytest

from farmctl.scenarios.results import Check, Fate, Moment, Report, Result, Span, Verdict

NASTY = "<script>alert('&')</script>\x00\x1b[31m"


@pytest.fixture
def nasty():
    return NASTY


@pytest.fixture
def report():
    """One of each verdict; the failed one carries text that wants to be markup."""
    struck = Fate(
        "page-06",
        "playwright",
        "done",
        ["JobLost: gone"],
        2,
        [
            Span("waiting", 0, 100),
            Span("session", 100, 900),
            Span("backoff", 900, 1000),
            Span("session", 1000, 2000),
        ],
    )
    still = Fate("raw-01", "raw", "unfinished", [], 1, [Span("waiting", 0)])
    passed = Result(
        "mid-job-kill",
        "A killed pod costs one job.",
        Verdict.PASSED,
        began=1_800_000_000.0,
        duration_s=12.5,
        blast_radius=1,
        checks=[Check("blast radius", "1", "1", True)],
        invariants=[Check("still held", "0", "0", True)],
        fates=[struck, still],
        timeline=[
            Moment(900, 1_800_000_000.9, "fault", "SIGKILL of p1"),
            Moment(950, 0.0, "proof", "p1 is gone"),
        ],
        numbers={"ms to the error": 438.0},
    )
    failed = Result(
        "stale-endpoint",
        f"claim {NASTY}",
        Verdict.FAILED,
        reason=f"reason {NASTY}",
        checks=[Check(f"check {NASTY}", "0", f"got {NASTY}", False, (f"evidence {NASTY}",))],
        fates=[
            Fate(
                f"caller {NASTY}",
                "raw",
                "lost",
                [f"error {NASTY}"],
                1,
                [Span("session", 0, 10, f"f/{NASTY}/u")],
            )
        ],
        timeline=[Moment(1, 0.0, "fault", f"fault {NASTY}")],
    )
    return Report(
        "local",
        "Linux x86_64",
        "0.1.0",
        1_800_000_000.0,
        duration_s=30.0,
        results=[
            passed,
            failed,
            Result("proxy-restart", "c", Verdict.NOT_STAGED, reason="the kill did not happen"),
            Result("spot-reclaim", "c", Verdict.NOT_HERE, reason="cut_off: needs root"),
            Result("soak", "c", Verdict.INTERRUPTED, reason="interrupted"),
        ],
    )
