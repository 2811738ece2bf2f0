"""Probes of a flow: tests that a running job must pass before the next job starts.

Each probe tests the pods of a task. As many as the task's ``minAvailable`` must pass, and at least
one. The shell probes pods over the network; the results are in the cache. A pod that has passed is
not probed again.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from stromboli.controller.core import commands
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import tasks
from stromboli.shared import keys
from stromboli.shared.api import batch, core, flow
from stromboli.shared.jobspec import gangs

EVERY = timedelta(seconds=2)
"""Interval between probes of a pod that has not passed."""


def concern(probe: flow.Probe, job: batch.Job) -> bool:
    """Whether any test of the probe applies to a task of this job."""
    names = {task.name for task in tasks.specs(job)}
    looked_at = {it.task_name for it in probe.task_status_list}
    looked_at |= {task_name for task_name, _ in _questions(probe)}
    return "" in looked_at or not names.isdisjoint(looked_at)


def passed(cache: controller_cache.ControllerCache, probe: flow.Probe, job: batch.Job) -> bool:
    """Whether every test that applies to this job passes."""
    for status in probe.task_status_list:
        for task, pods in _looked_at(cache, job, status.task_name):
            if sum(pod.status.phase == status.phase for pod in pods) < _needed(task):
                return False
    for task_name, question in _questions(probe):
        for task, pods in _looked_at(cache, job, task_name):
            answers = (cache.answer(pod.metadata.uid, question) for pod in pods)
            if sum(it is not None and it.passed for it in answers) < _needed(task):
                return False
    return True


def open_questions(
    cache: controller_cache.ControllerCache, flow_key: str, probe: flow.Probe, job: batch.Job
) -> Iterator[tuple[commands.RunProbe, datetime | None]]:
    """Running pods that have not passed, and when to probe each again; None: immediately."""
    for task_name, question in _questions(probe):
        for _, pods in _looked_at(cache, job, task_name):
            for pod in pods:
                if pod.status.phase != "Running" or not pod.status.pod_ip:
                    continue
                answer = cache.answer(pod.metadata.uid, question)
                if answer is not None and answer.passed:
                    continue
                ask = commands.RunProbe(
                    flow=flow_key,
                    pod=pod.metadata.key,
                    pod_uid=pod.metadata.uid,
                    host=pod.status.pod_ip,
                    question=question,
                )
                yield ask, None if answer is None else answer.at + EVERY


def _needed(task: batch.TaskSpec) -> int:
    """How many pods of the task must pass: its minimum, but one even if the minimum is 0."""
    return max(min(task.replicas, 1), gangs.least(task))


def _questions(probe: flow.Probe) -> Iterator[tuple[str, commands.ProbeRequest]]:
    for get in probe.http_get_list:
        header = get.http_header
        yield (
            get.task_name,
            commands.ProbeRequest(
                port=get.port,
                path=get.path or "/",
                header=("", "") if header is None else (header.name, header.value),
            ),
        )
    for socket in probe.tcp_socket_list:
        yield socket.task_name, commands.ProbeRequest(port=socket.port)


def _looked_at(
    cache: controller_cache.ControllerCache, job: batch.Job, task_name: str
) -> Iterator[tuple[batch.TaskSpec, list[core.Pod]]]:
    """The tasks that a test applies to, with their pods. An empty name means all tasks."""
    pods = [it for it in cache.pods_of(job) if not cache.is_terminating(it)]
    for task in tasks.specs(job):
        if task_name in ("", task.name):
            yield (
                task,
                [it for it in pods if it.metadata.annotation(keys.TASK_SPEC) == task.name],
            )
