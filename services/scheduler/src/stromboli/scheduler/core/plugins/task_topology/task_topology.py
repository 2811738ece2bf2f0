"""The plugin ``task-topology``: places tasks of a job that have affinity to each other on one node,
and separates tasks with anti-affinity."""

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views, requirements, resource_vectors
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.task_topology import buckets

NAME = "task-topology"
BEST = 100
_MIB = 2**20


class Plugin:
    """Argument: ``task-topology.weight``."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        self._weight = self._arguments.integer("task-topology.weight", 1)

    def open(self, ssn: session.Session) -> None:
        """Assign tasks of pending jobs to buckets, and register if any job has affinities."""
        ssn.complaints.extend(self._arguments.complaints)
        self._session = ssn
        self._jobs: dict[str, buckets.JobBuckets] = {}
        for job in ssn.waiting_jobs():
            if job.unplaced:
                self._bucket_tasks(job)
        if not self._jobs:
            return
        ssn.add_class_key(self._bucket_of)
        ssn.add_task_order(key=self._key)
        ssn.add_event_handler(self._on_allocate, self._on_deallocate)
        if self._weight != 0:
            ssn.add_node_order(self._score, extension_points.Scope.GLOBAL)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _bucket_tasks(self, job: entities.Job) -> None:
        annotations = job.pod_group.metadata.annotations or {}
        roles = {task.role for task in job.tasks.values()}
        try:
            wanted = buckets.task_affinity(annotations, roles | set(job.task_min_available))
        except buckets.AffinityError as error:
            self._session.complaints.append(
                f"PodGroup {job.key}: {error}; the affinities are ignored"
            )
            return
        if wanted is not None:
            self._jobs[job.key] = buckets.JobBuckets(job, wanted, self._size_of)

    def _size_of(self, request: resource_vectors.Sum) -> int:
        """Return a measure of the request: milli cpu, MiB, and units of other resources, summed
        up."""
        others = [
            at for at in range(len(request)) if at not in (requirements.MEMORY, requirements.PODS)
        ]
        return int(request[others].sum()) + int(request[requirements.MEMORY]) // _MIB

    # Order ----------------------------------------------------------------------------------

    def _key(self, task: entities.Task) -> tuple[int, int, int, int, int]:
        arranged = self._jobs.get(task.job)
        return (0, 0, 0, 0, 0) if arranged is None else arranged.rank(task)

    # Nodes ----------------------------------------------------------------------------------

    def _bucket_of(self, task: entities.Task) -> Hashable:
        arranged = self._jobs.get(task.job)
        bucket = arranged.of.get(task.uid) if arranged else None
        return None if bucket is None else (task.job, bucket.index, task.role)

    def _score(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        """Score nodes by the number of the bucket's tasks that they hold or could hold, less tasks
        with anti-affinity."""
        arranged = self._jobs.get(task.job)
        bucket = arranged.of.get(task.uid) if arranged else None
        if arranged is None or bucket is None:
            return None
        room = view.idle + self._session.nodes.releasing[:, view.rows]
        fits = resource_vectors.fits(task.request, room)
        table = self._session.nodes
        names = [table.names[row] for row in np.arange(len(table))[view.rows].tolist()]
        bound = np.array([bucket.bound.get(name, 0) for name in names], np.int64)
        shunned = np.array(
            [
                arranged.preferences.affinity(task.role, arranged.on.get(name, {}), only_away=True)
                for name in names
            ],
            np.int64,
        )
        points_each = bound + np.minimum(shunned, 0) + _together(bucket, task, room)
        scores: extension_points.Scores = (
            points_each * (self._weight * BEST * extension_points.SCORE_UNIT) // arranged.largest
        )
        return np.where(fits, scores, 0)

    # Events ---------------------------------------------------------------------------------

    def _on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        self._move(tasks, 1)

    def _on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        self._move(tasks, -1)

    def _move(self, tasks: Sequence[entities.Task], change: int) -> None:
        arranged = self._jobs.get(tasks[0].job)
        if arranged is None:
            return
        for task in tasks:
            there = arranged.on.setdefault(task.node, Counter())
            there[task.role] += change
            bucket = arranged.of.get(task.uid)
            if bucket is None:
                continue
            if change > 0 and task.uid in bucket.waiting:
                bucket.place(task, task.node)
            elif change < 0 and task.status is entities.Status.PENDING:
                bucket.unplace(task, task.node)
            else:
                bucket.bound[task.node] += change


def _together(
    bucket: buckets.Bucket, task: entities.Task, room: resource_vectors.Table
) -> npt.NDArray[np.int64]:
    """Return how many waiting tasks of the bucket, this one included, each node can hold. The last
    tasks are left out one by one until the rest fits."""
    left = bucket.request
    capacities = np.full(room.shape[1], -1, np.int64)
    count = len(bucket.waiting)
    others = [each for each in reversed(bucket.waiting.values()) if each is not task]
    for each in (None, *others):
        if each is not None:
            left = left - each.request
            count -= 1
        capacities = np.where(
            (capacities < 0) & resource_vectors.fits(resource_vectors.bounded(left), room),
            count,
            capacities,
        )
        if (capacities >= 0).all():
            break
    return np.maximum(capacities, 1)
