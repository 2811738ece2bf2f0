"""What is measured of jobs, flows and queues, under the names that dashboards know."""

from datetime import timedelta

import msgspec
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

from services.controller.tests.support.scenarios import finish, running
from stromboli.controller.controller_metrics import ControllerMetrics
from stromboli.shared.api import flow
from stromboli.shared.messages import batch as messages
from stromboli.testkit.builders import make_flow, make_job, make_task


class Measured:
    """Instruments, and what Prometheus reads of them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(
            disable_target_info=True, scope_info_enabled=False, registry=self._registry
        )
        self._provider = MeterProvider([reader])
        self.instruments = ControllerMetrics(self._provider.get_meter("test"))

    def value(self, series: str) -> float | None:
        text = generate_latest(self._registry).decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#")
        return float(values[series]) if series in values else None


def test_jobs_that_end_are_counted_by_queue() -> None:
    measured = Measured()
    harness = running(make_job(tasks=[make_task(replicas=2)]))
    finish(harness, "Succeeded", "Succeeded")
    for _, message in harness.sent:
        measured.instruments.published(harness.cache, message)
    assert any(isinstance(it, messages.JobPhaseChanged) for _, it in harness.sent)
    assert measured.value('volcano_job_completed_phase_count{queue_name="default"}') == 1
    assert measured.value('volcano_job_failed_phase_count{queue_name="default"}') is None


def test_a_pods_way_from_its_job_is_measured() -> None:
    measured = Measured()
    harness = running(make_job(tasks=[make_task(replicas=2)]))
    created = harness.job().metadata.creation_timestamp
    assert created is not None
    for pod in harness.pods():
        measured.instruments.created(harness.cache, pod, created + timedelta(seconds=2))
    assert measured.value("volcano_controller_job_to_pod_creation_latency_milliseconds_sum") == 4000


def test_a_queues_pod_groups_are_counted_by_phase() -> None:
    measured = Measured()
    harness = running(make_job())
    measured.instruments.counted(harness.cache, "default")
    (phase,) = [group.status.phase.lower() for group in harness.groups()]
    assert measured.value(f'volcano_queue_pod_group_{phase}_count{{queue_name="default"}}') == 1
    assert measured.value('volcano_queue_pod_group_completed_count{queue_name="default"}') == 0


def test_a_flow_that_ends_is_counted_once() -> None:
    measured = Measured()
    before = make_flow("f", {"a": []})
    status = flow.JobFlowStatus(state=flow.FlowState(phase="Succeed"))
    after = msgspec.structs.replace(before, status=status)
    measured.instruments.changed(before, after)
    measured.instruments.changed(after, after)
    assert measured.value('volcano_jobflow_succeed_phase_count{jobflow_namespace="default"}') == 1
