"""A scheduling session: the model of one moment, the plugins' answers about it, its decisions.

Open it with ``opening.open_session``; actions then run one after another; ``close`` lets plugins
write their last words. A session is a pure function of what it is given.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cmp_to_key
from typing import Any, Protocol

import msgspec

from stromboli.scheduler.core.cluster import cluster_model, cluster_objects, pod_affinity_index
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import (
    changes,
    extensions,
    external_calls,
    filter_score,
    interfaces,
    statement,
    timing,
    topology_constraint,
)
from stromboli.scheduler.core.model import entities, resource_vectors
from stromboli.scheduler.core.placement import extension_points


class PluginFailedError(Exception):
    """A plugin that could not be made or opened."""

    def __init__(self, plugin: str, reason: str) -> None:
        super().__init__(f"plugin {plugin}: {reason}")
        self.plugin = plugin
        self.reason = reason


class PluginHungError(BaseException):
    """Raised into a plugin that does not answer, from outside of the session. No ``Exception``, so
    that a plugin does not catch it."""


class Eviction(msgspec.Struct, frozen=True):
    """A task to be evicted, and the action that wants it.

    ``job``: for whom, empty for nobody. ``notice``: how long before its end the task is told.
    """

    task: str
    reason: str
    job: str = ""
    notice: timedelta = timedelta()


class Decisions(msgspec.Struct):
    """What a session decided, in the order in which it did. Task keys are ``namespace/name``."""

    binds: dict[str, str] = {}
    evictions: list[Eviction] = []
    preparations: dict[str, list[extension_points.Step]] = {}
    """Task -> what must be done before its bind, such as binding a volume's claim."""
    annotations: dict[str, dict[str, str]] = {}
    """Task -> what is to stand on its pod with the bind."""
    admitted: list[str] = []
    """Jobs that passed their queue's door."""


class Session(extensions.Extensions):
    """The state of one session.

    It works on the world's model in place. ``jobs`` are all, in any order; ``waiting`` are the
    keys, in order, of those with something to do or to say: what iterates over jobs iterates over
    these unless it must see all. ``total``: allocatable of all nodes.
    ``complaints``: what went wrong without stopping anything, for logs; ``failures``: plugin -> why
    a stand-in answers for it; ``opened``: plugins by name. ``events``: PodGroup -> texts for users.
    ``seed``: what chance there is hangs on it. ``allowance``: how many binds and evictions may be
    decided, None for any number; ``untried``: jobs left for another session for want of it.
    ``outside``: whom plugins ask that judge elsewhere. ``timed``: who measures.
    ``remember``: what plugins want to find in ``cluster.memory`` next time. ``wake_at``: when a
    session may decide otherwise although nothing happened; None: never.
    """

    def __init__(
        self,
        configured: configuration.Configuration,
        kept: cluster_model.ClusterModel,
        given: cluster_objects.Cluster,
        seed: int = 0,
        decision_limit: int | None = None,
        calls: external_calls.ExternalCalls | None = None,
        timed: timing.Timed = timing.no_timing,
    ) -> None:
        super().__init__(configured.tiers)
        # First: who watches over plugins may ask for them while the rest is still being made.
        self.opened: dict[str, interfaces.Plugin] = {}
        self.configuration = configured
        self.world = kept
        self.waiting = kept.take_pending_jobs()
        self.cluster = kept.auxiliary.merged_with(given)
        self.now = given.now
        self.seed = seed
        self.decision_limit = decision_limit
        self.outside = external_calls.ExternalCalls() if calls is None else calls
        self.timed = timed
        self.untried: set[str] = set()
        self.resources = kept.resources
        self.nodes = kept.nodes
        self.jobs = kept.jobs
        self.queues = kept.queues
        self.total: resource_vectors.Sum = resource_vectors.total(self.nodes.allocatable)
        self.changes = changes.Changes(self)
        self.decisions = Decisions()
        self.complaints: list[str] = kept.complaints()
        self.failures: dict[str, str] = {}
        self.events: dict[str, list[str]] = {}
        self.remember: dict[str, str] = {}
        self.wake_at: datetime | None = None
        self._blocked: dict[str, tuple[entities.Job, str]] = {}
        self.finder = filter_score.NodeFinder(self)
        self._board: pod_affinity_index.PodAffinityIndex | None = None
        self.topology = topology_constraint.TopologyConstraint(self)
        self.complaints += kept.auxiliary.network_problems(self.nodes)

    # Plugins --------------------------------------------------------------------------------

    def open_plugins(
        self,
        find: Callable[[str, Collection[str]], interfaces.PluginFactory],
    ) -> None:
        """Make and open every configured plugin.

        ``find``: what makes a plugin, given its name and those already open. It raises LookupError
        for one that cannot be had, which is left out and complained of.
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
        """A plugin that is made and open. Raises PluginFailedError."""
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
        """Plugins write their last words."""
        for name, plugin in self.opened.items():
            with self.timed(timing.PLUGIN_CLOSES, name):
                plugin.close(self)

    def rollback(self) -> None:
        """Leave the world as it was; the session is over. O(changes + jobs that wait)."""
        self.changes.rollback()

    def waiting_jobs(self) -> Iterator[entities.Job]:
        """Jobs with something to do or to say, in the order of keys."""
        return (self.jobs[key] for key in self.waiting)

    @property
    def affinity_index(self) -> pod_affinity_index.PodAffinityIndex:
        """Which pods lie where, as of now; followed from the first question on."""
        if self._board is None:
            self._board = pod_affinity_index.PodAffinityIndex(self.nodes, self.world.pod_index)
            self.add_event_handler(self._board.put, self._board.take)
        return self._board

    # Order ----------------------------------------------------------------------------------

    def compare_jobs(self, left: entities.Job, right: entities.Job) -> int:
        """Negative if left goes first: plugins, then age, then uid."""
        return self._first_opinion(interfaces.JOB_ORDER, left, right) or _by_age(left, right)

    def compare_queues(self, left: entities.Queue, right: entities.Queue) -> int:
        """Negative if left goes first: plugins, then age, then name."""
        return self._first_opinion(interfaces.QUEUE_ORDER, left, right) or _by_age(left, right)

    def compare_tasks(self, left: entities.Task, right: entities.Task) -> int:
        """Negative if left goes first: plugins, then index, age, uid."""
        return self._first_opinion(interfaces.TASK_ORDER, left, right) or (
            _by_index(left, right) or _by_age(left, right)
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
        """What sorts as ``compare_jobs`` does, as long as nothing is given to the jobs."""
        keys = self.sort_keys(interfaces.JOB_ORDER)
        if keys is None:
            return cmp_to_key(self.compare_jobs)
        return lambda job: (*[key(job) for key in keys], job.created, job.uid)

    def ordered_tasks(self, tasks: Iterable[entities.Task]) -> list[entities.Task]:
        """Tasks as they are to be placed."""
        found = list(tasks)
        keys = self.sort_keys(interfaces.TASK_ORDER)
        numbered = sum(task.index is not None for task in found)
        # Where only some names end with a number, the order is none that a key could give.
        if keys is None or 0 < numbered < len(found):
            return sorted(found, key=cmp_to_key(self.compare_tasks))
        found.sort(key=lambda task: (task.index or 0, task.created, task.uid))
        for key in reversed(keys):
            found.sort(key=key)
        return found

    def ordered_subjobs(self, found: Iterable[entities.SubJob]) -> list[entities.SubJob]:
        """Groups of a job as they are to be placed: plugins, then index, then key."""

        def compare(left: entities.SubJob, right: entities.SubJob) -> int:
            first, second = (left.match_index, left.key), (right.match_index, right.key)
            return self._first_opinion(interfaces.SUBJOB_ORDER, left, right) or (
                (first > second) - (first < second)
            )

        return sorted(found, key=cmp_to_key(compare))

    def ordered_jobs(self, jobs: Iterable[entities.Job]) -> list[entities.Job]:
        """Jobs as they are to be served."""
        jobs = list(jobs)
        for job in jobs:
            self.job_order_changed(job)
        return sorted(jobs, key=self.job_key())

    def ordered_victims(
        self, victims: Iterable[entities.Task], preemptor: entities.Task
    ) -> list[entities.Task]:
        """Victims, the one to be evicted first at the beginning (spec 4, *victims queue*)."""

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
        """Whether the job goes later than when it was last asked about, through what others got."""
        # Every plugin looks: each keeps its own place for the job.
        moved = [look(job) for look in self.flat(interfaces.JOB_ORDER_CHANGED)]
        return any(moved)

    # Heads of queues ------------------------------------------------------------------------

    def job_blocked(self, job: entities.Job) -> None:
        """The job was tried and cannot start now. Plugins hear of it, and may keep its queue for
        it: ``held_back`` then says so of all jobs behind it."""
        for note in self.flat(interfaces.JOB_BLOCKED):
            why = note(job)
            first = self._blocked.get(job.queue)
            if why and (first is None or self.compare_jobs(job, first[0]) < 0):
                self._blocked[job.queue] = (job, why)

    def held_back(self, job: entities.Job) -> str:
        """Why the job may not start now although it might fit: its queue waits for the job in
        front. Empty if nothing holds it."""
        first = self._blocked.get(job.queue)
        if first is None or first[0] is job or self.compare_jobs(first[0], job) > 0:
            return ""
        return first[1]

    # Change ---------------------------------------------------------------------------------

    def statement(self) -> statement.Statement:
        """A transaction."""
        return statement.Statement(self)

    def job_of(self, task: entities.Task) -> entities.Job | None:
        """The task's job; None for a pod of no group, or whose group is not in the session."""
        return self.jobs.get(task.job)

    def queue_of(self, job: entities.Job) -> entities.Queue:
        """The job's queue; jobs without one are not in the session."""
        return self.queues[job.queue]

    def change(self, task: entities.Task, status: entities.Status, node: str) -> None:
        """The task takes on a status at a node: job and node follow, nobody is told.

        Only statements and the session call it.
        """
        self.change_run((task,), status, (node,))

    def change_run(
        self, tasks: Sequence[entities.Task], status: entities.Status, nodes: Sequence[str]
    ) -> None:
        """The same for tasks of one class, job, role and status."""
        self.changes.note(tasks)
        before = tasks[0].status
        # What holds its place before and after leaves the nodes as they are.
        stays = before in entities.ALLOCATED and status in entities.ALLOCATED
        known = self.nodes.rows
        placed = (
            [] if stays else [pair for pair in zip(tasks, nodes, strict=True) if pair[1] in known]
        )
        moved, rows = [task for task, _ in placed], [known[node] for _, node in placed]
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

    def notify_allocated(self, tasks: Sequence[entities.Task]) -> None:
        """Plugins hear that tasks of one class and job were placed or promised."""
        for handle in self.allocate_events:
            handle(tasks)

    def notify_deallocated(self, tasks: Sequence[entities.Task]) -> None:
        """Plugins hear that they were evicted or taken back."""
        for handle in self.deallocate_events:
            handle(tasks)

    def allocate(self, task: entities.Task, node: str) -> None:
        """Place one task for good; once its job is ready, all that it was allocated is bound."""
        self.change(task, entities.Status.ALLOCATED, node)
        self.notify_allocated((task,))
        job = self.jobs[task.job]
        if self.job_ready(job):
            for placed in list(job.with_status(entities.Status.ALLOCATED)):
                self.decide_binds((placed,))

    def decide_binds(self, tasks: Sequence[entities.Task]) -> None:
        """The tasks, of one class and job, are to be bound where they were placed."""
        self.change_run(tasks, entities.Status.BINDING, [task.node for task in tasks])
        self.decisions.binds.update((task.key, task.node) for task in tasks)
        for tell in self.flat(interfaces.ANNOTATION):
            for task in tasks:
                told = tell(task)
                if told:
                    self.decisions.annotations.setdefault(task.key, {}).update(told)
        for prepare in self.flat(interfaces.PREPARATION):
            for task in tasks:
                before = prepare(task)
                if before:
                    self.decisions.preparations.setdefault(task.key, []).extend(before)

    def decide_eviction(self, task: entities.Task, reason: str, job: str = "") -> None:
        """The task is to be evicted, for the job if it is for one."""
        notice = self.eviction_notice(task)
        self.decisions.evictions.append(Eviction(task.key, reason, job, notice))

    def reached(self, at: datetime) -> bool:
        """Whether the session's time has reached ``at``; if not, another session starts then.

        Rules that depend on time ask this instead of comparing with ``now``: an answer that time
        alone turns is then asked for again when it turns.
        """
        self.request_session_at(at)
        return at <= self.now

    def request_session_at(self, at: datetime) -> None:
        """Start another session at this time; a time that is not ahead changes nothing."""
        if at > self.now and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    def admit(self, job: entities.Job) -> None:
        """The job passes its queue's door."""
        job.phase = "Inqueue"
        self.decisions.admitted.append(job.key)

    @property
    def is_full(self) -> bool:
        """Nothing more may be decided in this session: note in ``untried`` who waits."""
        decided = len(self.decisions.binds) + len(self.decisions.evictions)
        return self.decision_limit is not None and decided >= self.decision_limit

    def emit_event(self, job: entities.Job, text: str) -> None:
        """An Event on the PodGroup."""
        self.events.setdefault(job.key, []).append(text)


class _Aged(Protocol):
    @property
    def created(self) -> Any: ...
    @property
    def uid(self) -> str: ...


def _by_age(left: _Aged, right: _Aged) -> int:
    before, after = (left.created, left.uid), (right.created, right.uid)
    return (before > after) - (before < after)


def _by_index(left: entities.Task, right: entities.Task) -> int:
    """By the number at the end of names like ``job-role-3``, if both have one."""
    first, second = left.index, right.index
    return 0 if first is None or second is None else first - second
