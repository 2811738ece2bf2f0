"""``python -m bench.memory SERVICE``: memory of a service's cache by number of running pods.

In process, without Kafka and an API server: gangs of 100 pods are created, bound and run. Each
object arrives as the record that the monitor writes; pods are as an API server returns them, in
three versions. ``controller``: the controller's cache, event history and ``batch.state`` index,
with the reconciles of jobs and PodGroups. ``scheduler``: the scheduler's cache and cluster model.

The last line of stdout is the result as one JSON object: MiB of the process before and after, and
bytes per pod. ``--trace`` runs under tracemalloc and also prints the source lines that allocated
the most memory.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from bench import group_patches
from stromboli.controller.core import commands, reconcilers
from stromboli.controller.core.decisions import decisions
from stromboli.controller.core.pods import pods as job_pods
from stromboli.controller.core.store import batch_state, controller_cache, event_history
from stromboli.controller.core.tasks import tasks
from stromboli.monitor.core import projection
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.shared import envelope, keys, process, topics
from stromboli.shared.api import batch, core, kinds, meta
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, served_pods

PODS_PER_GANG, PODS_PER_NODE = 100, 100
SERVICES = ("controller", "scheduler")


class Topics:
    """Creates records as the monitor writes them."""

    def __init__(self) -> None:
        self.version = 0

    def record(self, kind: kinds.Kind[Any], document: dict[str, Any]) -> envelope.Record:
        """The record of an object's next version."""
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        observed = projection.observe(kind, msgspec.json.encode(document))
        draft = envelope.Draft(
            topic=topics.SNAPSHOTS[kind],
            key=observed.identity.key,
            message=observed.message,
            time=builders.NOON,
        )
        headers, value = envelope.seal(draft, "monitor", 1, self.version, cluster_name="default")
        return envelope.Record(draft.topic, self.version, draft.key, value, headers)


def pod_versions(pod: core.Pod, node: str, number: int, decision: str) -> Iterator[dict[str, Any]]:
    """A pod as the API server returns it: created, bound, and running."""
    document = served_pods.document(pod)
    created = builders.NOON + timedelta(seconds=number // 100)
    document["metadata"]["creationTimestamp"] = _time(created)
    yield document
    bound_at = _time(created + timedelta(seconds=1))
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound_at}
    document["metadata"]["annotations"][keys.DECISION] = decision
    document["spec"]["nodeName"] = node
    document["status"]["conditions"] = [scheduled]
    yield document
    runs_at = _time(created + timedelta(seconds=2))
    state = {"running": {"startedAt": runs_at}}
    status = {"name": "main", "ready": True, "restartCount": 0, "state": state}
    document["status"] |= {
        "phase": "Running",
        "startTime": runs_at,
        "podIP": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
        "conditions": [
            *(
                {"type": name, "status": "True", "lastTransitionTime": runs_at}
                for name in ("Initialized", "Ready", "ContainersReady")
            ),
            scheduled,
        ],
        "containerStatuses": [status],
    }
    yield document


def _document(obj: meta.Object) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(obj))
    return document


def _time(at: Any) -> str:
    return str(at.isoformat().replace("+00:00", "Z"))


def job_of(number: int) -> batch.Job:
    """A job of one gang."""
    task = builders.make_task(replicas=PODS_PER_GANG, cpu="10m", memory="10Mi")
    return builders.make_job(f"scale-{number}", tasks=[task])


class ControllerLoad:
    """The controller's core, with the responses of the API server to its writes."""

    def __init__(self) -> None:
        self.topics = Topics()
        history = event_history.EventHistory()
        self.state = batch_state.BatchState(history)
        self.cache = controller_cache.ControllerCache(("volcano",), history)
        self.now = builders.NOON
        self._offset = 0
        self._created: list[core.Pod] = []
        self.cpu_s = 0.0
        self._see(kinds.QUEUES, builders.make_queue("default", state="Open"))

    def gang(self, number: int) -> None:
        """Simulate a job from its submission until all of its pods run."""
        job = job_of(number)
        key = job.metadata.key
        group = f"{key}-{job.metadata.uid}"
        items = (
            controller_cache.ReconcileKey("job", key),
            controller_cache.ReconcileKey("podgroup", group),
        )
        self._see(kinds.JOBS, job)
        self._settle(*items)
        self._set_phase(group, "Inqueue")
        self._settle(*items)
        first = number * PODS_PER_GANG
        decision = f"scheduler/17/{number}"
        lives = [
            pod_versions(pod, f"node-{(first + at) // PODS_PER_NODE}", first + at, decision)
            for at, pod in enumerate(self._created)
        ]
        binds = [
            messages.Bind(
                namespace=made.metadata.namespace,
                pod=made.metadata.name,
                uid=made.metadata.uid,
                node=f"node-{(first + at) // PODS_PER_NODE}",
            )
            for at, made in enumerate(self._created)
        ]
        self._created = []
        for versions in zip(*lives, strict=True):
            for document in versions:
                self._apply(self.topics.record(kinds.PODS, document))
            self._settle(*items)
        for bind in binds:
            decisions.scheduled(bind, self.now)
        self._set_phase(group, "Running")
        self._settle(*items)
        self.state_is_written()

    def state_is_written(self) -> None:
        """Acknowledge a round of ``batch.state``."""
        for write in self.state.writes(self.state.begin_round()):
            self.state.note_written(write)

    def _apply(self, record: envelope.Record) -> None:
        begun = time.process_time()
        if self.cache.apply(record).undecodable:
            raise AssertionError(f"{record.key} cannot be read")
        self.cpu_s += time.process_time() - begun

    def _see(self, kind: kinds.Kind[Any], obj: meta.Object) -> None:
        document = _document(obj)
        self._apply(self.topics.record(kind, document))

    def _set_phase(self, key: str, phase: str) -> None:
        group = self.cache.pod_group(key)
        assert group is not None
        status = msgspec.structs.replace(group.status, phase=phase)
        self._see(kinds.POD_GROUPS, msgspec.structs.replace(group, status=status))

    def _settle(self, *items: controller_cache.ReconcileKey) -> None:
        while True:
            begun = time.process_time()
            plans = [reconcilers.plan(self.cache, item, self.now) for item in items]
            self.cpu_s += time.process_time() - begun
            found = [command for plan in plans for stage in plan for command in stage]
            for command in found:
                self._carry_out(command)
            self.now += timedelta(seconds=1)
            if not found:
                return

    def _carry_out(self, command: commands.Command) -> None:
        match command:
            case commands.Create() if command.kind in (kinds.PODS, kinds.POD_GROUPS):
                made = command.kind.decode(command.body)
                metadata = msgspec.structs.replace(
                    made.metadata, uid=f"uid-{command.kind.plural}-{made.metadata.name}"
                )
                made = msgspec.structs.replace(made, metadata=metadata)
                if isinstance(made, core.Pod):
                    self._created.append(made)
                self._answer(command.kind, made)
            case commands.PatchJobStatus():
                job = self.cache.job(command.job.metadata.key)
                assert job is not None
                self._answer(kinds.JOBS, msgspec.structs.replace(job, status=command.status))
            case commands.Patch() if command.kind is kinds.POD_GROUPS:
                group = group_patches.patched(self.cache.pod_group(command.key), command)
                self._answer(kinds.POD_GROUPS, group)
            case commands.Publish():
                self._offset += 1
                self.cache.published.observe(command.message)
                self.state.note_event(command.message, self._offset, 1, self.now)
            case commands.RecordEvent():
                self.cache.mark_recorded(command)
            case _:
                raise AssertionError(f"unexpected: {command}")

    def _answer(self, kind: kinds.Kind[Any], written: meta.Object) -> None:
        self.topics.version += 1
        document = _document(written)
        if isinstance(written, core.Pod):
            document = served_pods.document(written)
        document["metadata"]["resourceVersion"] = str(self.topics.version)
        self.cache.observe(kind, kind.decode(msgspec.json.encode(document)))


class SchedulerLoad:
    """The scheduler's cache as after a restart: no decision is open."""

    def __init__(self) -> None:
        self.topics = Topics()
        self.cache = cluster_cache.ClusterCache(("volcano",))
        self.cpu_s = 0.0
        self._see(kinds.QUEUES, builders.make_queue("default", state="Open"))

    def gang(self, number: int) -> None:
        """Add a running gang, and the node that it fills."""
        node = builders.make_node(f"node-{number}", "32", "256Gi")
        self._see(kinds.NODES, node)
        job = job_of(number)
        name = job_pods.group_name(job)
        self._see(
            kinds.POD_GROUPS,
            builders.make_pod_group(name, PODS_PER_GANG, phase="Running", owner=job),
        )
        lives = []
        for at, member in enumerate(tasks.Members(job)):
            pod = kinds.PODS.decode(job_pods.create(job, member).body)
            metadata = msgspec.structs.replace(pod.metadata, uid=f"uid-pods-{member.name}")
            pod = msgspec.structs.replace(pod, metadata=metadata)
            place = number * PODS_PER_GANG + at
            lives.append(pod_versions(pod, f"node-{number}", place, f"scheduler/17/{number}"))
        for versions in zip(*lives, strict=True):
            for document in versions:
                self._apply(self.topics.record(kinds.PODS, document))
        begun = time.process_time()
        self.cache.model.take_pending_jobs()
        self.cache.finish_session(is_throttled=False)
        self.cpu_s += time.process_time() - begun

    def _see(self, kind: kinds.Kind[Any], found: meta.Object) -> None:
        self._apply(self.topics.record(kind, _document(found)))

    def _apply(self, record: envelope.Record) -> None:
        begun = time.process_time()
        if self.cache.apply(record):
            raise AssertionError(f"{record.key} cannot be read")
        self.cpu_s += time.process_time() - begun


LOADS: dict[str, Callable[[], ControllerLoad | SchedulerLoad]] = {
    "controller": ControllerLoad,
    "scheduler": SchedulerLoad,
}


def rss_mib(field: str = "VmRSS") -> float:
    """Resident memory of this process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (found,) = (line for line in lines if line.startswith(field))
    return int(found.split()[1]) / 1024


def measured(service: str, pods: int, *, trace: bool) -> dict[str, Any]:
    """Fill the cache and measure."""
    gc.set_threshold(process.ALLOCATIONS_BETWEEN_LOOKS)
    load = LOADS[service]()
    load.gang(0)
    before = rss_mib()
    if trace:
        tracemalloc.start(1)
    for number in range(1, pods // PODS_PER_GANG + 1):
        load.gang(number)
    gc.collect()
    if trace:
        _report(tracemalloc.take_snapshot(), pods)
    after = rss_mib()
    return {
        "service": service,
        "pods": pods,
        "before_mib": round(before, 1),
        "after_mib": round(after, 1),
        "peak_mib": round(rss_mib("VmHWM"), 1),
        "bytes_per_pod": round((after - before) * 2**20 / pods),
        "cpu_us_per_pod": round(load.cpu_s * 1e6 / pods),
    }


def _report(found: tracemalloc.Snapshot, pods: int) -> None:
    ignored = (tracemalloc.Filter(inclusive=False, filename_pattern=tracemalloc.__file__),)
    lines = found.filter_traces(ignored).statistics("lineno")
    print(f"{sum(each.size for each in lines) / pods:8.0f} bytes per pod", file=sys.stderr)
    for each in lines[:40]:
        (frame,) = each.traceback
        name = frame.filename.rpartition("stromboli/")[2]
        print(
            f"{each.size / pods:8.1f} {each.count / pods:6.2f} {name}:{frame.lineno}",
            file=sys.stderr,
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("service", choices=SERVICES)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument(
        "--trace", action="store_true", help="print the source lines that allocated the most memory"
    )
    given = parser.parse_args()
    print(json.dumps(measured(given.service, given.pods, trace=given.trace)))


if __name__ == "__main__":
    main()
