"""Rules of the ranges of expected starts."""

import time
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.scheduler.core.forecast import expected_starts, range_calibration
from stromboli.scheduler.forecasting import frames, worker
from stromboli.shared.messages import base, batch
from stromboli.testkit import builders

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
UID = "0b0ee0a3-13bb-4e6b-9f0b-0b7a4b2d6f10"


def expected(
    p10_s: float | None, p90_s: float | None, key: str = "default/a"
) -> expected_starts.ExpectedStart:
    p50_s = None if p10_s is None or p90_s is None else (p10_s * p90_s) ** 0.5
    return expected_starts.ExpectedStart(key, "default", "starts", p10_s, p50_s, p90_s, "")


@pytest.mark.parametrize("sigma", [0.3, 0.8, 1.5])
def test_four_of_five_starts_are_in_the_range_however_wrong_the_simulation_is(sigma: float) -> None:
    """The simulation takes errors for a third (or nine tenths) of what they are; starts are known
    only after later jobs were forecast."""
    random = np.random.default_rng(1)
    range_calibrator = range_calibration.RangeCalibrator()
    simulated = 0.4
    inside = []
    waiting: list[tuple[str, float]] = []
    for number in range(3000):
        true_s = 3600 * float(np.exp(sigma * random.standard_normal()))
        key = f"default/{number}"
        start = expected(3600 * np.exp(-1.28 * simulated), 3600 * np.exp(1.28 * simulated), key)
        shown = range_calibrator.widening.applied(start, WEEK_S)
        assert shown.p10_s is not None
        assert shown.p90_s is not None
        inside.append(shown.p10_s <= true_s <= shown.p90_s)
        range_calibrator.forecast(builders.NOON, start)
        waiting.append((key, true_s))
        if len(waiting) > 20:
            ended, wait_s = waiting.pop(0)
            range_calibrator.started(ended, builders.NOON + timedelta(seconds=wait_s))
    part = float(np.mean(inside[500:]))
    if sigma < simulated:
        assert part > 0.8, "a range that is wide enough is left as it is"
    else:
        assert 0.75 < part < 0.85


@given(
    st.lists(
        st.tuples(st.floats(0, 2 * WEEK_S), st.floats(0, WEEK_S), st.floats(1, 1e6)), max_size=80
    )
)
def test_factors_stay_bounded_and_ranges_keep_the_median(
    starts: list[tuple[float, float, float]],
) -> None:
    range_calibrator = range_calibration.RangeCalibrator()
    for number, (wait_s, low_s, width_s) in enumerate(starts):
        start = expected(low_s, low_s + width_s, f"default/{number}")
        shown = range_calibrator.widening.applied(start, WEEK_S)
        assert shown.p50_s == start.p50_s
        assert shown.p10_s is not None
        assert start.p10_s is not None
        assert shown.p10_s <= start.p10_s
        assert shown.p90_s is None or start.p90_s is None or start.p90_s <= shown.p90_s <= WEEK_S
        range_calibrator.forecast(builders.NOON, start)
        range_calibrator.started(start.pod_group, builders.NOON + timedelta(seconds=wait_s))
        most = range_calibration.MOST_FACTOR
        assert 1 <= range_calibrator.widening.below <= most
        assert 1 <= range_calibrator.widening.above <= most


def test_a_start_counts_once_and_against_the_first_forecast_of_its_job() -> None:
    range_calibrator = range_calibration.RangeCalibrator()
    range_calibrator.forecast(builders.NOON, expected(100, 200))
    range_calibrator.forecast(builders.NOON + timedelta(seconds=300), expected(1, 9000))
    late = builders.NOON + timedelta(seconds=1000)
    range_calibrator.started("default/a", late)
    once = range_calibrator.widening
    assert once.above > range_calibration.FIRST_FACTOR
    assert once.below < range_calibration.FIRST_FACTOR
    range_calibrator.started("default/a", late)
    assert range_calibrator.widening == once


@pytest.mark.parametrize(
    ("p10_s", "p90_s", "wait_s"),
    [(500.0, 500.0, 90.0), (None, None, 90.0), (10.0, 20.0, 59.0)],
)
def test_known_run_times_no_forecast_and_short_waits_teach_nothing(
    p10_s: float | None, p90_s: float | None, wait_s: float
) -> None:
    range_calibrator = range_calibration.RangeCalibrator()
    start = expected(p10_s, p90_s)
    range_calibrator.forecast(builders.NOON, start)
    range_calibrator.started("default/a", builders.NOON + timedelta(seconds=wait_s))
    assert range_calibrator.widening == range_calibration.Widening()
    if p10_s == p90_s:
        assert range_calibrator.widening.applied(start, WEEK_S) == start


def test_a_deleted_job_teaches_nothing() -> None:
    range_calibrator = range_calibration.RangeCalibrator()
    range_calibrator.forecast(builders.NOON, expected(100, 200))
    range_calibrator.deleted("default/a")
    range_calibrator.started("default/a", builders.NOON + timedelta(hours=1))
    assert range_calibrator.widening == range_calibration.Widening()


def test_open_forecasts_are_bounded() -> None:
    """A user who submits and deletes jobs by the thousand must not fill the process."""
    range_calibrator = range_calibration.RangeCalibrator()
    for number in range(range_calibration.MOST_OPEN + 1):
        range_calibrator.forecast(builders.NOON, expected(100, 200, f"default/{number}"))
    range_calibrator.started("default/0", builders.NOON + timedelta(hours=1))
    assert range_calibrator.widening == range_calibration.Widening(), "the oldest was dropped"
    range_calibrator.started("default/1", builders.NOON + timedelta(hours=1))
    assert range_calibrator.widening != range_calibration.Widening()


def test_the_forecast_process_learns_from_the_events_of_jobs_that_it_forecast() -> None:
    start = frames.Start("", ("volcano",), 1.0, 512)
    served = worker.ForecastWorker(start, time.process_time())
    pod_group = f"default/train-{UID}"
    served.calibrator.forecast(builders.NOON, expected(100, 200, pod_group))
    started = batch.JobPhaseChanged(
        job="default/train",
        uid=UID,
        queue="default",
        before="Pending",
        after="Running",
        at=builders.NOON + timedelta(hours=1),
    )
    record = (base.type_name(started), base.encode(started))
    served.handle(frames.Events([record, record]))
    assert served.calibrator.widening.above > range_calibration.FIRST_FACTOR
