"""Rules of forecasts: CPU, learned run times, and what is published."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.scheduler.core.forecast import (
    cpu_budget,
    expected_starts,
    run_time_events,
    run_times,
)
from stromboli.scheduler.forecasting import forecaster, frames, worker
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared.api.views.expected_start import StartAnswer
from stromboli.shared.messages import batch
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders

UID = "0b0ee0a3-13bb-4e6b-9f0b-0b7a4b2d6f10"
INF = float("inf")


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 100)), max_size=50))
def test_cpu_time_stays_within_the_share_and_the_burst(steps: list[tuple[float, float]]) -> None:
    """Each step uses CPU for as long as it takes, and the computation idles between steps."""
    share, burst_s = 0.1, 6.0
    budget = cpu_budget.CpuBudget(share, burst_s, 0.0)
    now_s = used_s = 0.0
    for cpu_s, idle_s in steps:
        now_s += cpu_s
        used_s += cpu_s
        now_s += budget.spend(cpu_s, now_s)
        assert used_s <= burst_s + share * now_s + 1e-6
        now_s += idle_s


@given(st.floats(0.01, 5))
def test_a_computation_within_its_share_never_pauses(cpu_s: float) -> None:
    budget = cpu_budget.CpuBudget(0.1, 6.0, 0.0)
    assert all(budget.spend(cpu_s, at * cpu_s * 10) == 0 for at in range(1, 20))


def phase(after: str, pending: int = 0, user: str = "") -> batch.JobPhaseChanged:
    return batch.JobPhaseChanged(
        job="default/train-7",
        uid="u",
        queue="research",
        before="",
        after=after,
        at=builders.NOON,
        counts=batch.TaskCounts(pending=pending),
        user=user,
    )


def task(after: str, index: int, at_s: float) -> batch.TaskChanged:
    return batch.TaskChanged(
        job="default/train-7",
        uid="u",
        task="w",
        index=index,
        pod=f"p{index}",
        pod_uid=f"p{index}",
        before="",
        after=after,
        at=builders.NOON + timedelta(seconds=at_s),
    )


def learned(*events: msgspec.Struct) -> list[float]:
    """The run times that are learned of the user's jobs of this name, queue and size."""
    added: list[tuple[run_times.JobTraits, float]] = []

    class Recorder(run_times.RunTimeEstimator):
        def add(self, job: run_times.JobTraits, run_s: float) -> None:
            added.append((job, run_s))

    reading = run_time_events.RunTimeEvents(Recorder())
    for event in events:
        reading.apply(event)
    assert {job for job, _ in added} <= {run_times.JobTraits("ann", "train-7", "research", 2)}
    return [run_s for _, run_s in added]


BEGIN = (phase("Pending", user="ann"), phase("Running", pending=2))
RUN = (*BEGIN, task("Running", 0, 0), task("Running", 1, 10))


def test_a_gang_counts_as_one_run_time_the_mean_of_its_tasks() -> None:
    assert learned(*RUN, task("Succeeded", 0, 100), task("Failed", 1, 130)) == [110]


def test_events_that_come_twice_teach_once() -> None:
    events = (*RUN, task("Succeeded", 0, 100), task("Succeeded", 1, 110))
    assert learned(*(event for each in events for event in (each, each))) == [100]


def test_a_task_that_is_stopped_teaches_nothing() -> None:
    """It would have run longer."""
    assert learned(*RUN, task("Terminating", 0, 50), task("Gone", 1, 60)) == []
    assert learned(*RUN, task("Terminating", 0, 50), task("Succeeded", 1, 110)) == [100]


def test_a_deleted_job_is_forgotten() -> None:
    gone = batch.JobDeleted(job="default/train-7", uid="u", at=builders.NOON)
    assert learned(*RUN, gone, task("Succeeded", 0, 100)) == []
    assert learned(task("Succeeded", 0, 100)) == []


def test_runs_of_one_program_are_similar_whatever_the_uids_of_their_pod_groups() -> None:
    assert run_times.job_name(f"train-7-{UID}") == "train-7"
    assert run_times.job_name("podgroup-1") == "podgroup-1"


def drawn(
    start_s: float = INF, left: str = "", *, is_cut: bool = False, tier: str = "gang"
) -> expected_starts.DrawnStarts:
    starts_s = {} if start_s == INF else {"a": start_s}
    tiers = {"a": left} if left else {}
    return expected_starts.DrawnStarts({"a": "q"}, {"a": (tier, "why")}, starts_s, tiers, is_cut)


def test_the_range_is_that_of_the_draws() -> None:
    start = expected_starts.summarize("a", [drawn(10.0 * at) for at in range(1, 21)])
    assert start is not None
    assert (start.answer, start.p10_s, start.p50_s, start.p90_s) == ("starts", 20, 100, 180)


@pytest.mark.parametrize(
    ("draws", "answer"),
    [
        ([drawn(), drawn(5), drawn()], "not-within-7-days"),
        ([drawn(left="share"), drawn(left="enqueue")], "blocked-by-quota"),
        ([drawn(left="share"), drawn(left="gang")], "not-within-7-days"),
        ([drawn(5, tier="never-fits")], "can-never-fit"),
        ([drawn(is_cut=True, tier="never-fits")], "can-never-fit"),
    ],
)
def test_a_gang_without_a_start_has_a_reason(
    draws: list[expected_starts.DrawnStarts], answer: StartAnswer
) -> None:
    start = expected_starts.summarize("a", draws)
    assert start is not None
    assert start.answer == answer


def test_a_start_behind_a_cut_is_not_known() -> None:
    assert expected_starts.summarize("a", [drawn(5), drawn(is_cut=True)]) is None


def test_few_draws_cover_the_whole_distribution() -> None:
    """Each of the groups has one number in each fifth."""
    parts = list(worker.stratified(5, 3))
    for group in range(3):
        assert sorted(int(numbers[group] * 5) for numbers in parts) == [0, 1, 2, 3, 4]


@given(st.integers(0, 2 * forecaster.STARTS_PER_RECORD + 1))
def test_every_start_is_published_once_and_every_scope_has_a_record(count: int) -> None:
    starts = [
        expected_starts.ExpectedStart(f"default/g{at}", "q", "starts", 1.0, 2.0, None, "")
        for at in range(count)
    ]
    starts_forecasts = [
        draft.message
        for draft in forecaster.records("first", builders.NOON, 20, starts)
        if isinstance(draft.message, messages.StartsForecast)
    ]
    assert [each.pod_group for one in starts_forecasts for each in one.starts] == [
        each.pod_group for each in starts
    ]
    assert [each.chunk for each in starts_forecasts] == list(range(max(1, -(-count // 500))))
    assert {each.chunks for each in starts_forecasts} == {len(starts_forecasts)}


def test_a_published_range_has_times() -> None:
    start = expected_starts.ExpectedStart("default/g", "q", "starts", 1.0, 61.0, None, "")
    (draft,) = forecaster.records("all", builders.NOON, 20, [start])
    assert isinstance(draft.message, messages.StartsForecast)
    (found,) = draft.message.starts
    assert (found.p10, found.p50) == tuple(builders.NOON + timedelta(seconds=at) for at in (1, 61))
    assert found.p90 is None


def test_without_a_refresh_interval_nothing_is_forecast() -> None:
    assert forecaster.scopes(SchedulerSettings(forecast_refresh_s=0)) == ()


def test_all_scopes_together_keep_to_the_share_of_cpu() -> None:
    for share in (0.01, 0.1, 1.0):
        scopes = forecaster.scopes(SchedulerSettings(forecast_cpu=share))
        assert sum(each.share for each in scopes) == pytest.approx(share)
        assert all(each.share > 0 for each in scopes)


def test_frames_are_read_as_they_were_written() -> None:
    requested = frames.Compute("2026-01-01T00:00:00+00:00", 600, 20, 45.0, 0.1)
    body = frames.frame(requested)[frames.LENGTH.size :]
    assert frames.request(body) == requested
