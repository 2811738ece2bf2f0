"""What a step costs follows what changed, not how many pods a job has.

Operations are calls of functions, Python's and built-in ones, so the same everywhere.
"""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from bench import large_job
from services.controller.tests.support.core_harness import CoreHarness
from stromboli.shared.api import batch, kinds
from stromboli.testkit.builders import make_job, make_task

SMALL, LARGE = 200, 1600


def operations(call: Callable[[], object]) -> int:
    """How many functions a call calls."""
    counted = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counted


def running(pods: int) -> large_job.Cluster:
    """A job with all pods running."""
    cluster = large_job.Cluster()
    policy = batch.LifecyclePolicy(event="PodEvicted", action="RestartJob")
    tasks = [make_task(replicas=pods)]
    cluster.submit(make_job(tasks=tasks, policies=[policy], plugins={"svc": ()}))
    cluster.settle()
    cluster.enqueue()
    cluster.settle()
    for change in (large_job.bound, large_job.in_phase("Running")):
        for pod in list(cluster.pods.values()):
            cluster.observe(kinds.PODS, change(pod))
        cluster.settle()
    return cluster


@pytest.fixture(scope="module")
def clusters() -> tuple[large_job.Cluster, large_job.Cluster]:
    return running(SMALL), running(LARGE)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_step_costs_what_changed(
    clusters: tuple[large_job.Cluster, large_job.Cluster], phase: str
) -> None:
    costs = []
    for cluster in clusters:
        cluster.step(large_job.JOB)  # both are jobs of one uid: what is remembered is the other's
        first, *_ = [it for it in cluster.pods.values() if it.status.phase == "Running"]
        cluster.observe(kinds.PODS, large_job.in_phase(phase)(first))
        costs.append(operations(lambda one=cluster: one.step(large_job.JOB)))  # type: ignore[misc]
    small, large = costs
    assert large < 1.1 * small + 50


def test_a_podgroups_step_costs_what_changed(
    clusters: tuple[large_job.Cluster, large_job.Cluster],
) -> None:
    costs = []
    for cluster in clusters:
        *_, last = [it for it in cluster.pods.values() if it.status.phase == "Running"]
        cluster.observe(kinds.PODS, large_job.in_phase("Succeeded")(last))
        item = cluster.group_item()
        costs.append(operations(lambda one=cluster, of=item: one.step(of)))  # type: ignore[misc]
    small, large = costs
    assert large < 1.1 * small + 50


def test_a_jobs_whole_life_costs_the_same_for_each_pod() -> None:
    costs = [
        operations(lambda count=pods: list(large_job.life(large_job.Cluster(), count, 100))) / pods  # type: ignore[misc]
        for pods in (SMALL, LARGE)
    ]
    assert costs[1] < 1.1 * costs[0]


def test_what_is_remembered_of_a_job_follows_its_living_pods() -> None:
    """A job that lives for months restarts pods again and again."""
    here = CoreHarness()
    policy = batch.LifecyclePolicy(event="PodFailed", action="RestartPod", backoff="0s")
    here.submit(make_job(tasks=[make_task(replicas=2)], policies=[policy], max_retry=100))
    here.settle()
    for attempt in range(1, 6):
        here.enqueue(here.group_key())
        here.settle()
        here.run()
        here.settle()
        sent = here.cache.published.jobs["default/j1"]
        assert len(sent.tasks) == 2
        assert sent.attempts["worker"].tolist() == [attempt, 1]
        here.run("j1-worker-0", phase="Failed")
        here.settle()
        here.reap("default/j1-worker-0")
    here.enqueue(here.group_key())
    here.settle()
    here.run(phase="Succeeded")
    here.settle()
    assert here.phase() == "Completed"
    assert here.cache.published.jobs["default/j1"].attempts == {}
