"""How expected starts are shown."""

from datetime import datetime, timedelta

import msgspec
import pytest

from cli.tests.test_explain import explanation
from stromboli.cli.render import explanation_view, start_view
from stromboli.shared.api.views.expected_start import ExpectedStart, StartAnswer
from stromboli.testkit import builders

NOW = builders.NOON


def start(
    p10_s: float | None = None, p90_s: float | None = None, answer: StartAnswer = "starts"
) -> ExpectedStart:
    def at(seconds: float | None) -> datetime | None:
        return None if seconds is None else NOW + timedelta(seconds=seconds)

    return ExpectedStart(
        pod_group="default/train",
        answer=answer,
        at=NOW - timedelta(seconds=30),
        draws=20,
        p10=at(p10_s),
        p50=at(p10_s),
        p90=at(p90_s),
    )


@pytest.mark.parametrize(
    ("found", "sentence", "cell"),
    [
        (start(300, 1200), "in 5m to 20m (as of 30s ago)", "5m to 20m"),
        (start(300, None), "in 5m to >7d (as of 30s ago)", "5m to >7d"),
        (start(300, 300), "in 5m (as of 30s ago)", "5m"),
        (start(-20, 60), "in 0s to 60s (as of 30s ago)", "0s to 60s"),
        (start(-20, -10), "expected now (as of 30s ago)", "0s"),
        (start(answer="not-within-7-days"), "not within 7 days (as of 30s ago)", ">7d"),
        (
            start(answer="blocked-by-quota"),
            "blocked by quota: its queue does not admit it with its present limits (as of 30s ago)",
            "quota",
        ),
        (start(answer="can-never-fit"), "can never fit (as of 30s ago)", "never"),
    ],
)
def test_an_expected_start_is_a_range_from_now_or_an_answer(
    found: ExpectedStart, sentence: str, cell: str
) -> None:
    assert start_view.sentence(found, NOW) == sentence
    assert start_view.cell(found, NOW) == cell


def test_a_job_without_a_forecast_has_an_empty_cell() -> None:
    assert start_view.cell(None, NOW) == ""


def test_the_expected_start_is_the_first_fact_of_an_explanation() -> None:
    found = msgspec.structs.replace(explanation(), expected=start(300, 1200))
    shown = explanation_view.render(found, now=NOW)
    assert shown[1] == "  starts     in 5m to 20m (as of 30s ago)"
