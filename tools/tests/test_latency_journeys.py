"""``bench.latency`` assembles each job's journey from sightings and records, on both paths."""

from __future__ import annotations

from typing import Any

import pytest

from bench import journeys, observer

UID = "0" * 36
GROUP = f"default/bench-1-{UID}"
SENT = 1000.0
ANSWER = (SENT, SENT + 0.02)


def logged(*records: tuple[str, str, float, dict[str, Any]]) -> journeys.Logged:
    """The log with these records: topic, key, seconds after ``SENT``, value."""
    found = journeys.Logged()
    for topic, key, after_s, value in records:
        milliseconds = round(after_s * 1000)
        at = f"1970-01-01T00:16:40.{milliseconds:03d}Z"
        found.take(topic, key, {"ce_time": at}, value)
    return found


def job_record(after_s: float) -> tuple[str, str, float, dict[str, Any]]:
    return "cluster.jobs", "default/bench-1", after_s, {"metadata": {"name": "bench-1"}}


def group_record(after_s: float) -> tuple[str, str, float, dict[str, Any]]:
    value = {"metadata": {"ownerReferences": [{"name": "bench-1"}]}}
    return "cluster.podgroups", GROUP, after_s, value


def pod_record(after_s: float) -> tuple[str, str, float, dict[str, Any]]:
    value = {"metadata": {"annotations": {observer.JOB_NAME: "bench-1"}}}
    return "cluster.pods", "default/bench-1-main-0", after_s, value


def decision(after_s: float, **fields: object) -> tuple[str, str, float, dict[str, Any]]:
    return "scheduling.decisions", GROUP, after_s, fields


def sightings(bound: float) -> observer.Sightings:
    seen = observer.Sightings()
    seen.job["bench-1"] = SENT + 0.021
    seen.pod_group["bench-1"] = SENT + 0.05
    seen.pod["bench-1"] = SENT + 0.08
    seen.bound["bench-1"] = SENT + bound
    return seen


def durations_ms(found: journeys.Journey) -> list[int]:
    return [round(took * 1000) for took in found.hops_s()]


@pytest.mark.parametrize(("plan_s", "hops_ms"), [(0.035, [1, 4]), (0.053, [3, 2])])
def test_a_job_whose_pod_is_created_bound_has_a_plan_and_one_decision(
    plan_s: float, hops_ms: list[int]
) -> None:
    """The session needs both the PodGroup and the plan, whichever is later."""
    found = logged(
        job_record(0.022),
        group_record(0.051),
        ("batch.plans", GROUP, plan_s, {"job": "default/bench-1"}),
        decision(0.055, enqueue=True, binds=[{"pod": "bench-1-main-0"}]),
        pod_record(0.081),
    )
    journey = journeys.assembled("bench-1", ANSWER, sightings(bound=0.08), found)
    assert journey.path == "created_bound"
    assert durations_ms(journey) == [21, 1, 28, *hops_ms, 25]
    assert round(journey.total_s, 3) == 0.08


def test_a_job_whose_pod_is_created_pending_has_two_decisions() -> None:
    found = logged(
        job_record(0.022),
        group_record(0.051),
        decision(0.055, enqueue=True),
        pod_record(0.081),
        decision(0.085, binds=[{"pod": "bench-1-main-0"}]),
    )
    journey = journeys.assembled("bench-1", ANSWER, sightings(bound=0.1), found)
    assert journey.path == "pending"
    assert durations_ms(journey) == [21, 1, 28, 1, 4, 25, 1, 4, 15]


def test_a_missing_point_is_an_error_that_names_it() -> None:
    found = logged(job_record(0.022), group_record(0.051), decision(0.055, enqueue=True))
    with pytest.raises(KeyError, match="bench-1 on path pending: no pod_logged, bind_decided"):
        journeys.assembled("bench-1", ANSWER, sightings(bound=0.1), found)


def test_the_budget_of_a_path_leaves_out_journeys_on_the_other_one() -> None:
    """A job that does not fit idle room is created pending, beside jobs that are created bound."""
    made = [
        journeys.Journey("a", "created_bound", SENT, SENT, tuple(SENT + i for i in range(1, 7))),
        journeys.Journey("b", "pending", SENT, SENT, tuple(SENT + 2 * i for i in range(1, 10))),
    ]
    bound, pending = (journeys.budget(path, made) for path in journeys.HOPS)
    assert [hop["until"] for hop in bound] == [name for name, _ in journeys.HOPS["created_bound"]]
    assert {hop["p50_s"] for hop in bound} == {1.0}
    assert {hop["p50_s"] for hop in pending} == {2.0}
