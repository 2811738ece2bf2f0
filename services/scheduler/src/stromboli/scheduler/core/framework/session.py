"""A scheduling session: a snapshot of the model, the combined answers of plugins, and decisions.

``opening`` opens it, actions run one after another, ``close`` lets plugins write their results. The
decisions are a function of the inputs.
"""

import bisect
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cmp_to_key
from typing import Any

import msgspec

from stromboli.scheduler.core.advance_reservations import rule
from stromboli.scheduler.core.cluster import cluster_model, cluster_objects, pod_affinity_index
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import (
    changes,
    extensions,
    external_calls,
    filter_score,
    interfaces,
    node_cooldowns,
    ordering,
    statement,
    timing,
    topology_constraint,
)
from stromboli.scheduler.core.model import entities, resource_vectors
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.messages import data


class PluginFailedError(Exception):
    """A plugin could not be created or opened."""

    def __init__(self, plugin: str, reason: str) -> None:
        super().__init__(f"plugin {plugin}: {reason}")
        self.plugin = plugin
        self.reason = reason


class PluginHungError(BaseException):
    """Raised by the watchdog in the thread of a plugin that hangs. It is not an ``Exception``, so
    that the plugin does not catch it."""


class Eviction(msgspec.Struct, frozen=True):
    """A task to evict, and the action that decided it.

    ``job``: the job that needs the room; empty for none. ``notice``: how long before its
    termination the task is notified.
    """

    task: str
    reason: str
    job: str = ""
    notice: timedelta = timedelta()


class Decisions(msgspec.Struct):
    """The decisions of a session in order. Task keys are ``namespace/name``. ``admitted``: jobs
    that became Inqueue. ``prefetches``: node -> data sets of gangs that may start there later."""

    binds: dict[str, str] = {}
    evictions: list[Eviction] = []
    preparations: dict[str, list[extension_points.Step]] = {}
    """Task -> steps to take before its bind, such as binding a volume's claim."""
    annotations: dict[str, dict[str, str]] = {}
    """Task -> annotations that its pod gets with the bind."""
    admitted: list[str] = []
    prefetches: dict[str, tuple[data.WantedCopy, ...]] = {}


class Session(extensions.Extensions):
    """The state of one session, which works on the cluster model in place.

    ``jobs``: all jobs, unordered. ``waiting``: ordered keys of the jobs that wait for a decision or
    need an explanation; loops over jobs use these unless they need all jobs. ``total``: the
    allocatable resources of all nodes. ``complaints``: problems to log that do not stop the
    session. ``failures``: plugin -> why a substitute takes its place. ``opened``: plugins by name.
    ``events``: PodGroup -> texts of Events for users. ``seed``: replaces random numbers.
    ``decision_limit``: the maximum number of binds and evictions, None for no limit. ``untried``:
    jobs left for another session because of this limit. ``resumed``: jobs that the
    session does not skip after all. ``outside``: the plugins' calls to other processes. ``timed``:
    measures parts of the session. ``remember``: plugin -> its ``cluster.memory`` in the next
    session. ``wake_at``: time from which a session may decide differently although nothing changed;
    None for never. ``can_borrow``: a plugin allows borrowing (``borrowing``). ``is_borrowing``: a
    gang is borrowing now. ``reservations``: the rule of AdvanceReservations.
    """

    def __init__(
        self,
        configured: configuration.Configuration,
        kept: cluster_model.ClusterModel,
        cluster: cluster_objects.Cluster,
        seed: int = 0,
        decision_limit: int | None = None,
        calls: external_calls.ExternalCalls | None = None,
        timed: timing.Timed = timing.no_timing,
    ) -> None:
        super().__init__(configured.tiers)
        # First: the watchdog may read it while the session is still being created.
        self.opened: dict[str, interfaces.Plugin] = {}
        self.configuration = configured
        self.model = kept
        self.waiting = kept.take_pending_jobs()
        self.cluster = kept.auxiliary.merged_with(cluster)
        self.now = cluster.now
        self.seed = seed
        self.decision_limit = decision_limit
        self.outside = external_calls.ExternalCalls() if calls is None else calls
        self.timed = timed
        self.untried: set[str] = set()
        self.resumed: set[str] = set()
        self.resources = kept.resources
        self.nodes = kept.nodes
        self.jobs = kept.jobs
        self.queues = kept.queues
        self.total: resource_vectors.Sum = self.nodes.allocatable_total
        self.changes = changes.Changes(self)
        self.decisions = Decisions()
        self.complaints = [*kept.complaints(), *kept.auxiliary.network_problems(self.nodes)]
        self.failures: dict[str, str] = {}
        self.events: dict[str, list[str]] = {}
        self.remember: dict[str, str] = {}
        self.wake_at: datetime | None = None
        self.can_borrow = False
        self.is_borrowing = False
        self._blocked: dict[str, tuple[entities.Job, str]] = {}
        self.finder = filter_score.NodeFinder(self)
        self._board: pod_affinity_index.PodAffinityIndex | None = None
        self.topology = topology_constraint.TopologyConstraint(self)
        self.cooldowns = node_cooldowns.NodeCooldowns()
        self.reservations = rule.NO_RESERVATIONS

    # Plugins --------------------------------------------------------------------------------

    def open_plugins(
        self,
        find: Callable[[str, Collection[str]], interfaces.PluginFactory],
    ) -> None:
        """Create and open every configured plugin.

        ``find``: returns the factory of a plugin by its name and the names of open plugins. It
        raises LookupError for an unknown plugin, which is left out and reported.
        """
        for tier, plugins in enumerate(self.configuration.tiers):
            for place, options in enumerate(plugins):
                try:
                    make = find(options.name, self.opened)
                except LookupError as error:
                    self.complaints.append(f"plugin {options.name}: {error.args[0]}")
                    continue
                opens = self.timed(timing.PLUGIN_OPENS, options.name)
                with self.opening(tier, place), opens:
                    self.opened[options.name] = self.open_plugin(make, options)

    def open_plugin(
        self,
        make: interfaces.PluginFactory,
        options: configuration.PluginOptions,
    ) -> interfaces.Plugin:
        """Create and open a plugin. Raises PluginFailedError."""
        try:
            plugin = make(options)
            plugin.open(self)
        except Exception as error:
            raise PluginFailedError(options.name, f"{type(error).__name__}: {error}") from error
        return plugin

    def registered(self) -> Iterator[tuple[Callable[..., Any], str]]:
        """Every function of a plugin that this session calls, with the plugin's name."""
        yield from super().registered()
        for name, plugin in self.opened.items():
            yield plugin.close, name

    def close(self) -> None:
        """Close all plugins."""
        for name, plugin in self.opened.items():
            with self.timed(timing.PLUGIN_CLOSES, name):
                plugin.close(self)

    def rollback(self) -> None:
        """Undo all changes to the model; ends the session. O(changes + pending jobs)."""
        self.changes.rollback()

    def release(self) -> None:
        """Drop all references; the session cannot be used afterwards. Without this call, sessions
        and plugins keep each other alive until the garbage collector frees about fifty of them
        together, which takes 50 ms with 10,000 nodes."""
        self.__dict__.clear()

    def waiting_jobs(self) -> Iterator[entities.Job]:
        """The jobs that wait for a decision or need an explanation, ordered by key."""
        return (self.jobs[key] for key in self.waiting)

    def unadmitted_jobs(self) -> Iterator[Iterator[entities.Job]]:
        """For each class of skipped jobs that were not admitted, its jobs in job order."""
        for keys in self.model.unadmitted.classes():
            yield (self.jobs[key] for key in keys)

    def resume(self, job: entities.Job) -> None:
        """Do not skip the job in the rest of the session."""
        bisect.insort(self.waiting, job.key)
        self.changes.note_job(job)
        self.resumed.add(job.key)

    def skips(self, key: str) -> bool:
        """Whether the session skips the job because it cannot start."""
        return key in self.model.skipped and key not in self.resumed

    @property
    def affinity_index(self) -> pod_affinity_index.PodAffinityIndex:
        """The pods on nodes in the current state, built on first use."""
        if self._board is None:
            self._board = pod_affinity_index.PodAffinityIndex(self.nodes, self.model.pod_index)
            self.add_event_handler(self._board.add, self._board.remove)
        return self._board

    # Order ----------------------------------------------------------------------------------

    def compare_jobs(self, left: entities.Job, right: entities.Job) -> int:
        """Negative if left goes first: plugins, then age, then uid."""
        return self._first_opinion(interfaces.JOB_ORDER, left, right) or ordering.by_age(
            left, right
        )

    def compare_queues(self, left: entities.Queue, right: entities.Queue) -> int:
        """Negative if left goes first: plugins, then age, then name."""
        return self._first_opinion(interfaces.QUEUE_ORDER, left, right) or ordering.by_age(
            left, right
        )

    def rank_queues(self, names: Iterable[str]) -> ordering.Ranking[entities.Queue]:
        """Queues that take turns, in the order of ``compare_queues``. A turn places jobs of its own
        queue only; the caller pushes the queue again afterwards.
        """
        keys, siblings = self.sort_keys(interfaces.QUEUE_ORDER), self.siblings()

        def place(queue: entities.Queue) -> tuple[Hashable, Any]:
            if keys is not None:
                return None, (*[key(queue) for key in keys], queue.created, queue.uid)
            if siblings is None:
                return queue.name, ()
            group, key = siblings(queue)
            return group, (key, queue.created, queue.uid)

        queues = [self.queues[name] for name in names]
        return ordering.Ranking(place, self.compare_queues, queues)

    def compare_tasks(self, left: entities.Task, right: entities.Task) -> int:
        """Negative if left goes first: plugins, then index, age, uid."""
        return self._first_opinion(interfaces.TASK_ORDER, left, right) or (
            ordering.by_index(left, right) or ordering.by_age(left, right)
        )

    def compare_victim_queues(
        self, left: entities.Queue, right: entities.Queue, preemptor: entities.Queue
    ) -> int:
        """Negative if left's tasks are evicted first: plugins, else the queue that comes last."""
        for compare in self.flat(interfaces.VICTIM_QUEUE_ORDER):
            answer: int = compare(left, right, preemptor)
            if answer:
                return answer
        return -self.compare_queues(left, right)

    def job_key(self) -> Callable[[entities.Job], Any]:
        """A key that sorts as ``compare_jobs`` does, valid until the next placement."""
        keys = self.sort_keys(interfaces.JOB_ORDER)
        if keys is None:
            return cmp_to_key(self.compare_jobs)
        return lambda job: (*[key(job) for key in keys], job.created, job.uid)

    def ordered_tasks(self, tasks: Iterable[entities.Task]) -> list[entities.Task]:
        """Tasks in the order in which they are placed."""
        ordered = list(tasks)
        keys = self.sort_keys(interfaces.TASK_ORDER)
        numbered = sum([task.index is not None for task in ordered])
        # If only some names end with a number, no key expresses the order.
        if keys is None or 0 < numbered < len(ordered):
            return sorted(ordered, key=cmp_to_key(self.compare_tasks))
        ordered.sort(key=ordering.INDEX_KEY if numbered else ordering.AGE_KEY)
        for key in reversed(keys):
            ordered.sort(key=key)
        return ordered

    def ordered_subjobs(self, sub_jobs: Iterable[entities.SubJob]) -> list[entities.SubJob]:
        """Subgroups of a job in the order in which they are placed: plugins, then index, then
        key.
        """

        def compare(left: entities.SubJob, right: entities.SubJob) -> int:
            first, second = (left.match_index, left.key), (right.match_index, right.key)
            return self._first_opinion(interfaces.SUBJOB_ORDER, left, right) or (
                (first > second) - (first < second)
            )

        return sorted(sub_jobs, key=cmp_to_key(compare))

    def ordered_jobs(self, jobs: Iterable[entities.Job]) -> list[entities.Job]:
        """Jobs in the order in which they are served."""
        jobs = list(jobs)
        for job in jobs:
            self.job_order_changed(job)
        return sorted(jobs, key=self.job_key())

    def ordered_victims(
        self, victims: Iterable[entities.Task], preemptor: entities.Task
    ) -> list[entities.Task]:
        """Victims in the order in which they are evicted."""

        def compare(left: entities.Task, right: entities.Task) -> int:
            return self._compare_victims(left, right, preemptor)

        return sorted(victims, key=cmp_to_key(compare))

    def _compare_victims(
        self, left: entities.Task, right: entities.Task, preemptor: entities.Task
    ) -> int:
        if left.job == right.job:
            return -self.compare_tasks(left, right)
        left_job, right_job = self.jobs.get(left.job), self.jobs.get(right.job)
        if left_job is None or right_job is None:
            return (left_job is not None) - (right_job is not None)
        preemptor_job = self.jobs.get(preemptor.job)
        if left_job.queue != right_job.queue and preemptor_job is not None:
            answer = self.compare_victim_queues(
                self.queues[left_job.queue],
                self.queues[right_job.queue],
                self.queues[preemptor_job.queue],
            )
            if answer:
                return answer
        return -self._first_opinion(
            interfaces.JOB_ORDER, left_job, right_job
        ) or -self.compare_tasks(left, right)

    def _first_opinion(self, point: interfaces.Point, left: Any, right: Any) -> int:
        for compare in self.flat(point):
            answer: int = compare(left, right)
            if answer:
                return answer
        return 0

    def job_order_changed(self, job: entities.Job) -> bool:
        """Whether the job comes later than at the last call, because other jobs were scheduled."""
        # Every plugin is called: each keeps its own state for the job.
        moved = [react(job) for react in self.flat(interfaces.JOB_ORDER_CHANGED)]
        return any(moved)

    # Reservations of queues -----------------------------------------------------------------

    def job_blocked(self, job: entities.Job) -> None:
        """Notify plugins that the job was tried and cannot start now. If one of them reserves the
        queue for it, ``held_back`` returns the reason for all jobs after it.
        """
        for note in self.flat(interfaces.JOB_BLOCKED):
            why = note(job)
            first = self._blocked.get(job.queue)
            if why and (first is None or self.compare_jobs(job, first[0]) < 0):
                self._blocked[job.queue] = (job, why)

    def held_back(self, job: entities.Job) -> str:
        """Why the job may not start now although it might fit: its queue is reserved for a job in
        front. Empty if it may.
        """
        first = self._blocked.get(job.queue)
        if first is None or first[0] is job or self.compare_jobs(first[0], job) > 0:
            return ""
        return (
            f"waits behind {first[0].name_for(job.namespace)}, which cannot start yet ({first[1]})"
        )

    def keep_reservations(self, first: "Session") -> None:
        """Reserve the queues that an earlier session on the same model reserved."""
        self._blocked.update(first._blocked)

    # Changes --------------------------------------------------------------------------------

    def statement(self) -> statement.Statement:
        """A new transaction."""
        return statement.Statement(self)

    def job_of(self, task: entities.Task) -> entities.Job | None:
        """The task's job; None for a pod without a PodGroup in the session."""
        return self.jobs.get(task.job)

    def queue_of(self, job: entities.Job) -> entities.Queue:
        """The job's queue. Jobs without a queue are not in the session."""
        return self.queues[job.queue]

    def change(self, task: entities.Task, status: entities.Status, node: str) -> None:
        """Change the status and node of a task; updates job and node without notifying plugins.

        Only statements and the session call it.
        """
        self.change_run((task,), status, (node,))

    def change_run(
        self, tasks: Sequence[entities.Task], status: entities.Status, nodes: Sequence[str]
    ) -> None:
        """Change the status and nodes of tasks of one class, job, role and status."""
        self.changes.note(tasks)
        before = tasks[0].status
        # A task that is placed before and after the change does not change its node.
        stays = before in entities.ALLOCATED and status in entities.ALLOCATED
        moved, rows = ([], []) if stays else self._on_known_nodes(tasks, nodes)
        if rows and before in entities.ON_NODE:
            self.nodes.remove(moved, rows)
        job = self.jobs.get(tasks[0].job)
        if job is not None:
            job.move(tasks, status)
        for task, node in zip(tasks, nodes, strict=True):
            task.status = status
            task.node = node
        if rows and status in entities.ON_NODE:
            self.nodes.add(moved, rows)

    def _on_known_nodes(
        self, tasks: Sequence[entities.Task], nodes: Sequence[str]
    ) -> tuple[Sequence[entities.Task], list[int]]:
        """The tasks whose nodes have rows, and these rows."""
        rows = self.nodes.rows_of(nodes)
        if -1 not in rows:
            return tasks, rows
        tasks = [task for task, row in zip(tasks, rows, strict=True) if row >= 0]
        return tasks, [row for row in rows if row >= 0]

    def notify_allocated(self, tasks: Sequence[entities.Task]) -> None:
        """Notify plugins of tasks of one class and job that were placed or nominated."""
        for handle in self.allocate_events:
            handle(tasks)

    def notify_deallocated(self, tasks: Sequence[entities.Task]) -> None:
        """Notify plugins of tasks of one class and job that were evicted or rolled back."""
        for handle in self.deallocate_events:
            handle(tasks)

    def allocate(self, task: entities.Task, node: str) -> None:
        """Place one task without a statement. Once its job is ready, all its allocated tasks are
        bound."""
        self.change(task, entities.Status.ALLOCATED, node)
        self.notify_allocated((task,))
        job = self.jobs[task.job]
        if self.job_ready(job):
            for placed in list(job.with_status(entities.Status.ALLOCATED)):
                self.decide_binds((placed,))

    def decide_binds(self, tasks: Sequence[entities.Task]) -> None:
        """Decide to bind tasks of one class and job where they are placed."""
        nodes = [task.node for task in tasks]
        self.change_run(tasks, entities.Status.BINDING, nodes)
        self.decisions.binds.update(zip([task.key for task in tasks], nodes, strict=True))
        for tell in self.flat(interfaces.ANNOTATION):
            for task in tasks:
                annotations = tell(task)
                if annotations:
                    self.decisions.annotations.setdefault(task.key, {}).update(annotations)
        for prepare in self.flat(interfaces.PREPARATION):
            for task in tasks:
                before = prepare(task)
                if before:
                    self.decisions.preparations.setdefault(task.key, []).extend(before)

    def decide_eviction(self, task: entities.Task, reason: str, job: str = "") -> None:
        """Decide to evict the task; ``job``: the job that needs the room, if any."""
        notice = self.eviction_notice(task)
        self.decisions.evictions.append(Eviction(task.key, reason, job, notice))

    def reached(self, at: datetime) -> bool:
        """Whether the session's time has reached ``at``; if not, another session starts then.

        Rules that depend on time call this instead of comparing with ``now``, so that a session
        runs when their answer changes.
        """
        self.request_session_at(at)
        return at <= self.now

    def request_session_at(self, at: datetime) -> None:
        """Start another session at this time; a time in the past changes nothing."""
        if at > self.now and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    def admit(self, job: entities.Job) -> None:
        """Make the job Inqueue."""
        job.phase = "Inqueue"
        self.decisions.admitted.append(job.key)

    @property
    def is_full(self) -> bool:
        """Whether the limit of decisions is reached. The caller then adds the jobs that it did not
        try to ``untried``."""
        decided = len(self.decisions.binds) + len(self.decisions.evictions)
        return self.decision_limit is not None and decided >= self.decision_limit

    def emit_event(self, job: entities.Job, text: str) -> None:
        """Add an Event to the PodGroup."""
        self.events.setdefault(job.key, []).append(text)
