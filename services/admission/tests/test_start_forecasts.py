"""Rules of expected starts, as REST returns them."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from stromboli.admission.core import start_forecasts
from stromboli.shared.messages.scheduling import ExpectedStart, StartsForecast
from stromboli.testkit import builders

NOW = builders.NOON


def chunk(
    *pod_groups: str, scope: str = "first", number: int = 0, chunks: int = 1, age_s: float = 0
) -> StartsForecast:
    return StartsForecast(
        scope=scope,
        chunk=number,
        chunks=chunks,
        at=NOW - timedelta(seconds=age_s),
        draws=20,
        starts=tuple(ExpectedStart(pod_group=each, answer="starts") for each in pod_groups),
    )


def read(*starts_forecasts: StartsForecast) -> start_forecasts.StartForecasts:
    forecasts = start_forecasts.StartForecasts()
    for each in starts_forecasts:
        forecasts.put(each)
    return forecasts


def test_of_two_scopes_the_newer_forecast_counts() -> None:
    forecasts = read(chunk("a/b", age_s=50), chunk("a/b", scope="all", age_s=500))
    start = forecasts.of("a/b", NOW)
    assert start is not None
    assert start.at == NOW - timedelta(seconds=50)


def test_a_new_forecast_replaces_the_one_before() -> None:
    assert read(chunk("a/b"), chunk("a/c")).pod_groups() == ["a/c"]


def test_chunks_that_a_scope_no_longer_has_are_dropped() -> None:
    forecasts = read(chunk("a/b", chunks=2), chunk("a/c", number=1, chunks=2), chunk("a/b"))
    assert forecasts.pod_groups() == ["a/b"]


def test_an_old_forecast_is_not_shown() -> None:
    """It would be wrong, and nothing computes it again."""
    forecasts = read(chunk("a/b", age_s=start_forecasts.SHOWN_FOR.total_seconds() + 1))
    assert forecasts.of("a/b", NOW) is None


@given(st.permutations(range(4)))
def test_any_order_of_the_chunks_of_a_forecast_gives_the_same(order: list[int]) -> None:
    parts = [chunk(f"a/{number}", number=number, chunks=4) for number in range(4)]
    assert read(*(parts[at] for at in order)).pod_groups() == [f"a/{at}" for at in range(4)]
