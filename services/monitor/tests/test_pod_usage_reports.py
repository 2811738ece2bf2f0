"""Which reports of pods the monitor accepts."""

from typing import Any

import msgspec
import pytest

from stromboli.monitor.core import pod_meter, pod_usage_reports
from stromboli.shared import topics
from stromboli.shared.messages import base, node_usage
from stromboli.testkit.builders import NOON

USAGE = node_usage.PodUsage(pod_uid="p", counter="boot/1", cpu_ms=10, max_memory_bytes=20)


def body(*pods: node_usage.PodUsage, **fields: Any) -> bytes:
    return base.encode(node_usage.PodUsageReport(**{"sampler": "run", "pods": pods} | fields))


def test_a_record_has_the_node_of_the_token_and_the_time_of_the_monitor() -> None:
    draft = pod_usage_reports.PodUsageReports().accept(
        "n1", pod_usage_reports.read(body(USAGE)), NOON, 0.0
    )
    assert draft is not None
    assert (draft.topic, draft.key) == (topics.POD_USAGE, "n1")
    assert draft.message == node_usage.PodUsageMeasured(
        node="n1", at=NOON, sampler="run", pods=(USAGE,)
    )


def test_a_node_that_reports_too_often_is_refused_and_no_other_one() -> None:
    reports, report = pod_usage_reports.PodUsageReports(), pod_usage_reports.read(body(USAGE))
    assert reports.accept("n1", report, NOON, 0.0)
    assert reports.accept("n1", report, NOON, 1.0) is None
    assert reports.accept("n2", report, NOON, 1.0)
    assert reports.accept("n1", report, NOON, 2.0)


def test_the_pods_that_a_node_may_report_are_limited_with_a_burst() -> None:
    """The history keeps a row for each: a compromised agent could fill it with invented pods."""
    reports, now_s, accepted = pod_usage_reports.PodUsageReports(), 0.0, 0
    invented = [msgspec.structs.replace(USAGE, pod_uid=f"p{it}") for it in range(500)]
    report = pod_usage_reports.read(body(*invented))
    for _ in range(1800):
        accepted += 500 * (reports.accept("n1", report, NOON, now_s) is not None)
        now_s += 2.0
    assert accepted <= 5000 + 500 + 4 * now_s
    assert reports.accept("n2", report, NOON, now_s)


def test_pods_that_ended_while_the_monitor_was_unavailable_are_all_accepted() -> None:
    reports = pod_usage_reports.PodUsageReports()
    report = pod_usage_reports.read(body(*[USAGE] * pod_meter.MOST_PODS))
    for number in range(pod_meter.MOST_ENDED // pod_meter.MOST_PODS):
        assert reports.accept("n1", report, NOON, pod_meter.SEND_EVERY_S * number)


@pytest.mark.parametrize("field", ["cpu_ms", "max_memory_bytes", "gpu_ms", "max_gpu_memory_bytes"])
@pytest.mark.parametrize("value", [-1, pod_usage_reports.MOST + 1, 2**63])
def test_values_that_cannot_be_true_are_refused(field: str, value: int) -> None:
    with pytest.raises(msgspec.DecodeError):
        pod_usage_reports.read(body(msgspec.structs.replace(USAGE, **{field: value})))


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"1.5", b"1e400", b'"7"', b"null"])
def test_values_that_are_no_integers_are_refused(value: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        pod_usage_reports.read(body(USAGE).replace(b'"cpuMs":10', b'"cpuMs":' + value))


@pytest.mark.parametrize("name", ["", "x" * 65, "ä", "\0"])
@pytest.mark.parametrize("field", ["pod_uid", "counter"])
def test_ids_that_are_no_ids_are_refused(field: str, name: str) -> None:
    with pytest.raises(msgspec.DecodeError, match="1 to 64 printable ASCII characters"):
        pod_usage_reports.read(body(msgspec.structs.replace(USAGE, **{field: name})))


def test_a_report_is_bounded() -> None:
    many = (USAGE,) * (pod_meter.MOST_PODS + 1)
    with pytest.raises(msgspec.DecodeError, match="at most 500"):
        pod_usage_reports.read(body(*many))
    with pytest.raises(msgspec.DecodeError, match="more than 64 pods"):
        pod_usage_reports.read(body(unknown_pods=("a/b",) * 65))
    with pytest.raises(msgspec.DecodeError, match="a name has more than"):
        pod_usage_reports.read(body(unknown_pods=("x" * 400,)))
    assert len(body(*many[1:])) < pod_usage_reports.LARGEST_BYTES
