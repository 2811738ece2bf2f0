"""Metrics of jobs, flows and queues under Volcano's names; see docs/metrics.md.

Labels name queues and namespaces, never single jobs; details of single jobs are in
``batch.events``.
"""

from collections import Counter
from datetime import datetime

import msgspec
from opentelemetry import metrics

from stromboli.controller.core.queues import queue_counts
from stromboli.controller.core.store import controller_cache
from stromboli.shared.api import core, flow, meta
from stromboli.shared.messages import batch as messages
from stromboli.shared.runtime import telemetry

_isolated = telemetry.meter.create_counter(
    "stromboli.controller.isolated",
    description="Failures that were isolated to one object or record",
)


def isolated(kind: str) -> None:
    """Count an internal error that was isolated to one object or record of this kind."""
    _isolated.add(1, {"kind": kind})


class ControllerMetrics:
    """The metrics of the controller, as instruments of one meter."""

    def __init__(self, meter: metrics.Meter = telemetry.meter) -> None:
        # No counters: the exporter would add a suffix to their names.
        self._jobs = {
            phase: meter.create_up_down_counter(
                f"volcano_job_{phase.lower()}_phase_count", description=f"Jobs that reached {phase}"
            )
            for phase in ("Completed", "Failed")
        }
        self._flows = {
            phase: meter.create_up_down_counter(
                f"volcano_jobflow_{phase.lower()}_phase_count",
                description=f"Flows that reached {phase}",
            )
            for phase in ("Succeed", "Failed")
        }
        self._groups = {
            phase: meter.create_gauge(
                f"volcano_queue_pod_group_{phase}_count", description=f"PodGroups that are {phase}"
            )
            for phase in queue_counts.COUNTED
        }
        self._to_pod = meter.create_histogram(
            "volcano_controller_job_to_pod_creation_latency_milliseconds",
            description="From the creation of a job to the creation of each of its pods",
        )

    def published(self, cache: controller_cache.ControllerCache, message: msgspec.Struct) -> None:
        """Count a published event."""
        if isinstance(message, messages.JobPhaseChanged) and message.after in self._jobs:
            job = cache.job(message.job)
            queue = "" if job is None else job.spec.queue
            self._jobs[message.after].add(1, {"queue_name": queue})

    def created(
        self, cache: controller_cache.ControllerCache, written: meta.Object, now: datetime
    ) -> None:
        """Count an object that the controller created."""
        key = controller_cache.job_of(written) if isinstance(written, core.Pod) else None
        job = None if key is None else cache.job(key)
        if job is not None and job.metadata.creation_timestamp is not None:
            self._to_pod.record(1000 * (now - job.metadata.creation_timestamp).total_seconds())

    def changed(self, before: object, written: meta.Object) -> None:
        """Count an object that the controller patched; ``before``: its cached state before the
        patch."""
        if not isinstance(written, flow.JobFlow):
            return
        phase = written.status.state.phase
        was = before.status.state.phase if isinstance(before, flow.JobFlow) else ""
        if phase != was and phase in self._flows:
            self._flows[phase].add(1, {"jobflow_namespace": written.metadata.namespace})

    def counted(self, cache: controller_cache.ControllerCache, queue: str) -> None:
        """Update the metrics of a queue from its counts in the cache."""
        phases = Counter(phase.lower() for phase in cache.queue_usage.phases(queue))
        for phase, gauge in self._groups.items():
            gauge.set(phases[phase], {"queue_name": queue})


OWN = ControllerMetrics()
"""The metrics of this process."""
