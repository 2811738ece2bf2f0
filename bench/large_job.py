"""The cost of one large job in the controller: ``python -m bench.large_job --pods 100000``.

Only the controller's core, on a cluster of plain values: the job is accepted, its pods are created,
bound, run and succeed, and their changes arrive in batches as in the shell. It measures planning
(the reconciles of the job and its PodGroup, and their due times) in CPU seconds, and the longest
step, which blocks the event loop in the service. The last line of stdout is one JSON object.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from bench import group_patches
from stromboli.controller.core import commands, reconcilers
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.shared.api import batch, core, kinds, meta
from stromboli.testkit import builders

JOB = controller_cache.ReconcileKey("job", "default/j1")


class Cluster:
    """Objects as they are created and patched, observed by the controller immediately."""

    def __init__(self) -> None:
        self.now = builders.NOON
        self.cache = controller_cache.ControllerCache(("volcano",), event_history.EventHistory())
        self.pods: dict[str, core.Pod] = {}
        self._version = 1
        self.cpu_s = 0.0
        self.steps = 0
        self.longest_s = 0.0

    def submit(self, job: batch.Job) -> None:
        """Create the job in an open queue, as a user does."""
        self.cache.observe(kinds.QUEUES, builders.make_queue("default", state="Open"))
        self.cache.observe(kinds.JOBS, job)

    def step(self, item: controller_cache.ReconcileKey) -> int:
        """Reconcile one key; return the number of commands."""
        began = time.process_time()
        plan = reconcilers.plan(self.cache, item, self.now)
        reconcilers.due(self.cache, item, self.now)
        took = time.process_time() - began
        self.cpu_s += took
        self.steps += 1
        self.longest_s = max(self.longest_s, took)
        done = [command for stage in plan for command in stage]
        for command in done:
            self._carry_out(command)
        self.now += timedelta(seconds=0.1)
        return len(done)

    def settle(self) -> None:
        """Reconcile the job and its PodGroup until there are no more commands."""
        while self.step(JOB) + self.step(self.group_item()):
            pass

    def group_item(self) -> controller_cache.ReconcileKey:
        """The PodGroup's reconcile key."""
        return controller_cache.ReconcileKey("podgroup", f"{JOB.key}-job-default-j1")

    def observe(self, kind: kinds.Kind[Any], obj: meta.Object) -> None:
        """Observe the next version of an object."""
        self._version += 1
        metadata = msgspec.structs.replace(obj.metadata, resource_version=str(self._version))
        made = msgspec.structs.replace(obj, metadata=metadata)
        if isinstance(made, core.Pod):
            self.pods[made.metadata.key] = made
        self.cache.observe(kind, made)

    def _carry_out(self, command: commands.Command) -> None:
        match command:
            case commands.Create() if command.kind in (kinds.PODS, kinds.POD_GROUPS):
                made = command.kind.decode(command.body)
                uid = f"uid-{command.name}"
                metadata = msgspec.structs.replace(
                    made.metadata, uid=uid, creation_timestamp=self.now
                )
                self.observe(command.kind, msgspec.structs.replace(made, metadata=metadata))
            case commands.PatchJobStatus():
                job = self.cache.job(command.job.metadata.key)
                assert job is not None
                self.observe(kinds.JOBS, msgspec.structs.replace(job, status=command.status))
            case commands.Patch() if command.kind is kinds.POD_GROUPS:
                group = group_patches.patched(self.cache.pod_group(command.key), command)
                self.observe(kinds.POD_GROUPS, group)
            case commands.Delete():
                self.cache.mark_deleting(command.kind, command.key, command.uid)
                pod = self.pods.pop(command.key, None)
                if pod is not None:
                    self.cache.forget(kinds.PODS, command.key, command.uid)
            case commands.Publish():
                self.cache.published.observe(command.message)
            case commands.RecordEvent():
                self.cache.mark_recorded(command)
            case _:
                pass

    def enqueue(self) -> None:
        """Enqueue the PodGroup, as the scheduler does."""
        group = self.cache.pod_group(self.group_item().key)
        assert group is not None
        status = msgspec.structs.replace(group.status, phase="Inqueue")
        self.observe(kinds.POD_GROUPS, msgspec.structs.replace(group, status=status))


def bound(pod: core.Pod) -> core.Pod:
    """The pod, bound to a node."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n1"))


def in_phase(phase: str) -> Callable[[core.Pod], core.Pod]:
    """A function that sets a pod's phase."""

    def changed(pod: core.Pod) -> core.Pod:
        status = msgspec.structs.replace(pod.status, phase=phase)
        return msgspec.structs.replace(pod, status=status)

    return changed


def batches(cluster: Cluster, size: int) -> Iterator[Sequence[core.Pod]]:
    """All pods in batches of this size."""
    pods = list(cluster.pods.values())
    return (pods[at : at + size] for at in range(0, len(pods), size))


def life(cluster: Cluster, pods: int, news: int) -> Iterator[str]:
    """Simulate the job's life cycle; yields the name of each part when it has ended."""
    policy = batch.LifecyclePolicy(event="PodEvicted", action="RestartJob")
    task = builders.make_task(replicas=pods)
    cluster.submit(builders.make_job(tasks=[task], policies=[policy]))
    cluster.settle()
    cluster.enqueue()
    yield "accepted"
    cluster.settle()
    yield "created"
    for name, change in (
        ("bound", bound),
        ("running", in_phase("Running")),
        ("succeeded", in_phase("Succeeded")),
    ):
        for each in batches(cluster, news):
            for pod in each:
                cluster.observe(kinds.PODS, change(pod))
            cluster.step(JOB)
            cluster.step(cluster.group_item())
        cluster.settle()
        yield name


def measured(pods: int, news: int) -> dict[str, Any]:
    """CPU seconds and steps of each part."""
    cluster = Cluster()
    parts: dict[str, Any] = {}
    for name in life(cluster, pods, news):
        parts[name] = {
            "cpu_s": round(cluster.cpu_s, 3),
            "steps": cluster.steps,
            "longest_ms": round(cluster.longest_s * 1000, 1),
        }
        cluster.cpu_s, cluster.steps, cluster.longest_s = 0.0, 0, 0.0
    job = cluster.cache.job(JOB.key)
    assert job is not None
    assert (job.status.state.phase, job.status.succeeded) == ("Completed", pods)
    total = sum(part["cpu_s"] for part in parts.values())
    return {
        "pods": pods,
        "news_per_step": news,
        "cpu_s": round(total, 3),
        "cpu_us_per_pod": round(1e6 * total / pods, 1),
        "parts": parts,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument(
        "--news", type=int, default=100, help="number of pods whose changes arrive in one batch"
    )
    given = parser.parse_args()
    print(json.dumps(measured(given.pods, given.news)))


if __name__ == "__main__":
    main()
