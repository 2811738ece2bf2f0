"""The model that sessions work on, updated object by object.

An update costs O(what it changes). A session rolls back its changes when it ends; its decisions
reach the model again as assumptions and as updated objects. Invariant: the model equals one built
from scratch from the present objects.

An unreadable object does not block others. It is left out and reported; a node whose free resources
are therefore unknown takes no tasks; a job with an unreadable part is not scheduled or evicted.
"""

from collections.abc import Collection, Mapping

import numpy as np

from stromboli.scheduler.core.cluster import (
    auxiliary_objects,
    equal_gangs,
    pod_index,
    priority_classes,
    unadmitted_jobs,
    unreadable_pods,
)
from stromboli.scheduler.core.model import (
    entities,
    job_builder,
    nodes,
    queue_usage,
    requirements,
    resource_columns,
    task_classes,
)
from stromboli.shared.api import core, scheduling


class ClusterModel:
    """Jobs, queues, nodes and all other objects that decisions depend on.

    ``scheduler_names``: pods of these schedulers are tasks of jobs, None for all pods; other pods
    only take resources. ``jobs``: jobs whose PodGroup is readable and whose queue exists.
    ``outside``: jobs whose queue does not exist. ``changed``: keys of the jobs that changed since
    the last ``take_pending_jobs``.
    """

    def __init__(
        self, scheduler_names: tuple[str, ...] | None = None, default_queue: str = "default"
    ) -> None:
        self.resources = resource_columns.Resources()
        self.nodes = nodes.Nodes(self.resources)
        self.jobs: dict[str, entities.Job] = {}
        self.outside: dict[str, entities.Job] = {}
        self.queues: dict[str, entities.Queue] = {}
        self.auxiliary = auxiliary_objects.AuxiliaryObjects()
        self.pod_index = pod_index.PodIndex()
        self.queue_usage = queue_usage.QueueUsage(len(self.resources.names))
        self.changed: set[str] = set()
        self._unsettled: set[str] = set()  # changed since the last ``settle``
        self.skipped: frozenset[str] = frozenset()
        """Unschedulable and unadmitted jobs, which sessions skip."""
        self.unadmitted = unadmitted_jobs.UnadmittedJobs()
        """Jobs that wait for room in their queue; ``enqueue`` tries the first one of each class."""
        self.equal_gangs = equal_gangs.Lines()
        self.updated_nodes: set[str] = set()
        """Nodes updated since the set was last read; the reader clears it."""
        self.epoch = 0
        """Counts changes that may affect any job: queues, priorities, namespaces, classes."""
        self.problems: dict[tuple[str, str], str] = {}
        """(kind, key) -> what is invalid about the object."""
        self.tasks: dict[str, entities.Task] = {}
        """Pod -> its task, for pods of our jobs and all pods on nodes."""
        self.unreadable = unreadable_pods.UnreadablePods()
        self._scheduler_names = scheduler_names
        self.default_queue = default_queue
        self._classes = task_classes.TaskClassIndex()
        self._requests = job_builder.Requests(self.resources)
        self._width = len(self.resources.names)
        self._ungrouped: dict[str, dict[str, entities.Task]] = {}  # by absent PodGroup and pod
        self._orphans: dict[str, dict[str, entities.Task]] = {}
        self._by_queue: dict[str, set[str]] = {}
        self._priorities = priority_classes.PriorityClasses()
        self.frozen: dict[str, str] = {}
        """PodGroup -> why nothing is decided about it, set by ``freeze``."""
        self._waiting: set[str] = set()

    # Reading --------------------------------------------------------------------------------

    def settle(self) -> None:
        """Update rows of nodes, columns, classes, queue sums and pending jobs. O(what changed)."""
        self._remove_unused_columns()
        self._classify_again(self._classes.take_unused_labels())
        if (moved := self.nodes.settle()) is not None:
            self.pod_index.reorder_rows(moved.sources)
            for name in moved.added:
                self._add_orphaned_pods(name, self.nodes.rows[name])
        for key in self._unsettled:
            self._waiting.discard(key)
            if (job := self.jobs.get(key)) is None:
                self.queue_usage.drop(key)
            else:
                self.queue_usage.put(job)
                if job_builder.needs_session(job):
                    self._waiting.add(key)
        self._unsettled.clear()
        self.nodes.touched.clear()

    def take_pending_jobs(self) -> list[str]:
        """Settle, and return the keys of the jobs that the next session must consider, in order:
        jobs that wait, and Inqueue jobs that have changed, without those ``skipped``. Running jobs
        that have changed are left out: after a restart, every job counts as changed."""
        self.settle()
        changed = filter(None, map(self.jobs.get, self.changed - self.skipped))
        pending_keys = (self._waiting - self.skipped) & self.jobs.keys()
        pending_keys.update(job.key for job in changed if job.phase == "Inqueue")
        self.changed.clear()
        return sorted(pending_keys)

    def job(self, key: str) -> entities.Job | None:
        """The job, whether its queue exists or not."""
        return self.jobs.get(key) or self.outside.get(key)

    def members(self, key: str) -> Collection[entities.Task]:
        """The tasks of all pods that name this PodGroup, whether it exists or not. O(1)."""
        job = self.job(key)
        return (self._ungrouped.get(key, {}) if job is None else job.tasks).values()

    def complaints(self) -> list[str]:
        """Problems of objects, ordered by kind and key."""
        problem_lines = [text for _, text in sorted(self.problems.items())]
        return problem_lines + [
            f"node {name}: {why}" for name, why in sorted(self.nodes.excluded.items())
        ]

    # Nodes ----------------------------------------------------------------------------------

    def put_node(self, node: core.Node) -> None:
        """Add or update a node."""
        try:
            self.resources.offer(("node", node.metadata.name), requirements.node_allocatable(node))
        except ValueError:  # ``nodes.put`` reports the error
            self.resources.offer(("node", node.metadata.name), ())
        self._add_columns()
        self.updated_nodes.add(node.metadata.name)
        self.nodes.put(node)

    def put_unreadable_node(self, name: str, reason: str) -> None:
        """Add a node that cannot be decoded; it takes no tasks."""
        self.resources.offer(("node", name), ())
        self.nodes.unknown(name, reason)

    def remove_node(self, name: str) -> None:
        """Remove a node. Tasks of pods that still name it are kept until the node is put again."""
        row = self.nodes.rows.get(name)
        if row is not None:
            for task in self.nodes.tasks[row].values():
                self.pod_index.remove(task, row)
        self.resources.offer(("node", name), ())
        parked = self.nodes.remove_node(name)
        if parked:
            self._orphans.setdefault(name, {}).update(parked)

    def _add_orphaned_pods(self, name: str, row: int) -> None:
        tasks = self._orphans.pop(name, {}).values()
        self.nodes.add_all(tasks, row)
        self.pod_index.add_all(tasks, row)
        self.nodes.labelled.block(row, is_blocked=self.unreadable.are_on(name))

    # Pods -----------------------------------------------------------------------------------

    def select(self, pod: core.Pod) -> None:
        """Record the label keys by which a pod selects others, and compute the classes of pods with
        newly recorded labels again."""
        self._classify_again(self._classes.select(pod))

    def _classify_again(self, labels: frozenset[str]) -> None:
        """Compute the classes of pods with one of these labels again. O(tasks)."""
        if not labels:
            return
        self.epoch += 1
        for task in list(self.tasks.values()):
            if not labels.isdisjoint(task.pod.metadata.labels or ()):
                row = self.nodes.rows.get(task.node) if task.status in entities.ON_NODE else None
                if row is not None:
                    self.pod_index.remove(task, row)
                task.task_class = self._classes.of(task.pod)
                if row is not None:
                    self.pod_index.add(task, row)

    def put_pod(
        self, pod: core.Pod, assumed_node: str = "", *, is_evicted: bool = False, key: str = ""
    ) -> None:
        """Add or update a pod. ``assumed_node``: where an open decision binds it. ``is_evicted``:
        an open decision evicts it. ``key``: of the pod; empty: it is computed."""
        key = key or pod.metadata.key
        status, node = job_builder.placement(pod, assumed_node, is_evicted=is_evicted)
        task = self.tasks.get(key)
        if task is not None and job_builder.follow(task, self.job(task.job), pod, status, node):
            if task.job:
                self._note_change(task.job)
            return
        if task is not None or key in self.unreadable:
            self.remove_pod(key)
        self.select(pod)
        job = job_builder.job_key_of(pod) if self._is_ours(pod) else ""
        if (owner_job := self.job(job) if job else None) is not None:
            job = owner_job.key
        try:
            task_class = self._classes.of(pod)
            if task_class.data_problem and not node:  # a placed pod needs no check of its data
                raise ValueError(task_class.data_problem)
            self.resources.request(("pod", key), task_class.shape.request)
        except ValueError as error:
            self._put_invalid_pod(pod, job, node or assumed_node, str(error))
            return
        self._add_columns()
        request = self._requests.of(task_class.shape)
        task = job_builder.build_task(key, job, pod, task_class, *request)
        task.status, task.node = status, node
        is_placed = bool(task.node) and task.status in entities.ON_NODE
        if not job and not is_placed:
            self.resources.drop(("pod", key))
            return
        self.tasks[task.key] = task
        if is_placed:
            self._add_to_node(task)
        if job:
            if owner_job is None:
                self._ungrouped.setdefault(job, {})[key] = task
            else:
                job_builder.add_task(owner_job, task)
            self._note_change(job)

    def put_unreadable_pod(self, key: str, reason: str, node: str, job: str) -> None:
        """Add a pod that cannot be decoded. ``node`` and ``job``: as last known.

        Its resources on the node are unknown, and so is whether the job is complete.
        """
        self.remove_pod(key)
        self.unreadable.put_lost(key, unreadable_pods.UnreadablePod(reason, node, job))
        self._block(node)
        self._review(job)

    def remove_pod(self, key: str) -> None:
        """Remove a pod, if it is there."""
        self.resources.drop(("pod", key))
        self._classes.deselect(key)
        task = self.tasks.pop(key, None)
        if task is not None:
            if task.node and task.status in entities.ON_NODE:
                self._remove_from_node(task)
            if task.job:
                if (owner_job := self.job(task.job)) is None:
                    unreadable_pods.discard(self._ungrouped, task.job, key)
                else:
                    job_builder.remove_task(owner_job, task)
                self._note_change(task.job)
        job, node = self.unreadable.remove(key)
        self.problems.pop(("pod", key), None)
        self._block(node)
        if job:
            if (owner_job := self.job(job)) is not None:
                owner_job.accept(key)
            self._review(job)

    def _put_invalid_pod(self, pod: core.Pod, job: str, node: str, problem: str) -> None:
        key = pod.metadata.key
        self.problems["pod", key] = f"pod {key}: {problem}"
        has_ended = job_builder.task_status(pod) in entities.COMPLETED
        self.unreadable.put_invalid(key, problem, "" if has_ended else node, job)
        if not has_ended:
            self._block(node)
        if job:
            if (owner_job := self.job(job)) is not None:
                owner_job.reject(key, problem)
            self._note_change(job)

    def _is_ours(self, pod: core.Pod) -> bool:
        return self._scheduler_names is None or pod.spec.scheduler_name in self._scheduler_names

    def _add_to_node(self, task: entities.Task) -> None:
        self.pod_index.put_data(task)
        row = self.nodes.rows.get(task.node)
        if row is None:
            self._orphans.setdefault(task.node, {})[task.key] = task
        else:
            self.nodes.add((task,), (row,))
            self.pod_index.add(task, row)

    def _remove_from_node(self, task: entities.Task) -> None:
        self.pod_index.take_data(task)
        row = self.nodes.rows.get(task.node)
        if row is None:
            unreadable_pods.discard(self._orphans, task.node, task.key)
        else:
            self.pod_index.remove(task, row)
            self.nodes.remove((task,), (row,))

    def _block(self, node: str) -> None:
        """Close the node while an unreadable pod is on it."""
        if node:
            self.updated_nodes.add(node)
        row = self.nodes.rows.get(node)
        if row is not None:
            self.nodes.labelled.block(row, is_blocked=self.unreadable.are_on(node))

    # Jobs -----------------------------------------------------------------------------------

    def put_pod_group(
        self, group: scheduling.PodGroup, *, is_enqueued: bool = False, key: str = ""
    ) -> None:
        """Add or update a PodGroup. ``is_enqueued``: an open decision makes it Inqueue. ``key``: of
        the PodGroup; empty: it is computed."""
        key = key or group.metadata.key
        before = self.job(key)
        phase = group.status.phase
        if is_enqueued and phase in ("", "Pending"):
            phase = "Inqueue"
        if before is not None and job_builder.differs_only_in_status(before.pod_group, group):
            before.pod_group = group
            before.phase = phase
            before.conditions = list(group.status.conditions)
            self._note_change(key)
            return
        self.remove_pod_group(key)
        try:
            least = job_builder.minimum_request(group)
            self.resources.request(("podgroup", key), least or {})
        except ValueError as error:
            self.problems["podgroup", key] = str(error)
            return
        self._add_columns()
        named = group.spec.priority_class_name
        priority = self._priorities.value(named)
        job = job_builder.build_job(
            key, group, self.resources, priority, self.default_queue, self._requests.minimum(least)
        )
        self._priorities.enter(key, named)
        job.phase = phase
        if invalid := self.unreadable.invalid_of(key):
            job.problems = dict(invalid)
        for task in self._ungrouped.pop(key, {}).values():
            job_builder.add_task(job, task)
        self._by_queue.setdefault(job.queue, set()).add(key)
        (self.jobs if job.queue in self.queues else self.outside)[key] = job
        self._review(key)

    def put_unreadable_pod_group(self, key: str, reason: str) -> None:
        """Add a PodGroup that cannot be decoded. It has no job."""
        self.remove_pod_group(key)
        self.problems["podgroup", key] = f"PodGroup {key}: {reason}"

    def remove_pod_group(self, key: str) -> None:
        """Remove a PodGroup, if it is there."""
        self.problems.pop(("podgroup", key), None)
        self.resources.drop(("podgroup", key))
        job = self.jobs.pop(key, None) or self.outside.pop(key, None)
        if job is not None:
            self._priorities.remove_job(key, job.pod_group.spec.priority_class_name)
            unreadable_pods.discard(self._by_queue, job.queue, key)
            if job.tasks:
                self._ungrouped[key] = {task.key: task for task in job.tasks.values()}
            self._note_change(key)

    def freeze(self, key: str, reason: str) -> None:
        """Exclude the PodGroup from decisions for this reason; an empty one includes it again."""
        if reason:
            self.frozen[key] = reason
        else:
            self.frozen.pop(key, None)
        self._review(key)

    def _review(self, key: str) -> None:
        """Update whether sessions may decide about the job."""
        job = self.job(key)
        if job is None:
            return
        problem = self._priorities.problem(job.pod_group.spec.priority_class_name)
        lost = ", ".join(self.unreadable.lost_of(key))
        job.frozen = problem or self.frozen.get(key, "")
        if lost:
            job.frozen = f"pods cannot be read: {lost}"
        self._note_change(key)

    # Namespaces -----------------------------------------------------------------------------

    def label_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """Set the labels of a namespace, None if it is deleted. Returns whether they changed."""
        known = self.auxiliary.namespace_labels
        if known.get(name) == labels:
            return False
        self.epoch += 1
        if labels is None:
            del known[name]
        else:
            known[name] = labels
        self.pod_index.label_namespaces(known)
        return True

    # Queues and priorities ------------------------------------------------------------------

    def jobs_of(self, queue: str) -> Collection[str]:
        """Keys of the jobs in a queue, whether it exists or not."""
        return self._by_queue.get(queue, ())

    def put_queue(self, queue: scheduling.Queue) -> None:
        """Add or update a queue. O(its jobs)."""
        name = queue.metadata.name
        self.epoch += 1
        self.problems.pop(("queue", name), None)
        try:
            entity = job_builder.build_queue(queue)
        except ValueError as error:
            self.remove_queue(name)
            self.problems["queue", name] = str(error)
            return
        names = (*entity.capability, *entity.deserved, *entity.guarantee)
        self.resources.offer(("queue", name), names)
        self._add_columns()
        is_new = name not in self.queues
        self.queues[name] = entity
        if is_new:
            self._move(name, self.outside, self.jobs)

    def put_unreadable_queue(self, name: str, reason: str) -> None:
        """Add a queue that cannot be decoded; its jobs wait."""
        self.remove_queue(name)
        self.problems["queue", name] = f"queue {name} cannot be read: {reason}"

    def remove_queue(self, name: str) -> None:
        """Remove a queue, if it is there. O(its jobs)."""
        self.epoch += 1
        self.problems.pop(("queue", name), None)
        self.resources.offer(("queue", name), ())
        if self.queues.pop(name, None) is not None:
            self._move(name, self.jobs, self.outside)

    def put_priority_class(self, priority_class: core.PriorityClass) -> list[str]:
        """Add or update a priority class. Returns the affected jobs."""
        return self._update_priorities(self._priorities.put(priority_class))

    def put_unreadable_priority_class(self, name: str, reason: str) -> list[str]:
        """Add an unreadable class: jobs that name it are frozen. Returns the affected jobs."""
        return self._update_priorities(self._priorities.put_unreadable(name, reason))

    def remove_priority_class(self, name: str) -> list[str]:
        """Remove a class. Returns the affected jobs."""
        return self._update_priorities(self._priorities.remove(name))

    def set_default_queue(self, queue: str) -> None:
        """Set the queue of jobs that name none."""
        if queue == self.default_queue:
            return
        self.default_queue = queue
        self.epoch += 1
        for job in [*self.jobs.values(), *self.outside.values()]:
            if not job.pod_group.spec.queue:
                phase = job.phase
                self.remove_pod_group(job.key)
                self.put_pod_group(job.pod_group)
                self.jobs.get(job.key, job).phase = phase

    def _update_priorities(self, concerned: list[str]) -> list[str]:
        self.epoch += 1
        for key in concerned:
            job = self.job(key)
            assert job is not None, f"{key} is in a priority class but not in the model"
            name = job.pod_group.spec.priority_class_name
            job.priority = self._priorities.value(name)
            self._review(key)
        return concerned

    def _move(
        self, queue: str, here: dict[str, entities.Job], there: dict[str, entities.Job]
    ) -> None:
        there.update((key, here.pop(key)) for key in self._by_queue.get(queue, ()))
        self._note_change(*self._by_queue.get(queue, ()))

    # Helpers --------------------------------------------------------------------------------

    def _note_change(self, *keys: str) -> None:
        self.changed.update(keys)
        self._unsettled.update(keys)

    def _add_columns(self) -> None:
        """Extend every vector by the columns of new resources. O(tasks) for each change."""
        if more := len(self.resources.names) - self._width:
            self._move_columns(np.append(np.arange(self._width), np.full(more, -1)))

    def _remove_unused_columns(self) -> None:
        if (sources := self.resources.compact()) is not None:
            self._move_columns(sources)

    def _move_columns(self, sources: resource_columns.Sources) -> None:
        self._width = len(sources)
        self.epoch += 1
        self.nodes.move_columns(sources)
        self.queue_usage.move_columns(sources)
        self._requests.clear()
        for task in self.tasks.values():
            task.request, task.request_sum = self._requests.of(task.task_class.shape)
        for job in (*self.jobs.values(), *self.outside.values()):
            job_builder.move_columns(job, sources)
