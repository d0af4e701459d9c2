"""The retry policy by table, and that run_job keeps to it."""

import pytest

from farmctl.client import DoorUnreachable, JobLost, LostJobPolicy, PageFailed, Refused, run_job


class Script:
    """A job that raises what it is told, then returns."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


class Sleeps(list):
    async def __call__(self, seconds):
        self.append(seconds)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (JobLost("pod lost"), True),
        (DoorUnreachable("http://door", "refused"), True),
        (Refused(503, "draining", retry_after_s=1), True),
        (Refused(429, "queue-full", retry_after_s=5), True),
        (Refused(503, "hold-timeout", retry_after_s=0), True),
        (Refused(401, "unauthorized"), False),
        (Refused(400, "bad-request"), False),
        (Refused(504, "lease-max"), False),
        (PageFailed(422, "navigation"), False),
        (ValueError("the job's own"), False),
        (TimeoutError("Playwright's or the job's own"), False),
    ],
)
async def test_only_lost_jobs_and_refusals_that_say_when_are_run_again(error, again):
    job, sleeps = Script(error), Sleeps()
    if again:
        assert await run_job(job, sleep=sleeps) == "done"
    else:
        with pytest.raises(type(error)):
            await run_job(job, sleep=sleeps)
    assert job.calls == (2 if again else 1)


@pytest.mark.parametrize(
    ("failures", "error", "chance", "seconds"),
    [
        (1, JobLost("x"), 0.0, 0.0),
        (1, JobLost("x"), 1.0, 0.25),
        (2, JobLost("x"), 1.0, 0.5),
        (3, JobLost("x"), 0.5, 0.5),
        (20, JobLost("x"), 1.0, 10.0),
        (1, Refused(503, "draining", retry_after_s=5), 0.0, 5.0),
        (1, Refused(503, "draining", retry_after_s=5), 1.0, 5.25),
    ],
)
def test_delay_doubles_with_full_jitter_and_never_comes_before_retry_after(failures, error, chance, seconds):
    assert LostJobPolicy().delay_s(failures, error, chance) == pytest.approx(seconds)


async def test_attempts_are_bounded_and_the_last_error_is_raised():
    job, sleeps, told = Script(JobLost("1"), JobLost("2"), JobLost("3")), Sleeps(), []
    with pytest.raises(JobLost, match="3"):
        await run_job(
            job,
            attempts=3,
            sleep=sleeps,
            chance=lambda: 1.0,
            on_retry=lambda e, n, s: told.append((str(e), n, s)),
        )
    assert job.calls == 3
    assert sleeps == [0.25, 0.5]
    assert told == [("1", 1, 0.25), ("2", 2, 0.5)]


async def test_one_attempt_means_no_retry():
    job = Script(JobLost("x"))
    with pytest.raises(JobLost):
        await run_job(job, attempts=1, sleep=Sleeps())
    assert job.calls == 1
