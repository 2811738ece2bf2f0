"""/metrics for sessions: the names in docs/metrics.md, with their labels."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

from services.scheduler.tests.support import default_sessions, sessions
from services.scheduler.tests.support.harness import draft
from stromboli.scheduler import engine, instruments
from stromboli.scheduler.core import policy
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import topics
from stromboli.shared.api import meta
from stromboli.shared.bus import port
from stromboli.shared.messages import cluster
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, topic_log

WHOLE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
PAGE = WHOLE.partition("Of the scheduler")[2]
GPU = {"nvidia.com/gpu": 4}
TIERS = [
    [sessions.plugin(name) for name in ("priority", "gang", "conformance")],
    [sessions.plugin(name) for name in ("drf", "predicates", "proportion", "nodeorder")],
]
EVERYTHING = [
    sessions.queue("default", capability={"cpu": "9", "memory": "9Gi", **GPU}),
    builders.make_node("n1", cpu="8", extra=GPU),
    builders.make_priority_class("urgent", 100),
    *default_sessions.gang("low", 6, node="n1", min_member=1, extra={"nvidia.com/gpu": 0}),
    *default_sessions.gang("wide", 2, cpu="99"),
    *default_sessions.gang("small", 1, cpu="1", extra={"nvidia.com/gpu": 1}),
    builders.make_pod_group("high", 1, priority_class="urgent"),
    builders.make_pod("high-0", "high", cpu="3"),
]


class Metrics:
    """Instruments, and what Prometheus reads of them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(
            disable_target_info=True, scope_info_enabled=False, registry=self._registry
        )
        self.provider = MeterProvider([reader])
        self.instruments = instruments.Instruments(self.provider.get_meter("test"), self._registry)

    @property
    def lines(self) -> dict[str, float]:
        """Series -> value."""
        text = generate_latest(self._registry).decode()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    @property
    def names(self) -> set[str]:
        """As dashboards name them."""
        text = generate_latest(self._registry).decode()
        return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    made = Metrics()
    yield made
    made.provider.shutdown()


def run(metrics: Metrics, *objects: meta.Object) -> engine.Engine:
    """An engine that has run one session over these objects."""
    how = sessions.configured(*TIERS, run="enqueue, allocate, preempt, backfill")
    made = engine.Engine(
        policy.Policy(configured=how), 0, 5, timedelta(seconds=60), measures=metrics.instruments
    )
    log = topic_log.TopicLog()
    records = log.see(*objects)
    for kind in cluster_cache.KINDS:
        message = cluster.KindSynced(
            kind=kind.plural, state="synced", resource_version="1", at=builders.NOON
        )
        records.append(log.append(draft(topics.SYNC, kind.plural, message)))
    positions = {record.topic.name: record.offset + 1 for record in records}
    made.step(
        [
            port.Batch(
                tuple(records),
                port.Position(positions),
                caught_up=True,
                at_end={topics.SYNC.name: 0.0},
            )
        ],
        builders.NOON,
        may_decide=True,
    )
    return made


def promised() -> Iterator[str]:
    """Full names of the page's first column, as far as they are Volcano's."""
    for line in PAGE.splitlines():
        if line.startswith("| `volcano_"):
            first, *endings = re.findall(r"`([^`]+)`", line.split("|")[1])
            yield first
            for ending in endings:
                yield first.removesuffix("_milli_cpu") + ending


def test_every_metric_of_the_page_exists(metrics: Metrics) -> None:
    """And no other of Volcano's."""
    run(metrics, *EVERYTHING)
    ours = {"stromboli_scheduler_unanswered", "stromboli_scheduler_gangs_waiting"}
    assert metrics.names == set(promised()) | ours
    assert all(f"`{name}`" in PAGE for name in ours)


def test_durations_of_the_newest_sessions_are_percentiles_by_nearest_rank() -> None:
    durations = instruments.SessionDurations()
    assert durations.take(builders.NOON) is None
    for number in range(1, 101):
        durations.add(number / 100)
    sessions_measured = durations.take(builders.NOON)
    assert sessions_measured is not None
    assert (sessions_measured.sessions, sessions_measured.p50_s, sessions_measured.p99_s) == (
        100,
        0.5,
        0.99,
    )
    assert durations.take(builders.NOON) is None, "nothing new"
    durations.add(7.0)
    for _ in range(instruments.MOST_DURATIONS - 1):
        durations.add(0.001)
    sessions_measured = durations.take(builders.NOON)
    assert sessions_measured is not None
    assert (sessions_measured.sessions, sessions_measured.p99_s) == (
        instruments.MOST_DURATIONS,
        0.001,
    )


def test_waiting_gangs_are_counted_by_queue_and_tier(metrics: Metrics) -> None:
    """Decisions in flight are a separate metric, from when they are read back from the log."""
    run(metrics, *EVERYTHING)
    lines = metrics.lines
    waiting = {line: count for line, count in lines.items() if "gangs_waiting" in line}
    name = "stromboli_scheduler_gangs_waiting"
    assert waiting == {
        f'{name}{{queue_name="default",tier="resources"}}': 1,
        f'{name}{{queue_name="default",tier="never-fits"}}': 1,
    }
    assert lines["stromboli_scheduler_unanswered"] == 0


def test_queues_and_jobs_have_the_labels_of_volcanos_dashboards(metrics: Metrics) -> None:
    run(metrics, *(each for each in EVERYTHING if not each.metadata.name.startswith("high")))
    lines = metrics.lines
    assert lines['volcano_queue_allocated_milli_cpu{queue_name="default"}'] == 7000
    assert lines['volcano_queue_weight{queue_name="default"}'] == 1
    assert lines['volcano_unschedule_task_count{job_id="wide"}'] == 2
    assert lines["volcano_unschedule_job_count"] == 1
    gpu = 'queue_name="default",resource="nvidia.com/gpu"'
    assert lines[f"volcano_queue_allocated_scalar_resources{{{gpu}}}"] == 1000
    opens = 'OnSession="OnSessionOpen",plugin="drf"'
    assert lines[f"volcano_plugin_scheduling_latency_milliseconds_count{{{opens}}}"] == 1
    assert lines['volcano_action_scheduling_latency_milliseconds_count{action="preempt"}'] == 1


def test_a_series_ends_with_its_queue_and_can_return(metrics: Metrics) -> None:
    def set_gauges(*queues: str) -> list[str]:
        metrics.instruments.set_gauges(
            extension_points.Gauge("queue_weight", 1, (("queue_name", name),)) for name in queues
        )
        return sorted(line for line in metrics.lines if "queue_weight" in line)

    assert len(set_gauges("a", "b")) == 2
    assert set_gauges("b") == ['volcano_queue_weight{queue_name="b"}']
    assert set_gauges() == []
    assert set_gauges("a") == ['volcano_queue_weight{queue_name="a"}']


def test_gauges_are_updated_once_a_second_and_a_skipped_update_follows(
    metrics: Metrics,
) -> None:
    """The first session of a burst updates them; when the burst is over, one more does."""
    made = run(metrics, *EVERYTHING)
    before = metrics.lines
    made.cache.request_session("news")
    quick = made.step([], builders.NOON + timedelta(milliseconds=10), may_decide=True)
    assert 0 < quick.next_step_s <= engine.GAUGE_INTERVAL.total_seconds()
    later = made.step([], builders.NOON + engine.GAUGE_INTERVAL, may_decide=True)
    assert later.next_step_s > engine.GAUGE_INTERVAL.total_seconds()
    assert before.keys() == metrics.lines.keys()


def test_preemptions_are_counted_by_statements_and_victims(metrics: Metrics) -> None:
    def evict(reason: str, number: int) -> None:
        evictions = tuple(
            messages.Eviction(namespace="d", pod=f"p{at}", uid="u", reason=reason)
            for at in range(number)
        )
        metrics.instruments.decided(
            messages.StatementDecided(
                pod_group="d/g", pod_group_uid="u", session=1, evictions=evictions, reason=reason
            ),
            None,
        )

    for reason, number in (("preempt", 3), ("reclaim", 1), ("preempt", 2)):
        evict(reason, number)
    lines = metrics.lines
    assert lines["volcano_total_preemption_attempts"] == 2
    assert lines["volcano_pod_preemption_victims"] == 2
    assert lines['volcano_eviction_transactions_total{action="preempt"}'] == 2
    assert lines['volcano_eviction_transactions_total{action="reclaim"}'] == 1


def test_a_service_that_starts_again_in_its_process_exports_no_gauge_twice() -> None:
    """The meter keeps every instrument until the process ends."""
    assert instruments.of_process() is instruments.of_process()
