"""Rules of waiting for a job."""

from collections.abc import Iterator

import pytest

from stromboli.cli import waiting
from stromboli.shared.api import batch, meta


class Time:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def job(phase: str, uid: str = "1") -> batch.Job:
    status = batch.JobStatus(state=batch.JobState(phase=phase))
    return batch.Job(metadata=meta.ObjectMeta(name="a", uid=uid), status=status)


def wait(
    looks: Iterator[batch.Job | None],
    wanted: frozenset[str] = waiting.ENDS,
    timeout_s: float | None = None,
    time: Time | None = None,
) -> tuple[str, list[str]]:
    time, seen = time or Time(), list[str]()
    found = waiting.until(
        lambda: next(looks),
        wanted,
        timeout_s,
        clock=lambda: time.now,
        sleep=time.sleep,
        report=lambda job: seen.append(waiting.phase_of(job)),
    )
    return waiting.phase_of(found), seen


def test_it_looks_until_the_phase_is_there_and_tells_of_every_look() -> None:
    looks = iter([job(""), job("Running"), job("Completed")])
    assert wait(looks) == ("Completed", ["Pending", "Running", "Completed"])


def test_an_end_ends_the_wait_even_if_another_phase_was_wanted() -> None:
    assert wait(iter([job("Failed")]), frozenset({"Running"}))[0] == "Failed"


def test_a_wanted_phase_that_is_no_end_is_enough() -> None:
    assert wait(iter([job("Pending"), job("Running")]), frozenset({"Running"}))[0] == "Running"


def test_a_job_that_goes_away_or_comes_back_as_another_is_gone() -> None:
    for second in (None, job("Running", uid="2")):
        with pytest.raises(waiting.GoneError):
            wait(iter([job("Running"), second]))


def test_pauses_grow_to_a_limit() -> None:
    time = Time()
    wait(iter([*[job("Running")] * 12, job("Completed")]), time=time)
    assert time.pauses[0] == waiting.FIRST_PAUSE_S
    assert time.pauses == sorted(time.pauses)
    assert time.pauses[-1] == waiting.LONGEST_PAUSE_S


def test_the_time_is_up_exactly_at_the_timeout_after_one_last_look() -> None:
    time = Time()
    with pytest.raises(TimeoutError):
        wait(iter([job("Running")] * 9), timeout_s=1.0, time=time)
    assert time.now == pytest.approx(1.0)
    assert wait(iter([job("Completed")]), timeout_s=0.0)[0] == "Completed"


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30.0), ("0.5s", 0.5), ("5m", 300.0), ("1.5h", 5400.0)]
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert waiting.duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "5d", "1e3"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write 30s"):
        waiting.duration_s(text)


def test_phases_are_known_whatever_their_case() -> None:
    assert waiting.phases("completed, FAILED") == {"Completed", "Failed"}
    with pytest.raises(ValueError, match="'Done' is not a phase; there are Pending,"):
        waiting.phases("Completed,Done")
