"""The gang experiment: jobs of 2 parameter servers and 4 workers compete for room for 9 pods. A job
makes progress only while all its 6 pods run; a pod that waits for its peers keeps its resources.

The baseline places pods one by one: our ``allocate`` without the plugin ``gang``, with the pods in
a random order from a fixed seed. Jobs are submitted before nodes exist, so that all of them compete
from the start.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from stromboli.cli.render import explanation_view
from stromboli.client.responses import Explanation
from stromboli.embedded import system
from stromboli.embedded.nodes import simulated
from stromboli.embedded.nodes.list_watch import list_and_watch
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import decoding, keys
from stromboli.shared.api import batch, kinds
from stromboli.shared.cluster import port as cluster_port

ROLES = {"ps": 2, "worker": 4}
PODS_OF_A_JOB = sum(ROLES.values())
NODES, CPUS_OF_A_NODE = 3, 3
ROOM = NODES * CPUS_OF_A_NODE
RUN_S = 0.4
"""Seconds that a job works once all of its pods run."""
STILL_S, LIMIT_S = 3.0, 20.0
"""Seconds without changes, and seconds in total, after which a trial ends: a job works for less
than a second, so three seconds without a change mean that there is no progress.
"""
LOOK_S = 0.05
IN_VAIN_S = 1.0
"""Time after which the pods of a job that does not start count as wasted: before that, other
members of its gang may not be bound yet, because binding takes one write per pod.
"""
SEED = 7
"""Shuffles the pods of the baseline; the same in every run."""


ONE_BY_ONE = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: random-order}, {name: predicates}, {name: nodeorder}]
"""
"""Scheduler configuration of the baseline: no gangs, pods in random order."""


class JobView(msgspec.Struct, frozen=True):
    """A job in the live view. ``held``: its bound, unfinished pods."""

    name: str
    phase: str
    held: int


class Trial(msgspec.Struct, frozen=True):
    """The result for one number of jobs. ``most_held``: the maximum of pods bound at one time for
    jobs that could not start; ``holders``: pods that each unfinished job holds at the end.
    """

    jobs: int
    gang: bool
    finished: int
    seconds: float
    most_held: int
    holders: dict[str, int]


def manifest(name: str) -> dict[str, Any]:
    """Return the manifest of a job."""
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    }
    annotations = {keys.RUN_SECONDS: str(RUN_S), keys.STARTS_WITH: str(PODS_OF_A_JOB)}
    tasks = [
        {
            "name": role,
            "replicas": replicas,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        }
        for role, replicas in ROLES.items()
    ]
    return {
        "apiVersion": kinds.JOBS.api_version,
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": PODS_OF_A_JOB, "plugins": {"env": [], "svc": []}, "tasks": tasks},
    }


async def observe_jobs(cluster: cluster_port.Cluster) -> list[JobView]:
    """Return all jobs with the pods they hold."""
    pods_by_job: Counter[str] = Counter()
    for item in (await cluster.list(kinds.PODS)).items:
        pod = kinds.PODS.decode(item)
        if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed"):
            pods_by_job[pod.metadata.annotation(keys.JOB_NAME) or ""] += 1
    jobs: list[batch.Job] = [
        kinds.JOBS.decode(item) for item in (await cluster.list(kinds.JOBS)).items
    ]
    return [
        JobView(
            job.metadata.name, job.status.state.phase or "Pending", pods_by_job[job.metadata.name]
        )
        for job in sorted(jobs, key=lambda job: job.metadata.name)
    ]


def options(state: Path, *, gang: bool) -> system.Options:
    """Return the options of a trial's system, without nodes."""
    if gang:
        return system.Options(state=state)
    state.mkdir(parents=True, exist_ok=True)
    configuration = state / "one-by-one.yaml"
    configuration.write_text(ONE_BY_ONE)
    baseline = SchedulerSettings(configuration=str(configuration), seed=SEED)
    return system.Options(state=state, scheduler=baseline)


async def trial(
    state: Path, jobs: int, show: Callable[[list[JobView]], None], *, gang: bool
) -> Trial:
    """Submit the jobs, add the nodes, and observe until all jobs are finished or the time limit."""
    async with system.run_system(options(state, gang=gang)) as running:
        await running.ready()
        await submit_jobs(running, jobs, wait_for_pods=not gang)
        await open_nodes(running.cluster)
        return await watch(running.cluster, gang=gang, show=show)


async def restarted_trial(
    state: Path, jobs: int, show: Callable[[list[JobView]], None]
) -> tuple[Trial, list[str]]:
    """Run the trial with gangs, stop the whole system after the first finished job and restart it
    on its state; meanwhile explain why the last job is pending.
    """
    async with system.run_system(options(state, gang=True)) as running:
        await running.ready()
        await submit_jobs(running, jobs, wait_for_pods=False)
        await open_nodes(running.cluster)
        before = await watch(running.cluster, gang=True, show=show, until_finished=1)
        reasons = await explained(running, await observe_jobs(running.cluster))
    async with system.run_system(options(state, gang=True)) as running:
        after = await watch(running.cluster, gang=True, show=show)
    return (
        msgspec.structs.replace(
            after,
            seconds=before.seconds + after.seconds,
            most_held=max(before.most_held, after.most_held),
        ),
        reasons,
    )


async def submit_jobs(running: system.System, jobs: int, *, wait_for_pods: bool) -> None:
    """Submit all jobs in one request, as ``strom apply`` does."""
    manifests = [manifest(f"train-{number}") for number in range(1, jobs + 1)]
    async with running.client() as client:
        (await client.post("/v1/apply", json={"objects": manifests})).raise_for_status()
    if not wait_for_pods:
        return
    pod_uids: set[str] = set()
    async for event in list_and_watch(running.cluster, kinds.PODS):
        if event is not None:
            pod_uids.add(kinds.metadata_of(event.object).uid)
        if len(pod_uids) == jobs * PODS_OF_A_JOB:
            return


async def open_nodes(cluster: cluster_port.Cluster) -> None:
    """Add the nodes of the experiment, which have room for ``ROOM`` pods."""
    documents = simulated.node_documents(NODES, cpu=str(CPUS_OF_A_NODE), memory="8Gi")
    await simulated.create_nodes(cluster, documents)


async def watch(
    cluster: cluster_port.Cluster,
    *,
    gang: bool,
    show: Callable[[list[JobView]], None],
    until_finished: int | None = None,
) -> Trial:
    """Observe until ``until_finished`` jobs are finished (None: all), until nothing has changed for
    ``STILL_S``, or until ``LIMIT_S``."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    most_held = 0
    since: dict[JobView, float] = {}
    last: list[JobView] = []
    changed = 0.0
    while True:
        views = await observe_jobs(cluster)
        show(views)
        elapsed = loop.time() - began
        if views != last:
            last, changed = views, elapsed
        finished = sum(view.phase == "Completed" for view in views)
        stuck = [
            view for view in views if 0 < view.held < PODS_OF_A_JOB and view.phase == "Pending"
        ]
        since = {view: since.get(view, elapsed) for view in stuck}
        waiting = {view.name: view.held for view in stuck if elapsed - since[view] >= IN_VAIN_S}
        most_held = max(most_held, sum(waiting.values()))
        is_still = elapsed - changed > STILL_S or elapsed > LIMIT_S
        if finished >= (until_finished or len(views)) or is_still:
            return Trial(len(views), gang, finished, elapsed, most_held, waiting)
        await asyncio.sleep(LOOK_S)


async def explained(running: system.System, views: list[JobView]) -> list[str]:
    """Return why the pending job with the most jobs in front of it waits, as ``strom explain``
    prints it; nothing if no pending job has been explained yet.
    """
    waiting = [view.name for view in views if view.phase == "Pending"]
    answers = []
    async with running.client() as client:
        for name in waiting:
            path = f"/v1/namespaces/default/jobs/{name}/explanation"
            content = (await client.get(path)).raise_for_status().content
            answers.append(decoding.from_json(content, Explanation))
    reasons = [answer for answer in answers if answer.explained is not None]
    if not reasons:
        return []
    return explanation_view.render(max(reasons, key=lambda answer: len(answer.in_front or ())))
