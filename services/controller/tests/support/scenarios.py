"""Scenarios: states of a job in which a test starts."""

import copy
from typing import Any

from services.controller.tests.support.core_harness import CoreHarness
from stromboli.shared import envelope, topics
from stromboli.shared.api import batch, kinds
from stromboli.shared.messages import cluster as messages
from stromboli.testkit.builders import make_job, make_task

J = "default/j1"


def submitted(job: batch.Job) -> CoreHarness:
    """Its PodGroup waits."""
    harness = CoreHarness()
    harness.submit(job)
    harness.settle()
    return harness


def enqueued(job: batch.Job) -> CoreHarness:
    """Its pods are made."""
    harness = submitted(job)
    harness.enqueue(harness.group_key())
    harness.settle()
    return harness


def running(job: batch.Job) -> CoreHarness:
    """Its pods run."""
    harness = enqueued(job)
    harness.run()
    harness.settle()
    return harness


def finish(harness: CoreHarness, *ends: str) -> None:
    """All pods, by name, reach a phase."""
    for pod, end in zip(harness.pods(), ends, strict=True):
        harness.change_pod(pod.metadata.key, end)
    harness.settle()


def fail(harness: CoreHarness, name: str, exit_code: int = 1, end: str = "Error") -> None:
    """A pod's container ends badly."""
    harness.change_pod(f"default/{name}", "Failed", exit_code=exit_code, end=end)
    harness.settle()


def evict(harness: CoreHarness, name: str) -> None:
    """A user deletes a pod, and it terminates."""
    harness.delete(kinds.PODS, f"default/{name}")
    harness.settle()
    harness.reap(f"default/{name}")
    harness.settle()


def reap_all(harness: CoreHarness) -> None:
    """Terminating pods are deleted."""
    for pod in harness.pods():
        if pod.metadata.deletion_timestamp is not None:
            harness.reap(pod.metadata.key)
    harness.settle()


def go_on(harness: CoreHarness) -> None:
    """Terminating objects are deleted, the scheduler enqueues the job's PodGroup, new pods run."""
    reap_all(harness)
    if ("podgroups", harness.group_key()) in harness.objects:
        harness.enqueue(harness.group_key())
        harness.settle()
    waiting = [pod for pod in harness.pods() if pod.status.phase == "Pending"]
    if waiting:
        harness.run(*[pod.metadata.name for pod in waiting])
    harness.settle()


def restarted(action: str = "RestartJob", retries: int = 3) -> CoreHarness:
    """One of two pods failed, and a policy names an action for that."""
    policy = batch.LifecyclePolicy(event="PodFailed", action=action)
    tasks = [make_task(replicas=2)]
    harness = running(make_job(tasks=tasks, policies=[policy], max_retry=retries))
    finish(harness, "Failed", "Running")
    return harness


def competitors_observed(harness: CoreHarness, *competitors: messages.Competitor) -> envelope.Draft:
    """The monitor reports competing systems."""
    seen = messages.CompetitorsObserved(competitors=competitors)
    return envelope.Draft(
        topic=topics.SYNC, key=messages.COMPETITORS_KEY, message=seen, time=harness.now
    )


def edit(harness: CoreHarness, key: str, **spec: Any) -> None:
    """A user changes fields of a job's spec; those of its array are merged."""
    body = copy.deepcopy(harness.objects["jobs", key])
    spec |= {"array": body["spec"]["array"] | spec["array"]} if "array" in spec else {}
    body["spec"] |= spec
    harness.put(kinds.JOBS, body)
