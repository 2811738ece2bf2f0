"""The objects of ``bench.restart``, as the monitor publishes them.

The numbers of nodes, pods and jobs are those of a report by users of Volcano; everything else is
assumed:

- jobs have one or two pods, which gives the reported ratio of pods to jobs;
- of each 100 jobs, 84 run, 15 have ended and their pods are still there, and one waits: it was
  admitted, its pods exist, and no node has room for them (``WAITING_CORES``);
- pods of 1 core and 2 GiB on nodes of 32 cores, so that about 24 cores of a node are in use;
- two pods of other schedulers on each node, such as those of DaemonSets;
- pods have the fields that an API server adds, and the versions of a compacted topic: one record,
  except for the newest tenth, which also has the records of its creation and its bind.
"""

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec

from bench import memory
from stromboli.controller.core.pods import pods as job_pods
from stromboli.controller.core.tasks import tasks
from stromboli.monitor.core import projection
from stromboli.shared import envelope, topics
from stromboli.shared.api import batch, core, kinds, meta, scheduling
from stromboli.testkit import builders

CORES, MEMORY = "32", "256Gi"
POD_CORES, POD_MEMORY = "1", "2Gi"
WAITING_CORES = "16"
DAEMONS_PER_NODE = 2
NEWEST = 10
"""One in this many pods has all of its versions on the topic."""
_READY = "tasks in gang are ready to be scheduled"


class Size(msgspec.Struct, frozen=True):
    """Numbers of nodes, pods and jobs; pods without those of other schedulers."""

    nodes: int = 4_888
    pods: int = 140_000
    jobs: int = 87_031

    def pods_of(self, number: int) -> int:
        """The number of pods of a job."""
        return self.pods * (number + 1) // self.jobs - self.pods * number // self.jobs


def phase_of(number: int) -> str:
    """The phase of a job's PodGroup."""
    place = number % 100
    return "Running" if place < 84 else "Completed" if place < 99 else "Inqueue"


def drafts(size: Size) -> Iterator[envelope.Draft]:
    """The records of the whole cluster."""
    versions = itertools.count(1)
    for kind, document in _documents(size):
        yield _draft(kind, document, next(versions))


def draft_of(obj: meta.Object, version: int) -> envelope.Draft:
    """The record of one more object."""
    return _draft(builders.kind_of(obj), _document(obj), version)


def new_job(name: str) -> tuple[scheduling.PodGroup, core.Pod]:
    """A job of one pod that fits: its PodGroup, which is not admitted yet, and its pod."""
    job = _job(name, 1, POD_CORES)
    (pod,) = _members(job)
    return _group(job, "Pending", 1, POD_CORES), pod


def _documents(size: Size) -> Iterator[tuple[kinds.Kind[Any], dict[str, Any]]]:
    yield kinds.QUEUES, _document(builders.make_queue("default", state="Open"))
    for at in range(size.nodes):
        yield kinds.NODES, _document(builders.make_node(_node(at), CORES, MEMORY))
    daemons = size.nodes * DAEMONS_PER_NODE
    for at in range(daemons):
        pod = builders.make_pod(
            f"agent-{at}",
            namespace="kube-system",
            cpu="100m",
            scheduler="default-scheduler",
            annotations={"checksum/configuration": "4a57"},
        )
        yield kinds.PODS, _last(memory.pod_versions(pod, _node(at % size.nodes), at, ""))
    place = daemons
    for number in range(size.jobs):
        phase, count = phase_of(number), size.pods_of(number)
        cores = WAITING_CORES if phase == "Inqueue" else POD_CORES
        job = _job(f"job-{number:06}", count, cores)
        yield kinds.POD_GROUPS, _document(_group(job, phase, count, cores))
        for pod in _members(job):
            for document in _versions(pod, phase, _node(place % size.nodes), place):
                yield kinds.PODS, document
            place += 1


def _node(at: int) -> str:
    return f"node-{at:05}"


def _job(name: str, count: int, cores: str) -> batch.Job:
    return builders.make_job(
        name, tasks=[builders.make_task(replicas=count, cpu=cores, memory=POD_MEMORY)]
    )


def _members(job: batch.Job) -> Iterator[core.Pod]:
    """The job's pods as the controller creates them."""
    for member in tasks.Members(job):
        pod = kinds.PODS.decode(job_pods.create(job, member).body)
        metadata = msgspec.structs.replace(pod.metadata, uid=f"uid-pods-{member.name}")
        yield msgspec.structs.replace(pod, metadata=metadata)


def _group(job: batch.Job, phase: str, count: int, cores: str) -> scheduling.PodGroup:
    least: builders.Resources = {"cpu": int(cores) * count, "memory": f"{2 * count}Gi"}
    group = builders.make_pod_group(
        job_pods.group_name(job), count, phase=phase, owner=job, min_resources=least
    )
    if phase in ("Pending", "Inqueue"):
        return group
    condition = scheduling.PodGroupCondition(
        type="Scheduled",
        status="True",
        reason=_READY,
        last_transition_time=builders.NOON + timedelta(seconds=1),
    )
    status = scheduling.PodGroupStatus(
        phase=phase,
        conditions=(condition,),
        running=count if phase == "Running" else 0,
        succeeded=count if phase == "Completed" else 0,
    )
    return msgspec.structs.replace(group, status=status)


def _versions(pod: core.Pod, phase: str, node: str, place: int) -> Iterator[dict[str, Any]]:
    """The pod's records that are on the topic."""
    found = memory.pod_versions(pod, node, place, f"scheduler/17/{place}")
    if phase == "Inqueue":
        yield next(found)
        return
    if phase == "Running" and place % NEWEST == 0:
        yield from found
        return
    document = _last(found)
    if phase == "Completed":
        document["status"]["phase"] = "Succeeded"
    yield document


def _last(versions: Iterator[dict[str, Any]]) -> dict[str, Any]:
    *_, last = versions
    return last


def _draft(kind: kinds.Kind[Any], document: dict[str, Any], version: int) -> envelope.Draft:
    document["metadata"]["resourceVersion"] = str(version)
    observed = projection.observe(kind, msgspec.json.encode(document))
    return envelope.Draft(
        topic=topics.SNAPSHOTS[kind],
        key=observed.identity.key,
        message=observed.message,
        time=builders.NOON,
    )


def _document(obj: meta.Object) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(obj))
    return document
