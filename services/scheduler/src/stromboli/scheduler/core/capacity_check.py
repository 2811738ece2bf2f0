"""Distinguishes gangs that can never fit from gangs that wait for free resources.

A gang that exceeds the current cluster or its queue waits until nodes are added or limits are
raised; the end of other jobs does not help it. The explanation states which limit applies:

1. One pod requests more of a resource than any node has, or a combination that no node has.
2. The gang's minimum requests more than all nodes together have.
3. The gang's minimum requests more than its queue's limit.

Rules 1 and 2 compare with allocatable resources, not with free ones. No rule applies while a node,
or a pod on it, is unreadable, because that node may have the resources (a queue's limit depends on
the sum of all nodes, too), or while there are no nodes. A node that is not ready counts, because it
may recover.
"""

import functools
from collections.abc import Iterable, Iterator

import numpy as np

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, requirements, resource_vectors
from stromboli.shared.api import kinds
from stromboli.shared.formats import units


class CapacityCheck:
    """Compares gangs with the cluster's total capacity. Sums and maxima are computed once.

    O(resources) for each gang, O(nodes x resources) once for each class of tasks.
    """

    def __init__(self, closed: session.Session) -> None:
        self._session = closed
        self._names = closed.resources.names
        self._largest: list[int] | None = None
        self._total: list[int] = []
        self._pods: dict[entities.TaskClass, str] = {}

    @functools.cached_property
    def _is_known(self) -> bool:
        """Whether there are nodes, and all of them can be read."""
        return not self._session.nodes.excluded and len(self._session.nodes) > 0

    def reason(self, job: entities.Job) -> str:
        """Return why the gang can never fit, with numbers; empty if it may fit."""
        if not self._is_known:
            return ""
        problem, minimum = self._of_pods(job), _minimum(job)
        if not problem and minimum is not None:
            problem = self._of_cluster(minimum) or self._of_queue(job, minimum)
        return f"can never fit: {problem}" if problem else ""

    def _of_pods(self, job: entities.Job) -> str:
        """Return why one of the job's pods can never fit; empty if each may fit. A job that needs a
        single pod is checked by its PodGroup before the pod is created: the controller writes the
        request of that pod to minResources. Other clients may write more, such as Spark's operator,
        which adds the executors to the driver.
        """
        if not job.tasks and job.min_available == 1 and kinds.JOBS.controls(job.pod_group):
            return "" if job.min_request is None else self._of_request(job.min_request.tolist())
        classes = {task.task_class: task for task in job.pending}
        for kind, task in sorted(classes.items(), key=lambda entry: entry[1].name):
            if kind not in self._pods:
                self._pods[kind] = self._of_request(task.request.tolist())
            if self._pods[kind]:
                return self._pods[kind]
        return ""

    def _of_request(self, request: list[int]) -> str:
        largest = self._of_largest_node()
        requested = list(_asked(request))
        for column in requested:
            if request[column] > largest[column]:
                has = self._text(column, largest[column])
                return f"largest node has {has}, a pod needs {self._text(column, request[column])}"
        table = self._session.nodes.allocatable
        fits = np.ones(len(self._session.nodes), np.bool_)
        for column in requested:
            fits &= table[column] >= request[column]
        if fits.any():
            return ""
        together = " with ".join(self._text(column, request[column]) for column in requested)
        return f"no node has {together}"

    def _of_cluster(self, minimum: list[int]) -> str:
        self._of_largest_node()
        for column in _asked(minimum):
            if minimum[column] > self._total[column]:
                has = self._text(column, self._total[column])
                needs = self._text(column, minimum[column])
                return f"all nodes together have {has}, the gang needs {needs}"
        return ""

    def _of_queue(self, job: entities.Job, minimum: list[int]) -> str:
        queue = self._session.queues.get(job.queue)
        share = None if queue is None else self._session.queue_usage(queue)
        if share is None:
            return ""
        for column in _asked(minimum):
            limit = share.capability[column]
            if limit < resource_vectors.INFINITE and minimum[column] > limit:
                has = self._text(column, int(limit))
                needs = self._text(column, minimum[column])
                return f"queue {job.queue} is limited to {has}, the gang needs {needs}"
        return ""

    def _of_largest_node(self) -> list[int]:
        """The largest amount of each resource on one node; computes the totals too."""
        if self._largest is None:
            table = self._session.nodes.allocatable
            self._largest = np.max(table, axis=1).tolist()
            self._total = resource_vectors.total(table).tolist()
        return self._largest

    def _text(self, column: int, amount: int) -> str:
        name = self._names[column]
        return f"{units.text(name, amount)} {name}"


def _minimum(job: entities.Job) -> list[int] | None:
    """The gang's minimum request: its PodGroup's minResources, or the sum of its pods if it needs
    all of them; None if it is not known."""
    if job.tasks and len(job.tasks) <= job.min_available:
        total: list[int] = job.total_request.tolist()
        return total
    if job.min_request is None or job.tasks:
        return None
    requested: list[int] = job.min_request.tolist()
    return requested


def _asked(request: Iterable[int]) -> Iterator[int]:
    """Columns of the requested resources, without the number of pods."""
    return (
        column
        for column, amount in enumerate(request)
        if amount > 0 and column != requirements.PODS
    )
