"""What was used of what was reserved, and the words for it."""

from typing import Any

import pytest

from stromboli.shared.api.views import accounting, efficiency

GIB = 2**30


def attempt(**fields: Any) -> accounting.Attempt:
    known: dict[str, Any] = {"namespace": "a", "job": "j", "uid": "u", "queue": "q", "user": "ann"}
    known |= {"task": "t", "index": 0, "attempt": 1, "retry_count": 0, "pod": "p", "pod_uid": "p"}
    return accounting.Attempt(**(known | {"state": "Succeeded"} | fields))


def words(*attempts: accounting.Attempt) -> list[tuple[str, str]]:
    return efficiency.texts(efficiency.of_attempts(attempts))


def test_only_measured_attempts_count_on_both_sides() -> None:
    measured = attempt(cpu_seconds=14_400.0, used_cpu_seconds=4320.0)
    assert words(measured, attempt(cpu_seconds=1e9)) == [("cpu", "1.2 of 4.0 core-hours (30 %)")]
    assert words(attempt(cpu_seconds=1e9)) == []


def test_of_memory_the_attempt_counts_that_needed_most_of_its_request() -> None:
    """A job that requests less than that is killed."""
    small = attempt(max_memory_bytes=GIB, requests={"memory": 2 * GIB})
    large = attempt(max_memory_bytes=2 * GIB, requests={"memory": 8 * GIB})
    assert words(small, large) == [("memory", "at most 1.0 GiB of 2.0 GiB (50 %)")]


def test_a_pod_without_requests_has_no_share() -> None:
    assert words(attempt(used_cpu_seconds=1.5, max_memory_bytes=100)) == [
        ("cpu", "1.5 core-seconds"),
        ("memory", "at most 100 B"),
    ]


@pytest.mark.parametrize(
    ("reserved_s", "text"),
    [
        (100.0, "50.0 of 100.0 GPU-seconds (50 %)"),
        (120.0, "1.0 of 2.0 GPU-minutes (50 %)"),
        (7200.0, "1.0 of 2.0 GPU-hours (50 %)"),
    ],
)
def test_the_unit_fits_the_amount(reserved_s: float, text: str) -> None:
    found = attempt(gpu_seconds=reserved_s, used_gpu_seconds=reserved_s / 2)
    assert words(found) == [("gpu", text)]
