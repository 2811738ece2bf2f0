"""A small cluster in virtual time: jobs run for a given time, and a session follows each end.

There is no controller and no log: what a session binds runs immediately, and the next session gets
the memory of the previous one.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.framework import session
from stromboli.shared import keys
from stromboli.shared.api import core, meta
from stromboli.testkit import builders


class Job(msgspec.Struct, frozen=True):
    """A gang of equal pods. ``seconds``: its actual run time; ``says``: its estimate, if any."""

    name: str
    pods: int
    cpu: int
    seconds: int
    queue: str = "q"
    says: bool = True
    at: int = 0
    """Seconds after the start at which it is created."""
    notes: Mapping[str, str] = {}
    namespace: str = "default"


class Run(msgspec.Struct):
    """The result: when each job started, and what sessions reported."""

    started: dict[str, int] = {}
    sessions: list[tuple[int, session.Session]] = []


def simulated(
    nodes: Sequence[core.Node],
    queues: Sequence[meta.Object],
    jobs: Sequence[Job],
    tiers: Sequence[sessions.Tier],
    *,
    actions: str = "allocate",
    until: int = 10**6,
) -> Run:
    """Sessions until nothing changes any more, or until that second."""
    configured = sessions.configured(*tiers, run=actions)
    run, places, memory, second = Run(), dict[str, str](), dict[str, str](), 0
    while second <= until:
        alive = [job for job in jobs if job.at <= second and not _has_ended(job, run, second)]
        objects = [each for job in alive for each in _objects(job, run.started, places)]
        cluster = sessions.given([*nodes, *queues, *objects], _time(second), memory)
        decided = simulate.run(configured, cluster)
        run.sessions.append((second, decided))
        memory = decided.remember
        for pod, node in decided.decisions.binds.items():
            places[pod] = node
            run.started.setdefault(pod.partition("/")[2].rpartition("-")[0], second)
        ends = [run.started[job.name] + job.seconds for job in jobs if job.name in run.started]
        coming = [job.at for job in jobs]
        later = [time for time in (*ends, *coming) if time > second]
        if not later:
            return run
        second = min(later)
    return run


def plugin(name: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return sessions.plugin(name, arguments)


def _has_ended(job: Job, run: Run, second: int) -> bool:
    return job.name in run.started and run.started[job.name] + job.seconds <= second


def _objects(job: Job, started: Mapping[str, int], places: Mapping[str, str]) -> list[meta.Object]:
    says = {keys.RUNNING_ESTIMATE: f"{job.seconds}s"} if job.says else {}
    begun = job.name in started
    group = builders.make_pod_group(
        job.name,
        job.pods,
        namespace=job.namespace,
        queue=job.queue,
        phase="Running" if begun else "Inqueue",
        annotations={**says, **job.notes},
        created=_time(job.at),
    )
    return [group, *(_pod(job, index, started, places) for index in range(job.pods))]


def _pod(job: Job, index: int, started: Mapping[str, int], places: Mapping[str, str]) -> core.Pod:
    name = f"{job.name}-{index}"
    node = places.get(f"{job.namespace}/{name}", "")
    pod = builders.make_pod(
        name,
        job.name,
        namespace=job.namespace,
        cpu=str(job.cpu),
        memory=None,
        node=node,
        phase="Running" if node else "Pending",
        created=_time(job.at),
    )
    if not node:
        return pod
    status = core.PodStatus(phase="Running", start_time=_time(started[job.name]))
    return msgspec.structs.replace(pod, status=status)


def _time(second: int) -> datetime:
    return builders.NOON + timedelta(seconds=second)
